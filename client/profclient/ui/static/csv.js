// @ts-check
// Rows of a table as a CSV file, with exact numbers; no name in it is a formula to a spreadsheet.

import { h } from "./dom.js";
import { fileName, hand } from "./picture.js";

const FORMULA = /^[=+\-@\t\r]/;

/** @param {string} what as its heading says @param {import("./table.js").Column[]} columns @param {any[]} rows */
export const csvButton = (what, columns, rows) =>
  h("button", { type: "button", title: `${what} as a CSV file`, "aria-label": `Save CSV: ${what}`, onclick: () => hand(new Blob([csvOf(columns, rows)], { type: "text/csv" }), fileName(what, "csv")) }, "Save CSV");

/** Numbers as they are, in ns and bytes; texts as they are, and in quotes. @param {import("./table.js").Column[]} columns
 * @param {any[]} rows */
export function csvOf(columns, rows) {
  const lines = [columns.map(({ name }) => written(name)), ...rows.map((row) => columns.map(({ of }) => written(of(row))))];
  return lines.map((cells) => `${cells.join(",")}\r\n`).join("");
}

/** @param {any} value */
function written(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number" || typeof value === "bigint" || typeof value === "boolean") return String(value);
  const exact = (/** @type {string} */ _, /** @type {any} */ one) => (typeof one === "bigint" ? String(one) : one);
  const text = typeof value === "object" ? JSON.stringify(value, exact) : String(value);
  return `"${FORMULA.test(text) ? "'" : ""}${text.replaceAll('"', '""')}"`;
}
