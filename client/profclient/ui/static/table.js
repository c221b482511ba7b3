// @ts-check
// A table that sorts by the column that is clicked. Cells are text, numbers or elements.

import { h, fill } from "./dom.js";

/** @typedef {{name: string, number?: boolean, title?: string, of: (row: any) => any, show?: (row: any) => any,
 *   whole?: (row: any) => string}} Column `of`: what is sorted by; `show`: what stands there, where that differs */

/** @param {string} label @param {Column[]} columns @param {any[]} rows
 * @param {{column: number, falls: boolean}} [sorted] how rows come @returns {HTMLElement} */
export function table(label, columns, rows, sorted = undefined) {
  const body = h("tbody");
  const heads = columns.map((column, place) => head(column, () => sort(place)));
  let { column: by, falls } = sorted ?? { column: -1, falls: false };

  const draw = (/** @type {any[]} */ ordered) => {
    heads.forEach((one, place) => {
      if (place === by) one.setAttribute("aria-sort", falls ? "descending" : "ascending");
      else one.removeAttribute("aria-sort");
    });
    fill(body, ...ordered.map((row) => h("tr", {}, ...columns.map((column) => cell(column, row)))));
  };
  const sort = (/** @type {number} */ place) => {
    falls = place === by ? !falls : Boolean(columns[place].number);
    by = place;
    draw([...rows].sort((a, b) => (falls ? -1 : 1) * compared(columns[by].of(a), columns[by].of(b))));
  };
  draw(rows);
  const all = h("table", { "aria-label": label }, h("thead", {}, h("tr", {}, ...heads)), body);
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `${label}, table` }, all);
}

/** @param {Column} column @param {() => void} sort */
function head(column, sort) {
  const button = h("button", { type: "button", title: column.title, onclick: sort }, column.name);
  return h("th", { scope: "col", class: column.number && "number" }, button);
}

/** @param {Column} column @param {any} row */
function cell(column, row) {
  const content = (column.show ?? column.of)(row);
  const title = column.whole?.(row);
  return h("td", { class: column.number && "number", title }, content instanceof Node ? content : String(content ?? "-"));
}

/** Nothing comes last when numbers fall. @param {any} a @param {any} b */
function compared(a, b) {
  if (a === null || a === undefined) return b === null || b === undefined ? 0 : -1;
  if (b === null || b === undefined) return 1;
  return a < b ? -1 : a > b ? 1 : 0;
}
