// @ts-check
// The list of traces, of all captures or of one.

import { traces } from "./ask.js";
import { HOW_TO_RECORD, capturePart, recordHere } from "./captures.js";
import { fill, h, load, section } from "./dom.js";
import { table } from "./table.js";
import { ago, counted, duration, printable, shownCommand, size, whole, wholeName } from "./units.js";

/** What is said when so many traces are chosen. */
const HOW = ["Choose two traces: the earlier one is compared with the later one.", "Choose one more.", "Press the button, or Enter.", "Two, not more: leave some out."];

/** @param {string} capture a prefix of its id; empty: all */
export function tracesPage(capture) {
  const list = h("div");
  const title = capture ? `Capture ${capture}` : "Traces";
  const ranks = h("span");
  const all = capture ? h("p", { class: "line" }, h("a", { href: "#/captures" }, "All captures"), ranks) : null;
  load(list, traces, (found) => {
    const wanted = capture ? found.filter((trace) => (trace.capture ?? "").startsWith(capture)) : found;
    banner(found);
    if (wanted.length > 1) fill(ranks, h("a", { href: `#/ranks/${capture}` }, "Its ranks: who is late, collectives, critical path"));
    return wanted.length ? choice(wanted) : [nothing(capture, found.length)];
  });
  return { element: h("div", {}, h("h1", {}, title), all, ...(capture ? [capturePart(capture), section("Its traces", list)] : [list])), title };
}

/** Whose traces these are, where they are not all the reader's. @param {any[]} found */
function banner(found) {
  const uid = Number(document.body.dataset.uid);
  const others = found.filter((trace) => trace.owner_uid !== uid && !trace.shared_with.length).length;
  const told = /** @type {HTMLElement} */ (document.getElementById("banner"));
  told.hidden = !others;
  fill(told, others ? `You read as an admin: ${counted(others, "trace")} of other users are among these.` : null);
}

/** @param {any[]} found */
function choice(found) {
  /** @type {Set<string>} */
  const chosen = new Set();
  const compare = h("button", { type: "submit", disabled: true }, "Compare two");
  const told = h("span", { class: "dim", role: "status" });
  const go = (/** @type {Event} */ event) => {
    event.preventDefault();
    const [a, b] = [...chosen].map((id) => found.find((trace) => trace.id === id))
      .sort((one, other) => Number(one.created_ns) - Number(other.created_ns));
    location.hash = `/compare/${a.id}/${b.id}`;
  };
  const toggle = (/** @type {string} */ id, /** @type {boolean} */ on) => {
    if (on) chosen.add(id);
    else chosen.delete(id);
    compare.toggleAttribute("disabled", chosen.size !== 2);
    fill(told, HOW[Math.min(chosen.size, HOW.length - 1)]);
  };
  fill(told, HOW[0]);
  // A form, whose button Enter presses in the box that was chosen last: the way back to it is long.
  return [h("form", { onsubmit: go }, h("p", { class: "line" }, compare, told), table("Traces", columns(toggle, found), found, { column: 2, falls: true }))];
}

/** Those that say something of a trace. @param {(id: string, on: boolean) => void} toggle @param {any[]} found @returns {import("./table.js").Column[]} */
function columns(toggle, found) {
  const lasts = (/** @type {any} */ one) =>
    one.start_ns === null || one.end_ns === null ? null : Number(one.end_ns) - Number(one.start_ns);
  const box = (/** @type {any} */ one) =>
    h("input", {
      type: "checkbox",
      "aria-label": `Compare ${one.id}`,
      onchange: (/** @type {any} */ event) => toggle(one.id, event.target.checked),
    });
  /** @type {import("./table.js").Column[]} */
  const all = [
    { name: "Compare", of: () => 0, show: box },
    { name: "Trace", of: (one) => one.id, show: (one) => h("a", { href: `#/trace/${one.id}` }, one.id) },
    { name: "When", of: (one) => one.created_ns, show: (one) => ago(one.created_ns), number: true },
    { name: "What", of: (one) => one.title, show: (one) => shownCommand(one.title || "-"), whole: (one) => wholeName(one.title) },
    { name: "Events", of: (one) => one.events, show: (one) => whole(one.events), number: true },
    { name: "Span", of: lasts, show: (one) => duration(lasts(one)), number: true },
    { name: "Rank", of: (one) => one.rank, number: true },
    { name: "Size", of: (one) => one.bytes, show: (one) => size(one.bytes), number: true },
    { name: "Source", of: (one) => one.source },
    { name: "Owner", of: (one) => one.owner, show: (one) => printable(one.owner) },
    { name: "Capture", of: (one) => one.capture, show: ofCapture },
  ];
  return all.filter((column) => found.some((one) => column.of(one) !== null));
}

/** @param {any} one */
function ofCapture(one) {
  return one.capture ? h("a", { href: `#/capture/${encodeURIComponent(one.capture)}` }, printable(one.capture)) : "-";
}

/** @param {string} capture @param {number} all */
function nothing(capture, all) {
  if (!all) return h("div", {}, h("p", {}, "No traces yet. ", recordHere(), "Record a process in a terminal, or bring a file in with profctl import:"), HOW_TO_RECORD());
  return h("p", {}, `No trace of the capture ${capture} is yours to read, or it has none.`);
}
