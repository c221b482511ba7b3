// @ts-check
// A capture of several ranks: which one the others wait for and why, collectives, and the critical path over all of
// them, as `profctl ranks`, `comm` and `critical` say it.

import { ask } from "./ask.js";
import { h, load, section, sentence } from "./dom.js";
import { heatMap, lateWords, placeOf, stepsOf } from "./heat.js";
import { table } from "./table.js";
import { counted, duration, percent, printable, shareOf, shown, size, whole, wholeName } from "./units.js";

const CELLS = 200; // of the map, in the table
const LATE = 0.02; // of a step: less is not listed
const COLLECTIVES = 200;
const LEFT_OUT = 3; // traces that are named

/** @typedef {import("./heat.js").Row} Row */

/** @param {string} capture a prefix of its id @returns {import("./app.js").Page} */
export function ranksPage(capture) {
  const [head, late, map, rows, collectives, path] = Array.from({ length: 6 }, () => h("div"));
  const parts = h("div");
  load(parts, (signal) => ask("ranks", capture, {}, signal), (told) => {
    load(head, async () => told, heading);
    load(late, async () => told, lateRanks);
    load(map, async () => told.heat, heatPart);
    load(rows, async () => told.ranks, (found) => [table("Ranks", rankColumns(found), found)]);
    const meanwhile = [load(collectives, (signal) => ask("comm", capture, {}, signal), commPart)];
    meanwhile.push(load(path, (signal) => ask("critical", capture, {}, signal), pathPart));
    return [
      head, section("Late ranks", late), section("Heat map", map), section("Ranks", rows),
      section("Collectives", collectives), section("Critical path", path),
    ];
  });
  const links = h("p", { class: "line" }, h("a", { href: "#/" }, "All traces"),
    h("a", { href: `#/capture/${encodeURIComponent(capture)}` }, "Traces of this capture"),
    h("a", { href: `#/perfetto/${encodeURIComponent(capture)}` }, "All ranks in Perfetto"), h("code", {}, `profctl ranks ${capture}`));
  return { element: h("div", {}, h("h1", {}, `Ranks of ${capture}`), links, parts), title: `Ranks of ${capture}` };
}

/** The traces that answered. @param {any} told */
function heading(told) {
  const ranks = [...new Set(told.traces.map((/** @type {any} */ one) => one.rank))].filter((one) => one !== null).sort((a, b) => a - b);
  const hosts = new Set(told.traces.map((/** @type {any} */ one) => one.host));
  const words = [counted(told.traces.length, "trace"), ranks.length && `${ranks.length === 1 ? "rank" : "ranks"} ${ranges(runs(ranks))}`];
  const missing = told.missing_ranks.length ? `; no trace of rank ${ranges(told.missing_ranks)}` : "";
  const without = [...(told.unread ?? []), ...told.left_out]; // what is not as its host listed it, and what has not what was asked for
  const out = without.slice(0, LEFT_OUT).map((/** @type {any} */ one) => h("p", { class: "dim" }, ...sentence(printable(`Without ${placeOf(one)}: ${one.why}`))));
  const more = without.length - LEFT_OUT;
  return [
    h("p", {}, printable(`${words.filter(Boolean).join(", ")} on ${counted(hosts.size, "host")}${missing}.`)), ...out,
    more > 0 && h("p", { class: "dim" }, `… and without ${counted(more, "trace")} more; profctl ranks --json names them.`),
  ];
}

/** @param {number[]} numbers @returns {number[][]} */
function runs(numbers) {
  /** @type {number[][]} */
  const found = [];
  for (const one of numbers) {
    const last = found[found.length - 1];
    if (last && one === last[1] + 1) last[1] = one;
    else found.push([one, one]);
  }
  return found;
}

/** @param {number[][]} some */
const ranges = (some) => some.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(", ");

/** @param {any} told */
function lateRanks(told) {
  const list = told.stragglers.map((/** @type {any} */ one) => h("li", {},
    h("p", {}, ...sentence(printable(one.sentence))),
    h("p", { class: "dim" }, `By chance: ${chance(one.chance)}; compared with ${counted(one.compared_with, "other")}.`),
    h("p", { class: "line" }, traceLink(one, `Trace of ${placeOf(one)}`), ...one.steps.map((/** @type {number} */ step) =>
      stepLink(told.heat, one, step)))));
  const remarks = [told.message, told.clocks.message, ...told.remarks].filter(Boolean);
  return [list.length > 0 && h("ol", { class: "findings" }, ...list), ...remarks.map((text) => h("p", { class: "dim" }, ...sentence(printable(text))))];
}

