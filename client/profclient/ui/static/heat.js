// @ts-check
// A map of ranks by steps: how late each rank was in each step. Columns of a narrow window stand for several steps, and
// show the worst of them.

import { inked } from "./canvas.js";
import { fill, h } from "./dom.js";
import { saveButton } from "./picture.js";
import { inOrder, percent, printable } from "./units.js";

const ROW = 16; // pixels
const LEAST = 4; // pixels of a column
const ROWS_MAX = 64;
const FAR = 10; // columns of PageUp and PageDown
/** Below these shares of a step, the classes of colors: those of `profctl ranks`. */
const CLASSES = [0.02, 0.1, 0.25, 0.5];

const CLASS_WORDS = [...CLASSES.map((share) => `< ${share * 100} %`), "more"];

/** @typedef {{rank: number | null, trace: string, late: (number | null)[], counts_ahead?: number | null}} Row */

/** @param {{rank: number | null, trace: string}} row */
export const placeOf = (row) => (row.rank === null ? `trace ${row.trace}` : `rank ${row.rank}`);

/** Which steps a column of the answer is, as the trace of a row calls them. @param {any} heat @param {Row} row
 * @param {number} column @returns {{first: number, last: number}} */
export function stepsOf(heat, row, column) {
  const first = heat.steps[column] + (row.counts_ahead ?? 0);
  const next = heat.steps[column + 1] ?? heat.steps[column] + heat.steps_together;
  return { first, last: Math.max(Math.min(first + heat.steps_together - 1, next + (row.counts_ahead ?? 0) - 1), first) };
}

/** Those with most, in their order. @param {Row[]} rows */
export function worstRows(rows) {
  if (rows.length <= ROWS_MAX) return rows;
  const most = (/** @type {Row} */ row) => row.late.reduce((/** @type {number} */ sum, one) => sum + Math.max(one ?? 0, 0), 0);
  const kept = new Set([...rows].sort((a, b) => most(b) - most(a)).slice(0, ROWS_MAX));
  return rows.filter((row) => kept.has(row));
}

/** @param {number | null} late */
const classOf = (late) => (late === null ? null : CLASSES.filter((share) => late >= share).length);

