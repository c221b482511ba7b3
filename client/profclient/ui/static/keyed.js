// @ts-check
// Elements that follow rows by their keys: one is made anew where its row is another object, and stays where it was.

import { reach } from "./dom.js";

/** @template Row @param {Element} parent @param {(row: Row) => HTMLElement} make
 * @returns {(rows: [string | number, Row][]) => void} shows these, in this order */
export function keyed(parent, make) {
  /** @type {Map<string | number, {row: Row, element: HTMLElement}>} */
  let shown = new Map();
  return (rows) => {
    const now = new Map(rows.map(([key, row]) => {
      const before = shown.get(key);
      return [key, before?.row === row ? before : { row, element: replaced(before?.element, make(row)) }];
    }));
    for (const [key, { element }] of shown) {
      if (now.has(key)) continue;
      if (element.contains(document.activeElement)) reach(parent, false);
      element.remove();
    }
    let at = parent.firstElementChild;
    for (const { element } of now.values()) {
      if (element === at) at = at.nextElementSibling;
      else parent.insertBefore(element, at);
    }
    shown = now;
  };
}

/** In the place of the one before, with the focus where that had it, or on itself. @param {HTMLElement | undefined} before
 * @param {HTMLElement} element */
function replaced(before, element) {
  const focused = before?.contains(document.activeElement) ? document.activeElement : null;
  before?.replaceWith(element);
  if (!focused) return element;
  const label = focused.getAttribute("aria-label");
  const same = label ? element.querySelector(`[aria-label="${CSS.escape(label)}"]:enabled`) : null;
  reach(same ?? element, false);
  return element;
}
