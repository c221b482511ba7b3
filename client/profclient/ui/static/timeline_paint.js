// @ts-check
// A timeline on a canvas: names of tracks, a ruler with steps, boxes, and what is too short to be seen as haze.

import { ROW } from "./timeline_layout.js";
import { duration, inOrder, printable } from "./units.js";

const GUTTER_MAX = 190; // pixels of the names
const GUTTER_SHARE = 0.3; // of a narrow timeline
export const RULER = 38; // pixels of the ruler and of the steps
const CHAR = 6.7; // pixels of a letter
const NAMED = 26; // pixels of a box with a name
const TICK = 110; // pixels between moments of the ruler, at least
const HATCH = 9; // pixels between lines across a sketch
const FAINT = 0.3; // of a pixel with something in it

/** @typedef {import("./timeline_layout.js").Window} Window
 * @typedef {import("./timeline_layout.js").Track} Track
 * @typedef {import("./timeline_layout.js").Layer} Layer
 * @typedef {import("./timeline_layout.js").Box} Box
 * @typedef {{number: number, start: number, end: number, outlier: boolean}} Step
 * @typedef {{window: Window, tracks: Track[], layers: Layer[], steps: Step[], chosen: Box | null, hits: number[], top: number,
 *   width: number, height: number, gutter: number, color: (name: string) => string}} Scene `layers`: the newest last; `top`: of what is in view */

const KINDS = /** @type {Record<string, string>} */ ({
  python_function: "function", sample: "function", cpu_op: "operator", kernel: "device", memcpy: "device", memset: "device",
  user_annotation: "range", gpu_user_annotation: "range", trace: "range",
});

/** Pixels of the names beside a timeline of this width. @param {number} width */
export const gutterOf = (width) => Math.min(GUTTER_MAX, Math.round(GUTTER_SHARE * width));

/** The color of a kind of event. @param {string} kind */
export const lookOf = (kind) => KINDS[kind] ?? "other";

/** @param {CanvasRenderingContext2D} paint @param {Scene} scene */
export function paintTimeline(paint, scene) {
  const { width, height, gutter, color } = scene;
  paint.globalAlpha = 1;
  paint.fillStyle = color("back");
  paint.fillRect(0, 0, width, height);
  paint.save();
  paint.beginPath();
  paint.rect(gutter, RULER, width - gutter, height - RULER);
  paint.clip();
  stepLines(paint, scene);
  for (const layer of scene.layers) paintLayer(paint, scene, layer);
  if (scene.chosen) outline(paint, scene, scene.chosen);
  paint.restore();
  names(paint, scene);
  ruler(paint, scene);
}

/** Pixels from the left. @param {Scene} scene @param {number} at */
export const across = ({ window: { from, to }, width, gutter }, at) => gutter + ((at - from) / (to - from)) * (width - gutter);

/** @param {Scene} scene @param {number} track @param {number} lane */
const down = ({ tracks, top }, track, lane) => RULER + tracks[track].top + (lane - tracks[track].first) * ROW - top;

/** @param {CanvasRenderingContext2D} paint @param {Scene} scene @param {Layer} layer */
function paintLayer(paint, scene, layer) {
  const { tracks, height, gutter, color } = scene;
  if (!tracks.length || layer.first >= tracks.length) return;
  const [left, right] = [across(scene, layer.from), across(scene, layer.to)];
  const above = down(scene, layer.first, tracks[layer.first].first);
  const last = Math.min(layer.last, tracks.length - 1);
  const below = down(scene, last, tracks[last].first + tracks[last].lanes);
  paint.save();
  paint.beginPath();
  paint.rect(left, above, right - left, below - above);
  paint.clip();
  paint.fillStyle = color("back"); // what an older layer has here
  paint.fillRect(Math.max(left, gutter), Math.max(above, RULER), Math.min(right, scene.width) - Math.max(left, gutter), Math.min(below, height));
  stepLines(paint, scene);
  haze(paint, scene, layer);
  boxes(paint, scene, layer);
  if (layer.sketch) hatch(paint, scene, Math.max(above, RULER), Math.min(below, scene.height));
  paint.restore();
}

