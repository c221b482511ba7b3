// @ts-check
// A table that sorts by the column that is clicked. Cells are text, numbers or elements.

import { h, fill } from "./dom.js";

/** @typedef {{name: string, number?: boolean, title?: string, of: (row: any) => any, show?: (row: any) => any,
 *   whole?: (row: any) => string, press?: (row: any) => void}} Column `of`: what is sorted by; `show`: what stands there, where that differs;
 *   `press`: what stands there is a button. Tab leads to one of them, arrow keys to the others */

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
    body.querySelector("button.pressed")?.setAttribute("tabindex", "0");
  };
  const sort = (/** @type {number} */ place) => {
    falls = place === by ? !falls : Boolean(columns[place].number);
    by = place;
    draw([...rows].sort((a, b) => (falls ? -1 : 1) * compared(columns[by].of(a), columns[by].of(b))));
  };
  draw(rows);
  body.addEventListener("keydown", walk);
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
  const { press } = column;
  const made = press ? h("button", { type: "button", class: "pressed", tabindex: -1, onclick: () => press(row) }, content) : content;
  return h("td", { class: column.number && "number", title }, made instanceof Node ? made : String(made ?? "-"));
}

/** From one button of a column to another. @param {KeyboardEvent} event */
function walk(event) {
  const from = event.target;
  if (!(from instanceof HTMLElement) || !from.matches(".pressed") || event.ctrlKey || event.altKey || event.metaKey) return;
  const [row, body] = [from.closest("tr"), from.closest("tbody")];
  /** @type {Record<string, Element | null | undefined>} */
  const to = { ArrowDown: row?.nextElementSibling, ArrowUp: row?.previousElementSibling, Home: body?.firstElementChild, End: body?.lastElementChild };
  if (!(event.key in to)) return;
  event.preventDefault();
  focusPressed(to[event.key] ?? row);
}

/** Tab leads to the button of this row from now on. @param {Element | null | undefined} row */
export function focusPressed(row) {
  const button = row?.querySelector("button.pressed");
  if (!row || !(button instanceof HTMLElement)) return;
  for (const one of row.parentElement?.querySelectorAll(".pressed[tabindex='0']") ?? []) one.setAttribute("tabindex", "-1");
  button.setAttribute("tabindex", "0");
  button.focus();
}

/** Nothing comes last when numbers fall. @param {any} a @param {any} b */
function compared(a, b) {
  if (a === null || a === undefined) return b === null || b === undefined ? 0 : -1;
  if (b === null || b === undefined) return 1;
  return a < b ? -1 : a > b ? 1 : 0;
}
