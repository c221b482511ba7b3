// @ts-check
// One event: its times, arguments and stack, what it is within and what launched it.

import { ask } from "./ask.js";
import { h, load } from "./dom.js";
import { nameAndPlaces } from "./places.js";
import { duration, printable, shown, whole, wholeName } from "./units.js";

const STACK_LINES = 64;

/** @typedef {import("./places.js").Places} Places */

/** @param {string} trace @param {(said: any) => void} go to another event @param {Places} places
 * @returns {{element: Element, show: (row: number) => void, clear: () => void}} */
export function eventPanel(trace, go, places) {
  const element = h("div", { class: "event" });
  const show = (/** @type {number} */ row) => {
    load(element, (signal) => ask("event", trace, { row }, signal), (told) => panel(told, go, places));
  };
  const clear = () => load(element, async () => null, () => []);
  return { element, show, clear };
}

/** @param {any} told of `event` @param {(said: any) => void} go @param {Places} places */
function panel(told, go, places) {
  const name = told.name ?? "(no name)";
  const to = (/** @type {any} */ one) =>
    h("button", { type: "button", class: "chip", title: wholeName(one.name), onclick: () => go(one) }, shown(one.name ?? "(no name)"));
  const list = (/** @type {any[]} */ all, /** @type {string} */ more = "") => (all?.length ? h("span", { class: "line" }, ...all.map(to), more) : "");
  const others = { ...told.columns, ...told.arguments };
  const lines = [
    ["kind", `${told.kind} on ${told.device_type}`],
    ["begins", `${duration(told.from_ns)} after the first event (${told.start_ns} ns)`],
    ["lasts", told.duration_ns === null ? "its end was not seen" : `${duration(told.duration_ns)} (${told.duration_ns} ns)`],
    ["thread", placeOf(told.thread)],
    ["process", placeOf(told.process)],
    ["within", list(told.within)],
    ["launched by", told.launch ? to(told.launch) : ""],
    ["launches", list(told.launched?.first, moreLaunched(told.launched))],
    ["forward", told.forward ? to(told.forward) : ""],
    ["backward", list(told.backward)],
    ...Object.entries(others).map(([key, value]) => [shown(key), shown(written(value))]),
    ["stack", told.stack.length ? h("pre", {}, told.stack.slice(0, STACK_LINES).map(shown).join("\n")) : ""],
  ];
  const rows = lines.filter(([, value]) => value).flatMap(([key, value]) => [h("dt", {}, key), h("dd", {}, value)]);
  return [
    h("p", { class: "line" }, ...nameAndPlaces(name, places)),
    h("dl", {}, ...rows),
  ];
}

/** What the list of launched events has not. @param {any} launched absent in answers of older daemons */
function moreLaunched(launched) {
  const left = launched ? launched.events - launched.first.length : 0;
  return [left && `and ${whole(left)} more`, launched?.partly && "and what came long after it"].filter(Boolean).join(", ");
}

/** @param {any} track */
const placeOf = (track) => (track ? printable([track.name, track.id].filter((one) => one !== null && one !== undefined).join(" ")) : "");

/** @param {any} value */
function written(value) {
  const exact = (/** @type {string} */ _, /** @type {any} */ one) => (typeof one === "bigint" ? String(one) : one);
  return typeof value === "object" && value !== null ? JSON.stringify(value, exact) : String(value);
}
