// @ts-check
// A flame graph that zooms and searches. Boxes that nobody could see are no elements.

import { fill, h } from "./dom.js";
import { boxes, whole } from "./flame_layout.js";
import { saveButton } from "./picture.js";
import { nameAndPlaces } from "./places.js";
import { counted, duration, inOrder, percent, shown, wholeName } from "./units.js";

const ROW = 19; // pixels
const LEAST = 0.5; // pixels of a box that is drawn
const THIN = 24; // pixels of a box without a name and without an edge
const SHOWN_MAX = 6000; // boxes at a time, the widest
const FUNCTIONS = ["python_function", "sample"];
const OPERATORS = ["cpu_op", "module", "module_scope"];
const RANGES = ["user_annotation", "range"];
const HELP_ALONE = "A click or Enter zooms into a box; arrow keys walk.";
const HELP = "A click or Enter zooms into a box, whose name can then be found elsewhere; arrow keys walk.";

/** @typedef {{controls: HTMLElement[], boxes: () => import("./flame_layout.js").Box[], kind: (node: any) => string,
 *   words: (box: import("./flame_layout.js").Box, whole: number) => string, key?: (whole: number) => Element, little?: string,
 *   places?: import("./places.js").Places}} Sight
 * How a tree is looked at. `controls` change what `boxes` are: the graph is drawn anew; `key`: what its colors mean;
 * `little`: what the paths that are left out have too little of; `places`: where else the name of a box is */

/** @param {any} tree of `merged_tree` @param {import("./places.js").Places} places @returns {Element} */
export function flameGraph(tree, places) {
  const device = tree.nodes.some((/** @type {any} */ node) => node.device_total_ns > 0);
  const weight = weightChoice(device);
  return graphOf(tree, {
    controls: [h("label", {}, "Width: ", weight)],
    boxes: () => boxes(tree.nodes, weight.value),
    kind: kindOf,
    places,
    words: ({ node, width }, whole) =>
      `${wholeName(node.name)}\n${duration(width)} (${percent(width / whole)}), itself ${duration(node.self_ns)}, ${counted(node.count, "call")} [${node.kind}]`,
  });
}

/** @param {boolean} device whether there is work of devices */
export const weightChoice = (device) => /** @type {HTMLSelectElement} */ (
  h("select", {}, h("option", { value: "time" }, "time of threads"), device && h("option", { value: "device" }, "time of devices"))
);

