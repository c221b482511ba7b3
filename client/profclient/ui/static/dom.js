// @ts-check
// Elements, made of text: no name of a trace is ever markup. The page's policy forbids it as well (Trusted Types).

import { apart } from "./units.js";

const SLOW_MS = 150; // sooner nobody needs to be told to wait
const FINAL = ["usage", "not_found", "denied"]; // kinds of problems that another try does not mend

/** @typedef {Node | string | null | undefined | false} Content */

/** An element with attributes and content; strings become text nodes, handlers are named `onclick`, ….
 * @param {string} name @param {Record<string, any>} [given] @param {...Content} content @returns {HTMLElement} */
export function h(name, given = {}, ...content) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(given)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  element.append(...content.filter((one) => one !== null && one !== undefined && one !== false));
  return element;
}

/** A sentence with names in it: those from right to left change the order of nothing else. @param {string} text */
export const sentence = (text) => apart(text).map((piece, at) => (at % 2 ? h("bdi", {}, piece) : piece)).filter((piece) => piece !== "");

/** A part of a page under a heading. @param {string} title @param {...Content} content */
export function section(title, ...content) {
  return h("section", { "aria-label": title }, h("h2", {}, title), ...content);
}

/** Put this in the place of what an element has. Where the focus was within it, the element has it now: from the begin of a page
 * whoever has no mouse would have to come back. @param {Element} element @param {...Content} content */
export function fill(element, ...content) {
  const focused = element !== document.activeElement && element.contains(document.activeElement);
  element.replaceChildren(...content.filter((one) => one !== null && one !== undefined && one !== false));
  if (focused) reach(element, false);
}

/** Give something the focus that is no control. @param {Element} element @param {boolean} [seen] whether it is scrolled to */
export function reach(element, seen = true) {
  if (!(element instanceof HTMLElement)) return;
  if (!element.hasAttribute("tabindex")) element.tabIndex = -1;
  element.focus({ preventScroll: true });
  if (seen) element.scrollIntoView({ block: "nearest" });
}

/** What went wrong, and a way to try again. @param {any} error @param {() => void} [again] */
export function problem(error, again = undefined) {
  return h(
    "div",
    { class: "problem", role: "alert" },
    h("p", {}, ...sentence(error instanceof Error ? error.message : String(error))),
    again && h("button", { type: "button", onclick: again }, "Try again"),
  );
}

/** What elements wait for. @type {Map<Element, AbortController>} */
const awaited = new Map();

/** Fill an element with what comes, with what is said meanwhile, or with what went wrong. What it waited for before is
 * given up: the server hears of it, and ends the question.
 * @template T @param {Element} element @param {(signal: AbortSignal) => Promise<T>} asked
 * @param {(answer: T) => Content[]} shown @param {Element} [waiting] what is said meanwhile @returns {Promise<void>} */
export async function load(element, asked, shown, waiting = h("p", { class: "dim" }, "Asking …")) {
  awaited.get(element)?.abort();
  const mine = new AbortController();
  awaited.set(element, mine);
  element.setAttribute("aria-busy", "true");
  const slow = setTimeout(() => fill(element, waiting), SLOW_MS);
  mine.signal.addEventListener("abort", () => clearTimeout(slow));
  try {
    const answer = await asked(mine.signal);
    if (!mine.signal.aborted) fill(element, ...shown(answer));
  } catch (error) {
    const final = FINAL.includes(/** @type {any} */ (error).kind);
    if (!mine.signal.aborted) fill(element, problem(error, final ? undefined : () => load(element, asked, shown, waiting)));
  } finally {
    clearTimeout(slow);
    if (awaited.get(element) === mine) {
      awaited.delete(element);
      element.removeAttribute("aria-busy");
    }
  }
}

/** Whether a question's problem is that its trace is not there, or not this reader's: nothing of the page is left then.
 * @param {any} error */
export const isGone = (error) => ["not_found", "denied"].includes(error.kind);

/** Give up what the elements of a page wait for: it is left. */
export function leave() {
  for (const one of awaited.values()) one.abort();
  awaited.clear();
}
