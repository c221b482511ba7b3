// @ts-check
// Between the page of profctl ui and Perfetto: takes a trace from that page alone, and hands it to Perfetto, which opens
// without a question what comes from its own origin.

const PING_MS = 50;
const PATIENCE_MS = 120_000; // Perfetto's own, for its files

const page = document.querySelector('meta[name="profd-page"]')?.getAttribute("content") ?? "";

/** @param {{buffer: ArrayBuffer, title: string, from: string | null, to: string | null}} trace `from` and `to`: the
 * window to begin with, in ns as the trace has them */
function hand({ buffer, title, from, to }) {
  const seen = from === null || to === null ? "" : `&visStart=${BigInt(from)}&visEnd=${BigInt(to)}`;
  const view = document.createElement("iframe");
  view.title = "Timeline of Perfetto";
  view.allow = "clipboard-write";
  view.src = `/perfetto.html#!/viewer?mode=embedded${seen}`; // which asks no server for a trace
  view.addEventListener("load", () => {
    view.contentWindow?.addEventListener("keydown", left, true); // before Perfetto, whatever has the focus there
    ping(view, () => handOver(view, buffer, title));
  }, { once: true });
  window.addEventListener("message", ({ source, origin, data }) => {
    if (source === window.parent && origin === page && data === "enter") view.contentWindow?.focus();
  });
  document.body.replaceChildren(view);
}

/** @param {HTMLIFrameElement} view @param {ArrayBuffer} buffer @param {string} title */
function handOver(view, buffer, title) {
  /** @type {Window} */ (view.contentWindow).postMessage({ perfetto: { buffer, title, localOnly: true } }, location.origin, [buffer]);
  tell("handed");
}

/** F6 leads back to the page: by Tab one goes through two buttons for each track. @param {KeyboardEvent} event */
function left(event) {
  if (event.key !== "F6" || event.ctrlKey || event.altKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  event.stopImmediatePropagation();
  tell("left");
}

/** Until it answers. @param {HTMLIFrameElement} view @param {() => void} answered */
function ping(view, answered) {
  const perfetto = /** @type {Window} */ (view.contentWindow);
  const late = setTimeout(() => { clearInterval(pings); tell("silent"); }, PATIENCE_MS);
  const pings = setInterval(() => perfetto.postMessage("PING", location.origin), PING_MS);
  window.addEventListener("message", function heard({ source, data }) {
    if (source !== perfetto || data !== "PONG") return;
    window.removeEventListener("message", heard);
    clearInterval(pings);
    clearTimeout(late);
    answered();
  });
}

/** @param {"ready" | "handed" | "silent" | "left"} what */
const tell = (what) => window.parent.postMessage(what, page);

window.addEventListener("message", function heard({ source, origin, data }) {
  if (source !== window.parent || origin !== page || !(data?.buffer instanceof ArrayBuffer)) return;
  window.removeEventListener("message", heard); // one trace; another takes another frame
  hand(data);
});
window.addEventListener("keydown", left);
tell("ready");
