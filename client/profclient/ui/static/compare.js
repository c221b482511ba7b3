// @ts-check
// Two traces, or two captures: what became slower, faster, new and gone from A to B, as `profctl diff A B` says it, one
// flame graph of both, and the steps of both on one scale.

import { ask, traces } from "./ask.js";
import { recordAgain } from "./answer.js";
import { csvButton } from "./csv.js";
import { fill, h, isGone, leave, load, problem, section, sentence } from "./dom.js";
import { graphOfBoth } from "./flame_both.js";
import { twoCharts } from "./steps_both.js";
import { table } from "./table.js";
import { ago, duration, printable, shown, wholeName } from "./units.js";

const ROWS = 200;
const BY = ["name", "path", "module"];
/** @type {Record<string, string>} */
const SIGNS = { slower: "▲", new: "▲", faster: "▼", gone: "▼", same: "=" };

/** @param {string} a @param {string} b @param {URLSearchParams} given @returns {import("./app.js").Page} */
export function comparePage(a, b, given) {
  const [found, graph, charts] = [h("div"), h("div"), h("div")];
  const by = BY.find((one) => one === given.get("by")) ?? BY[0];
  const choice = h(
    "select",
    { onchange: (/** @type {any} */ event) => { location.hash = `/compare/${a}/${b}?${new URLSearchParams({ by: event.target.value, ...(search.value && { find: search.value }) })}`; } },
    ...BY.map((one) => h("option", { value: one, selected: one === by }, one)),
  );
  const differing = async (/** @type {string} */ how, /** @type {AbortSignal} */ signal) => {
    try {
      return await ask("diff", a, { other: b, by: how }, signal);
    } catch (error) {
      if (isGone(error)) {
        leave();
        fill(element, h("h1", {}, "Compare"), problem(error), h("p", {}, h("a", { href: "#/" }, "All traces")));
      }
      throw error;
    }
  };
  /** @type {any} */
  let differences = null;
  const search = /** @type {HTMLInputElement} */ (h("input", {
    type: "search", placeholder: "Search names", "aria-label": "Search the differences", value: given.get("find") ?? "",
    oninput: () => { if (differences) fill(found, ...changes(differences, search.value)); },
  }));
  const draw = (/** @type {string} */ how) => load(found, (signal) => differing(how, signal), (told) => {
    differences = told;
    return changes(told, search.value);
  });
  draw(by);
  load(charts, (signal) => Promise.all([a, b].map((id) => ask("steps", id, {}, signal))), ([first, second]) => [twoCharts(a, first, b, second)]);
  load(graph, (signal) => ask("merged_diff", a, { other: b, limit: 0 }, signal), (told) => [
    told.message && h("p", { class: "dim" }, ...sentence(printable(told.message))), graphOfBoth(told),
  ]).then(() => {
    const input = /** @type {HTMLInputElement | null} */ (graph.querySelector("input[type=search]"));
    if (!input || !given.get("find")) return;
    input.value = unnumbered(given.get("find") ?? "");
    input.dispatchEvent(new Event("input"));
  });
  const about = h("p", { class: "dim" });
  load(about, traces, (listed) => sentence(whatTheyAre([a, b], listed)), h("span"));
  const hints = h("div");
  load(hints, (signal) => Promise.all([a, b].map((id) => hintOf(id, signal))), (told) =>
    told.map((hint, place) => hint && h("p", { class: "dim" }, ...sentence(`${"AB"[place]}: ${printable(hint)} `), recordAgain(hint))), h("span"));
  const sides = h("p", { class: "line" }, "A ", h("a", { href: pageOf(a) }, a), " B ", h("a", { href: pageOf(b) }, b),
    h("a", { href: `#/compare/${b}/${a}` }, "Other way round"));
  const below = section("Differences", h("p", { class: "line" }, h("label", {}, "By ", choice), search), found);
  const update = (/** @type {URLSearchParams} */ now) => {
    const how = BY.find((one) => one === now.get("by")) ?? BY[0];
    /** @type {HTMLSelectElement} */ (choice).value = how;
    draw(how);
  };
  const element = h("div", {}, h("h1", {}, "Compare"), sides, about, hints, section("Steps", charts), section("Flame graph of both", graph), below);
  return { element, title: `Compare ${a} with ${b}`, update };
}

