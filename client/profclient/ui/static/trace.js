// @ts-check
// One trace: what it amounts to, findings, steps, timeline, flame graph, call tree, top, memory, devices and SQL. A step, or
// a window of the timeline, narrows the graph, the tree, the table and the memory, and has findings of its own.

import { ask, traces } from "./ask.js";
import { answer, findings } from "./answer.js";
import { csvButton } from "./csv.js";
import { devicesPart } from "./devices.js";
import { fill, h, isGone, leave, load, problem, reach, section } from "./dom.js";
import { flamePart } from "./flame_part.js";
import { memoryPart } from "./memory.js";
import { nameAndPlaces } from "./places.js";
import { sketched } from "./sketch.js";
import { sqlForm } from "./sql.js";
import { stepChart, stepWords } from "./steps.js";
import { focusPressed, table } from "./table.js";
import { firstTiles, timeline } from "./timeline.js";
import { ago, duration, inOrder, shown, whole, wholeName } from "./units.js";

const TOP_ROWS = 200;
const RAW = "--raw"; // in the sentence of a question that can be asked so, and not otherwise
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
  const narrowed = h("p", { class: "line narrowed", role: "status" });
  const heading = h("h1", {}, `Trace ${id}`);
  const [summary, found, foundHere, steps, times] = Array.from({ length: 5 }, () => h("div"));
  const other = compareWith(id);
  /** @typedef {import("./places.js").Place} Place
   * @type {Place} */
  const toOther = ["In another trace", other.find];
  /** @type {Place} */
  const toRow = ["Its row in the table", (name) => rows.find(name)];
  const graph = flamePart(id, [toRow, toOther]);
  /** @type {Place} */
  const toBox = ["In the flame graph", graph.find];
  const rows = topTable(id, [toBox, toOther]);
  const [memory, devices, sql] = [memoryPart(id), devicesPart(id), sqlForm(id)];
  let part = partOf(given);
  /** @type {{select: (step: number | null) => void} | null} */
  let chart = null;

  /** @type {ReturnType<typeof timeline> | null} */
  let line = null;

  const go = (/** @type {number | null} */ wanted) => {
    location.hash = `/trace/${id}${wanted === null ? "" : `?step=${wanted}`}`;
  };
  const goTo = (/** @type {import("./timeline_layout.js").Window} */ { from, to }) => {
    location.hash = `/trace/${id}?from=${from}&to=${to}`;
  };
  const words = () => {
    const reset = h("button", { type: "button", onclick: () => go(null) }, "Whole trace");
    const some = part.step !== null || part.window !== null;
    fill(narrowed, `The graph, the tree and the table are of ${partWords(part)}. `, some && reset);
    narrowed.classList.toggle("some", some);
  };
  const narrow = () => {
    words();
    chart?.select(part.step);
    const given = argumentsOf(part, spanOf(part));
    const seen = Promise.all([graph.narrow(given), rows.narrow(given)]);
    memory.narrow(given);
    sql.narrow(given, partWords(part));
    explainHere(given, seen);
  };
  /** @type {import("./answer.js").Ways} */
  const ways = { step: go, part: (name, step) => {
    if (step !== null) go(step);
    const heading = element.querySelector(`section[aria-label="${name}"] h2`);
    if (heading) reach(heading);
    heading?.scrollIntoView();
  } };
  /** What costs time in the part, below what costs time in all of it. It takes longest, and comes behind what is looked at first.
   * @param {Record<string, any>} given @param {Promise<any>} seen */
  const explainHere = (given, seen) => {
    if (!Object.keys(given).length) {
      load(foundHere, async () => null, () => []);
      return;
    }
    const words = partWords(part);
    load(foundHere, async (signal) => {
      await Promise.all([before, seen]);
      signal.throwIfAborted();
      return ask("explain", id, given, signal);
    }, (told) => [h("h3", {}, `Of ${words}`), ...findings(told, id, ways, words)]);
  };
  const follow = () => {
    const seen = part.window ?? spanOf(part);
    if (seen) line?.see(seen);
    else if (part.step === null) line?.see({ from: 0, to: Infinity });
  };
  /** From the begin of its first step to the end of its last, once these are known. @param {Part} of */
  const spanOf = ({ step, last }) => {
    const chosen = step === null || begin === null ? [] : all.filter(({ number }) => number >= step && number <= (last ?? step));
    if (!chosen.length || begin === null) return null;
    const first = begin;
    const from = chosen.map((one) => Number(BigInt(one.start_ns) - first));
    const span = { from: Math.min(...from), to: Math.max(...chosen.map((one, at) => from[at] + Number(one.duration_ns))) };
    return span.from < span.to ? span : null;
  };
  /** @type {any[]} */
  let all = []; // steps
  /** @type {bigint | null} */
  let begin = null; // of the trace

  const amounts = async (/** @type {AbortSignal} */ signal) => {
    try {
      return await ask("summary", id, {}, signal);
    } catch (error) {
      if (isGone(error)) {
        leave();
        fill(element, heading, problem(error), h("p", {}, h("a", { href: "#/" }, "All traces")));
      }
      throw error;
    }
  };
  load(summary, amounts, (told) => {
    fill(heading, shown(told.trace.title || `Trace ${id}`));
    heading.title = wholeName(told.trace.title);
    if (told.memory?.length) {
      memory.begin();
      graph.offerMemory();
    }
    if (told.trace.gpu_events || told.devices?.length || told.gpus?.length) devices.begin();
    return answer(told);
  });
  const seen = load(steps, (signal) => ask("steps", id, {}, signal), (told) => {
    all = told.steps;
    if (!told.steps.length) return [h("p", { class: "dim" }, told.message)];
    const drawn = stepChart(told, go);
    chart = drawn;
    drawn.select(part.step);
    line?.mark(all);
    if (part.step !== null) follow();
    return [h("p", {}, stepWords(told)), drawn.element];
  });
  const draw = (/** @type {any} */ told) => {
    const before = line?.view(); // of the sketch
    line?.close();
    graph.offer(told.tracks);
    line = timeline(id, told, all, goTo, [toRow, toBox, toOther]);
    if (before) line.see(before);
    else follow();
    return line.element;
  };
  /** @type {Promise<void> | null} */
  let indexed = null;
  const drawn = load(times, (signal) => firstTiles(id, signal, true), (told) => {
    if (told.start_ns === null) return [h("p", { class: "dim" }, "There is no event in this trace.")];
    begin = BigInt(told.start_ns);
    if (!told.sketch) return [draw(told)];
    const sketch = sketched(id, told, draw);
    indexed = sketch.done;
    return [sketch.element];
  }).then(() => indexed);
  const before = Promise.all([seen, drawn]); // the longest question comes last
  narrow();
  load(found, async (signal) => {
    await before;
    signal.throwIfAborted();
    return ask("explain", id, {}, signal);
  }, (told) => findings(told, id, ways));

  const element = h(
    "div",
    {},
    heading,
    h("p", { class: "line" }, h("a", { href: "#/" }, "All traces"), h("code", {}, `profctl show ${id}`), other.element),
    section("Answer", summary),
    section("Findings", found, foundHere),
    section("Steps", steps),
    section("Timeline", times),
    narrowed,
    section("Flame graph", graph.element),
    section("Call tree", graph.tree),
    section("Top", rows.element),
    memory.element,
    devices.element,
    section("SQL", sql.element),
  );
  const update = (/** @type {URLSearchParams} */ now) => {
    const next = partOf(now);
    if (partWords(next) === partWords(part)) return;
    part = next;
    narrow();
    follow();
  };
  const close = () => {
    chart?.select(null);
    line?.close();
  };
  return { element, title: `Trace ${id}`, update, close };
}

