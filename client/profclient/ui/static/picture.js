// @ts-check
// A chart as a file: what is seen of it now, under its words, in the colors of the page.

import { inked } from "./canvas.js";
import { h } from "./dom.js";
import { inOrder } from "./units.js";

const EDGE = 12; // pixels around
const LINE = 20; // pixels of a line of words
const KEPT_MS = 60_000; // a browser may ask where to put a file before it reads it

/** @typedef {CanvasRenderingContext2D} Paint
 * @typedef {{width: number, height: number, words?: (string | null)[], paint: (on: Paint) => void}} Sight in pixels of the page */

/** @param {string} what is saved, as its heading says @param {() => Sight} sight */
export const saveButton = (what, sight) => h("button", { type: "button", title: `${what} as a PNG file`, "aria-label": `Save picture: ${what}`, onclick: () => save(what, sight()) }, "Save picture");

/** A canvas as it is. @param {HTMLCanvasElement} canvas @param {(string | null)[]} [words] @returns {Sight} */
export function sightOf(canvas, words = []) {
  const { clientWidth: width, clientHeight: height } = canvas;
  return { width, height, words, paint: (on) => on.drawImage(canvas, 0, 0, width, height) };
}

/** @param {string} what @param {Sight} sight */
function save(what, { width, height, words = [], paint }) {
  const canvas = document.createElement("canvas");
  const lines = [`${what} · ${document.title}`, ...words.filter((one) => one)];
  const head = LINE * lines.length;
  const on = inked(canvas, width + 2 * EDGE, head + height + 2 * EDGE);
  const style = getComputedStyle(document.body);
  on.fillStyle = style.getPropertyValue("--back");
  on.fillRect(0, 0, canvas.width, canvas.height);
  on.fillStyle = style.getPropertyValue("--text");
  on.textBaseline = "middle";
  lines.forEach((line, at) => {
    on.font = `${at ? 400 : 700} 13px ${style.fontFamily}`;
    on.fillText(inOrder(String(line)), EDGE, EDGE + LINE * at + LINE / 2, width);
  });
  on.translate(EDGE, EDGE + head);
  paint(on);
  canvas.toBlob((data) => data && hand(data, fileName(what)), "image/png");
}

/** `profd-steps-1nghd2qkfv2s6.png`: the traces are those of the page's address. @param {string} what @param {string} [kind] */
export function fileName(what, kind = "png") {
  const ids = location.hash.split("?")[0].split("/").slice(2).filter((one) => /^[a-z0-9]+$/.test(one));
  return `${["profd", ...what.toLowerCase().split(" "), ...ids].join("-")}.${kind}`;
}

/** @param {Blob} data @param {string} name */
export function hand(data, name) {
  const address = URL.createObjectURL(data);
  h("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), KEPT_MS);
}
