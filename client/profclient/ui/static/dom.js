// @ts-check
// Elements, made of text: no name of a trace is ever markup. The page's policy forbids it as well (Trusted Types).

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

/** A part of a page under a heading. @param {string} title @param {...Content} content */
export function section(title, ...content) {
  return h("section", { "aria-label": title }, h("h2", {}, title), ...content);
}

/** Put this in the place of what an element has. @param {Element} element @param {...Content} content */
export function fill(element, ...content) {
  element.replaceChildren(...content.filter((one) => one !== null && one !== undefined && one !== false));
}

/** What went wrong, and a way to try again. @param {any} error @param {() => void} [again] */
export function problem(error, again = undefined) {
  return h(
    "div",
    { class: "problem", role: "alert" },
    h("p", {}, error instanceof Error ? error.message : String(error)),
    again && h("button", { type: "button", onclick: again }, "Try again"),
  );
}

/** Fill an element with what comes, with what is said meanwhile, or with what went wrong.
 * @template T @param {Element} element @param {() => Promise<T>} asked @param {(answer: T) => Content[]} shown
 * @returns {Promise<void>} */
export async function load(element, asked, shown) {
  element.setAttribute("aria-busy", "true");
  const turn = String(Number(element.getAttribute("data-turn") ?? 0) + 1);
  element.setAttribute("data-turn", turn);
  const late = () => element.getAttribute("data-turn") !== turn; // something else was asked for since
  const slow = setTimeout(() => { if (!late()) fill(element, h("p", { class: "dim" }, "Asking …")); }, 150);
  try {
    const answer = await asked();
    if (!late()) fill(element, ...shown(answer));
  } catch (error) {
    if (!late()) fill(element, problem(error, FINAL.includes(/** @type {any} */ (error).kind) ? undefined : () => load(element, asked, shown)));
  } finally {
    clearTimeout(slow);
    if (!late()) element.removeAttribute("aria-busy");
  }
}
