// @ts-check
// One event: its times, arguments and stack, what it is within and what launched it.

import { ask } from "./ask.js";
import { fill, h, load } from "./dom.js";
import { duration, printable, shown, wholeName } from "./units.js";

const STACK_LINES = 64;

/** @param {string} trace @param {(said: any) => void} go to another event @param {(name: string) => void} inTop
 * @returns {{element: Element, show: (row: number) => void, clear: () => void}} */
export function eventPanel(trace, go, inTop) {
  const element = h("div", { class: "event" });
  const show = (/** @type {number} */ row) => {
    load(element, (signal) => ask("event", trace, { row }, signal), (told) => panel(told, go, inTop));
  };
  const clear = () => load(element, async () => null, () => []);
  return { element, show, clear };
}

/** @param {any} told of `event` @param {(said: any) => void} go @param {(name: string) => void} inTop */
function panel(told, go, inTop) {
  const name = told.name ?? "(no name)";
  const to = (/** @type {any} */ one) =>
    h("button", { type: "button", class: "chip", title: wholeName(one.name), onclick: () => go(one) }, shown(one.name ?? "(no name)"));
  const others = { ...told.columns, ...told.arguments };
  const lines = [
    ["kind", `${told.kind} on ${told.device_type}`],
    ["begins", `${duration(told.from_ns)} after the first event (${told.start_ns} ns)`],
    ["lasts", told.duration_ns === null ? "its end was not seen" : `${duration(told.duration_ns)} (${told.duration_ns} ns)`],
    ["thread", placeOf(told.thread)],
    ["process", placeOf(told.process)],
    ["within", told.within.length ? h("span", { class: "line" }, ...told.within.map(to)) : ""],
    ["launched by", told.launch ? to(told.launch) : ""],
    ...Object.entries(others).map(([key, value]) => [shown(key), shown(written(value))]),
    ["stack", told.stack.length ? h("pre", {}, told.stack.slice(0, STACK_LINES).map(shown).join("\n")) : ""],
  ];
  const rows = lines.filter(([, value]) => value).flatMap(([key, value]) => [h("dt", {}, key), h("dd", {}, value)]);
  return [
    h("p", { class: "line" }, h("b", { title: wholeName(name) }, shown(name)),
      h("button", { type: "button", onclick: () => inTop(name) }, "Its row in the table")),
    h("dl", {}, ...rows),
  ];
}

/** @param {any} track */
const placeOf = (track) => (track ? printable([track.name, track.id].filter((one) => one !== null && one !== undefined).join(" ")) : "");

/** @param {any} value */
function written(value) {
  const exact = (/** @type {string} */ _, /** @type {any} */ one) => (typeof one === "bigint" ? String(one) : one);
  return typeof value === "object" && value !== null ? JSON.stringify(value, exact) : String(value);
}