/** Lines across what is an estimate. @param {CanvasRenderingContext2D} paint @param {Scene} scene @param {number} above
 * @param {number} below */
function hatch(paint, { width, gutter, color }, above, below) {
  paint.strokeStyle = color("back");
  paint.lineWidth = 3;
  paint.beginPath();
  for (let x = gutter - (below - above); x < width; x += HATCH) {
    paint.moveTo(x, below);
    paint.lineTo(x + below - above, above);
  }
  paint.stroke();
  paint.lineWidth = 1;
}

/** @param {CanvasRenderingContext2D} paint @param {Scene} scene @param {Layer} layer */
function haze(paint, scene, { cells, pixel, kinds }) {
  const { tracks, width, height, gutter, color } = scene;
  const wide = Math.max(across(scene, pixel) - across(scene, 0), 1);
  const looks = new Map();
  for (let one = 0; one < cells.count.length; one++) {
    if (!tracks[cells.track[one]]) continue;
    const [x, y] = [across(scene, cells.start[one]), down(scene, cells.track[one], cells.lane[one])];
    if (x + wide < gutter || x > width || y + ROW < RULER || y > height) continue;
    const mask = cells.kinds[one];
    if (!looks.has(mask)) looks.set(mask, color(mixed(mask, kinds)));
    paint.fillStyle = looks.get(mask);
    paint.globalAlpha = FAINT + (1 - FAINT) * Math.min(cells.busy[one] / pixel, 1);
    paint.fillRect(x, y, wide, ROW - 1);
  }
  paint.globalAlpha = 1;
}

/** The color of several kinds. @param {number} mask @param {string[]} kinds */
function mixed(mask, kinds) {
  const found = new Set(kinds.filter((_, place) => mask & (1 << place)).map(lookOf));
  return found.size === 1 ? [...found][0] : "other";
}

/** @param {CanvasRenderingContext2D} paint @param {Scene} scene @param {Layer} layer */
function boxes(paint, scene, { boxes: all, names: texts, kinds }) {
  const { tracks, width, height, gutter, color } = scene;
  const looks = kinds.map((kind) => color(lookOf(kind)));
  const text = color("text");
  paint.font = '11px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace';
  paint.textBaseline = "middle";
  for (let one = 0; one < all.row.length; one++) {
    if (!tracks[all.track[one]]) continue;
    const y = down(scene, all.track[one], all.lane[one]);
    if (y + ROW < RULER || y > height) continue;
    const left = Math.max(across(scene, all.start[one]), gutter - 1);
    const right = Math.min(across(scene, all.start[one] + all.lasts[one]), width + 1);
    if (right < gutter || left > width) continue;
    const wide = Math.max(right - left, 1);
    paint.fillStyle = looks[all.kind[one]];
    paint.fillRect(left, y, wide > 3 ? wide - 1 : wide, ROW - 1);
    if (wide < NAMED) continue;
    paint.fillStyle = text;
    paint.fillText(inOrder(fitting(texts[all.name[one]] ?? "", wide - 6)), left + 3, y + ROW / 2);
  }
}

/** As much of a name as fits. @param {string} name @param {number} wide */
function fitting(name, wide) {
  const text = printable(name).replace(/^.*\/(?=[^/]*\.py\(\d+\): )/, "");
  const letters = Math.floor(wide / CHAR);
  return text.length <= letters ? text : `${text.slice(0, Math.max(letters - 1, 1))}…`;
}

/** @param {CanvasRenderingContext2D} paint @param {Scene} scene @param {Box} box */
function outline(paint, scene, box) {
  if (!scene.tracks[box.track]) return;
  const left = Math.max(across(scene, box.start), scene.gutter - 4);
  const wide = Math.max(Math.min(across(scene, box.start + box.lasts), scene.width + 4) - left, 3);
  paint.strokeStyle = scene.color("text");
  paint.lineWidth = 2;
  paint.strokeRect(left, down(scene, box.track, box.lane), wide, ROW - 1);
  paint.lineWidth = 1;
}