/** Which is which: an id says neither of what a trace is nor when it was recorded.
 * @param {string[]} ids @param {any[]} listed traces */
function whatTheyAre(ids, listed) {
  const said = ids.map((id, place) => {
    const one = listed.find((trace) => trace.id === id);
    return one && `${"AB"[place]}: ${shown(one.title) || id}, ${ago(one.created_ns)}`;
  });
  return said.filter(Boolean).join(" · ");
}

/** What would say more of a trace most of whose window is in no operator, as its own page has it.
 * @param {string} id @param {AbortSignal} signal @returns {Promise<string | null>} */
async function hintOf(id, signal) {
  try {
    return isTrace(id) ? (await ask("window", id, {}, signal)).hint : null;
  } catch {
    return null; // whatever is wrong, the parts of the page say it
  }
}

/** @param {any} told of `diff` @param {string} text of the names that are wanted, changed or not; empty: all that changed */
function changes(told, text) {
  const changed = told.rows.filter((/** @type {any} */ row) => row.change !== "same");
  const same = told.rows.length - changed.length;
  const per = told.per === "step" ? "per step" : "in all";
  const counts = `Self time ${per}; ${changed.length} changed, ${same} did not${told.truncated ? " (cut)" : ""}.`;
  const wanted = unnumbered(text).toLowerCase();
  const listed = wanted ? told.rows.filter((/** @type {any} */ row) => label(row).toLowerCase().includes(wanted)) : changed;
  const none = wanted ? `No name in both has ${shown(text)} in it.` : "Nothing changed beyond the noise between steps.";
  const more = listed.length > ROWS && h("span", {}, `The first ${ROWS}; profctl diff --limit 0 has all.`);
  const below = listed.length > 0 && h("p", { class: "line dim" }, more, csvButton("Changes", columns(), listed.slice(0, ROWS)));
  return [
    h("p", {}, counts, ...sentence(told.message ? ` ${printable(told.message)}` : "")),
    h("h3", {}, "In all"), table("In all", columns(), told.totals),
    h("h3", {}, wanted ? "Found, changed or not" : "Changes"), listed.length ? table("Changes", columns(), listed.slice(0, ROWS)) : h("p", {}, ...sentence(none)), below,
  ];
}

/** @param {string} id of a trace or a capture */
const pageOf = (id) => (isTrace(id) ? `#/trace/${id}` : `#/capture/${id}`);

/** @param {string} id */
const isTrace = (id) => !/^[cf]/.test(id);

/** As the two call a function: by its file, without the line. @param {string} name */
const unnumbered = (name) => name.replace(/\(\d+\): /g, ": ");

/** @param {any} row @returns {string} */
const label = (row) => (row.path?.length ? row.path.join(" > ") : String(row.name ?? ""));

/** @returns {import("./table.js").Column[]} */
function columns() {
  const time = (/** @type {string} */ name, /** @type {string} */ key) => ({
    name, number: true, of: (/** @type {any} */ row) => row[key], show: (/** @type {any} */ row) => duration(row[key]),
  });
  const calls = (/** @type {any} */ row) => [...new Set([row.a_count, row.b_count].map(few))].join(" to ");
  return [
    { name: "Became", of: (row) => row.change, show: (row) => h("span", { class: row.change }, `${SIGNS[row.change] ?? ""} ${row.change}`) },
    time("A", "a_ns"),
    time("B", "b_ns"),
    { name: "Change", number: true, of: (row) => row.delta_ns, show: change },
    time("Noise", "noise_ns"),
    { name: "Calls", number: true, of: (row) => row.b_count, show: calls },
    { name: "Where", of: (row) => row.device_type, show: (row) => row.device_type ?? "" },
    { name: "What", of: label, show: (row) => shown(label(row)), whole: (row) => wholeName(label(row)) },
  ];
}

/** @param {any} row */
function change(row) {
  if (row.ratio) return `${row.ratio >= 1 ? "+" : ""}${(100 * (row.ratio - 1)).toFixed(1)} %`;
  return `${row.delta_ns > 0 ? "+" : ""}${duration(row.delta_ns)}`;
}

/** Calls per step are seldom whole. @param {number} calls */
const few = (calls) => (calls >= 100 ? calls.toLocaleString("en", { maximumFractionDigits: 0 }) : String(Number(calls.toPrecision(3))));
