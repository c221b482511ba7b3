// @ts-check
// Memory of a trace that was recorded with --memory: allocated, freed, and still alive by stack, as `profctl memory` says it.

import { ask } from "./ask.js";
import { h, load, section, sentence } from "./dom.js";
import { table } from "./table.js";
import { counted, printable, shown, signedSize, size, whole, wholeName } from "./units.js";

const STACKS = 200;
const STACK_CHARS = 600; // of a stack in its cell, from the innermost call on; its title has more

/** Nothing is asked before `begin`: most traces have no record of memory. @param {string} trace
 * @returns {{element: Element, begin: () => void, narrow: (part: Record<string, any>) => void}} */
export function memoryPart(trace) {
  const element = h("div");
  const found = h("div");
  /** @type {Record<string, any>} */
  let part = {};
  const draw = () => load(found, (signal) => ask("memory", trace, { limit: STACKS, ...part }, signal), (told) => memory(told, trace));
  return {
    element,
    begin: () => { element.replaceChildren(section("Memory", found)); draw(); },
    narrow: (wanted) => { part = wanted; if (found.isConnected) draw(); },
  };
}

/** @param {any} told @param {string} trace */
function memory(told, trace) {
  const { devices, alive, message } = told;
  return [
    devices.length ? table("Memory by device", deviceColumns(devices), devices) : null,
    ...(alive ? stacks(alive, trace) : []),
    message && h("p", { class: "dim" }, ...sentence(printable(message))),
  ];
}

/** @param {any} alive @param {string} trace */
function stacks(alive, trace) {
  if (!alive.blocks) return [h("p", {}, "Nothing that was allocated in this part is still alive.")];
  const words = `Still alive: ${size(alive.bytes)} in ${counted(alive.blocks, "block")} of ${counted(alive.stacks, "stack")}. `
    + "What grows was allocated in more than half of the steps, and not freed.";
  const more = alive.left_out > 0 && h("p", { class: "dim" }, `… ${counted(alive.left_out, "stack")} with fewer bytes left out; profctl memory ${trace} --limit 0 has more.`);
  return [h("p", {}, words), table("Still alive", stackColumns(), alive.rows), more];
}

/** Calls, the innermost last; of a deep stack those around it. @param {string[]} stack innermost first */
export function stackWords(stack) {
  let text = "";
  for (const one of stack) {
    if (text && text.length + shown(one).length > STACK_CHARS) return `… > ${text}`;
    text = text ? `${shown(one)} > ${text}` : shown(one);
  }
  return text || "(no call around it)";
}

/** Where memory is. @param {any} row */
const where = (row) => printable(row.device_type + (row.device === null ? "" : ` ${row.device}`));

/** @param {any[]} rows @returns {import("./table.js").Column[]} */
function deviceColumns(rows) {
  const bytes = (/** @type {string} */ name, /** @type {string} */ key, /** @type {(count: number | null) => string} */ show = size) => ({
    name, number: true, of: (/** @type {any} */ row) => row[key], show: (/** @type {any} */ row) => show(row[key]),
  });
  const number = (/** @type {string} */ name, /** @type {string} */ key) => bytes(name, key, (count) => (count === null ? "-" : whole(count)));
  const spare = [bytes("Reserved", "peak_reserved_bytes"), number("Out of memory", "out_of_memory")];
  return [
    { name: "Where", of: where },
    bytes("Allocated", "allocated_bytes"), number("Times", "allocations"), bytes("Freed", "freed_bytes"), number("Frees", "frees"),
    bytes("Net", "net_bytes", signedSize), bytes("Peak", "peak_bytes"),
    ...spare.filter((column) => rows.some((row) => column.of(row))),
  ];
}

/** @returns {import("./table.js").Column[]} */
function stackColumns() {
  return [
    { name: "Bytes", number: true, of: (row) => row.bytes, show: (row) => size(row.bytes) },
    { name: "Blocks", number: true, of: (row) => row.blocks, show: (row) => whole(row.blocks) },
    { name: "Steps", number: true, title: "With such a block", of: (row) => row.steps, show: (row) => (row.steps === null ? "-" : whole(row.steps)) },
    { name: "Grows", of: (row) => row.grows, show: (row) => (row.grows ? h("span", { class: "slower" }, "▲ grows") : "") },
    { name: "Where", of: where },
    { name: "Stack, ends with the innermost call", of: (row) => stackWords(row.stack),
      show: (row) => stackWords(row.stack), whole: (row) => wholeName(row.stack.join("\n")) },
  ];
}
