// @ts-check
// Where the window of a trace went: the leading thread, what it waited for, and which threads ran, in the words of
// `profctl show`.

import { duration, shareOf, whole } from "./units.js";

const THREADS_SHOWN = 3;
const SHARE_SHOWN = 0.005;
const WAITS_SHOWN = 0.05; // of the window, off the CPU

/** @type {[string, string][]} */
const RECORDED = [
  ["operators", "operators_ns"],
  ["Python calls", "calls_ns"],
  ["Python seen by samples", "sampled_ns"],
  ["ranges alone", "ranges_ns"],
  ["nothing recorded", "nothing_ns"],
];

/** By the kernel's counts. @type {[string, string][]} */
const KERNEL = [["on a CPU", "cpu_ns"], ["waiting for one", "run_queue_ns"], ["off the CPU", "off_cpu_ns"]];
/** @type {[string, string][]} */
const WAITS = [["estimated: for the GIL", "gil_ns"], ["for other locks", "lock_ns"]];

/** (name, text) for each line; none where no window is known. @param {any} account @returns {[string, string][]} */
export function accountLines(account) {
  if (!account.window_ns || account.leading === null) return [];
  const thread = account.threads[account.leading];
  const spent = shares(thread, RECORDED.filter(([, key]) => thread[key]), account.window_ns);
  /** @type {[string, string][]} */
  const lines = [
    ["window", `${duration(account.window_ns)} of ${name(thread)}: ${spent}`],
    ["its CPU", thread.cpu_ns === null ? "" : shares(thread, KERNEL, account.window_ns) + waits(thread, account.window_ns)],
    ["threads", threads(account)],
    ["coverage", account.message ?? ""],
    ["hint", account.hint ?? ""],
  ];
  return lines.filter(([, text]) => text);
}

/** @param {any} thread @param {[string, string][]} parts @param {number} window */
const shares = (thread, parts, window) => parts.map(([word, key]) => `${word} ${shareOf(thread[key], window)}`).join(", ");

/** What it waited for off the CPU, where that is worth a word; earlier daemons do not say. @param {any} thread @param {number} window */
function waits(thread, window) {
  if (thread.off_cpu_ns < WAITS_SHOWN * window || thread.gil_ns === undefined) return "";
  const words = WAITS.map(([word, key]) => `${word} ${thread[key] === null ? "not recorded" : shareOf(thread[key], window)}`);
  return ` (${words.join(", ")})`;
}

/** @param {any} account */
function threads(account) {
  const ran = account.threads.filter((/** @type {any} */ thread) => thread.cpu_ns);
  if (!ran.length || account.idle_threads === null) return "";
  const some = ran.filter((/** @type {any} */ thread) => thread.cpu_ns >= SHARE_SHOWN * account.window_ns).slice(0, THREADS_SHOWN);
  const most = some.length ? some : ran.slice(0, 1);
  const words = most.map((/** @type {any} */ thread) => `${name(thread)} ${shareOf(thread.cpu_ns, account.window_ns)}`);
  const more = account.ran_threads - most.length;
  const cores = `${Number((account.cpu_ns / account.window_ns).toPrecision(2))} of ${account.cores} cores`;
  const slept = account.idle_threads ? `; ${whole(account.idle_threads)} slept all the time` : "";
  const spent = account.own_cpu_ns ? ` (${duration(account.own_cpu_ns)})` : "";
  const own = account.own_threads ? `; ${whole(account.own_threads)} of profd left out${spent}` : "";
  return `CPU time ${duration(account.cpu_ns)} (${cores}): ${words.join(", ")}${more > 0 ? `, ${whole(more)} more` : ""}${slept}${own}`;
}

/** @param {any} thread */
const name = (thread) => thread.name || `thread ${thread.id}`;
