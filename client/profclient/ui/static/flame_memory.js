// @ts-check
// The flame graph of memory at its peak: as wide as the bytes that were allocated in a path or below and were alive; the
// same rules as `profctl flame --of memory` (profclient/cli/flame/memory.py).

import { h, sentence } from "./dom.js";
import { graphOf, kindOf } from "./flame.js";
import { laidOut } from "./flame_layout.js";
import { counted, duration, percent, printable, size, wholeName } from "./units.js";

/** @param {any} peak of `memory_peak` @param {import("./places.js").Places} places @returns {(Element | null)[]} */
export function memoryGraph(peak, places) {
  if (peak.message) return [h("p", { class: "dim" }, ...sentence(printable(peak.message)))];
  return [h("p", {}, peakWords(peak)), graphOf(peak, {
    controls: [],
    boxes: () => memoryBoxes(peak.nodes),
    kind: kindOf,
    words: memoryWords,
    little: "memory",
    places,
  })];
}

/** @param {any[]} nodes of `memory_peak` */
export const memoryBoxes = (nodes) => laidOut(nodes, nodes.map((node) => node.bytes));

/** How much there was, where and when, and what is not in it. @param {any} peak */
export function peakWords(peak) {
  const counts = peak.in_use_bytes === null ? "" : ` The allocator counted ${size(peak.in_use_bytes)} then.`;
  return `${size(peak.peak_bytes)} in ${counted(peak.blocks, "block")} on ${printable(peak.name)}, ${duration(peak.after_ns)} after the first event. `
    + `A box is as wide as what was allocated in it since the begin of the window and alive then; what is older is in none.${counts}`;
}

/** @param {import("./flame_layout.js").Box} box @param {number} whole */
export const memoryWords = ({ node, width }, whole) =>
  `${wholeName(node.name)}\n${size(width)} (${percent(width / whole)}), itself ${size(node.self_bytes)}, ${counted(node.blocks, "block")} [${node.kind}]`;
