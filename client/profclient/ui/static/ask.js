// @ts-check
// Questions to the server. The key lives in this tab's sessionStorage and travels in a header, never in a cookie
// (cookies ignore ports) and never in an address.

const KEPT = "profd-session";
const MEET_MS = 400; // other tabs of this page answer within this time, or there are none

/** What went wrong, in a sentence, and what the error is about ("denied", "not_found", "unreachable", …). */
export class Problem extends Error {
  /** @param {string} text @param {string} kind */
  constructor(text, kind) {
    super(text);
    this.kind = kind;
  }
}

const tabs = new BroadcastChannel("profd-session"); // of this origin alone: no other port hears it
tabs.addEventListener("message", ({ data }) => {
  const session = sessionStorage.getItem(KEPT);
  if (data === "ask" && session) tabs.postMessage({ session });
});

/** Whether this tab has a key: its own, one from the address, or that of another tab. @returns {Promise<boolean>} */
export async function enter() {
  const key = new URLSearchParams(location.hash.slice(1)).get("key");
  if (key) {
    history.replaceState(null, "", "/#/");
    const { session, page } = await post("/enter", { key });
    sessionStorage.setItem(KEPT, session);
    history.replaceState(null, "", `/#${page}`);
  }
  return sessionStorage.getItem(KEPT) !== null || meet();
}

/** @returns {Promise<boolean>} */
function meet() {
  return new Promise((resolve) => {
    const late = setTimeout(() => resolve(false), MEET_MS);
    tabs.addEventListener("message", ({ data }) => {
      if (!data.session) return;
      clearTimeout(late);
      sessionStorage.setItem(KEPT, data.session);
      resolve(true);
    });
    tabs.postMessage("ask");
  });
}

/** The answer to `tiles`, whose moments are offsets that a double holds. @param {string} trace @param {Record<string, any>} given
 * @param {AbortSignal} signal @returns {Promise<any>} */
export const askTiles = (trace, given, signal) => post("/api/ask", { question: "tiles", trace, arguments: given }, signal, JSON.parse);

/** The answer to a question of docs/questions.md, as docs/json.md describes it.
 * @param {string} question @param {string} trace @param {Record<string, any>} [given] @param {AbortSignal} [signal]
 * @returns {Promise<any>} */
export function ask(question, trace, given = {}, signal = undefined) {
  return post("/api/ask", { question, trace, arguments: given }, signal);
}

/** As of `profctl list --json`. @param {AbortSignal} [signal] @returns {Promise<any[]>} */
export const traces = (signal) => post("/api/traces", {}, signal);

/** Captures, the latest first, or one. @param {string} capture its id; empty: all @param {AbortSignal} signal @returns {Promise<any[]>} */
export const captures = (capture, signal) => post("/api/captures", { capture }, signal);

/** `perfetto`: its origin, where it is installed; `ports`: those that a tunnel leads to.
 * @returns {Promise<{host: string, user: string, uid: number, store: string | null, write: boolean, perfetto: string | null, ports: number[]}>} */
export const host = () => post("/api/host", {});

/** To change something, where the server was begun with --write. @param {"estimate" | "start" | "stop"} what
 * @param {any} body @param {AbortSignal} [signal] @returns {Promise<any>} */
export const order = (what, body, signal) => post(`/api/${what}`, body, signal);

/** A trace as Perfetto reads it, and what it is: all of it, or the part that was asked for. @param {string} trace
 * @param {Record<string, any>} given arguments of `export` @param {boolean} cut even if it could be had whole
 * @param {AbortSignal} signal
 * @returns {Promise<{told: {title: string, events: number, whole: boolean, whole_events_max: number, clocks: string | null}, buffer: ArrayBuffer}>} */
export async function handed(trace, given, cut, signal) {
  try {
    const answer = await send("/api/perfetto", { trace, arguments: given, cut }, signal);
    if (!answer.ok) throw refused(answer, await answer.text());
    return { told: parsed(answer.headers.get("Profd-Trace") ?? "{}"), buffer: await answer.arrayBuffer() };
  } catch (error) {
    if (signal.aborted || error instanceof Problem) throw error;
    throw gone();
  }
}

/** Hear each line of what happens on the host, until it is aborted. A Problem where it ends otherwise.
 * @param {AbortSignal} signal @param {(line: any) => void} heard */
export async function watch(signal, heard) {
  await lines("/api/watch", {}, signal, heard);
  throw gone();
}

/** Hear each line of the answer to a question that is told as it comes. A Problem where it ends too early.
 * @param {string} question @param {string} trace @param {AbortSignal} signal @param {(line: any) => void} heard */
export const hear = (question, trace, signal, heard) => lines("/api/ask", { question, trace, arguments: {} }, signal, heard);

/** @param {string} path @param {any} body @param {AbortSignal} signal @param {(line: any) => void} heard */
async function lines(path, body, signal, heard) {
  try {
    const answer = await send(path, body, signal);
    if (!answer.ok || !answer.body) throw refused(answer, await answer.text());
    const text = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (let { done, value } = await text.read(); !done; { done, value } = await text.read()) {
      const whole = (rest + value).split("\n");
      rest = whole.pop() ?? "";
      for (const line of whole.map(parsed)) {
        if (line.error) throw new Problem(line.error, line.kind);
        heard(line);
      }
    }
  } catch (error) {
    throw signal.aborted || error instanceof Problem ? error : gone();
  }
}

/** @param {string} path @param {any} body @param {AbortSignal} [signal] @param {(text: string) => any} [read]
 * @returns {Promise<any>} */
async function post(path, body, signal = undefined, read = parsed) {
  let answer;
  let text;
  try {
    answer = await send(path, body, signal);
    text = await answer.text();
  } catch (error) {
    if (signal?.aborted) throw error;
    throw gone();
  }
  if (!answer.ok) throw refused(answer, text);
  return read(text);
}

/** @param {string} path @param {any} body @param {AbortSignal} [signal] */
function send(path, body, signal) {
  return fetch(path, {
    method: "POST",
    headers: {
      "Content-Type": "application/json",
      Authorization: `Bearer ${sessionStorage.getItem(KEPT) ?? ""}`,
    },
    body: JSON.stringify(body),
    cache: "no-store",
    credentials: "omit",
    signal,
  });
}

/** @param {Response} answer @param {string} text */
function refused(answer, text) {
  if (answer.status === 401) sessionStorage.removeItem(KEPT);
  const found = parsed(text);
  return new Problem(found?.error ?? "The server refused.", found?.kind ?? "failure");
}

const gone = () =>
  new Problem(
    "profctl ui does not answer: it has ended, or the tunnel to it is closed. Run it again; this address, put " +
      "behind `profctl ui` in quotes, leads back here.",
    "gone",
  );

/** JSON, with integers that a double does not hold as BigInt: a moment in ns is one. To look at each number takes seven times
 * as long as to parse a text, so that one without a number of 16 digits is parsed alone. @param {string} text */
function parsed(text) {
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  /** @type {(key: string, value: any, context?: {source: string}) => any} */
  const exact = (_, value, context) =>
    typeof value === "number" && !Number.isSafeInteger(value) && /^-?\d+$/.test(context?.source ?? "")
      ? BigInt(/** @type {{source: string}} */ (context).source)
      : value;
  return JSON.parse(text, /** @type {any} */ (exact));
}
