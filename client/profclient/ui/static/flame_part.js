// @ts-check
// The flame graph of a trace: of all calls or of some, of all threads or of one, of the part that the page is narrowed to.

import { ask } from "./ask.js";
import { fill, h, load } from "./dom.js";
import { flameGraph } from "./flame.js";
import { shown } from "./units.js";

const THREADS_MAX = 500; // in the choice; a trace may have 100,000
/** @type {[string, string][]} */
const OF = [["calls", "all calls"], ["modules", "modules"], ["operators", "operators"], ["samples", "samples"]];

/** @param {string} trace
 * @returns {{element: Element, narrow: (part: Record<string, any>) => void, offer: (tracks: any) => void}} */
export function flamePart(trace) {
  const found = h("div");
  /** @type {Record<string, any>} */
  let part = {};
  const of = /** @type {HTMLSelectElement} */ (h("select", { onchange: () => draw() }, ...OF.map(([value, text]) => h("option", { value }, text))));
  const thread = /** @type {HTMLSelectElement} */ (h("select", { onchange: () => draw() }, h("option", { value: "" }, "all, merged")));
  const draw = () => {
    const given = { limit: 0, of: of.value, ...(thread.value && { thread: thread.value }), ...part };
    load(found, (signal) => ask("merged_tree", trace, given, signal), (tree) => [
      !tree.nodes.length && of.value === "modules" ? h("p", { class: "dim" }, "No call of a module was recorded in this part: profctl start --stacks --modules does.") : flameGraph(tree),
    ]);
  };
  const offer = (/** @type {any} */ tracks) => fill(thread, h("option", { value: "" }, "all, merged"), ...threadsOf(tracks).slice(0, THREADS_MAX)
    .map(({ id, name }) => h("option", { value: id }, name)));
  const choices = h("p", { class: "line" }, h("label", {}, "Of ", of), h("label", {}, "Thread ", thread));
  return { element: h("div", {}, choices, found), narrow: (wanted) => { part = wanted; draw(); }, offer };
}

/** Threads that have calls, each once. @param {any} tracks of `tiles` @returns {{id: string, name: string}[]} */
export function threadsOf(tracks) {
  /** @type {Map<string, string>} */
  const found = new Map();
  tracks.strip.forEach((/** @type {string} */ strip, /** @type {number} */ at) => {
    const id = tracks.thread_id?.[at]; // an older daemon tells none
    if (strip === "calls" && id) found.set(id, shown(tracks.thread[at]));
  });
  return [...found].map(([id, name]) => ({ id, name }));
}