/** A step of a late rank, as its own trace calls it. @param {any} heat @param {any} late @param {number} step */
function stepLink(heat, late, step) {
  const row = heat.rows.find((/** @type {Row} */ one) => one.trace === late.trace);
  const own = step + (row?.counts_ahead ?? 0);
  return h("a", { class: "chip", href: `#/trace/${late.trace}?step=${own}` }, `step ${own}`);
}

/** @param {number} share */
const chance = (share) => (share < 1e-6 ? "less than 1 in a million" : `${Number(share.toPrecision(2))}`);

/** @param {{trace: string}} row @param {string} words */
const traceLink = (row, words) => h("a", { href: `#/trace/${row.trace}` }, printable(words));

/** @param {any} heat */
function heatPart(heat) {
  if (!heat.rows.length || !heat.steps.length) {
    return [h("p", { class: "dim" }, "No step of one rank is known to be that of another: record with profclient.step(), or with collectives.")];
  }
  return [heatMap(heat, (row, column) => { location.hash = addressOf(heat, row, column); }), latest(heat)];
}

/** @param {any} heat @param {Row} row @param {number} column */
function addressOf(heat, row, column) {
  const { first, last } = stepsOf(heat, row, column);
  return `#/trace/${row.trace}?step=${first}${last === first ? "" : `..${last}`}`;
}

/** The same as a table, the latest first. @param {any} heat */
function latest(heat) {
  const cells = heat.rows.flatMap((/** @type {Row} */ row) => row.late.map((late, column) => ({ row, column, late })))
    .filter((/** @type {any} */ cell) => cell.late >= LATE).sort((/** @type {any} */ a, /** @type {any} */ b) => b.late - a.late);
  const words = cells.length > CELLS ? `The latest ${CELLS} of ${whole(cells.length)} cells` : `The ${counted(cells.length, "cell")}`;
  const steps = (/** @type {any} */ cell) => {
    const { first, last } = stepsOf(heat, cell.row, cell.column);
    return first === last ? `${first}` : `${first} to ${last}`;
  };
  /** @type {import("./table.js").Column[]} */
  const columns = [
    { name: "Rank", of: (cell) => cell.row.rank, show: (cell) => printable(placeOf(cell.row)) },
    { name: "Step", number: true, of: (cell) => cell.column, show: (cell) => h("a", { href: addressOf(heat, cell.row, cell.column) }, steps(cell)) },
    { name: "Late", number: true, of: (cell) => cell.late, show: (cell) => percent(cell.late) },
    { name: "In words", of: (cell) => cell.late, show: (cell) => lateWords(heat, cell.late) },
  ];
  const summary = h("summary", {}, `${words} of ${LATE * 100} % of a step or more, as a table`);
  return cells.length ? h("details", {}, summary, table("Late cells", columns, cells.slice(0, CELLS), { column: 2, falls: true })) : null;
}

/** Those that say something. @param {any[]} rows @returns {import("./table.js").Column[]} */
function rankColumns(rows) {
  const time = (/** @type {string} */ name, /** @type {string} */ key, /** @type {string} */ title) => ({
    name, title, number: true, of: (/** @type {any} */ row) => row[key], show: (/** @type {any} */ row) => duration(row[key]),
  });
  const spare = [
    time("Waiting", "waiting_ns", "Of exposed: until the last rank came"), time("Copies", "copying_ns", "Copies and fills beside neither"),
    time("Idle", "idle_ns", "Nothing of these"), time("Loading", "idle_loading_ns", "Of idle: waiting for the DataLoader"),
    time("Late", "idle_late_launch_ns", "Of idle: the host had not launched what came next"),
  ].filter((column) => rows.some((row) => column.of(row)));
  return [
    { name: "Rank", of: (row) => row.rank, show: (row) => traceLink(row, placeOf(row)) },
    { name: "Host", of: (row) => row.host, show: (row) => printable(row.host || "-") },
    { name: "Steps", number: true, of: (row) => row.steps, show: (row) => whole(row.steps) },
    time("Step", "step_ns", "The mean of the measured steps"),
    time("Compute", "compute_ns", "A kernel runs that is no collective; without devices an operator"),
    time("Exposed", "exposed_ns", "A collective runs, and nothing is computed beside it"),
    ...spare,
  ];
}

/** @param {any} told of `comm` */
function commPart(told) {
  const rows = told.collectives;
  const more = Math.max(rows.length - COLLECTIVES, 0) + told.rows_left_out;
  const remarks = [told.message, ...told.remarks].filter(Boolean);
  return [
    rows.length ? table("Collectives", commColumns(), rows.slice(0, COLLECTIVES)) : null,
    more > 0 && h("p", { class: "dim" }, `… and ${counted(more, "row")} more; profctl comm --json has the first 1024.`),
    ...remarks.map((text) => h("p", { class: "dim" }, ...sentence(printable(text)))),
  ];
}

