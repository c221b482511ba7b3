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
  view.title = "Perfetto";
  view.allow = "clipboard-write";
  view.src = `/perfetto.html#!/viewer?mode=embedded${seen}`; // which asks no server for a trace
  view.addEventListener("load", () => ping(view, () => {
    /** @type {Window} */ (view.contentWindow).postMessage({ perfetto: { buffer, title, localOnly: true } }, location.origin, [buffer]);
    tell("handed");
  }), { once: true });
  document.body.replaceChildren(view);
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

/** @param {"ready" | "handed" | "silent"} what */
const tell = (what) => window.parent.postMessage(what, page);

window.addEventListener("message", function heard({ source, origin, data }) {
  if (source !== window.parent || origin !== page || !(data?.buffer instanceof ArrayBuffer)) return;
  window.removeEventListener("message", heard); // one trace; another takes another frame
  hand(data);
});
tell("ready");