/** A choice of the trace to compare with; the list is asked for when somebody is about to choose. `find`: a name that is
 * looked for there. @param {string} id @returns {{element: Element, find: (name: string) => void}} */
function compareWith(id) {
  const told = h("span", { class: "dim", role: "status" });
  let wanted = "";
  const choice = /** @type {HTMLSelectElement} */ (
    h("select", { onchange: () => go.toggleAttribute("disabled", !choice.value) }, h("option", { value: "" }, "another trace …"))
  );
  // A button, and not the choice itself: an arrow key would choose the first trace and leave the page.
  const go = h("button", { type: "button", disabled: true, onclick: () => {
    location.hash = `/compare/${id}/${choice.value}${wanted ? `?${new URLSearchParams({ find: wanted })}` : ""}`;
  } }, "Compare");
  const list = async () => {
    const others = (await traces()).filter((one) => one.id !== id);
    choice.append(...others.map((one) => h("option", { value: one.id }, inOrder(`${one.id} (${ago(one.created_ns)}) ${shown(one.title)}`.slice(0, 80)))));
  };
  choice.addEventListener("focus", () => list().catch(() => {}), { once: true });
  const find = (/** @type {string} */ name) => {
    wanted = name;
    fill(told, " finds ", h("bdi", {}, shown(name)), " in both");
    choice.scrollIntoView({ block: "center" });
    choice.focus();
  };
  return { element: h("span", {}, h("label", {}, "Compare with ", choice), " ", go, told), find };
}

/** @typedef {{step: number | null, last: number | null, window: import("./timeline_layout.js").Window | null}} Part of a
 * trace: the first and the last step of it, or a window */

