// @ts-check
// What happens on the host, as it happens: processes, captures that go on, and how the last ones ended. The server tells
// all of it once and then what changes; nothing is asked again and again, and nothing at all while the page is not seen.

import { watch } from "./ask.js";
import { fill, h, problem, section } from "./dom.js";
import { keyed } from "./keyed.js";
import { ahead, over, running } from "./now_captures.js";
import { startForm } from "./now_start.js";
import { counted, printable, shown, shownCommand, whole, wholeName } from "./units.js";

const GROW_MS = 250; // while something goes on
const SILENT_MS = 50_000; // the daemon says every 15 s that it goes on
const NAMES = ["PID", "Rank", "User", "State", "Capture", "Sources", "Advice", "Command"];

/** @returns {import("./app.js").Page} */
export function nowPage() {
  const write = document.body.hasAttribute("data-write");
  const told = h("div", { role: "status" });
  const goOn = h("ul", { class: "captures" });
  const ended = h("ul", { class: "captures" });
  const counts = { running: h("p", { class: "dim" }), processes: h("p", { class: "dim" }), ended: h("p", { class: "dim" }) };
  const rows = h("tbody");
  /** @type {Set<number>} */
  const chosen = new Set();
  /** @type {Map<number, any>} */
  let processes = new Map();
  /** @type {Map<string, any>} */
  let all = new Map();
  /** @type {AbortController | null} */
  let listening = null;
  let growing = 0;
  let silence = 0;

  const form = write ? startForm(() => [...chosen], () => { chosen.clear(); redraw(); }) : null;
  const show = { running: keyed(goOn, running), ended: keyed(ended, over), processes: keyed(rows, (row) => processRow(row, form && choose, chosen)) };
  const choose = (/** @type {number} */ pid, /** @type {boolean} */ on) => {
    if (on) chosen.add(pid);
    else chosen.delete(pid);
    form?.update();
  };
  const redraw = () => { // who is chosen has changed, and not by a click on it
    for (const box of rows.querySelectorAll("input")) box.checked = chosen.has(Number(box.value));
  };

  const heard = (/** @type {any} */ line) => {
    ahead.ns = Number(line.now_ns) - Date.now() * 1e6;
    if (line.whole) [processes, all] = [new Map(), new Map()];
    for (const pid of line.gone) processes.delete(pid);
    for (const id of line.captures_gone) all.delete(id);
    for (const row of line.processes) processes.set(row.pid, row);
    for (const capture of line.captures) all.set(capture.capture, capture);
    draw(line.processes_left_out);
  };
  const draw = (/** @type {number} */ leftOut) => {
    const sorted = [...all.values()].sort((a, b) => Number(b.created_ns) - Number(a.created_ns));
    const [live, done] = [sorted.filter((one) => one.finished_ns === null), sorted.filter((one) => one.finished_ns !== null)];
    show.running(live.map((one) => [one.capture, one]));
    show.ended(done.map((one) => [one.capture, one]));
    const held = new Map(live.flatMap((one) => one.targets.filter((/** @type {any} */ target) => target.passed.length)
      .map((/** @type {any} */ target) => [target.pid, one.capture])));
    show.processes([...processes.values()].sort((a, b) => place(a) - place(b) || a.pid - b.pid).map((one) => [one.pid, asHeld(one, held.get(one.pid) ?? null)]));
    fill(counts.running, live.length ? null : "Nothing is recorded.");
    fill(counts.ended, done.length ? null : "No capture yet.");
    const more = leftOut ? ` ${whole(leftOut)} more are not shown: profctl ps lists them.` : "";
    fill(counts.processes, (processes.size ? "" : "You have no Python or GPU process here. `profctl ps --all` shows every process.") + more);
    const lost = [...chosen].filter((pid) => !processes.has(pid));
    for (const pid of lost) chosen.delete(pid);
    if (lost.length) form?.update();
    document.title = `${live.length ? `${counted(live.length, "capture")} · ` : ""}Now · profd`;
    grow(live.length > 0);
  };
  const grow = (/** @type {boolean} */ on) => {
    if (on && !growing) growing = setInterval(() => goOn.querySelectorAll(".grows").forEach((one) => one.dispatchEvent(new Event("grow"))), GROW_MS);
    if (!on) {
      clearInterval(growing);
      growing = 0;
    }
  };

  const stop = () => {
    listening?.abort();
    listening = null;
    clearTimeout(silence);
    grow(false);
  };
  const listen = async () => {
    stop();
    const mine = listening = new AbortController();
    fill(told, h("p", { class: "dim" }, "Asking …"));
    const alive = () => {
      clearTimeout(silence);
      silence = setTimeout(() => mine.abort("silent"), SILENT_MS);
    };
    alive();
    try {
      await watch(mine.signal, (line) => {
        alive();
        if (line.whole) fill(told);
        heard(line);
      });
    } catch (error) {
      if (listening !== mine) return; // left, or not seen
      const what = mine.signal.aborted ? "Nothing is heard of profd any more: it hangs, or the tunnel to it does." : error;
      stop();
      fill(told, problem(what, listen));
    }
  };
  const seen = () => (document.hidden ? stop() : listen());
  document.addEventListener("visibilitychange", seen);
  seen();

  const heads = [...(form ? ["Record"] : []), ...NAMES].map((name) => h("th", { scope: "col", class: ["PID", "Rank"].includes(name) && "number" }, name));
  const table = h("div", { class: "scroll now", tabindex: 0, role: "region", "aria-label": "Processes, table" },
    h("table", { "aria-label": "Processes" }, h("thead", {}, h("tr", {}, ...heads)), rows));
  const element = h("div", {}, h("h1", {}, "Now"), told,
    section("Recording", counts.running, goOn),
    section("Processes", counts.processes, table),
    form ? section("Start a capture", form.element) : readOnly(),
    section("Ended last", counts.ended, ended));
  const close = () => {
    document.removeEventListener("visibilitychange", seen);
    stop();
    form?.close();
  };
  return { element, title: "Now", close };
}

