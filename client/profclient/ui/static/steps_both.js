// @ts-check
// How long the steps of two traces or captures took: both distributions on one scale.

import { inked } from "./canvas.js";
import { h, sentence } from "./dom.js";
import { saveButton, sightOf } from "./picture.js";
import { counted, duration, printable } from "./units.js";

const BINS = 48;
const HEIGHT = 90; // pixels

/** @param {string} a @param {any} first of `steps` @param {string} b @param {any} second @returns {Element} */
export function twoCharts(a, first, b, second) {
  const lasting = [first, second].map((told) => told.steps.map((/** @type {any} */ step) => step.duration_ns));
  const all = lasting.flat();
  const edges = all.length ? [least(all), most(all)] : [0, 0];
  const sides = [["A", a, first], ["B", b, second]];
  return h("div", { class: "two" }, ...sides.map(([side, id, told], place) => one(side, id, told, lasting[place], edges)));
}

/** @param {number[]} values */
const least = (values) => values.reduce((found, value) => Math.min(found, value), Infinity);
/** @param {number[]} values */
const most = (values) => values.reduce((found, value) => Math.max(found, value), 0);

/** How many lie in each of BINS equal parts. @param {number[]} lasting @param {number[]} edges the least, the most */
export function counts(lasting, [low, high]) {
  const found = new Array(BINS).fill(0);
  for (const value of lasting) found[high > low ? Math.min(BINS - 1, Math.floor(((value - low) / (high - low)) * BINS)) : 0]++;
  return found;
}

/** The one in the middle; of an even number the mean of two, as everywhere. @param {number[]} lasting */
export function median(lasting) {
  const ordered = [...lasting].sort((one, other) => one - other);
  const middle = Math.floor(ordered.length / 2);
  return ordered.length % 2 ? ordered[middle] : (ordered[middle - 1] + ordered[middle]) / 2;
}

/** @param {string} side @param {string} id @param {any} told @param {number[]} lasting @param {number[]} edges */
function one(side, id, told, lasting, edges) {
  if (!lasting.length) return h("div", {}, h("h3", {}, `${side} ${id}`), h("p", { class: "dim" }, ...sentence(printable(told.message ?? "No steps."))));
  const words = `${counted(lasting.length, "step")}: in the middle ${duration(median(lasting))}, from ${duration(least(lasting))} to ${duration(most(lasting))}`;
  const canvas = /** @type {HTMLCanvasElement} */ (h("canvas", { height: HEIGHT, role: "img", "aria-label": `Steps of ${side}. ${words}` }));
  const bins = counts(lasting, edges);
  const tallest = most(bins);
  const draw = () => {
    const width = canvas.clientWidth;
    if (!width) return;
    const paint = inked(canvas, width, HEIGHT);
    paint.fillStyle = getComputedStyle(canvas).getPropertyValue("--bar");
    bins.forEach((count, place) => {
      if (!count) return;
      const tall = Math.max(2, (count / tallest) * HEIGHT);
      paint.fillRect((place * width) / BINS, HEIGHT - tall, width / BINS - 1, tall);
    });
  };
  new ResizeObserver(draw).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  const scale = h("div", { class: "line dim spread" }, h("span", {}, duration(edges[0])), h("span", {}, duration(edges[1])));
  return h("div", { class: "histogram" }, h("h3", {}, `${side} ${id}`), canvas, scale,
    h("p", { class: "line spread" }, words, saveButton(`Steps of ${side}`, () => sightOf(canvas, [`${side} ${id}: ${words}`]))));
}
