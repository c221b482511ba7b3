// @ts-check
// The merged call tree: all calls of one path are a row, below their caller. Rows are made as they are opened; the way
// down that takes most time is open at first, to the one that takes it itself.

import { fill, h } from "./dom.js";
import { nameAndPlaces } from "./places.js";
import { counted, duration, percent, shown, whole, wholeName } from "./units.js";

const BELOW = 50; // rows of a caller at once; the next ones come when they are asked for
const DEEP_PX = 14; // a level is moved in by
const LEVELS_MOVED = 40; // deeper ones stand where the last of these do, with their level before the name

/** @typedef {{node: any, below: number[], above: number, level: number}} Path
 * @typedef {{level: number, place: number}} Row `place`: of its path; -1: a row that stands for further ones */

/** @param {any} tree of `merged_tree` @param {import("./places.js").Places} [places] where else the name of a path is @returns {Element} */
export function callTree(tree, places = []) {
  const { nodes } = tree;
  const { paths, roots } = pathsOf(nodes);
  if (!roots.length) return h("p", { class: "dim" }, "There is no call in this part.");
  const device = nodes.some((/** @type {any} */ node) => node.device_total_ns > 0);
  const body = h("tbody", {});
  /** @type {Map<HTMLElement, Row>} */
  const known = new Map();
  /** @type {HTMLElement | null} */
  let current = null; // the row that Tab leads to
  const chosen = h("p", { class: "line chosen" }, "Up and down walk, right and left open and close. The name of a row can then be found elsewhere.");

  /** Rows of some of these paths. @param {number[]} places @param {number} from */
  function rowsOf(places, from) {
    const rows = places.slice(from, from + BELOW).map((place) => pathRow(place, places.length));
    return from + BELOW < places.length ? [...rows, moreRow(places, from + BELOW)] : rows;
  }

  /** @param {number} place @param {number} beside paths beside it, itself among them */
  function pathRow(place, beside) {
    const { node, below, level } = paths[place];
    const closed = below.length ? "false" : null;
    const name = h("td", { role: "gridcell", title: wholeName(node.name) },
      h("span", { class: "twist", "aria-hidden": "true" }, below.length ? "▸" : ""), level > LEVELS_MOVED && h("span", { class: "dim" }, `${level}: `), shown(node.name));
    name.style.paddingLeft = `${DEEP_PX * Math.min(level, LEVELS_MOVED)}px`;
    const cells = [duration(node.total_ns), duration(node.self_ns), ...(device ? [duration(node.device_total_ns)] : []),
      node.share === null ? "-" : percent(node.share), whole(node.count)];
    const row = h("tr", { role: "row", "aria-level": level, "aria-expanded": closed, "aria-setsize": beside, tabindex: -1 },
      ...cells.map((text) => h("td", { role: "gridcell", class: "number" }, text)), name);
    known.set(row, { level, place });
    return row;
  }

  /** @param {number[]} places @param {number} from */
  function moreRow(places, from) {
    const level = paths[places[from]].level;
    const text = `${counted(places.length - from, "more path")} of less time`;
    const cell = h("td", { role: "gridcell", colspan: device ? 6 : 5, class: "dim more" }, `… ${text}`);
    const row = h("tr", { role: "row", "aria-level": level, tabindex: -1 }, cell);
    known.set(row, { level, place: -1 });
    row.addEventListener("more", () => {
      const rows = rowsOf(places, from);
      row.after(...rows);
      forget(row);
      focus(rows[0]);
    });
    return row;
  }

  /** @param {HTMLElement} row */
  function forget(row) {
    known.delete(row);
    row.remove();
  }

  const isOpen = (/** @type {HTMLElement} */ row) => row.getAttribute("aria-expanded") === "true";
  const levelOf = (/** @type {Element | null} */ row) => (row instanceof HTMLElement ? known.get(row)?.level ?? 0 : 0);

  /** @param {HTMLElement} row @param {boolean} open */
  function turn(row, open) {
    const one = known.get(row);
    if (!one || one.place < 0 || !paths[one.place].below.length || isOpen(row) === open) return;
    row.setAttribute("aria-expanded", String(open));
    const twist = row.querySelector(".twist");
    if (twist) twist.textContent = open ? "▾" : "▸";
    if (open) row.after(...rowsOf(paths[one.place].below, 0));
    else while (levelOf(row.nextElementSibling) > one.level) forget(/** @type {HTMLElement} */ (row.nextElementSibling));
  }

  /** @param {Element | null | undefined} row */
  function focus(row) {
    if (!(row instanceof HTMLElement)) return;
    current?.setAttribute("tabindex", "-1");
    current = row;
    row.setAttribute("tabindex", "0");
    row.focus();
    const place = known.get(row)?.place ?? -1;
    if (place >= 0) fill(chosen, ...nameAndPlaces(String(paths[place].node.name), places));
  }

  /** @param {HTMLElement} row */
  function enter(row) {
    if (known.get(row)?.place === -1) row.dispatchEvent(new Event("more"));
    else turn(row, !isOpen(row));
  }

  /** @param {HTMLElement} row */
  function callerOf(row) {
    let above = row.previousElementSibling;
    while (above && levelOf(above) >= levelOf(row)) above = above.previousElementSibling;
    return above;
  }

  /** @type {Record<string, (row: HTMLElement) => void>} */
  const keys = {
    ArrowDown: (row) => focus(row.nextElementSibling),
    ArrowUp: (row) => focus(row.previousElementSibling),
    ArrowRight: (row) => (isOpen(row) ? focus(row.nextElementSibling) : turn(row, true)),
    ArrowLeft: (row) => (isOpen(row) ? turn(row, false) : focus(callerOf(row))),
    Home: () => focus(body.firstElementChild),
    End: () => focus(body.lastElementChild),
    Enter: enter,
    " ": enter,
  };
  const rowAt = (/** @type {EventTarget | null} */ at) => /** @type {HTMLElement | null} */ (at instanceof Element ? at.closest("tbody tr") : null);
  body.addEventListener("click", (event) => {
    const row = rowAt(event.target);
    if (!row || String(getSelection())) return; // somebody copies a name
    focus(row);
    enter(row);
  });
  body.addEventListener("keydown", (event) => {
    const row = rowAt(event.target);
    if (!row || !keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    keys[event.key](row);
    event.preventDefault();
  });

  body.append(...rowsOf(roots, 0));
  for (let row = body.firstElementChild; row instanceof HTMLElement && known.has(row); row = row.nextElementSibling) {
    const { node, below } = paths[known.get(row)?.place ?? 0];
    if (!below.length || node.self_ns > most(nodes[below[0]])) break; // it takes its time itself
    turn(row, true); // the first below is the one with most time
  }
  current = /** @type {HTMLElement} */ (body.firstElementChild);
  current.setAttribute("tabindex", "0");
  const heads = ["Total", "Self", ...(device ? ["Device"] : []), "%", "Calls", "Name"];
  const head = h("tr", { role: "row" }, ...heads.map((name, at) => h("th", { role: "columnheader", scope: "col", class: at < heads.length - 1 && "number" }, name)));
  const grid = h("table", { role: "treegrid", "aria-label": "Call tree", class: "calls" }, h("thead", { role: "rowgroup" }, head), body);
  body.setAttribute("role", "rowgroup");
  const left = tree.left_out ? `${counted(tree.left_out, "path")} of too little time left out.` : null;
  return h("div", {}, chosen, h("div", { class: "scroll" }, grid), h("p", { class: "dim" }, "Shares are of the part's time. ", left));
}

/** Ns on threads or on devices. @param {any} node */
const most = (node) => Math.max(node.total_ns, node.device_total_ns);

/** Paths with those below them, the one with most time first. @param {any[]} nodes each before those below it */
export function pathsOf(nodes) {
  /** @type {Path[]} */
  const paths = [];
  /** @type {number[]} */
  const way = [];
  /** @type {number[]} */
  const roots = [];
  nodes.forEach((node, place) => {
    way.length = node.depth;
    const above = way.length ? way[way.length - 1] : -1;
    paths.push({ node, below: [], above, level: node.depth + 1 });
    (above < 0 ? roots : paths[above].below).push(place);
    way.push(place);
  });
  const order = (/** @type {number[]} */ places) => places.sort((a, b) => most(nodes[b]) - most(nodes[a]) || a - b);
  order(roots);
  for (const one of paths) order(one.below);
  return { paths, roots };
}