/** What an address names: `step=7`, `step=7..9`, or `from=…&to=…` in ns. @param {URLSearchParams} given @returns {Part} */
function partOf(given) {
  const found = /^(\d{1,15})(?:\.\.(\d{1,15}))?$/.exec(given.get("step") ?? "");
  if (found) return { step: Number(found[1]), last: Number(found[2] ?? found[1]), window: null };
  const [from, to] = ["from", "to"].map((key) => (/^\d{1,15}$/.test(given.get(key) ?? "") ? Number(given.get(key)) : null));
  return { step: null, last: null, window: from !== null && to !== null && from < to ? { from, to } : null };
}

/** A step by its times, as far as these are known: to find it by its number the whole trace is read.
 * @param {Part} part @param {import("./timeline_layout.js").Window | null} span */
function argumentsOf({ step, last, window }, span) {
  if (span) return { from_ns: span.from, to_ns: span.to };
  if (step !== null) return { first_step: step, last_step: last };
  return window ? { from_ns: window.from, to_ns: window.to } : {};
}

/** @param {Part} part */
function partWords({ step, last, window }) {
  if (step !== null) return step === last ? `step ${step}` : `steps ${step} to ${last}`;
  return window ? `${duration(window.to - window.from)}, from ${duration(window.from)} on (${window.from} ns to ${window.to} ns)` : "the whole trace";
}

/** The table, whose order stays when the part changes. @param {string} id @param {import("./places.js").Places} places where else a name of it is
 * @returns {{element: Element, narrow: (part: Record<string, any>) => Promise<void>, find: (name: string) => void}} */
function topTable(id, places) {
  const made = h("div");
  const told = h("p", { role: "status" });
  const chosen = h("p", { class: "line chosen" });
  const choose = (/** @type {string} */ name) => fill(chosen, ...nameAndPlaces(name, places));
  /** @type {any[]} */
  let listed = [];
  /** @type {Record<string, any>} */
  let part = {};
  const by = /** @type {HTMLSelectElement} */ (
    h("select", { onchange: () => draw() }, ...SORTS.map(([key, text]) => h("option", { value: key }, text)))
  );
  /** Torch's view, or every event as it was recorded where that would need too many at once. @param {AbortSignal} signal */
  const rows = async (signal) => {
    const given = { limit: TOP_ROWS + 1, sort_by: by.value, ...part };
    try {
      return { found: await ask("top", id, given, signal), raw: false };
    } catch (error) {
      if (!String(/** @type {any} */ (error).message).includes(RAW)) throw error;
      return { found: await ask("top", id, { ...given, raw: true }, signal), raw: true };
    }
  };
  const draw = () =>
    load(made, rows, ({ found, raw }) => {
      fill(told, raw && "Every event as it was recorded (profctl top --raw): there are too many for torch.profiler's view. A step has it.");
      listed = found.slice(0, TOP_ROWS);
      fill(chosen, found.length > 0 && "Press a name to find it elsewhere on this page, or in another trace. Arrow keys walk from name to name.");
      if (!found.length) return [h("p", { class: "dim" }, "There is no event with a duration in this part.")];
      const more = found.length > TOP_ROWS;
      const columns = topColumns(found, choose);
      const remark = more && h("span", {}, `The first ${TOP_ROWS} rows; profctl top ${id} --limit 0 has all.`);
      return [table("Top", columns, listed), h("p", { class: "line dim" }, remark, csvButton("Top", columns, listed))];
    });
  const narrow = (/** @type {Record<string, any>} */ wanted) => {
    part = wanted;
    return draw();
  };
  const find = (/** @type {string} */ name) => {
    const place = listed.findIndex((row) => row.name === name);
    const row = [...made.querySelectorAll("tbody tr")].find((one) => one.lastElementChild?.textContent === shown(name));
    for (const one of made.querySelectorAll(".found")) one.classList.remove("found");
    const missing = ` is not among the first ${TOP_ROWS} rows; profctl top ${id} --limit 0 has all.`;
    fill(told, ...(place < 0 ? [h("bdi", {}, shown(name)), missing] : []));
    row?.classList.add("found");
    if (row) focusPressed(row);
    else reach(told);
    (row ?? told).scrollIntoView({ block: "center" });
  };
  return { element: h("div", {}, h("p", { class: "line" }, h("label", {}, "Most ", by)), told, chosen, made), narrow, find };
}

/** Columns of devices only where there is something in them. @param {any[]} rows @param {(name: string) => void} choose
 * @returns {import("./table.js").Column[]} */
function topColumns(rows, choose) {
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
    { name: "Name", of: (row) => row.name, show: (row) => shown(row.name), whole: (row) => wholeName(row.name), press: (row) => choose(String(row.name)) },
  ];
}
