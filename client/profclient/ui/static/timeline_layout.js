// @ts-check
// Where things stand in a timeline: windows of time, tracks from the top down, and what a tile answer has, as columns.

export const ROW = 18; // pixels of a lane
const HEAD = 5; // pixels between tracks
const LEAST_NS = 10; // of a window

/** @typedef {{from: number, to: number}} Window ns from the trace's first event on; a double is exact for 104 days
 * @typedef {{label: string, strip: string, first: number, lanes: number, top: number, bottom: number}} Track
 * @typedef {{track: number[], lane: number[], start: Float64Array, lasts: Float64Array, name: number[], kind: number[], row: number[]}} Boxes
 * @typedef {{track: number[], lane: number[], start: Float64Array, count: number[], busy: number[], kinds: number[]}} Cells
 * @typedef {{from: number, to: number, first: number, last: number, pixel: number, left: number, names: (string | null)[],
 *   kinds: string[], boxes: Boxes, cells: Cells, sketch: boolean, coarse?: number}} Layer `first`, `last`: tracks that were asked for; `coarse`: how
 *   much longer a pixel is than it was asked for
 * @typedef {{label: string, row: number, start: number, lasts: number, track: number, lane: number, kind: string}} Box */

/** Zoomed by a factor around a moment, within the trace. @param {Window} window @param {number} factor @param {number} at @param {number} span */
export function zoomed({ from, to }, factor, at, span) {
  const length = Math.min(Math.max((to - from) * factor, LEAST_NS), span);
  const share = (at - from) / (to - from);
  return within({ from: at - share * length, to: at + (1 - share) * length }, span);
}

/** Moved by so many ns. @param {Window} window @param {number} by @param {number} span */
export function moved({ from, to }, by, span) {
  const first = Math.min(Math.max(from + by, 0), span); // before anything is lost of the length
  return within({ from: first, to: first + to - from }, span);
}

/** As long as before, and within the trace. @param {Window} window @param {number} span @returns {Window} */
export function within({ from, to }, span) {
  const length = Math.min(Math.max(to - from, LEAST_NS), Math.max(span, LEAST_NS));
  const first = Math.min(Math.max(Math.round(from), 0), Math.max(Math.floor(span - length), 0));
  return { from: first, to: first + Math.round(length) };
}

/** Whether two windows are the same pixels. @param {Window} a @param {Window} b */
export const same = (a, b) => a.from === b.from && a.to === b.to;

/** Tracks one below the other; a thread is named once. @param {any} told `tracks` of `tiles` @returns {Track[]} */
export function tracksOf(told) {
  let top = 0;
  return told.strip.map((/** @type {string} */ strip, /** @type {number} */ at) => {
    const name = [told.thread[at], told.process[at]].filter(Boolean).join(" · ") || "no thread";
    const height = told.lanes[at] * ROW;
    const track = { label: strip === "calls" ? name : `${name} (${strip})`, strip, first: told.first_lane[at], lanes: told.lanes[at], top, bottom: top + height };
    top += height + HEAD;
    return track;
  });
}

/** The first and the last track that has a part between two heights. @param {Track[]} tracks @param {number} top @param {number} bottom */
export function between(tracks, top, bottom) {
  return { first: Math.min(search(tracks, top), Math.max(tracks.length - 1, 0)), last: Math.min(search(tracks, bottom), tracks.length - 1) };
}

/** The first track that ends below a height. @param {Track[]} tracks @param {number} height */
function search(tracks, height) {
  let [low, high] = [0, tracks.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (tracks[middle].bottom > height) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** @param {any} told of `tiles` @param {number} first @param {number} last @returns {Layer} */
export function layerOf(told, first, last) {
  const from = Number(told.from_ns);
  const moments = (/** @type {any[]} */ offsets) => Float64Array.from(offsets, (one) => from + Number(one));
  const boxes = { ...told.boxes, start: moments(told.boxes.start), lasts: Float64Array.from(told.boxes.lasts, Number) };
  const cells = { ...told.cells, start: moments(told.cells.start), busy: told.cells.busy.map(Number) };
  return { from, to: Number(told.to_ns), first, last, pixel: Number(told.pixel_ns), left: told.left_out, names: told.names, kinds: told.kinds, boxes, cells, sketch: Boolean(told.sketch) };
}

/** @param {Layer} layer @param {number} at @returns {Box} */
export function boxOf({ boxes, names, kinds }, at) {
  const label = names[boxes.name[at]] ?? "(no name)";
  return { label, row: boxes.row[at], start: boxes.start[at], lasts: boxes.lasts[at], track: boxes.track[at], lane: boxes.lane[at], kind: kinds[boxes.kind[at]] };
}

/** The box of a lane nearest to a moment, at most so many ns away; of several that are there the last, which is drawn above.
 * @param {Layer} layer @param {number} track @param {number} lane @param {number} at @param {number} slack @returns {Box | null} */
export function boxAt(layer, track, lane, at, slack) {
  const { boxes } = layer;
  let [found, best] = [-1, slack];
  for (let one = 0; one < boxes.row.length; one++) {
    if (boxes.track[one] !== track || boxes.lane[one] !== lane) continue;
    const away = Math.max(boxes.start[one] - at, at - boxes.start[one] - boxes.lasts[one], 0);
    if (away <= best) [found, best] = [one, away];
  }
  return found < 0 ? null : boxOf(layer, found);
}

/** @typedef {{count: number, busy: number, sketch: boolean}} Cell `sketch`: an estimate */

/** The cell of a lane at a moment. @param {Layer} layer @param {number} track @param {number} lane @param {number} at @returns {Cell | null} */
export function cellAt({ cells, pixel, sketch }, track, lane, at) {
  for (let one = 0; one < cells.count.length; one++) {
    if (cells.track[one] !== track || cells.lane[one] !== lane || cells.start[one] > at || cells.start[one] + pixel <= at) continue;
    return { count: cells.count[one], busy: cells.busy[one], sketch };
  }
  return null;
}

/** The box before or after one on its lane. @param {Layer} layer @param {Box} box @param {number} step 1 or -1 @returns {Box | null} */
export function beside(layer, box, step) {
  const { boxes } = layer;
  let found = -1;
  for (let one = 0; one < boxes.row.length; one++) {
    if (boxes.track[one] !== box.track || boxes.lane[one] !== box.lane) continue;
    const further = step * (boxes.row[one] - box.row);
    if (further > 0 && (found < 0 || further < step * (boxes.row[found] - box.row))) found = one;
  }
  return found < 0 ? null : boxOf(layer, found);
}