/** @param {CanvasRenderingContext2D} paint @param {Scene} scene */
function stepLines(paint, scene) {
  paint.fillStyle = scene.color("line");
  for (const { start } of marked(scene)) paint.fillRect(across(scene, start), 0, 1, scene.height);
}

/** Steps in view, unless they are too many to be told apart. @param {Scene} scene */
function marked({ steps, window: { from, to }, width }) {
  const seen = steps.filter((step) => step.start < to && step.end > from);
  return seen.length * 4 > width ? [] : seen;
}

/** @param {CanvasRenderingContext2D} paint @param {Scene} scene */
function names(paint, scene) {
  const { tracks, top, height, gutter, color } = scene;
  paint.fillStyle = color("raised");
  paint.fillRect(0, RULER, gutter, height - RULER);
  paint.font = '12px system-ui, "DejaVu Sans", sans-serif';
  paint.textBaseline = "middle";
  paint.save();
  paint.beginPath();
  paint.rect(0, RULER, gutter - 4, height - RULER);
  paint.clip();
  for (const track of tracks) {
    const [above, below] = [RULER + track.top - top, RULER + track.bottom - top];
    if (below < RULER || above > height) continue;
    paint.fillStyle = color("line");
    paint.fillRect(0, below + 2, gutter, 1);
    paint.fillStyle = color(track.strip === "calls" || track.strip === "work" ? "text" : "dim");
    paint.fillText(inOrder(printable(track.label)), 6, Math.min(Math.max(above, RULER) + ROW / 2, below - ROW / 2));
  }
  paint.restore();
}

/** @param {CanvasRenderingContext2D} paint @param {Scene} scene */
function ruler(paint, scene) {
  const { window: { from, to }, width, gutter, steps, color, hits } = scene;
  paint.fillStyle = color("raised");
  paint.fillRect(0, 0, width, RULER);
  paint.font = "11px ui-monospace, monospace";
  paint.textBaseline = "middle";
  const every = tick(((to - from) * TICK) / (width - gutter));
  for (let at = Math.ceil(from / every) * every; at < to; at += every) {
    const x = across(scene, at);
    paint.fillStyle = color("line");
    paint.fillRect(x, 0, 1, RULER / 2);
    paint.fillStyle = color("dim");
    paint.fillText(moment(at, every), x + 3, RULER / 4 + 1);
  }
  paint.save();
  paint.beginPath();
  paint.rect(gutter, RULER / 2, width - gutter, RULER / 2);
  paint.clip();
  for (const step of marked(scene)) {
    const [left, right] = [across(scene, step.start), across(scene, step.end)];
    paint.fillStyle = color(step.outlier ? "slow" : "bar");
    paint.fillRect(left, RULER / 2 + 2, Math.max(right - left - 1, 1), RULER / 2 - 4);
    const word = `${right - left > 70 ? "step " : ""}${step.number}`;
    paint.fillStyle = color(step.outlier ? "back" : "text"); // either can be read
    if (right - left > word.length * CHAR + 6) paint.fillText(word, Math.max(left, gutter) + 4, (3 * RULER) / 4);
  }
  paint.fillStyle = color("found");
  for (const at of hits) paint.fillRect(across(scene, at) - 1, RULER - 7, 2, 7);
  paint.restore();
  paint.fillStyle = color("dim");
  paint.fillText(steps.length ? "steps" : "", 6, (3 * RULER) / 4);
  paint.fillText(duration(to - from), 6, RULER / 4 + 1);
}

/** A round number of ns, at least so many. @param {number} least */
function tick(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(least, 1)));
  return power * ([1, 2, 5].find((one) => one * power >= least) ?? 10);
}

/** A moment of the trace, as exact as the ruler needs. @param {number} at @param {number} every */
function moment(at, every) {
  const [unit, scale] = every >= 1e9 ? ["s", 1e9] : every >= 1e6 ? ["ms", 1e6] : every >= 1e3 ? ["us", 1e3] : ["ns", 1];
  return `${Math.round(at / Number(scale)).toLocaleString("en")} ${unit}`;
}
