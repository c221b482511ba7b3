// @ts-check
// One trace: what it amounts to, findings, steps, flame graph, top and SQL. A step narrows the graph and the table.

import { ask, traces } from "./ask.js";
import { answer, findings } from "./answer.js";
import { fill, h, leave, load, problem, section } from "./dom.js";
import { flameGraph } from "./flame.js";
import { sqlForm } from "./sql.js";
import { stepChart, stepWords } from "./steps.js";
import { table } from "./table.js";
import { ago, duration, shown, whole, wholeName } from "./units.js";

const TOP_ROWS = 200;
const GONE = ["not_found", "denied"]; // kinds of problems of which no part of the page is left
/** @type {[string, string][]} */
const SORTS = [
  ["self_cpu_time_total", "own time on threads"],
  ["cpu_time_total", "time on threads, callees included"],
  ["self_device_time_total", "own time on devices"],
  ["device_time_total", "time on devices, callees included"],
  ["count", "calls"],
];

/** @param {string} id @param {URLSearchParams} given @returns {import("./app.js").Page} */
export function tracePage(id, given) {
  const narrowed = h("p", { class: "line", role: "status" });
  const heading = h("h1", {}, `Trace ${id}`);
  const [summary, found, steps, graph] = Array.from({ length: 4 }, () => h("div"));
  const rows = topTable(id);
  let step = chosen(given);
  /** @type {{select: (step: number | null) => void} | null} */
  let chart = null;

  const go = (/** @type {number | null} */ wanted) => {
    location.hash = `/trace/${id}${wanted === null ? "" : `?step=${wanted}`}`;
  };
  const part = () => (step === null ? {} : { first_step: step });
  const words = () => {
    const reset = h("button", { type: "button", onclick: () => go(null) }, "Whole trace");
    fill(narrowed, ...(step === null ? ["The graph and the table are of the whole trace."] : [`The graph and the table are of step ${step}. `, reset]));
  };
  const narrow = () => {
    words();
    chart?.select(step);
    load(graph, (signal) => ask("merged_tree", id, { limit: 0, ...part() }, signal), (tree) => [flameGraph(tree)]);
    rows.narrow(part());
  };

  const amounts = async (/** @type {AbortSignal} */ signal) => {
    try {
      return await ask("summary", id, {}, signal);
    } catch (error) {
      if (GONE.includes(/** @type {any} */ (error).kind)) {
        leave();
        fill(element, heading, problem(error), h("p", {}, h("a", { href: "#/" }, "All traces")));
      }
      throw error;
    }
  };
  load(summary, amounts, (told) => {
    fill(heading, shown(told.trace.title || `Trace ${id}`));
    heading.title = wholeName(told.trace.title);
    return answer(told);
  });
  const seen = load(steps, (signal) => ask("steps", id, {}, signal), (told) => {
    if (!told.steps.length) return [h("p", { class: "dim" }, told.message)];
    const drawn = stepChart(told, go);
    chart = drawn;
    drawn.select(step);
    return [h("p", {}, stepWords(told)), drawn.element];
  });
  narrow();
  load(found, async (signal) => {
    await seen; // the longest question comes last
    signal.throwIfAborted();
    return ask("explain", id, {}, signal);
  }, (told) => findings(told, go));

  const element = h(
    "div",
    {},
    heading,
    h("p", { class: "line" }, h("a", { href: "#/" }, "All traces"), h("code", {}, `profctl show ${id}`), compareWith(id)),
    section("Answer", summary),
    section("Findings", found),
    section("Steps", steps),
    narrowed,
    section("Flame graph", graph),
    section("Top", rows.element),
    section("SQL", sqlForm(id)),
  );
  const update = (/** @type {URLSearchParams} */ now) => {
    if (chosen(now) === step) return;
    step = chosen(now);
    narrow();
  };
  return { element, title: `Trace ${id}`, update, close: () => chart?.select(null) };
}

/** A choice of the trace to compare with; the list is asked for when somebody is about to choose. @param {string} id */
function compareWith(id) {
  const choice = /** @type {HTMLSelectElement} */ (
    h("select", { onchange: () => { location.hash = `/compare/${id}/${choice.value}`; } }, h("option", { value: "" }, "another trace …"))
  );
  const list = async () => {
    const others = (await traces()).filter((one) => one.id !== id);
    choice.append(...others.map((one) => h("option", { value: one.id }, `${one.id} (${ago(one.created_ns)}) ${shown(one.title)}`.slice(0, 80))));
  };
  choice.addEventListener("focus", () => list().catch(() => {}), { once: true });
  return h("label", {}, "Compare with ", choice);
}

/** The step that an address names. @param {URLSearchParams} given */
function chosen(given) {
  const text = given.get("step") ?? "";
  return /^\d{1,15}$/.test(text) ? Number(text) : null;
}

/** The table, whose order stays when the part changes. @param {string} id
 * @returns {{element: Element, narrow: (part: Record<string, any>) => void}} */
function topTable(id) {
  const made = h("div");
  /** @type {Record<string, any>} */
  let part = {};
  const by = /** @type {HTMLSelectElement} */ (
    h("select", { onchange: () => draw() }, ...SORTS.map(([key, text]) => h("option", { value: key }, text)))
  );
  const draw = () =>
    load(made, (signal) => ask("top", id, { limit: TOP_ROWS + 1, sort_by: by.value, ...part }, signal), (found) => {
      if (!found.length) return [h("p", { class: "dim" }, "There is no event with a duration in this part.")];
      const more = found.length > TOP_ROWS;
      const remark = more && h("p", { class: "dim" }, `The first ${TOP_ROWS} rows; profctl top ${id} --limit 0 has all.`);
      return [table("Top", topColumns(found), found.slice(0, TOP_ROWS)), remark];
    });
  const narrow = (/** @type {Record<string, any>} */ wanted) => {
    part = wanted;
    draw();
  };
  return { element: h("div", {}, h("p", { class: "line" }, h("label", {}, "Most ", by)), made), narrow };
}

/** Columns of devices only where there is something in them. @param {any[]} rows @returns {import("./table.js").Column[]} */
function topColumns(rows) {
  const time = (/** @type {string} */ name, /** @type {string} */ key, /** @type {string} */ title) => ({
    name, title, number: true, of: (/** @type {any} */ row) => row[key], show: (/** @type {any} */ row) => duration(row[key]),
  });
  const all = [
    time("Self wall", "self_cpu_time_total_ns", "Own time on threads, waiting included"),
    time("Wall total", "cpu_time_total_ns", "The same with everything that it called"),
    time("Self device", "self_device_time_total_ns", "Time of device work that it launched itself"),
    time("Device total", "device_time_total_ns", "The same with everything that it called"),
  ].filter((column, place) => place < 2 || rows.some((row) => column.of(row)));
  return [
    ...all,
    { name: "Calls", number: true, of: (row) => row.count, show: (row) => whole(row.count) },
    { name: "Where", of: (row) => row.device_type },
    { name: "Name", of: (row) => row.name, show: (row) => shown(row.name), whole: (row) => wholeName(row.name) },
  ];
}
