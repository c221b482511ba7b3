// @ts-check
// Durations, sizes and names for people, written as `profctl` writes them.

const NAME_CHARS = 300; // of a name in a table; its title has more
const TITLE_CHARS = 2000;

/** Ns in at most four digits and a unit. @param {number | bigint | null | undefined} ns */
export function duration(ns) {
  if (ns === null || ns === undefined) return "-";
  const value = Number(ns);
  for (const [unit, scale] of /** @type {[string, number][]} */ ([["s", 1e9], ["ms", 1e6], ["us", 1e3]])) {
    if (Math.abs(value) >= scale) return `${digits(value / scale)} ${unit}`;
  }
  return `${Math.trunc(value)} ns`;
}

/** @param {number} value */
function digits(value) {
  const size = Math.abs(value);
  return value.toFixed(size >= 1000 ? 0 : size >= 100 ? 1 : 2);
}

/** Bytes. @param {number | null | undefined} count */
export function size(count) {
  if (count === null || count === undefined) return "-";
  let value = count;
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (Math.abs(value) < 1000) return unit === "B" ? `${value} B` : `${value.toFixed(1)} ${unit}`;
    value /= 1000;
  }
  return `${value.toFixed(1)} TB`;
}

/** `1 event`, `2 events`. @param {number} number @param {string} noun */
export const counted = (number, noun) => `${whole(number)} ${noun}${number === 1 ? "" : "s"}`;

const WHOLE = new Intl.NumberFormat("en"); // made once: to find it for each number takes as long as to write it

/** @param {number | bigint} number */
export const whole = (number) => WHOLE.format(number);

/** @param {number | null | undefined} share */
export const percent = (share) => (share === null || share === undefined ? "-" : `${(100 * share).toFixed(1)} %`);

/** `12 %`, `0.4 %`. @param {number} part @param {number} all */
export function shareOf(part, all) {
  const found = all ? (100 * part) / all : 0;
  return `${found.toFixed(found >= 1 || !part ? 0 : 1)} %`;
}

/** Bytes that were added or taken. @param {number | null} count */
export const signedSize = (count) => (count === null || count < 0 ? size(count) : `+${size(count)}`);

/** How long ago a moment was. @param {number | bigint | null} unixNs */
export function ago(unixNs) {
  if (!unixNs) return "-";
  const seconds = Math.max(0, Date.now() / 1000 - Number(unixNs) / 1e9);
  for (const [unit, length] of /** @type {[string, number][]} */ ([["d", 86400], ["h", 3600], ["min", 60]])) {
    if (seconds >= 2 * length) return `${Math.floor(seconds / length)} ${unit} ago`;
  }
  return `${Math.floor(seconds)} s ago`;
}

/** Text of a target without what a page would obey: controls, marks of direction, halves of letters.
 * @param {any} text */
export function printable(text) {
  return String(text).replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, "\ufffd");
}

const RIGHT_TO_LEFT = "[\\u0590-\\u08ff\\ufb1d-\\ufdff\\ufe70-\\ufefe\\u{10800}-\\u{10fff}\\u{1e800}-\\u{1efff}]";
/** Words that are written from right to left, one after the other. */
const WORDS = new RegExp(`${RIGHT_TO_LEFT}+(?:[\\p{M} _./-]*${RIGHT_TO_LEFT}+)*`, "gu");

/** Words from right to left by themselves: without this, a number behind them stands before them. Every other piece is such words.
 * @param {string} text @returns {string[]} */
export function apart(text) {
  const words = text.match(WORDS) ?? [];
  return text.split(WORDS).flatMap((piece, at) => (at < words.length ? [piece, words[at]] : [piece]));
}

/** The same of a text that is drawn, or an option: by marks. @param {string} text */
export const inOrder = (text) => apart(text).map((piece, at) => (at % 2 ? `\u2068${piece}\u2069` : piece)).join("");

/** A name as it is shown: printable, without the folder of its file, and not without end. @param {any} name */
export function shown(name) {
  const text = printable(String(name).slice(0, 4 * TITLE_CHARS)).replace(/^.*\/(?=[^/]*\.py\(\d+\): )/, "");
  return text.length > NAME_CHARS ? `${text.slice(0, NAME_CHARS)}…` : text;
}

/** A command line as it is shown: of the path of an interpreter, which fills a table, the name alone. @param {any} command */
export function shownCommand(command) {
  return shown(String(command).slice(0, 4 * TITLE_CHARS).replace(/^\S*\/(?=(?:python|pypy)[^\s/]* )/, ""));
}

/** A name for a title: whole, but for one without end. @param {any} name */
export function wholeName(name) {
  const text = String(name);
  const more = text.length > TITLE_CHARS ? `… (${counted(text.length, "character")})` : "";
  return printable(text.slice(0, TITLE_CHARS)) + more;
}
