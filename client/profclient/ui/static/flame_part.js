// @ts-check
// The flame graph of a trace, and its call tree: of all calls or of some, or of memory at its peak; of all threads or of
// one, of the part that the page is narrowed to.

import { ask } from "./ask.js";
import { callTree } from "./call_tree.js";
import { fill, h, load } from "./dom.js";
import { flameGraph } from "./flame.js";
import { memoryGraph } from "./flame_memory.js";
import { percent, printable, shown } from "./units.js";

const THREADS_MAX = 500; // in the choice; a trace may have 100,000
const NAME_CHARS = 80; // of a thread
const MEMORY = "memory";
const MOSTLY = 0.5; // of the part: less in all calls is said
/** @type {[string, string][]} */
const OF = [["calls", "all calls"], ["modules", "modules"], ["operators", "operators"], ["samples", "samples"]];

/** @param {string} trace @param {import("./places.js").Places} places where else the name of a box or a path is, but for the graph itself
 * @returns {{element: Element, tree: Element, narrow: (part: Record<string, any>) => Promise<void>, offer: (tracks: any) => void, offerMemory: () => void,
 *   find: (name: string) => void}}
 * `offerMemory`: of a trace in which memory was recorded; `find`: mark what has this name */
export function flamePart(trace, places) {
  const found = h("div");
  const calls = h("div"); // the same paths, as a tree
  /** @type {Record<string, any>} */
  let part = {};
  const of = /** @type {HTMLSelectElement} */ (h("select", { onchange: () => draw() }, ...OF.map(([value, text]) => h("option", { value }, text))));
  const thread = /** @type {HTMLSelectElement} */ (h("select", { onchange: () => anew() }, h("option", { value: "" }, "all, merged")));
  const device = /** @type {HTMLSelectElement} */ (h("select", { onchange: () => draw() }));
  const whose = h("label", { hidden: true }, "On ", device);
  /** What is not the tree of what is chosen now. @param {string} text */
  const noTree = (text) => {
    fill(calls, h("p", { class: "dim" }, text));
    calls.removeAttribute("aria-busy");
  };
  const drawMemory = (/** @type {any} */ given) => load(found, (signal) => ask("memory_peak", trace, { ...given, device: device.value }, signal), (peak) => {
    const names = peak.devices.map((/** @type {any} */ one) => one.name);
    whose.hidden = names.length < 2;
    fill(device, ...names.map((/** @type {string} */ name) => h("option", { value: name, selected: name === peak.name }, printable(name))));
    return memoryGraph(peak, places);
  });
  const draw = () => {
    const given = { limit: 0, ...(thread.value && { thread: thread.value }), ...part };
    if (of.value === MEMORY) {
      noTree("Memory has no tree of calls: choose other calls above the flame graph.");
      return drawMemory(given);
    }
    whose.hidden = true;
    calls.setAttribute("aria-busy", "true");
    const asked = async (/** @type {AbortSignal} */ signal) => {
      try {
        return await ask("merged_tree", trace, { ...given, of: of.value }, signal);
      } catch (error) {
        if (!signal.aborted) noTree("It is of the same answer as the flame graph, which says what went wrong.");
        throw error;
      }
    };
    return load(found, asked, (tree) => {
      fill(calls, callTree(tree, [["In the flame graph", find], ...places]));
      calls.removeAttribute("aria-busy");
      return [Object.keys(part).length > 0 && of.value === "calls" && !thread.value && unrecorded(tree.nodes), !tree.nodes.length && of.value === "modules" ? h("p", { class: "dim" }, "No call of a module was recorded in this part: profctl start --stacks --modules does.") : flameGraph(tree, places)];
    });
  };
  const offer = (/** @type {any} */ tracks) => {
    const chosen = thread.value; // from what was offered before
    fill(thread, h("option", { value: "" }, "all, merged"), ...threadsOf(tracks).slice(0, THREADS_MAX)
    .map(({ id, name }) => h("option", { value: id }, name.slice(0, NAME_CHARS))));
    if ([...thread.options].some((one) => one.value === chosen)) thread.value = chosen;
  };
  const offerMemory = () => of.append(h("option", { value: MEMORY }, "memory at its peak"));
  const choices = h("p", { class: "line" }, h("label", {}, "Of ", of), h("label", {}, "Thread ", thread), whose);
  const anew = () => {
    fill(device); // another part may have nothing on it
    return draw();
  };
  const find = (/** @type {string} */ name) => {
    const search = /** @type {HTMLInputElement | null} */ (found.querySelector("input[type=search]"));
    if (search) {
      search.value = name;
      search.dispatchEvent(new Event("input"));
    }
    const box = /** @type {HTMLElement | null} */ (found.querySelector(".box.found"));
    box?.focus();
    (box ?? choices).scrollIntoView({ block: "center" });
  };
  return { element: h("div", {}, choices, found), tree: calls, narrow: (wanted) => { part = wanted; return anew(); }, offer, offerMemory, find };
}

/** That most of the part is in no call. @param {any[]} nodes @returns {Element | false} */
function unrecorded(nodes) {
  const shares = nodes.filter((node) => node.depth === 0).map((node) => node.share);
  const seen = shares.reduce((sum, share) => sum + share, 0);
  return nodes.length > 0 && !shares.includes(null) && seen <= MOSTLY
    && h("p", {}, `${percent(1 - seen)} of this part is in nothing that was recorded: profctl start --stacks records every Python call.`);
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
