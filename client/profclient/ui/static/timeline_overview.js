// @ts-check
// All of a trace in a strip over its timeline: its steps, what was searched for, and which part is in view.

import { inked } from "./canvas.js";
import { h } from "./dom.js";
import { gutterOf } from "./timeline_paint.js";

const HEIGHT = 18; // pixels
const LEAST = 3; // of the part in view

/** @typedef {import("./timeline_paint.js").Scene} Scene */

/** @param {number} span ns of the trace @param {(at: number) => void} go to a moment
 * @returns {{element: HTMLElement, draw: (scene: Scene) => void}} keys move the timeline itself */
export function overview(span, go) {
  const canvas = /** @type {HTMLCanvasElement} */ (h("canvas", { class: "overview", height: HEIGHT, "aria-hidden": "true" }));
  const at = (/** @type {PointerEvent} */ event) => {
    const { left, width } = canvas.getBoundingClientRect();
    go(((event.clientX - left - gutterOf(width)) / Math.max(width - gutterOf(width), 1)) * span);
  };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    at(event);
  });
  canvas.addEventListener("pointermove", (event) => { if (event.buttons & 1) at(event); });

  const draw = (/** @type {Scene} */ { window: { from, to }, steps, hits, width, gutter, color }) => {
    canvas.style.width = `${width}px`; // less than the page's where tracks scroll
    const paint = inked(canvas, width, HEIGHT);
    const x = (/** @type {number} */ moment) => gutter + (moment / span) * (width - gutter);
    paint.fillStyle = color("raised");
    paint.fillRect(0, 0, width, HEIGHT);
    paint.fillStyle = color("dim");
    paint.font = '12px system-ui, "DejaVu Sans", sans-serif';
    paint.textBaseline = "middle";
    paint.fillText("all of the trace", 6, HEIGHT / 2, gutter - 12);
    paint.fillStyle = color("back");
    paint.fillRect(x(from), 0, Math.max(x(to) - x(from), LEAST), HEIGHT);
    const slow = steps.filter(({ outlier }) => outlier);
    for (const [some, name, high] of /** @type {[{start: number, end: number}[], string, number][]} */ ([[steps, "bar", 5], [slow, "slow", 8]])) {
      paint.fillStyle = color(name);
      let until = -1; // of 10^5 steps one is drawn for each pixel
      for (const { start, end } of some) {
        const [left, right] = [x(start), Math.max(x(end), x(start) + 1)];
        if (right <= until) continue;
        until = Math.ceil(right);
        paint.fillRect(left, HEIGHT - high, Math.max(right - left - (right - left > 3 ? 1 : 0), 1), high);
      }
    }
    paint.fillStyle = color("found");
    for (const hit of hits) paint.fillRect(x(hit) - 1, 0, 2, HEIGHT / 2);
    paint.strokeStyle = color("text");
    paint.strokeRect(x(from) + 0.5, 0.5, Math.max(x(to) - x(from) - 1, LEAST), HEIGHT - 1);
  };
  return { element: canvas, draw };
}
