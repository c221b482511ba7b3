// @ts-check
// Captures as they go on, and how the last ones ended: states, and where their time went.

import { order } from "./ask.js";
import { fill, h, problem, reach, sentence } from "./dom.js";
import { saveButton } from "./picture.js";
import { counted, duration, inOrder, printable, shown, shownCommand, whole } from "./units.js";

const ENDS_WELL = ["stored", "partial"];

/** What a state is about, while it goes on. @type {Record<string, string>} */
const WORDS = { requested: "begin", armed: "wait", recording: "window", draining: "pick-up", collating: "store" };
/** Classes of phases, by their names in `profctl show`. @type {Record<string, string>} */
const KINDS = { window: "operator", writing: "range", "pick-up": "range", decode: "function", store: "function" };

/** How many ns the host's clock is ahead of the browser's. @type {{ns: number}} */
export const ahead = { ns: 0 };

/** A capture that goes on. Its parts in `.grows` show more time at each `grow`. @param {any} capture */
export function running(capture) {
  const told = h("span", { role: "status" });
  const stop = document.body.hasAttribute("data-write")
    && h("button", { type: "button", "aria-label": `Stop ${capture.capture}`, onclick: () => end(capture.capture, stop, told) }, "Stop");
  return saved(capture, [stop, told], capture.targets.map((/** @type {any} */ target) => target.passed.length ? goesOn(capture, target) : isOver(target)));
}

/** With a button that saves its waterfalls, and what is written beside them. @param {any} capture
 * @param {import("./dom.js").Content[]} more of its first line @param {Element[]} targets */
function saved(capture, more, targets) {
  const item = h("li", { class: "capture" });
  const save = targets.some((one) => one.querySelector(".waterfall")) && saveButton(`Waterfalls ${capture.capture}`, () => sightOfWaterfalls(item, about(capture)));
  fill(item, h("p", { class: "line" }, h("b", {}, printable(capture.capture)), h("span", { class: "dim" }, ...sentence(about(capture))), ...more, save), ...targets, leftOut(capture));
  return item;
}

/** @param {HTMLElement} item @param {string} words @returns {import("./picture.js").Sight} */
function sightOfWaterfalls(item, words) {
  const first = item.children[1].getBoundingClientRect();
  const { left, width, bottom } = item.getBoundingClientRect();
  return { width, height: bottom - first.top, words: [words], paint: (on) => {
    for (const made of item.querySelectorAll("div .phase, div .line > :not(a), div > p:not(.line)")) {
      const [place, style] = [made.getBoundingClientRect(), getComputedStyle(made)];
      const [x, y] = [place.left - left, place.top - first.top];
      on.fillStyle = made.matches(".phase") ? style.backgroundColor : style.color;
      if (made.matches(".phase")) {
        on.fillRect(x, y, place.width, place.height);
        continue;
      }
      on.font = style.font;
      on.fillText(inOrder(made.textContent ?? ""), x, y + place.height / 2, Math.min(place.width, width - x));
    }
  } };
}

/** One that is over. @param {any} capture @param {boolean} [here] on a page of its own, beside its traces */
export function over(capture, here = false) {
  const traces = capture.targets.filter((/** @type {any} */ target) => target.trace);
  const all = !here && traces.length > 1 && h("a", { href: `#/capture/${encodeURIComponent(capture.capture)}` }, "All its traces");
  return saved(capture, [all], capture.targets.map(isOver));
}

/** @param {any} capture */
const leftOut = (capture) => capture.targets_left_out > 0 && h("p", { class: "dim" }, `… and ${whole(capture.targets_left_out)} more of its processes.`);

/** Of its window. @param {any} capture */
export const lengthOf = (capture) =>
  capture.iterations ? counted(capture.iterations, "step") : capture.duration_ns ? duration(capture.duration_ns) : "until it is stopped";

/** @param {any} capture */
function about(capture) {
  const whose = `of ${capture.owner}`;
  return printable([whose, lengthOf(capture), capture.finished_ns ? `ended ${moment(capture.finished_ns)}` : "", capture.reason ?? ""].filter(Boolean).join(" · "));
}

/** By the clock: the page may stay as it is for hours. @param {number | bigint} unixNs */
const moment = (unixNs) => new Date(Number(unixNs) / 1e6).toLocaleString("en-GB");

/** @param {any} target */
function head(target) {
  const rank = target.rank === null ? "" : ` (rank ${target.rank})`;
  const source = target.sources.length ? ` by ${target.sources.join("+")}` : "";
  return [h("span", {}, ...sentence(printable(`pid ${target.pid}${rank}: ${target.state}${source}`))), h("code", { class: "dim" }, shownCommand(target.command))];
}

/** @param {any} capture @param {any} target */
function goesOn(capture, target) {
  const passed = target.passed.map((/** @type {any} */ one) => ({ name: WORDS[one.state] ?? one.state, at: Number(one.at_ns) }));
  const grows = h("div", { class: "grows" });
  const draw = () => {
    const now = Date.now() * 1e6 + ahead.ns;
    const phases = passed.map((/** @type {any} */ one, /** @type {number} */ place) =>
      ({ name: one.name, duration_ns: Math.max(0, (passed[place + 1]?.at ?? now) - one.at) }));
    const last = phases[phases.length - 1];
    const of = last.name === "window" && capture.duration_ns ? ` of ${duration(capture.duration_ns)}` : "";
    fill(grows, waterfall(phases, `${last.name} ${seconds(last.duration_ns)}${of} so far`));
  };
  grows.addEventListener("grow", draw);
  draw();
  return h("div", {}, h("p", { class: "line" }, ...head(target)), target.doing && h("p", { class: "dim" }, ...sentence(shown(target.doing))), grows);
}

/** @param {any} target */
function isOver(target) {
  const good = ENDS_WELL.includes(target.state);
  const events = target.events === null ? null : counted(target.events, "event");
  return h("div", {},
    h("p", { class: "line" }, ...head(target), target.trace && h("a", { href: `#/trace/${target.trace}` }, `Trace ${target.trace}`), events),
    target.message && h("p", { class: good ? "dim" : "new" }, ...sentence(`${good ? "" : "▲ "}${shown(target.message)}`)),
    target.waterfall.length > 0 && waterfall(target.waterfall));
}

/** Phases side by side, as long as they took, and in words. @param {{name: string, duration_ns: number}[]} phases
 * @param {string} [last] in the place of the last one's words */
function waterfall(phases, last = undefined) {
  const words = phases.map((one) => `${one.name} ${duration(one.duration_ns)}`);
  if (last) words[words.length - 1] = last;
  const bars = phases.map((one) => {
    const bar = h("span", { class: `phase ${KINDS[one.name] ?? "other"}`, title: `${printable(one.name)} ${duration(one.duration_ns)}` });
    bar.style.flexGrow = String(one.duration_ns);
    return bar;
  });
  return h("div", {}, h("div", { class: "waterfall", "aria-hidden": "true" }, ...bars), h("p", { class: "dim" }, printable(words.join(" · "))));
}

/** Whole tenths, so that nothing flickers. @param {number} ns */
const seconds = (ns) => `${(ns / 1e9).toFixed(1)} s`;

/** @param {string} capture @param {any} button @param {Element} told */
async function end(capture, button, told) {
  button.disabled = true;
  fill(told, "It is asked to end …");
  reach(told, false); // a button that cannot be pressed has no focus
  try {
    await order("stop", { capture });
  } catch (error) {
    button.disabled = false;
    fill(told, problem(error));
  }
}
