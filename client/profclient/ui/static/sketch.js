// @ts-check
// A sketch in the place of a timeline: an estimate by a sample of the trace, until all of it has been read.

import { hear } from "./ask.js";
import { fill, h, load } from "./dom.js";
import { firstTiles } from "./timeline.js";
import { whole } from "./units.js";

/** `done`: when the timeline itself is there. @param {string} trace @param {any} told of `tiles`, a sketch
 * @param {(told: any) => Element} draw @returns {{element: Element, done: Promise<void>}} */
export function sketched(trace, told, draw) {
  const bar = /** @type {HTMLProgressElement} */ (h("progress", { max: 100, "aria-label": "Building the index" }));
  const far = h("span", {}, "…");
  const of = h("span", { role: "status" }, `A sketch, by ${whole(told.sketch.events)} of ${whole(told.sketch.of)} events. Building the index:`);
  const waiting = h("p", { class: "dim line" }, of, bar, far);
  const building = h("div", { class: "building" }, waiting);
  const shown = h("div", {}, draw(told));
  const heard = (/** @type {any} */ line) => {
    bar.value = Math.floor((100 * line.events) / line.of);
    fill(far, `${bar.value} %`);
  };
  const indexed = async (/** @type {AbortSignal} */ signal) => {
    await hear("tiles_index", trace, signal, heard);
    return firstTiles(trace, signal, false);
  };
  const done = load(building, indexed, (all) => {
    const focused = shown.contains(document.activeElement?.closest(".timeline") ?? null);
    fill(shown, draw(all));
    if (focused) /** @type {HTMLElement | null} */ (shown.querySelector(".timeline"))?.focus();
    return [];
  }, waiting);
  return { element: h("div", {}, building, shown), done };
}
