// @ts-check
// The timeline of a trace: moved and zoomed with mouse and keys, events chosen, a part of it for the other panels.

import { ask } from "./ask.js";
import { fill, h, problem } from "./dom.js";
import { eventPanel } from "./event.js";
import { saveButton, sightOf } from "./picture.js";
import { tileSource } from "./tiles.js";
import { overview } from "./timeline_overview.js";
import { RULER, gutterOf, paintTimeline } from "./timeline_paint.js";
import { ROW, beside, between, boxAt, boxOf, cellAt, layerOf, moved, same, tracksOf, within, zoomed } from "./timeline_layout.js";
import { counted, duration, shown, whole } from "./units.js";

const HEIGHT_MAX = 460; // pixels of what is in view
const FIRST_TRACKS = 60; // that are asked for before it is known how high each is
const NEAR = 3; // pixels between the pointer and a box
const KEY_ZOOM = 1.5;
const KEY_PAN = 0.15; // of the window
const WHEEL = 0.002; // of a zoom, for a pixel of the wheel
const HITS = 1000; // places of the whole trace in which what was searched for is marked
const NOTHING = { events: 0, first: { row: [], start: [], lasts: [], name: [] } }; // of an empty search
const HELP = "W and S zoom, A and D move, a click or Enter chooses, arrow keys go to neighbours, F fits the chosen one, Escape leaves it, "
  + "0 shows all. Ctrl and the wheel zoom, Shift and the wheel move; dragging moves, Shift and dragging zooms.";

/** @typedef {import("./timeline_layout.js").Window} Window
 * @typedef {import("./timeline_layout.js").Box} Box */

/** @param {string} trace @param {any} told of `tiles`, with tracks, of the whole trace @param {any[]} steps of `steps`
 * @param {(window: Window) => void} narrow @param {import("./places.js").Places} places
 * @returns {{element: Element, see: (window: Window) => void, mark: (steps: any[]) => void, view: () => Window, close: () => void}}
 * `mark`: steps that came later */
