// @ts-check
// Captures that there were, as `profctl captures` lists them, and how one of them went.

import { captures } from "./ask.js";
import { h, load, section } from "./dom.js";
import { lengthOf, over } from "./now_captures.js";
import { table } from "./table.js";
import { ago, printable, shown, whole, wholeName } from "./units.js";

const LISTED = 200; // as the server has it: one more says that there are more
const NAMED = 8; // traces, or processes, of a capture in the list
const ENDS_WELL = ["stored", "partial"];
const GONE = "Nothing of that is kept here: its traces came from elsewhere, it is older than the newest 1,000 of its user, or there is none.";

export const HOW_TO_RECORD = () => h("pre", {}, "profctl ps\nprofctl start --pid PID --duration 10s");

/** The page's own way to begin a capture, where it has one. */
export const recordHere = () => document.body.hasAttribute("data-write") && !document.body.hasAttribute("data-store")
  && h("span", {}, h("a", { href: "#/now" }, "Now"), " lists processes and begins captures. ");

/** @returns {import("./app.js").Page} */
export function capturesPage() {
  const list = h("div");
  load(list, (signal) => captures("", signal), (found) => {
    if (!found.length) return [h("p", {}, "No capture yet. ", recordHere(), "In a terminal this begins one:"), HOW_TO_RECORD()];
    const more = found.length > LISTED && h("p", { class: "dim" }, `The latest ${LISTED}; profctl captures --limit 1000 has more.`);
    return [table("Captures", COLUMNS, found.slice(0, LISTED), { column: 1, falls: true }), more];
  });
  const live = h("p", { class: "line dim" }, h("span", {}, h("a", { href: "#/now" }, "Now"), " shows captures that go on, as they do."));
  return { element: h("div", {}, h("h1", {}, "Captures"), live, list), title: "Captures" };
}

/** How a capture went: each process, what was measured there, and what went wrong. @param {string} id
 * @returns {Element | null} nothing of what the daemon here does not keep: captures of many hosts, those of a store's folder */
export function capturePart(id) {
  if (!id.startsWith("c") || document.body.hasAttribute("data-store")) return null;
  const told = h("div");
  load(told, (signal) => captures(id, signal), ([capture]) => !capture ? [h("p", { class: "dim" }, GONE)] : [
    capture.finished_ns === null && h("p", {}, "It goes on: ", h("a", { href: "#/now" }, "Now"), " shows it as it does."),
    h("ul", { class: "captures" }, over(capture, true)),
  ]);
  return section("How it went", told);
}

/** @type {import("./table.js").Column[]} */
const COLUMNS = [
  { name: "Capture", of: (one) => one.capture, show: (one) => h("a", { href: `#/capture/${encodeURIComponent(one.capture)}` }, printable(one.capture)) },
  { name: "When", number: true, of: (one) => one.created_ns, show: (one) => ago(one.created_ns) },
  { name: "Owner", of: (one) => one.owner, show: (one) => printable(one.owner) },
  { name: "State", of: (one) => one.state, show: state },
  { name: "Window", of: lengthOf },
  { name: "Processes", of: (one) => one.targets[0]?.pid, show: (one) => some(one.targets.map((/** @type {any} */ target) => String(target.pid)), one.targets_left_out) },
  { name: "Traces", of: (one) => tracesOf(one).length, show: (one) => some(tracesOf(one).map((id) => h("a", { href: `#/trace/${id}` }, id)), one.targets_left_out) },
  { name: "What went wrong", of: wrong, show: (one) => shown(wrong(one)), whole: (one) => wholeName(wrong(one)) },
];

/** @param {any} capture @returns {string[]} */
const tracesOf = (capture) => capture.targets.map((/** @type {any} */ target) => target.trace).filter(Boolean);

/** @param {any} capture */
function state(capture) {
  const good = capture.finished_ns === null || ENDS_WELL.includes(capture.state);
  return h("span", { class: good ? undefined : "new" }, `${good ? "" : "▲ "}${printable(capture.state)}`);
}

/** @param {(string | Node)[]} all @param {number} leftOut */
function some(all, leftOut) {
  const left = all.length - NAMED + leftOut;
  const parts = all.slice(0, NAMED).flatMap((one, place) => (place ? [", ", one] : [one]));
  return parts.length ? h("span", {}, ...parts, left > leftOut || (leftOut && all.length >= NAMED) ? ` and ${whole(left)} more` : null) : "-";
}

/** The first message of a process that came to nothing. @param {any} capture @returns {string} */
function wrong({ targets, reason }) {
  const bad = targets.find((/** @type {any} */ target) => target.message && !ENDS_WELL.includes(target.state));
  return [bad?.message, reason].filter(Boolean).join(" · ");
}