/** @returns {import("./table.js").Column[]} */
function commColumns() {
  const time = (/** @type {string} */ name, /** @type {string} */ key, /** @type {string} */ title) => ({
    name, title, number: true, of: (/** @type {any} */ row) => row[key], show: (/** @type {any} */ row) => duration(row[key]),
  });
  return [
    { name: "Collective", of: (row) => row.op, show: (row) => shown(row.op || "unknown") },
    { name: "Ranks", number: true, of: (row) => row.ranks },
    { name: "Count", number: true, of: (row) => row.count, show: (row) => whole(row.count) },
    { name: "Bytes", number: true, of: (row) => row.bytes, show: (row) => (row.bytes === null ? "not recorded: --shapes" : size(row.bytes)) },
    { name: "Bus", number: true, title: "Bytes that a link carries in a second, as nccl-tests counts", of: (row) => row.bus_bytes_per_second,
      show: (row) => (row.bus_bytes_per_second === null ? "-" : `${size(Math.trunc(row.bus_bytes_per_second))}/s`) },
    time("Time", "total_ns", "That a rank is in them, the mean over the ranks"),
    time("Transfer", "transfer_ns", "Of it what the rank that came last took"),
    time("Waiting", "waiting_ns", "Of it until the last rank came"),
    { name: "Last", of: (row) => row.last[0]?.times, show: last },
    { name: "Group", of: (row) => row.group, show: (row) => shown(row.group || "-"), whole: (row) => wholeName(row.group || "-") },
  ];
}

/** @param {any} row */
function last(row) {
  if (!row.last.length) return "-";
  const [most] = row.last;
  const proved = most.proved ? ` (${whole(most.proved)} proved)` : "";
  return traceLink(most, `${placeOf(most)}: ${whole(most.times)} of ${whole(row.count)}${proved}`);
}

/** @param {any} told of `critical` */
function pathPart(told) {
  const remarks = told.remarks.map((/** @type {string} */ text) => h("p", { class: "dim" }, ...sentence(printable(text))));
  if (!told.path) return [h("p", { class: "dim" }, ...sentence(printable(told.message))), ...remarks];
  const all = told.path.duration_ns;
  const { n, first, last: end } = told.steps;
  const rows = [
    ...told.ranks.map((/** @type {any} */ row) => ({ ...row, where: "work of", name: traceLink(row, placeOf(row)), words: placeOf(row) })),
    ...told.collectives.map((/** @type {any} */ row) => {
      const words = `${row.op || "collective"}${row.group ? ` of ${row.group}` : ""}`;
      return { ...row, where: "collective", without_ns: null, without_least_ns: null, without_most_ns: null, name: shown(words), words };
    }),
  ];
  const sentences = told.sentences.length ? told.sentences : ["No rank is slower than the others by more than chance explains."];
  const met = counted(told.path.meetings, "collective");
  return [
    h("p", {}, `What the end of ${n === 1 ? `step ${first}` : `steps ${first} to ${end}`} waited for over all ranks (${duration(all)}, ${met}):`),
    ...sentences.map((/** @type {string} */ text) => h("p", {}, ...sentence(printable(text)))),
    table("Critical path", pathColumns(all), rows),
    told.ranks_left_out > 0 && h("p", { class: "dim" }, `… ${counted(told.ranks_left_out, "rank")} with less left out; profctl critical --limit 0 has all.`),
    ...remarks,
  ];
}

/** @param {number} all ns @returns {import("./table.js").Column[]} */
function pathColumns(all) {
  const less = (/** @type {number} */ lasts) => `${all > lasts ? "-" : "+"}${shareOf(Math.abs(all - lasts), all)}`;
  const without = (/** @type {any} */ row) => {
    if (row.without_ns !== null) return less(row.without_ns);
    if (row.without_least_ns === null) return "-";
    return `${row.without_most_ns === null ? "?" : less(row.without_most_ns)} to ${less(row.without_least_ns)}`;
  };
  return [
    { name: "On path", number: true, of: (row) => row.path_ns, show: (row) => shareOf(row.path_ns, all) },
    { name: "Time", number: true, of: (row) => row.path_ns, show: (row) => duration(row.path_ns) },
    { name: "Times", number: true, of: (row) => row.times, show: (row) => whole(row.times) },
    { name: "Without it", number: true, title: "How much shorter the steps had been, were the rank as the others are; two numbers where one is not told", of: (row) => row.without_ns ?? row.without_most_ns ?? row.without_least_ns, show: without },
    { name: "Where", of: (row) => row.where },
    { name: "Name", of: (row) => row.words, show: (row) => row.name },
  ];
}
