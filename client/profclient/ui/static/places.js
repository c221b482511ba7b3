// @ts-check
// A name that was chosen in one part of a trace's page, and where else it is: the same buttons beside an event, a box, a row of the
// tree and a row of the table.

import { h } from "./dom.js";
import { shown, wholeName } from "./units.js";

/** @typedef {[string, (name: string) => void]} Place where else a name is: what a button says, and what it does
 * @typedef {Place[]} Places */

/** @param {string} name @param {Places} places @returns {HTMLElement[]} */
export const nameAndPlaces = (name, places) => [
  h("b", { title: wholeName(name) }, shown(name)),
  ...places.map(([words, find]) => h("button", { type: "button", onclick: () => find(name) }, words)),
];
