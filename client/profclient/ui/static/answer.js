// @ts-check
// What a trace amounts to (`summary`), and what costs time in it (`explain`), in the words of `profctl show`.

import { h } from "./dom.js";
import { ago, counted, duration, printable, shown, size, whole } from "./units.js";

/** @type {[string, string][]} */
const SPENT = [
  ["operators", "operators_ns"],
  ["Python calls", "calls_ns"],
  ["Python seen by samples", "sampled_ns"],
  ["ranges alone", "ranges_ns"],
  ["nothing recorded", "nothing_ns"],
];

/** By the kernel's counts. @type {[string, string][]} */
const RAN = [["on a CPU", "cpu_ns"], ["waiting for one", "run_queue_ns"], ["off the CPU", "off_cpu_ns"]];

/** @param {any} summary */
export function answer(summary) {
  const lines = [
    ["recorded", recorded(summary)],
    ["where", place(summary)],
    ...spent(summary.accounting ?? {}),
    ...(summary.devices ?? []).slice(0, 8).map((/** @type {any} */ one) => [`${one.device_type} ${one.device}`, busy(one)]),
    ...(summary.memory ?? []).slice(0, 8).map((/** @type {any} */ one) => ["memory", memory(one)]),
    ["lost", lost(summary.lost ?? [])],
    ...(summary.not_honoured ?? []).map((/** @type {string} */ text) => ["not honoured", text]),
    ...(summary.warnings ?? []).map((/** @type {string} */ text) => ["warning", text]),
    ["cost", cost(summary.cost ?? {})],
  ];
  const told = lines.filter(([, text]) => text);
  return [h("dl", {}, ...told.flatMap(([name, text]) => [h("dt", {}, name), h("dd", {}, shown(text))]))];
}

/** @param {any} summary */
function recorded(summary) {
  const { trace, window } = summary;
  const lasts = window?.window_ns || window?.recorded_ns;
  const devices = trace.gpu_events ? ` (${whole(trace.gpu_events)} on a device)` : "";
  return `${counted(trace.events, "event")}${devices}${lasts ? ` in ${duration(lasts)}` : ""}, ${ago(trace.created_ns)}`;
}

/** @param {any} summary */
function place({ trace, gpus }) {
  const parts = [
    trace.host, trace.pid && `pid ${trace.pid}`, `source ${trace.source}`, trace.rank !== null && `rank ${trace.rank}`,
    gpus?.length && `GPU ${gpus.join(",")}`,
  ];
  return parts.filter(Boolean).join(", ");
}

/** How the leading thread spent the window. @param {any} account */
function spent(account) {
  if (!account.window_ns || account.leading === null) return [];
  const thread = account.threads[account.leading];
  const share = (/** @type {number} */ ns) => `${((100 * ns) / account.window_ns).toFixed(ns < account.window_ns / 100 ? 1 : 0)} %`;
  const words = (/** @type {[string, string][]} */ parts) => parts.map(([word, key]) => `${word} ${share(thread[key])}`).join(", ");
  const recorded = words(SPENT.filter(([, key]) => thread[key]));
  return [
    ["window", `${duration(account.window_ns)} of ${thread.name ?? `thread ${thread.id}`}: ${recorded}`],
    ["its CPU", thread.cpu_ns === null ? "" : words(RAN)],
  ];
}

/** @param {any} one */
function busy(one) {
  const share = one.busy_share === null ? "" : ` (${Math.round(100 * one.busy_share)} % busy)`;
  return `busy ${duration(one.busy_ns)}, idle ${duration(one.idle_ns)}${share}`;
}

/** @param {any} use */
function memory(use) {
  const device = use.device === null ? "" : ` ${use.device}`;
  return `${use.device_type}${device}: peak ${size(use.peak_bytes)}, allocated ${size(use.allocated_bytes)} in ${whole(use.allocations)}`;
}

/** @param {any[]} all */
function lost(all) {
  return all.length ? all.map((one) => `${whole(one.count)} in ${one.stage} (${one.reason})`).join(", ") : "nothing";
}

/** @param {any} told */
function cost(told) {
  if (told.step_ratio) return `steps took ${told.step_ratio.toFixed(2)}x as long (${told.how})`;
  if (told.seconds) return `${duration(told.seconds * 1e9)} (${told.how}${told.detail ? `: ${told.detail}` : ""})`;
  return told.detail ? `${told.how}: ${told.detail}` : told.how ?? "";
}

/** @param {any} told of `explain` @param {(step: number) => void} go */
export function findings(told, go) {
  const message = told.message && h("p", {}, printable(told.message));
  if (!told.findings.length) return [message];
  const list = told.findings.map((/** @type {any} */ one) => finding(one, go));
  const overlap = list.length > 1 && h("p", { class: "dim" }, "Bounds overlap: they do not add up.");
  return [h("ol", { class: "findings" }, ...list), overlap, message];
}

/** @param {any} one @param {(step: number) => void} go */
function finding(one, go) {
  const bound = one.bound_share === null ? "memory, not time" : `at most ${Math.round(100 * one.bound_share)} % less time`;
  const steps = one.evidence.steps.map((/** @type {number} */ step) =>
    h("button", { type: "button", class: "chip", onclick: () => go(step) }, `step ${step}`));
  return h(
    "li",
    {},
    h("p", {}, h("b", {}, printable(one.id)), ` (${bound})`),
    h("p", {}, shown(one.sentence)),
    one.symptom_of.length > 0 && h("p", { class: "dim" }, printable(`A symptom: ${one.symptom_of.join(", ")} may be why.`)),
    steps.length > 0 && h("p", { class: "line" }, ...steps),
    h("p", { class: "dim" }, printable(`To know: ${one.confirm}`)),
  );
}