/** @param {{left_out: number, own_threads?: number}} tree @param {Sight} sight @returns {Element} */
export function graphOf(tree, sight) {
  const graph = h("div", { class: "flame", role: "tree", "aria-label": "Flame graph" });
  const told = h("span", { class: "dim", role: "status" });
  const reset = h("button", { type: "button", onclick: () => {
    zoom(-1);
    /** @type {HTMLElement | null} */ (graph.querySelector("[tabindex='0']"))?.focus(); // there is nothing to press any more
  } }, "Whole graph (Esc)");
  const chosen = h("p", { class: "line chosen" });
  const search = /** @type {HTMLInputElement} */ (
    h("input", { type: "search", placeholder: "Search names", "aria-label": "Search names", oninput: () => find() })
  );
  const key = h("div");
  /** @type {import("./flame_layout.js").Box[]} */
  let all = [];
  let [total, zoomed, wanted, wide] = [0, -1, "", 0];
  /** @type {Map<number, HTMLElement>} */
  let drawn = new Map();

  function begin() {
    all = sight.boxes();
    total = whole(all);
    fill(key, sight.key?.(total));
    zoom(-1);
  }

  function draw() {
    wide = graph.clientWidth;
    if (!wide) return;
    const within = all[zoomed] ?? { left: 0, width: total, depth: -1 };
    const around = new Set(callers(zoomed));
    const right = within.left + within.width;
    const least = (LEAST / wide) * within.width;
    const places = all.keys().filter((place) => {
      const box = all[place];
      if (around.has(place)) return true;
      return box.width >= least && box.left >= within.left && box.left + box.width <= right && box.depth >= within.depth;
    });
    const widest = [...places].sort((a, b) => all[b].width - all[a].width || a - b).slice(0, SHOWN_MAX).sort((a, b) => a - b);
    const focused = placeOf(document.activeElement);
    drawn = new Map(widest.map((place) => [place, element(place, within, around.has(place))]));
    graph.style.height = `${ROW * (1 + Math.max(0, ...widest.map((place) => all[place].depth)))}px`;
    fill(graph, ...drawn.values());
    const first = drawn.has(focused) ? focused : zoomed >= 0 ? zoomed : widest[0];
    drawn.get(first)?.setAttribute("tabindex", "0");
    if (focused >= 0) drawn.get(first)?.focus();
    reset.toggleAttribute("disabled", zoomed < 0);
  }

  /** @param {number} place @param {{left: number, width: number}} within @param {boolean} around */
  function element(place, within, around) {
    const box = all[place];
    const words = sight.words(box, total);
    const thin = !around && (box.width / within.width) * wide < THIN;
    const made = h("div", {
      class: `box ${sight.kind(box.node)}${thin ? " thin" : ""}`, role: "treeitem", tabindex: -1,
      "aria-level": box.depth + 1, "aria-label": words, title: words, "data-place": place,
    }, thin ? null : shown(box.node.name));
    made.style.left = around ? "0" : `${(100 * (box.left - within.left)) / within.width}%`;
    made.style.width = around ? "100%" : `${(100 * box.width) / within.width}%`;
    made.style.top = `${ROW * box.depth}px`;
    return made;
  }

  /** A box and those that it stands on. @param {number} place */
  function callers(place) {
    const way = [];
    for (let one = place; one >= 0; one = all[one].above) way.push(one);
    return way;
  }

  /** @param {number} place */
  function zoom(place) {
    zoomed = place;
    fill(chosen, ...(place >= 0 ? nameAndPlaces(String(all[place].node.name), sight.places ?? []) : [sight.places ? HELP : HELP_ALONE]));
    draw();
    find();
  }

  const hit = (/** @type {import("./flame_layout.js").Box} */ box) => String(box.node.name).toLowerCase().includes(wanted);

  function find() {
    wanted = search.value.toLowerCase();
    for (const [place, made] of drawn) made.classList.toggle("found", wanted !== "" && hit(all[place]));
    const hits = wanted ? all.filter(hit).sort((a, b) => a.left - b.left || a.depth - b.depth) : [];
    let [covered, until] = [0, -1]; // until: the end of the last box found that no other one is around
    for (const box of hits) {
      if (box.left < until) continue;
      covered += box.width;
      until = box.left + box.width;
    }
    fill(told, wanted ? `${counted(hits.length, "path")} found, ${percent(covered / total)}` : null);
  }

  /** @param {number} place the box that has the focus @param {string} key */
  function beside(place, key) {
    const box = all[place];
    if (key === "ArrowUp") return box.above;
    const shownPlaces = [...drawn.keys()];
    if (key === "ArrowDown") return shownPlaces.find((one) => all[one].above === place) ?? -1;
    const row = shownPlaces.filter((one) => all[one].depth === box.depth);
    return row[row.indexOf(place) + (key === "ArrowLeft" ? -1 : 1)] ?? -1;
  }

  graph.addEventListener("click", (event) => {
    const place = placeOf(/** @type {Element} */ (event.target));
    if (place >= 0) zoom(place);
  });
  graph.addEventListener("keydown", (event) => {
    const place = placeOf(document.activeElement);
    if (event.key === "Escape") zoom(-1);
    else if (place >= 0 && [" ", "Enter"].includes(event.key)) zoom(place);
    else if (place >= 0 && event.key.startsWith("Arrow")) step(place, beside(place, event.key));
    else return;
    event.preventDefault();
  });

  /** @param {number} from @param {number} to */
  function step(from, to) {
    if (!drawn.has(to)) return;
    drawn.get(from)?.setAttribute("tabindex", "-1");
    drawn.get(to)?.setAttribute("tabindex", "0");
    drawn.get(to)?.focus();
  }

  /** What is drawn, box by box. @returns {import("./picture.js").Sight} */
  function picture() {
    const { left, top, width, height } = graph.getBoundingClientRect();
    return { width, height, words: [zoomed < 0 ? null : shown(all[zoomed].node.name), told.textContent, key.textContent], paint: (on) => {
      for (const made of drawn.values()) {
        const [place, style] = [made.getBoundingClientRect(), getComputedStyle(made)];
        on.fillStyle = style.backgroundColor;
        on.fillRect(place.left - left, place.top - top, Math.max(place.width - 1, LEAST), ROW - 1);
        if (!made.textContent) continue;
        on.save();
        on.beginPath();
        on.rect(place.left - left, place.top - top, place.width - 2, ROW);
        on.clip();
        on.font = style.font;
        on.fillStyle = style.color;
        on.fillText(inOrder(made.textContent ?? ""), place.left - left + 3, place.top - top + ROW / 2);
        on.restore();
      }
    } };
  }

  new ResizeObserver(() => {
    if (graph.clientWidth === wide) return;
    draw();
    find(); // what was searched for before there was a width, or at another one
  }).observe(graph);
  begin();
  const left = tree.left_out ? `${counted(tree.left_out, "path")} of too little ${sight.little ?? "time"} left out.` : null;
  const own = tree.own_threads ? ` ${counted(tree.own_threads, "thread")} of profd left out.` : null;
  if (!all.length) return h("p", { class: "dim" }, "There is no call with a duration in this part.");
  for (const one of sight.controls) one.addEventListener("change", begin);
  return h("div", {}, h("p", { class: "line" }, ...sight.controls, search, told, reset, saveButton("Flame graph", picture)), chosen, key, graph,
    h("p", { class: "dim" }, left, own));
}

/** @param {Element | null} element */
function placeOf(element) {
  const box = element?.closest?.(".box");
  return box instanceof HTMLElement ? Number(box.dataset.place) : -1;
}

/** The class of a box by the kind of its call. @param {any} node */
export function kindOf(node) {
  if (node.device_type !== "CPU") return "device";
  if (FUNCTIONS.includes(node.kind)) return "function";
  if (OPERATORS.includes(node.kind)) return "operator";
  return RANGES.includes(node.kind) ? "range" : "other";
}
