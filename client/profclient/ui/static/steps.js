// @ts-check
// Durations of steps as a chart: one column a step, or the longest of those that share a column of pixels.

import { inked } from "./canvas.js";
import { fill, h } from "./dom.js";
import { saveButton, sightOf } from "./picture.js";
import { counted, duration, printable } from "./units.js";

const HEIGHT = 140; // pixels of the chart
const HEAD = 12; // above the longest step, for the mark of outliers
const FAR = 10; // steps of PageUp and PageDown

const HELP = " A click chooses one, or the arrow keys and Enter.";

/** How many there are, and how many are slow. @param {any} told of `steps` @param {string} [help] */
export function stepWords(told, help = HELP) {
  const slow = told.outliers?.n
    ? `; ${told.outliers.n} took longer than ${duration(told.outliers.above_ns)} (▼)`
    : "";
  return `${counted(told.n, "step")} (from ${printable(told.from)})${slow}.${help}`;
}

/** @param {any} told of `steps` @param {(step: number | null) => void} choose
 * @returns {{element: Element, select: (step: number | null) => void}} */
export function stepChart(told, choose) {
  /** @type {any[]} */
  const steps = told.steps;
  const first = columnsOf(steps, 1)[0].longest;
  const longest = Math.max(steps[first].duration_ns, 1);
  const canvas = /** @type {HTMLCanvasElement} */ (h("canvas", { height: HEIGHT }));
  const said = h("output", { class: "line" });
  let [at, selected] = [first, -1];

  const slider = h(
    "div",
    {
      class: "steps", role: "slider", tabindex: 0, "aria-label": "Steps", "aria-description": HELP.trim(), "aria-valuemin": steps[0].number,
      "aria-valuemax": steps[steps.length - 1].number, onkeydown: key, onpointermove: point, onpointerleave: leave,
      onclick: (/** @type {PointerEvent} */ event) => { point(event); choose(steps[at].number); },
      onfocus: draw, onblur: draw,
    },
    canvas,
  );
  const save = saveButton("Steps", () => sightOf(canvas, [stepWords(told, ""), `The longest takes ${duration(longest)}.`]));
  const scale = h("div", { class: "scale", "aria-hidden": true }, h("span", {}, duration(longest)), h("span", {}, "0"));
  const element = h("div", { class: "chart" }, scale, h("div", { class: "plot" }, slider, h("div", { class: "line spread" }, said, save)));
  new ResizeObserver(draw).observe(slider);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  say();

  function draw() {
    const style = getComputedStyle(slider);
    const color = (/** @type {string} */ name) => style.getPropertyValue(`--${name}`);
    const width = slider.clientWidth;
    if (!width) return;
    const paint = inked(canvas, width, HEIGHT);
    for (const { left, right, longest: step, outlier, has } of columnsOf(steps, width)) {
      const tall = Math.max(1, (steps[step].duration_ns / longest) * (HEIGHT - HEAD));
      const gap = right - left > 3 ? 1 : 0;
      paint.fillStyle = color(has(selected) ? "chosen" : outlier ? "slow" : "bar");
      paint.fillRect(left, HEIGHT - tall, right - left - gap, tall);
      if (outlier) mark(paint, (left + right) / 2, HEIGHT - tall - 2, color("slow"));
      if (has(at) && document.activeElement === slider) {
        paint.strokeStyle = color("text");
        paint.strokeRect(left + 0.5, 0.5, Math.max(right - left - 1, 1), HEIGHT - 1);
      }
    }
  }

  function say() {
    const step = steps[at];
    const busy = step.device_busy_ns === null ? "" : `, devices busy ${duration(step.device_busy_ns)}, idle ${duration(step.device_idle_ns)}`;
    const text = printable(`step ${step.number}: ${duration(step.duration_ns)}${step.outlier ? ", slow" : ""}${busy}`);
    slider.setAttribute("aria-valuenow", step.number);
    slider.setAttribute("aria-valuetext", text);
    fill(said, text);
  }

  /** @param {number} place */
  function move(place) {
    at = Math.min(Math.max(place, 0), steps.length - 1);
    say();
    draw();
  }

  /** @param {PointerEvent} event */
  function point(event) {
    const { left, width } = slider.getBoundingClientRect();
    const some = columnsOf(steps, width).find((one) => event.clientX - left < one.right);
    move(some ? some.longest : steps.length - 1);
  }

  function leave() {
    if (selected >= 0) move(selected);
  }

  /** @param {KeyboardEvent} event */
  function key(event) {
    /** @type {Record<string, () => void>} */
    const keys = {
      ArrowLeft: () => move(at - 1), ArrowDown: () => move(at - 1), ArrowRight: () => move(at + 1),
      ArrowUp: () => move(at + 1), PageUp: () => move(at + FAR), PageDown: () => move(at - FAR),
      Home: () => move(0), End: () => move(steps.length - 1),
      Enter: () => choose(steps[at].number), " ": () => choose(steps[at].number), Escape: () => choose(null),
    };
    if (!keys[event.key] || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    keys[event.key]();
  }

  const select = (/** @type {number | null} */ number) => {
    selected = number === null ? -1 : steps.findIndex((one) => one.number === number);
    if (selected >= 0) move(selected);
    else draw();
  };
  return { element, select };
}

/** Which steps each column of pixels stands for. @param {any[]} steps @param {number} width */
export function columnsOf(steps, width) {
  const count = Math.min(steps.length, Math.max(1, Math.floor(width)));
  return Array.from({ length: count }, (_, place) => {
    const first = Math.floor((place * steps.length) / count);
    const end = Math.floor(((place + 1) * steps.length) / count);
    let longest = first;
    let outlier = false;
    for (let one = first; one < end; one++) {
      if (steps[one].duration_ns > steps[longest].duration_ns) longest = one;
      outlier ||= steps[one].outlier;
    }
    const has = (/** @type {number} */ step) => first <= step && step < end;
    return { left: (place * width) / count, right: ((place + 1) * width) / count, longest, outlier, has };
  });
}

/** @param {CanvasRenderingContext2D} paint @param {number} x @param {number} y @param {string} color */
function mark(paint, x, y, color) {
  paint.fillStyle = color;
  paint.beginPath();
  paint.moveTo(x - 4, y - 7);
  paint.lineTo(x + 4, y - 7);
  paint.lineTo(x, y);
  paint.fill();
}
