// @ts-check
// What a trace amounts to (`summary`), and what costs time in it (`explain`), in the words of `profctl show`.

import { accountLines } from "./account.js";
import { h, sentence } from "./dom.js";
import { ago, counted, duration, printable, shown, size, whole } from "./units.js";

const READS_SHOWN = 0.9; // of values a step: fewer are a log line

/** @param {any} summary */
export function answer(summary) {
  const lines = [
    ["recorded", recorded(summary)],
    ["where", place(summary)],
    ...accountLines(summary.accounting ?? {}),
    ["clock", Number.isFinite(summary.clock_error_ns) ? `times are within ${duration(summary.clock_error_ns)} of the host's` : ""],
    ...(summary.devices ?? []).slice(0, 8).map((/** @type {any} */ one) => [`${one.device_type} ${one.device}`, busy(one)]),
    ...(summary.memory ?? []).slice(0, 8).map((/** @type {any} */ one) => ["memory", memory(one)]),
    ["still alive", alive(summary.alive ?? {})],
    ["process", resident(summary.resident)],
    ["host reads", reads(summary.host_reads ?? {}, summary.trace.gpu_events > 0)],
    ...(summary.outside_operators ?? []).map((/** @type {any} */ one) => ["outside operators", `${duration(one.wall_ns)} in ${shown(one.name)}, by samples`]),
    ["lost", lost(summary.lost ?? [])],
    ...(summary.not_honoured ?? []).map((/** @type {string} */ text) => ["not honoured", text]),
    ...(summary.warnings ?? []).map((/** @type {string} */ text) => ["warning", text]),
    ["cost", cost(summary.cost ?? {})],
  ];
  const told = lines.filter(([, text]) => text);
  return [h("dl", {}, ...told.flatMap(([name, text]) => [h("dt", {}, name), h("dd", {}, ...sentence(printable(text)), name === "hint" && " ", name === "hint" && recordAgain(text))]))];
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

/** Memory that was allocated in the window and is still there. @param {any} told */
const alive = (told) => (told.blocks ? `${size(told.bytes)} in ${counted(told.blocks, "block")} allocated in the window` : "");

/** How much memory the process had, and how much more by the end. @param {any} found */
function resident(found) {
  if (!found) return "";
  const { grown_bytes: grown, lasted_ns: lasted, grown_per_step_bytes: perStep } = found;
  const text = `memory ${size(found.end_bytes)}`;
  if (grown === null || !lasted) return text;
  const rates = [`${size(Math.round((Math.abs(grown) * 1e9) / lasted))}/s`];
  if (perStep !== null) rates.push(`${size(Math.abs(perStep))} a step`);
  return `${text}, ${grown < 0 ? "shrank" : "grew"} ${size(Math.abs(grown))} (${rates.join(", ")}) in the window`;
}

/** Values of tensors that the program asked for. @param {any} told @param {boolean} onDevice */
function reads(told, onDevice) {
  if (!((told.per_step ?? 0) >= READS_SHOWN)) return "";
  const often = `${Number(told.per_step.toPrecision(2))} a step, ${duration(told.total_ns)} in all`;
  return `${whole(told.calls)} values of tensors (.item(), float(), if): ${often}${onDevice ? "; each waits for its device" : ""}`;
}

/** @param {any[]} all */
function lost(all) {
  return all.length ? all.map((one) => `${whole(one.count)} in ${one.stage} (${one.reason})`).join(", ") : "nothing";
}

/** @param {any} told */
function cost(told) {
  if (told.step_ratio) return `steps took ${told.step_ratio.toFixed(2)}x as long (${told.how}${told.detail ? `: ${told.detail}` : ""})`;
  if (told.seconds) return `${duration(told.seconds * 1e9)} (${told.how}${told.detail ? `: ${told.detail}` : ""})`;
  return told.detail ? `${told.how}: ${told.detail}` : told.how ?? "";
}

/** @typedef {{step: (step: number) => void, part: (name: string, step: number | null) => void}} Ways what the page of a trace has for a
 * finding: a step, and a part under this heading, of a step or as it is */

/** @param {any} told of `explain` @param {string} id of the trace @param {Ways} ways @param {string} [of] a part */
export function findings(told, id, ways, of = "") {
  const message = told.message && h("p", {}, ...sentence(printable(told.message)));
  if (!told.findings.length) return [message, of && h("p", { class: "line" }, `What takes most time in ${of}:`, leadTo("Call tree", null, ways))];
  const list = told.findings.map((/** @type {any} */ one) => finding(one, id, ways));
  const overlap = list.length > 1 && h("p", { class: "dim" }, "Bounds overlap: they do not add up.");
  return [h("ol", { class: "findings", "aria-label": `Findings${of && ` of ${of}`}, those that cost most first` }, ...list), overlap, message];
}

/** @param {any} one @param {string} id @param {Ways} ways */
function finding(one, id, ways) {
  const bound = one.bound_share === null ? "memory, not time" : `at most ${Math.round(100 * one.bound_share)} % less time`;
  const steps = one.evidence.steps.map((/** @type {number} */ step) =>
    h("button", { type: "button", class: "chip", "aria-label": `Show step ${step}`, onclick: () => ways.step(step) }, `step ${step}`));
  return h(
    "li",
    {},
    h("p", {}, h("b", {}, printable(one.id)), ` (${bound})`),
    h("p", {}, ...sentence(printable(one.sentence))),
    one.symptom_of.length > 0 && h("p", { class: "dim" }, printable(`A symptom: ${one.symptom_of.join(", ")} may be why.`)),
    steps.length > 0 && h("p", { class: "line" }, ...steps),
    toKnow(one, id, ways),
  );
}

/** Parts of the page that answer as a command does. @type {Record<string, string>} */
const PARTS = { top: "Top", tree: "Call tree", memory: "Memory" };

/** How one can be sure of a finding: where this page has it, and then the command. @param {any} one @param {string} id @param {Ways} ways */
function toKnow(one, id, ways) {
  const command = printable(one.confirm.replace(/\bTRACE\b/g, id));
  const [, verb, given] = /\bprofctl (top|tree|memory) TRACE\b(?: --step (\d{1,15}|N)\b)?/.exec(one.confirm) ?? [];
  if (!verb) return h("p", { class: "dim" }, `To know: ${command} `, recordAgain(one.confirm));
  const step = given === undefined ? null : given === "N" ? one.evidence.steps[0] ?? null : Number(given);
  return h("p", { class: "line dim" }, "To know:", leadTo(PARTS[verb], step, ways), h("span", {}, `or ${command}`), recordAgain(one.confirm));
}

/** @param {string} name of a part @param {number | null} step @param {Ways} ways */
const leadTo = (name, step, ways) =>
  h("button", { type: "button", onclick: () => ways.part(name, step) }, `${name}${step === null ? "" : ` of step ${step}`}`);

/** The way to record more, where the page may. @param {string} text that names options of `profctl start` */
export function recordAgain(text) {
  return document.body.hasAttribute("data-write") && !document.body.hasAttribute("data-store") && /--(?:stacks|shapes|memory)\b/.test(text)
    && h("a", { href: "#/now" }, "Record again");
}