export function timeline(trace, told, steps, narrow, places) {
  const span = Math.max(Number(told.to_ns), 1);
  const tracks = tracksOf(told.tracks);
  const begin = BigInt(told.start_ns ?? 0);
  const markOf = (/** @type {any} */ one) => {
    const start = Number(BigInt(one.start_ns) - begin);
    return { number: one.number, start, end: start + Number(one.duration_ns), outlier: one.outlier };
  };
  let marks = steps.map(markOf);
  const deep = tracks.length ? tracks[tracks.length - 1].bottom + ROW : ROW;
  /** @type {Window} */
  let view = { from: 0, to: span };
  /** @type {Box | null} */
  let chosen = null;
  /** @type {any} */
  let missing = null; // chosen by its row, and not drawn so far
  /** @type {{start: number, found: {row: number, start: number, lasts: number, label: string}}[]} */
  let hits = [];
  let [sought, hit] = ["", -1];
  /** @type {{x: number, y: number, at: Window, area: boolean, to: number} | null} */
  let drag = null;
  let frame = 0;

  const canvas = /** @type {HTMLCanvasElement} */ (h("canvas", {}));
  const said = h("output", { class: "line" });
  const wrong = h("div");
  const help = h("p", { class: "dim", id: "timeline-help" }, HELP);
  const scroller = h("div", {
    class: "timeline", role: "application", tabindex: 0, "aria-label": told.sketch ? "Timeline, a sketch so far" : "Timeline", "aria-describedby": "timeline-help",
    onkeydown: key, onkeyup: () => source.hurry(span), onscroll: changed, onwheel: wheel, onpointerdown: press, onpointermove: point, onpointerup: release,
    onfocus: draw, onblur: draw,
  }, canvas, h("div", { class: "deep" }));
  const height = Math.min(HEIGHT_MAX, deep + RULER);
  scroller.style.height = `${height}px`;
  /** @type {HTMLElement} */ (scroller.lastElementChild).style.height = `${Math.max(deep + RULER - height, 0)}px`;
  const event = eventPanel(trace, (one) => choose({ ...one, label: one.name, start: Number(one.from_ns), lasts: Number(one.duration_ns ?? 0) }), places);
  event.element.addEventListener("keydown", (/** @type {any} */ { key }) => {
    if (key !== "Escape") return;
    leave();
    scroller.focus();
  });
  const source = tileSource(trace, come, (error) => fill(wrong, problem(error, () => { fill(wrong); changed(); })));
  source.begin(layerOf(told, 0, Math.min(FIRST_TRACKS - 1, Math.max(tracks.length - 1, 0))));
  const strip = overview(span, (moment) => see({ from: moment - (view.to - view.from) / 2, to: moment + (view.to - view.from) / 2 }));
  const search = h("input", { type: "search", placeholder: "Search names", "aria-label": "Search names in the timeline", onkeydown: find });
  const tools = h("p", { class: "line" },
    h("button", { type: "button", onclick: () => see({ from: 0, to: span }) }, "All (0)"),
    h("button", { type: "button", onclick: () => narrow(view) }, "Graph and table of this window"),
    h("button", { type: "button", onclick: inPerfetto }, "Open in Perfetto"), search, saveButton("Timeline", () => sightOf(canvas)));
  new ResizeObserver(changed).observe(scroller);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  dark.addEventListener("change", draw);

  const gutter = () => gutterOf(scroller.clientWidth);

  function scene() {
    const style = getComputedStyle(scroller);
    const color = (/** @type {string} */ name) => style.getPropertyValue(`--${name}`);
    return { window: view, tracks, layers: source.layers(), steps: marks, chosen, hits: hits.map(({ start }) => start), top: scroller.scrollTop, width: scroller.clientWidth, gutter: gutter(), height: scroller.clientHeight, color };
  }

  function draw() {
    cancelAnimationFrame(frame);
    frame = requestAnimationFrame(() => {
      const now = scene();
      if (now.width <= now.gutter) return;
      const ratio = window.devicePixelRatio || 1;
      canvas.style.width = `${now.width}px`;
      canvas.style.height = `${now.height}px`;
      if (canvas.width !== now.width * ratio || canvas.height !== now.height * ratio) {
        canvas.width = now.width * ratio;
        canvas.height = now.height * ratio;
      }
      const paint = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
      paint.setTransform(ratio, 0, 0, ratio, 0, 0);
      paintTimeline(paint, now);
      strip.draw(now);
      if (drag?.area) {
        paint.globalAlpha = 0.3;
        paint.fillStyle = now.color("found");
        paint.fillRect(Math.min(drag.x, drag.to), RULER, Math.abs(drag.to - drag.x), now.height);
      }
      busy();
    });
  }

  const busy = () => scroller.toggleAttribute("aria-busy", source.busy());

  /** What is in view is another part. */
  function changed() {
    const { clientWidth, clientHeight, scrollTop } = scroller;
    if (clientWidth > gutter() && tracks.length) {
      const { first, last } = between(tracks, scrollTop, scrollTop + clientHeight - RULER);
      source.look({ ...view, first, last, width: Math.max(clientWidth - gutter(), 1) }, span);
      busy();
    }
    draw();
  }

  function inPerfetto() {
    const all = view.from <= 0 && view.to >= span;
    location.hash = `/perfetto/${trace}${all ? "" : `?from=${view.from}&to=${view.to}`}`;
  }

  /** @param {Window} wanted */
  function see(wanted) {
    const next = within(wanted, span);
    if (same(next, view)) return;
    view = next;
    changed();
  }

  /** The moment at a place of the canvas. @param {number} x */
  const at = (x) => view.from + ((x - gutter()) / (scroller.clientWidth - gutter())) * (view.to - view.from);

  /** @param {PointerEvent | WheelEvent | MouseEvent} event */
  function place(event) {
    const { left, top } = scroller.getBoundingClientRect();
    return { x: event.clientX - left, y: event.clientY - top };
  }

  /** What is there. @param {{x: number, y: number}} point @returns {{box: Box | null, cell: import("./timeline_layout.js").Cell | null}} */
  function under({ x, y }) {
    const deepness = y - RULER + scroller.scrollTop;
    const { first } = between(tracks, deepness, deepness);
    const track = tracks[first];
    if (!track || y < RULER || x < gutter() || deepness < track.top) return { box: null, cell: null };
    const lane = track.first + Math.floor((deepness - track.top) / ROW);
    const slack = (NEAR * (view.to - view.from)) / (scroller.clientWidth - gutter());
    for (const layer of [...source.layers()].reverse()) {
      if (layer.from > at(x) || layer.to < at(x) || layer.first > first || layer.last < first) continue;
      const box = boxAt(layer, first, lane, at(x), slack);
      return { box, cell: box ? null : cellAt(layer, first, lane, at(x)) };
    }
    return { box: null, cell: null };
  }

  /** @param {any} box an event, by its row; where it lies, if it is drawn */
  function choose(box) {
    chosen = box.track === undefined ? drawn(box.row) : box;
    missing = chosen ? null : box;
    const { start, lasts } = chosen ?? box; // of one whose end was not seen it is drawn how far it goes
    if (missing || start > view.to || start + lasts < view.from) fit({ start, lasts }, 4);
    event.show(box.row);
    say(`, ${duration(lasts)}, ${duration(start)} after the first event`, box.label);
    draw();
  }

  /** The drawn one of this row. @param {number} row @returns {Box | null} */
  function drawn(row) {
    for (const layer of source.layers()) {
      const place = layer.boxes.row.indexOf(row);
      if (place >= 0) return boxOf(layer, place);
    }
    return null;
  }

  /** Tiles have come. */
  function come() {
    const now = missing && drawn(missing.row);
    if (now) [chosen, missing] = [now, null];
    draw();
  }

  /** @param {{start: number, lasts: number}} box @param {number} factor of its duration */
  const fit = (box, factor) => {
    const length = Math.max(box.lasts, 100) * factor;
    see({ from: box.start + (box.lasts - length) / 2, to: box.start + (box.lasts + length) / 2 });
  };

  /** @param {string} text @param {string} [name] that it is about: one that is written from right to left turns no number around */
  const say = (text, name = "") => fill(said, h("span", {}, name && h("bdi", {}, shown(name)), text));

  function leave() {
    [chosen, missing] = [null, null];
    event.clear();
    say("");
    draw();
  }

  /** The newest one, of those that have the chosen box: another may still be of another window. */
  function layer() {
    const all = [...source.layers()].reverse();
    return all.find((one) => chosen && one.boxes.row.includes(chosen.row)) ?? all[0];
  }

  /** @param {number} step */
  function neighbour(step) {
    const next = chosen ? beside(layer(), chosen, step) : longest(layer());
    if (next) choose(next);
  }

  /** @param {import("./timeline_layout.js").Layer} layer the longest box in view @returns {Box | null} */
  function longest(layer) {
    let place = -1;
    layer.boxes.lasts.forEach((lasts, one) => {
      const seen = layer.boxes.start[one] < view.to && layer.boxes.start[one] + lasts >= view.from;
      if (seen && (place < 0 || lasts > layer.boxes.lasts[place])) place = one;
    });
    return place < 0 ? null : boxOf(layer, place);
  }

  /** @param {number} by lanes */
  function aboveOrBelow(by) {
    if (!chosen) return neighbour(1);
    const middle = Math.min(Math.max(chosen.start + chosen.lasts / 2, view.from), view.to);
    const near = layer();
    let [track, lane] = [chosen.track, chosen.lane + by];
    while (tracks[track]) {
      if (lane < tracks[track].first || lane >= tracks[track].first + tracks[track].lanes) {
        track += by;
        lane = tracks[track] ? (by > 0 ? tracks[track].first : tracks[track].first + tracks[track].lanes - 1) : 0;
        continue;
      }
      const box = boxAt(near, track, lane, middle, view.to - view.from);
      if (box) return choose(box);
      lane += by;
    }
  }

  /** @param {KeyboardEvent} event */
  function key(event) {
    const middle = (view.from + view.to) / 2;
    const pan = KEY_PAN * (view.to - view.from);
    /** @type {Record<string, () => void>} */
    const keys = {
      w: () => see(zoomed(view, 1 / KEY_ZOOM, middle, span)), s: () => see(zoomed(view, KEY_ZOOM, middle, span)),
      a: () => see(moved(view, -pan, span)), d: () => see(moved(view, pan, span)),
      f: () => { if (chosen) fit(chosen, 1.2); }, 0: () => see({ from: 0, to: span }), Escape: leave, Enter: () => neighbour(1), " ": () => neighbour(1),
      ArrowLeft: () => neighbour(-1), ArrowRight: () => neighbour(1), ArrowUp: () => aboveOrBelow(-1), ArrowDown: () => aboveOrBelow(1),
    };
    const name = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (!keys[name] || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    keys[name]();
  }

  /** @param {WheelEvent} event */
  function wheel(event) {
    const move = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
    if (event.ctrlKey || event.metaKey) see(zoomed(view, Math.exp(event.deltaY * WHEEL), at(place(event).x), span));
    else if (Math.abs(move) > 0 && (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY))) {
      see(moved(view, (move / (scroller.clientWidth - gutter())) * (view.to - view.from), span));
    } else return; // tracks scroll, and then the page
    event.preventDefault();
  }

  /** @param {PointerEvent} event */
  function press(event) {
    const { x, y } = place(event);
    if (event.button !== 0 || x >= scroller.clientWidth) return;
    drag = { x, y, at: view, area: event.shiftKey, to: x };
    scroller.setPointerCapture(event.pointerId);
  }

  /** @param {PointerEvent} event */
  function point(event) {
    const here = place(event);
    if (!drag) {
      const { box, cell } = under(here);
      if (box) say(`: ${duration(box.lasts)}`, box.label);
      else if (cell && cell.sketch) say(`about ${counted(cell.count, "event")}: a sketch, by a sample of the trace`);
      else if (cell) say(`${counted(cell.count, "event")}, ${duration(cell.busy)} in all, too short to be seen here`);
      else if (!chosen) say("");
      return;
    }
    drag.to = here.x;
    if (drag.area) draw();
    else see(moved(drag.at, ((drag.x - here.x) / (scroller.clientWidth - gutter())) * (view.to - view.from), span));
  }

  /** @param {PointerEvent} event */
  function release(event) {
    const begun = drag;
    drag = null;
    if (!begun) return;
    const here = place(event);
    const still = Math.abs(here.x - begun.x) < NEAR && Math.abs(here.y - begun.y) < NEAR;
    if (begun.area && !still) see({ from: at(Math.max(Math.min(begun.x, here.x), gutter())), to: at(Math.max(begun.x, here.x)) });
    else if (still) {
      const { box, cell } = under(here);
      if (box) choose(box);
      else if (cell) see(zoomed(view, 1 / 16, at(here.x), span));
      else leave();
    }
    source.hurry(span);
    draw();
  }

  /** Enter searches, and goes to the next that was found. @param {KeyboardEvent} event */
  async function find(event) {
    if (event.key !== "Enter") return;
    const text = /** @type {HTMLInputElement} */ (event.target).value;
    if (text && text === sought && hits.length) {
      hit = (hit + 1) % hits.length;
      choose(hits[hit].found);
      return;
    }
    [sought, hit, hits] = [text, -1, []];
    try {
      if (text) say("Searching …");
      const { events, first } = text ? await ask("search", trace, { text, parts: HITS }) : NOTHING;
      if (sought !== text) return;
      hits = first.row.map((/** @type {number} */ row, /** @type {number} */ one) => {
        const start = Number(first.start[one]);
        return { start, found: { row, start, lasts: Number(first.lasts[one] ?? 0), label: first.name[one] } };
      });
      say(text ? `${counted(events, "event")} found. Enter goes to the next.` : "");
    } catch (error) {
      fill(wrong, problem(error));
    }
    draw();
  }

  const left = told.tracks.left_out ? `${counted(told.tracks.left_out, "track")} are not drawn: ${whole(tracks.length)} are the limit.` : null;
  const element = h("div", {}, tools, strip.element, scroller, said, wrong, event.element, help, left && h("p", { class: "dim" }, left));
  changed();
  const mark = (/** @type {any[]} */ known) => { marks = known.map(markOf); draw(); };
  return { element, see, mark, view: () => view, close: () => { source.close(); dark.removeEventListener("change", draw); } };
}

/** What a timeline begins with; `sketch`: an estimate where it would take long to read all events.
 * @param {string} trace @param {AbortSignal} signal @param {boolean} sketch */
export const firstTiles = (trace, signal, sketch) =>
  ask("tiles", trace, { width: 1024, last_track: FIRST_TRACKS - 1, limit: 20000, with_tracks: true, sketch }, signal);
