// @ts-check
// Tiles of a timeline: asked for as somebody looks, one question at a time; what was there stays until the next is.

import { askTiles } from "./ask.js";
import { layerOf } from "./timeline_layout.js";

const LIMIT = 20000; // boxes and cells of an answer
const AROUND = 0.5; // of the window on either side, so that it can be moved at once
const SETTLED_MS = 40; // of no further movement, before it is asked: a held key repeats after 30
const PATIENCE_MS = 300; // longer than this no answer is waited for that nobody wants any more
const WIDTH_MAX = 16384;

/** @typedef {{from: number, to: number, first: number, last: number, width: number}} Wanted what is in view */

/** @param {string} trace @param {() => void} changed @param {(error: any) => void} failed */
export function tileSource(trace, changed, failed) {
  /** @type {import("./timeline_layout.js").Layer[]} */
  let layers = [];
  /** @type {Wanted | null} */
  let wanted = null;
  /** @type {{stop: AbortController, for: Wanted, since: number} | null} */
  let asked = null;
  let timer = 0;

  /** Whether the newest answer has all that is in view, as sharp as it can be. @param {Wanted} now */
  function sharp(now) {
    const newest = layers[layers.length - 1];
    if (!newest || newest.from > now.from || newest.to < now.to || newest.first > now.first || newest.last < now.last) return false;
    return newest.pixel <= pixelOf(now) * (newest.coarse ?? 1);
  }

  /** Whether there is a sketch alone: tiles can be asked for when it has been replaced. */
  const sketched = () => layers.some((layer) => layer.sketch);

  /** @param {Wanted} now @param {number} span */
  function look(now, span) {
    if (sketched()) return;
    wanted = sharp(now) ? null : now;
    clearTimeout(timer);
    if (wanted) timer = window.setTimeout(() => next(span), SETTLED_MS);
  }

  /** No further movement comes soon: a key is up. @param {number} span */
  function hurry(span) {
    if (!wanted || asked) return;
    clearTimeout(timer);
    next(span);
  }

  /** @param {number} span */
  async function next(span) {
    if (!wanted) return;
    if (asked) {
      const left = asked.since + PATIENCE_MS - performance.now();
      if (left > 0) {
        timer = window.setTimeout(() => next(span), left);
        return;
      }
      asked.stop.abort();
    }
    const now = wanted;
    const mine = { stop: new AbortController(), for: now, since: performance.now() };
    asked = mine;
    wanted = null;
    try {
      const told = await askTiles(trace, argumentsOf(now, span), mine.stop.signal);
      if (mine.stop.signal.aborted) return;
      const layer = layerOf(told, now.first, now.last);
      layer.coarse = Math.max(layer.pixel / pixelOf(now), 1); // by the limit of an answer: of a shorter window it may be sharper
      keep(layer);
    } catch (error) {
      if (!mine.stop.signal.aborted) failed(error);
    } finally {
      if (asked === mine) asked = null;
      changed();
    }
    if (wanted) next(span);
  }

  /** The first one, which is of the whole trace, and the last two. @param {import("./timeline_layout.js").Layer} layer */
  function keep(layer) {
    layers = layers.length < 3 ? [...layers, layer] : [layers[0], layers[layers.length - 1], layer];
  }

  return {
    look,
    hurry,
    layers: () => layers,
    busy: () => asked !== null || wanted !== null,
    begin: (/** @type {import("./timeline_layout.js").Layer} */ layer) => { layers = [layer]; },
    close: () => { clearTimeout(timer); wanted = null; asked?.stop.abort(); },
  };
}

/** The ns of a pixel of the answer. @param {Wanted} wanted */
const pixelOf = ({ from, to, width }) => 2 ** Math.max(Math.floor(Math.log2((to - from) / width)), 0);

/** More than is in view, as far as there is more. @param {Wanted} now @param {number} span */
function argumentsOf({ from, to, first, last, width }, span) {
  const more = Math.round((to - from) * AROUND);
  const [low, high] = [Math.max(from - more, 0), Math.min(to + more, span)];
  const wide = Math.min(Math.max(Math.round((width * (high - low)) / (to - from)), 1), WIDTH_MAX);
  return { from_ns: low, to_ns: Math.max(high, low + 1), width: wide, first_track: first, last_track: last, limit: LIMIT };
}
