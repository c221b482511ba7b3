// @ts-check
// The form that begins a capture: what it would cost is shown before the button that begins it.

import { order } from "./ask.js";
import { fill, h, load, problem, sentence } from "./dom.js";
import { counted, duration, printable, shown, size, whole } from "./units.js";

const PAUSE_MS = 300; // after the last change of the form, until its cost is asked for
/** @type {[string, string][]} */
const ALSO = [["stacks", "every Python call (stacks)"], ["shapes", "shapes of inputs"], ["memory", "allocations"]];

/** @param {() => number[]} chosen the pids @param {() => void} begun
 * @returns {{element: Element, update: () => void, close: () => void}} `update`: after other processes were chosen */
export function startForm(chosen, begun) {
  const amount = /** @type {HTMLInputElement} */ (h("input", { type: "number", min: "0.001", max: "10000", step: "any", value: "2", "aria-label": "Length of the window" }));
  const unit = /** @type {HTMLSelectElement} */ (h("select", { "aria-label": "Unit of the length" }, h("option", { value: "seconds" }, "seconds"), h("option", { value: "iterations" }, "steps")));
  const boxes = ALSO.map(([name, words]) => ({ name, words, box: /** @type {HTMLInputElement} */ (h("input", { type: "checkbox" })) }));
  const who = h("span", { role: "status" });
  const cost = h("div", { role: "region", "aria-label": "Estimate" });
  const told = h("div", { role: "status" });
  let timer = 0;
  /** What the estimate that is shown is of. @type {any} */
  let wanted = null;

  const asked = () => ({ pids: chosen(), [unit.value]: amount.valueAsNumber, ...Object.fromEntries(boxes.map(({ name, box }) => [name, box.checked])) });
  const update = () => {
    clearTimeout(timer);
    wanted = null;
    const count = chosen().length;
    fill(who, count ? `${whole(count)} chosen.` : "Choose processes in the table above.");
    fill(cost);
    if (count && amount.value) timer = setTimeout(estimate, PAUSE_MS);
  };
  const estimate = () => {
    const mine = wanted = { ...asked(), request_id: crypto.randomUUID() }; // sent twice, it begins one capture
    load(cost, (signal) => order("estimate", mine, signal), (found) => (wanted === mine ? estimates(found, () => start(mine)) : []));
  };
  const start = async (/** @type {any} */ mine) => {
    wanted = null;
    fill(cost);
    fill(told, "Beginning …");
    try {
      const capture = await order("start", mine);
      fill(told, h("a", { href: `#/capture/${encodeURIComponent(capture.capture)}` }, printable(capture.capture)), " has begun.");
      begun();
      update();
    } catch (error) {
      fill(told, problem(error, () => start(mine)));
    }
  };
  for (const one of [amount, unit, ...boxes.map(({ box }) => box)]) one.addEventListener("input", update);
  update();
  const element = h("form", { "aria-label": "Start a capture", onsubmit: (/** @type {Event} */ event) => event.preventDefault() },
    h("p", { class: "line" }, h("span", {}, "Record for ", amount, " ", unit), ...boxes.map(({ box, words }) => h("label", {}, box, ` ${words}`)), who),
    cost, told);
  return { element, update, close: () => clearTimeout(timer) };
}

/** @param {any[]} found of `profctl start --dry-run --json` @param {() => void} start */
function estimates(found, start) {
  const able = found.filter((one) => one.source);
  const words = able.length === found.length ? "Start" : `Start ${able.length} of ${found.length}`;
  return [
    ...found.map(estimate),
    able.length > 0
      ? h("p", { class: "line" }, h("button", { type: "button", class: "start", onclick: start }, words), h("span", { class: "dim" }, "Until then no process is touched."))
      : h("p", {}, "None of them can be recorded so."),
  ];
}

/** @param {any} one */
function estimate(one) {
  if (!one.source) return h("p", {}, h("b", {}, `pid ${one.pid}`), ...sentence(` would be ${printable(one.state)}: ${shown(one.message ?? "")}`));
  const lines = [
    ["source", `${one.source}: ${one.choice ?? ""}`],
    ["window opens", one.latency_ns === null ? "not known" : `in ${duration(one.latency_ns)}`],
    ["events", one.events === null ? "not known" : `about ${counted(one.events, "event")}`],
    ["memory there", one.memory_bytes === null ? "not known" : size(one.memory_bytes)],
    ["raw data", one.trace_bytes === null ? "not known" : size(one.trace_bytes)],
    ["time of it", one.cost_ns === null ? "not known" : duration(one.cost_ns)],
    ...one.not_honoured.map((/** @type {string} */ text) => ["not honoured", text]),
    ...one.risks.map((/** @type {string} */ text) => ["risk", text]),
  ];
  return h("div", {}, h("p", {}, h("b", {}, `pid ${one.pid}`)), h("dl", {}, ...lines.flatMap(([name, text]) => [h("dt", {}, name), h("dd", {}, ...sentence(printable(text)))])));
}
