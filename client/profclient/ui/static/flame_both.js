// @ts-check
// A flame graph of two traces: as wide as in one of them, in the color of the difference; the same rules as
// `profctl flame A B` (profclient/cli/flame/differences.py).

import { h } from "./dom.js";
import { graphOf, weightChoice } from "./flame.js";
import { laidOut, whole } from "./flame_layout.js";
import { duration, percent, wholeName } from "./units.js";

const SHADES = [1 / 32, 1 / 8, 1 / 2]; // of the largest difference
const SCALE_LEAST = 0.01; // of the whole: where nothing differs by more, small differences stay pale

/** @typedef {{by: "time" | "device", side: "b" | "a", own: boolean}} Sight
 * What makes a box wide, in which of the two, and whether its color is of its own time alone */

/** @param {any} node of `merged_diff` @param {"a" | "b"} side @param {Sight} sight @param {boolean} [own] */
const time = (node, side, { by }, own = false) => node[`${side}${by === "device" ? "_device" : own ? "_self" : ""}_ns`];

/** @param {any} node @param {Sight} sight */
const difference = (node, sight) => time(node, "b", sight, sight.own) - time(node, "a", sight, sight.own);

/** @param {any[]} nodes @param {Sight} sight @returns {import("./flame_layout.js").Box[]} */
export function boxesOfBoth(nodes, sight) {
  return laidOut(nodes, nodes.map((node) => time(node, sight.side, sight)));
}

/** The difference that is drawn in full, in ns. @param {any[]} nodes @param {number} whole @param {Sight} sight */
export const scale = (nodes, whole, sight) =>
  nodes.reduce((most, node) => Math.max(most, Math.abs(difference(node, sight))), whole * SCALE_LEAST);

/** The class of a box. @param {any} node @param {number} full @param {Sight} sight */
export function shade(node, full, sight) {
  const change = difference(node, sight);
  const strength = change ? SHADES.filter((share) => Math.abs(change) >= share * full).length : 0;
  return strength ? `${change > 0 ? "more" : "less"}-${strength}` : "alike";
}

/** @param {import("./flame_layout.js").Box} box @param {number} whole @param {Sight} sight @param {string} per */
export function wordsOfBoth({ node, width }, whole, sight, per) {
  const [a, b] = [time(node, "a", sight), time(node, "b", sight)];
  const own = sight.by === "time" ? `; itself ${duration(node.a_self_ns)}, ${duration(node.b_self_ns)}` : "";
  return `${wholeName(node.name)}\n${changeWords(a, b)}: A ${duration(a)}, B ${duration(b)}${per}${own}; calls ${node.a_count}, ${node.b_count}; `
    + `${percent(width / whole)} of the graph [${node.kind}]`;
}

/** @param {number} a @param {number} b */
function changeWords(a, b) {
  if (!a) return "▲ new";
  if (!b) return "▼ gone";
  const sign = b > a ? "▲ +" : b < a ? "▼ " : "= ";
  return `${sign}${((100 * (b - a)) / a).toFixed(1)} %`;
}

/** @param {any} tree of `merged_diff` @returns {Element} */
export function graphOfBoth(tree) {
  const { nodes, per } = tree;
  const weight = weightChoice(nodes.some((/** @type {any} */ node) => node.a_device_ns + node.b_device_ns > 0));
  const side = choice([["b", "in B"], ["a", "in A"]]);
  const color = choice([["all", "time with callees"], ["own", "own time"]]);
  let full = 1;
  const sight = () => /** @type {Sight} */ ({ by: weight.value, side: side.value, own: color.value === "own" });
  return graphOf(tree, {
    controls: [h("label", {}, "Width: ", weight), h("label", {}, "as ", side), h("label", {}, "Color: change of ", color)],
    boxes: () => {
      const found = boxesOfBoth(nodes, sight());
      full = scale(nodes, whole(found), sight());
      return found;
    },
    kind: (node) => shade(node, full, sight()),
    words: (box, whole) => wordsOfBoth(box, whole, sight(), per === "step" ? " per step" : ""),
    key: () => key(full, per === "step" ? " per step" : ""),
  });
}

/** @param {[string, string][]} options */
const choice = (options) => /** @type {HTMLSelectElement} */ (h("select", {}, ...options.map(([value, text]) => h("option", { value }, text))));

/** What the colors mean. @param {number} full @param {string} per */
function key(full, per) {
  const swatch = (/** @type {string} */ name, /** @type {string} */ text) => h("span", { class: "key" }, h("span", { class: `swatch ${name}` }), text);
  const shades = SHADES.map((share, place) => [place + 1, duration(share * full)]);
  return h("p", { class: "line dim", "aria-label": "Colors" },
    ...shades.toReversed().map(([place, text]) => swatch(`less-${place}`, `−${text}`)), swatch("alike", "as before"),
    ...shades.map(([place, text]) => swatch(`more-${place}`, `+${text}`)), `and more${per}: blue is faster in B, red is slower.`);
}