/** @param {any} heat of `ranks` @param {(row: Row, column: number) => void} open */
export function heatMap(heat, open) {
  /** @type {Row[]} */
  const rows = worstRows(heat.rows);
  const count = heat.steps.length;
  const tall = ROW * rows.length;
  let [wide, columns, row, column] = [0, 1, 0, 0]; // columns: that are drawn; column: of the answer
  const canvas = /** @type {HTMLCanvasElement} */ (h("canvas", { height: tall }));
  const said = h("output", { class: "line" });
  const map = h("div", {
    class: "heat", role: "application", tabindex: 0, "aria-label": "Heat map", "aria-describedby": "heat-help",
    onkeydown: key, onpointermove: point, onclick: (/** @type {PointerEvent} */ event) => { point(event); choose(); },
    onfocus: draw, onblur: draw,
  }, canvas);
  map.style.height = `${tall}px`;
  const names = h("div", { class: "heat-names", "aria-hidden": true }, ...rows.map((one) => h("span", {}, printable(placeOf(one)))));
  const more = heat.rows.length - rows.length;
  new ResizeObserver(draw).observe(map);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  say();

  /** The worst of the steps that share a drawn column. @param {Row} of @param {number} drawn */
  function worst(of, drawn) {
    const [first, end] = [Math.floor((drawn * count) / columns), Math.floor(((drawn + 1) * count) / columns)];
    let at = first;
    for (let one = first; one < end; one++) if ((of.late[one] ?? -Infinity) > (of.late[at] ?? -Infinity)) at = one;
    return at;
  }

  /** The drawn column of one of the answer. @param {number} of */
  const drawnOf = (of) => Math.max(Math.ceil(((of + 1) * columns) / count) - 1, 0);

  function draw() {
    wide = map.clientWidth;
    if (!wide) return;
    columns = Math.max(Math.min(count, Math.floor(wide / LEAST)), 1);
    const style = getComputedStyle(map);
    const paint = inked(canvas, wide, tall);
    const gap = wide / columns > 8 ? 1 : 0;
    rows.forEach((one, at) => {
      for (let drawn = 0; drawn < columns; drawn++) {
        const shade = classOf(one.late[worst(one, drawn)]);
        if (shade === null) continue;
        const left = Math.round((drawn * wide) / columns);
        paint.fillStyle = style.getPropertyValue(`--heat-${shade}`);
        paint.fillRect(left, at * ROW, Math.round(((drawn + 1) * wide) / columns) - left - gap, ROW - 1);
      }
    });
    if (document.activeElement !== map) return;
    const at = drawnOf(column);
    paint.strokeStyle = style.getPropertyValue("--text");
    paint.lineWidth = 2;
    paint.strokeRect((at * wide) / columns + 1, row * ROW + 1, Math.max(wide / columns - 2, 2), ROW - 3);
  }

  function say() {
    fill(said, cellWords(heat, rows[row], column));
  }

  /** @param {number} toRow @param {number} toColumn */
  function move(toRow, toColumn) {
    row = Math.min(Math.max(toRow, 0), rows.length - 1);
    column = Math.min(Math.max(toColumn, 0), count - 1);
    say();
    draw();
  }

  /** @param {number} by drawn columns */
  function walk(by) {
    const next = Math.min(Math.max(drawnOf(column) + by, 0), columns - 1);
    move(row, worst(rows[row], next));
  }

  /** @param {PointerEvent} event */
  function point(event) {
    const { left, top } = map.getBoundingClientRect();
    const at = Math.min(Math.max(Math.floor((event.clientY - top) / ROW), 0), rows.length - 1);
    const drawn = Math.min(Math.max(Math.floor(((event.clientX - left) * columns) / wide), 0), columns - 1);
    move(at, worst(rows[at], drawn));
  }

  const choose = () => open(rows[row], column);

  /** @param {KeyboardEvent} event */
  function key(event) {
    /** @type {Record<string, () => void>} */
    const keys = {
      ArrowLeft: () => walk(-1), ArrowRight: () => walk(1), ArrowUp: () => move(row - 1, column),
      ArrowDown: () => move(row + 1, column), PageUp: () => walk(-FAR), PageDown: () => walk(FAR),
      Home: () => walk(-count), End: () => walk(count), Enter: choose, " ": choose,
    };
    if (!keys[event.key] || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    keys[event.key]();
  }

  /** The map, its names beside it and its colors below. @returns {import("./picture.js").Sight} */
  function picture() {
    const style = getComputedStyle(map);
    const beside = names.clientWidth;
    return { width: beside + wide, height: tall + 2 * ROW, words: [scaleWords(heat)], paint: (on) => {
      on.drawImage(canvas, beside, 0, wide, tall);
      on.fillStyle = style.getPropertyValue("--text");
      rows.forEach((one, at) => on.fillText(inOrder(printable(placeOf(one))), 0, ROW * at + ROW / 2, beside));
      CLASS_WORDS.forEach((word, shade) => {
        on.fillStyle = style.getPropertyValue(`--heat-${shade}`);
        on.fillRect(beside + 80 * shade, tall + ROW, ROW, ROW);
        on.fillStyle = style.getPropertyValue("--text");
        on.fillText(word, beside + 80 * shade + ROW + 4, tall + 1.5 * ROW);
      });
    } };
  }

  return h("div", {}, scale(heat), h("div", { class: "chart" }, names, h("div", { class: "plot" }, map, h("div", { class: "line spread" }, said, saveButton("Heat map", picture)))),
    h("p", { class: "dim", id: "heat-help" }, "A click or Enter opens the trace of that rank at that step; arrow keys walk."),
    more > 0 && h("p", { class: "dim" }, `${more} ranks more, which are late by less; profctl ranks --json has all.`));
}

/** What a cell says. @param {any} heat @param {Row} row @param {number} column */
export function cellWords(heat, row, column) {
  const { first, last } = stepsOf(heat, row, column);
  const steps = first === last ? `step ${first}` : `steps ${first} to ${last}, the worst of them`;
  return printable(`${placeOf(row)}, ${steps}: ${lateWords(heat, row.late[column])}`);
}

/** @param {any} heat @param {number | null} late */
export function lateWords(heat, late) {
  if (late === null) return "not known";
  const than = heat.of === "step" ? ["longer", "shorter"] : ["later", "earlier"];
  return `${percent(Math.abs(late))} of a step ${late < 0 ? than[1] : than[0]} than the rank in the middle`;
}

/** @param {any} heat */
const scaleWords = (heat) => (heat.of === "step" ? "Steps longer than those of the others, as a share of a step:" : "Late, as a share of a step:");

/** Colors, and the shares that they stand for. @param {any} heat */
function scale(heat) {
  const each = heat.steps_together === 1 ? "" : ` A column is ${heat.steps_together} steps, the worst of them.`;
  return h("p", { class: "line" }, scaleWords(heat),
    ...CLASS_WORDS.map((word, place) => h("span", { class: "key" }, h("span", { class: `swatch heat-${place}` }), word)),
    h("span", {}, `Steps ${heat.steps[0]} to ${heat.steps[heat.steps.length - 1]}.${each}`));
}
