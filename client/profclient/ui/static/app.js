// @ts-check
// Which page an address names: `#/`, `#/now`, `#/captures`, `#/capture/ID`, `#/ranks/ID`, `#/trace/ID?step=7`, `#/perfetto/ID`, `#/compare/A/B?by=name`. The
// address is all of the state, so that it can be copied, and gone back to.

import { enter, host } from "./ask.js";
import { capturesPage } from "./captures.js";
import { comparePage } from "./compare.js";
import { fill, h, leave, problem } from "./dom.js";
import { nowPage } from "./now.js";
import { perfettoPage } from "./perfetto.js";
import { ranksPage } from "./ranks.js";
import { tracePage } from "./trace.js";
import { tracesPage } from "./traces.js";
import { printable } from "./units.js";

/** @typedef {{element: Element, title: string, update?: (given: URLSearchParams) => void, close?: () => void}} Page */

const main = /** @type {HTMLElement} */ (document.getElementById("page"));
/** @type {{path: string, page: Page} | null} */
let open = null;

/** @param {string} path @returns {((given: URLSearchParams) => Page) | null} */
function found(path) {
  const [, kind, one, other] = path.split("/");
  if (kind === "") return () => tracesPage("");
  if (kind === "now") return () => nowPage();
  if (kind === "captures") return () => capturesPage();
  if (kind === "capture" && one) return () => tracesPage(one);
  if (kind === "ranks" && one) return () => ranksPage(one);
  if (kind === "trace" && one) return (given) => tracePage(one, given);
  if (kind === "perfetto" && one) return (given) => perfettoPage(one, given);
  if (kind === "compare" && one && other) return (given) => comparePage(one, other, given);
  return null;
}

function show() {
  const [path, query = ""] = (location.hash.slice(1) || "/").split("?");
  const given = new URLSearchParams(query);
  if (open?.path === path && open.page.update) {
    open.page.update(given);
    return;
  }
  leave();
  open?.page.close?.();
  open = null;
  const make = found(path);
  if (!make) {
    fill(main, h("h1", {}, "No such page"), problem("This address leads to no page of profctl ui."), h("p", {}, h("a", { href: "#/" }, "All traces")));
    return;
  }
  const page = make(given);
  open = { path, page };
  document.title = `${page.title} · profd`;
  fill(main, page.element);
  for (const link of document.querySelectorAll("nav a:not(.home)")) {
    if (link.getAttribute("href") === `#${path}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  main.focus({ preventScroll: true });
  window.scrollTo(0, 0);
}

async function start() {
  try {
    if (!(await enter())) {
      fill(
        main,
        problem("This tab has no key of the server. Run profctl ui again, and open what it opens or prints."),
      );
      return;
    }
    const { host: name, user, uid, store, write } = await host();
    const where = store ? `the store in ${store}` : `profd on ${name}`;
    fill(/** @type {Element} */ (document.getElementById("host")), printable(`${where}, as ${user}`));
    document.body.dataset.uid = String(uid);
    document.body.toggleAttribute("data-write", write);
    document.body.toggleAttribute("data-store", Boolean(store));
  } catch (error) {
    fill(main, problem(error, start));
    return;
  }
  window.addEventListener("hashchange", show);
  document.querySelector(".skip")?.addEventListener("click", (event) => {
    event.preventDefault(); // its address names no page
    main.focus();
  });
  show();
}

start();
