// @ts-check
// A question in SQL, its answer as a table, and a way to stop it.

import { ask } from "./ask.js";
import { csvButton } from "./csv.js";
import { fill, h, problem } from "./dom.js";
import { table } from "./table.js";
import { counted, printable, shown, wholeName } from "./units.js";

const ROWS = 1000;
const FIRST = "SELECT name, count(*) AS calls, sum(self_ns) AS self_ns\nFROM events GROUP BY name ORDER BY self_ns DESC LIMIT 20";

/** `narrow`: to this part of the trace, in these words.
 * @param {string} trace @returns {{element: Element, narrow: (part: Record<string, any>, words: string) => void}} */
export function sqlForm(trace) {
  /** @type {Record<string, any>} */
  let part = {};
  const of = h("p", { class: "dim", role: "status" });
  const text = /** @type {HTMLTextAreaElement} */ (
    h("textarea", { rows: 4, spellcheck: "false", "aria-label": "Question in SQL", onkeydown: key }, FIRST)
  );
  const found = h("div", { role: "status" });
  const run = h("button", { type: "submit" }, "Ask (Ctrl+Enter)");
  const stop = h("button", { type: "button", disabled: true, onclick: () => asked?.abort() }, "Stop");
  /** @type {AbortController | null} */
  let asked = null;

  const form = /** @type {HTMLFormElement} */ (
    h("form", { onsubmit: submit }, text, h("p", { class: "line" }, run, stop,
      h("span", { class: "dim" }, "Tables: events, flows, backward, args, tensors, threads, processes. DESCRIBE events lists columns.")), of, found)
  );

  /** @param {KeyboardEvent} event */
  function key(event) {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  }

  /** @param {Event} event */
  async function submit(event) {
    event.preventDefault();
    asked?.abort();
    const mine = new AbortController();
    asked = mine;
    stop.removeAttribute("disabled");
    fill(found, h("p", { class: "dim" }, "Asking …"));
    try {
      const told = await ask("sql", trace, { sql: text.value, limit: ROWS, ...part }, mine.signal);
      fill(found, ...rowsOf(told));
    } catch (error) {
      if (asked === mine) fill(found, mine.signal.aborted ? h("p", { class: "dim" }, "Stopped.") : problem(error));
    } finally {
      if (asked === mine) {
        if (document.activeElement === stop) run.focus();
        stop.setAttribute("disabled", "");
      }
    }
  }
  const narrow = (/** @type {Record<string, any>} */ wanted, /** @type {string} */ words) => {
    part = wanted;
    fill(of, Object.keys(part).length ? `The tables events and args have what has a part in ${words}; all others are of the whole trace.` : null);
  };
  return { element: form, narrow };
}

/** @param {any} told */
function rowsOf(told) {
  const columns = told.columns.map((/** @type {any} */ column, /** @type {number} */ place) => ({
    name: printable(column.name),
    title: printable(column.type),
    number: /INT|DOUBLE|FLOAT|DECIMAL/.test(column.type) && !column.type.endsWith("[]"),
    of: (/** @type {any[]} */ row) => row[place],
    show: (/** @type {any[]} */ row) => shown(written(row[place])),
    whole: (/** @type {any[]} */ row) => wholeName(written(row[place])),
  }));
  const cut = told.truncated ? `The first ${counted(told.rows.length, "row")}; profctl sql --limit has more.` : counted(told.rows.length, "row");
  return [table("Rows", columns, told.rows), h("p", { class: "line dim" }, h("span", {}, cut), csvButton("SQL", columns, told.rows))];
}

/** @param {any} value */
function written(value) {
  if (value === null) return "";
  const exact = (/** @type {string} */ _, /** @type {any} */ one) => (typeof one === "bigint" ? String(one) : one);
  return typeof value === "object" ? JSON.stringify(value, exact) : String(value);
}