/** Rows that were looked at before a capture began, or ended, as they are since. @type {WeakMap<any, any>} */
const since = new WeakMap();

/** @param {any} row @param {string | null} capture that holds the process now; others' are not known here */
function asHeld(row, capture) {
  if (capture === row.capture || (!capture && row.state !== "recording")) return row;
  if (since.get(row)?.capture !== capture) since.set(row, { ...row, capture, state: capture ? "recording" : "ready" });
  return since.get(row);
}

/** Which processes stand above which others: those that are attached, and below those of which nothing can be had. @param {any} row */
const place = (row) => (row.attached ? 0 : row.state === "untraceable" ? 2 : 1);

const readOnly = () =>
  h("p", { class: "dim" }, "This page looks, and changes nothing. ", h("code", {}, "profctl ui --write now"), " begins and ends captures here, ",
    h("code", {}, "profctl start --pid PID --duration 10s"), " in a terminal.");

/** @param {any} row @param {((pid: number, on: boolean) => void) | null} choose @param {Set<number>} chosen */
function processRow(row, choose, chosen) {
  const box = choose && h("input", {
    type: "checkbox", value: row.pid, "aria-label": `Record ${row.pid}`, disabled: row.state === "untraceable", checked: chosen.has(row.pid),
    onchange: (/** @type {any} */ event) => choose(row.pid, event.target.checked),
  });
  const cell = (/** @type {any} */ content, /** @type {string | undefined} */ kind = undefined, /** @type {string | undefined} */ title = undefined) => h("td", { class: kind, title }, content);
  const why = row.attached ? "" : row.fix ?? row.reason ?? ""; // an attached one is recorded from the inside
  return h("tr", {},
    box && cell(box), cell(String(row.pid), "number"), cell(row.rank === null ? "-" : String(row.rank), "number"), cell(printable(row.user)),
    cell(printable(row.state), row.state === "recording" ? "new" : undefined), cell(row.capture ?? "-"), cell(row.sources.join(", ") || "-"),
    cell(shown(why), undefined, wholeName(why)), cell(shownCommand(row.command), undefined, wholeName(row.command)));
}
