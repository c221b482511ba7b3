// @ts-check
// What the devices of a trace did: busy and idle time, streams, copies, launches, samples, as `profctl gpu` says it.

import { ask } from "./ask.js";
import { h, load, section, sentence } from "./dom.js";
import { table } from "./table.js";
import { counted, duration, percent, printable, shown, size, whole, wholeName } from "./units.js";

const ROWS = 200; // of streams, of copies, and of samples

/** Of all of a trace. Nothing is asked before `begin`. @param {string} trace @returns {{element: Element, begin: () => void}} */
export function devicesPart(trace) {
  const element = h("div");
  const found = h("div");
  return {
    element,
    begin: () => {
      element.replaceChildren(section("Devices", found));
      load(found, (signal) => ask("gpu", trace, {}, signal), devices);
    },
  };
}

/** @param {any} told */
function devices(told) {
  if (!told.devices.length) return [h("p", { class: "dim" }, ...sentence(printable(told.message))), ...rowsOf("Samples", metricColumns(), told.metrics)];
  return [
    h("p", {}, `${duration(told.window_ns)} recorded, of the whole trace. ${linkWords(told.links)}`),
    ...rowsOf("Devices", deviceColumns(), told.devices),
    ...rowsOf("Streams", streamColumns(), told.streams, told.streams_left_out),
    ...rowsOf("Copies", copyColumns(), told.copies, told.copies_left_out),
    ...rowsOf("Operators that launched most", opColumns(), told.ops),
    told.ops_message && h("p", { class: "dim" }, ...sentence(printable(told.ops_message))),
    ...rowsOf("Samples", metricColumns(), told.metrics),
  ];
}

/** @param {string} label @param {import("./table.js").Column[]} columns @param {any[]} rows @param {number} [leftOut] */
function rowsOf(label, columns, rows, leftOut = 0) {
  const more = Math.max(rows.length - ROWS, 0) + leftOut;
  if (!rows.length) return [];
  return [
    h("h3", {}, label), table(label, columns, rows.slice(0, ROWS)),
    more > 0 && h("p", { class: "dim" }, `… and ${counted(more, "row")} more; profctl gpu --json has the first 1024.`),
  ];
}

/** @param {any} row */
const placeOf = (row) => printable(row.device_type + (row.device === null ? "" : ` ${row.device}`));

/** @param {string} name @param {string} key @param {(value: any) => string} show @param {string} [title] */
const number = (name, key, show, title = undefined) => ({
  name, title, number: true, of: (/** @type {any} */ row) => row[key], show: (/** @type {any} */ row) => show(row[key]),
});

/** @param {string} name @param {string} key @param {string} [title] */
const time = (name, key, title = undefined) => number(name, key, duration, title);

const DELAYS = () => [
  time("Delay", "launch_delay_p50_ns", "From a launch to the begin of its work, the median"),
  time("P95", "launch_delay_p95_ns", "The same, the 95th percentile"),
];

/** @returns {import("./table.js").Column[]} */
const deviceColumns = () => [
  { name: "Device", of: placeOf },
  number("Busy", "busy_share", percent, "Of the recorded time"),
  time("Overlap", "overlap_ns", "Two streams or more worked"),
  time("Waiting", "idle_waiting_ns", "Idle while launched work had not begun"),
  time("Unfed", "idle_empty_ns", "Idle with nothing launched: the host was late"),
  time("Copy alone", "exposed_copy_ns", "Copying with no kernel beside it"),
  ...DELAYS(),
];

/** @returns {import("./table.js").Column[]} */
const streamColumns = () => [
  { name: "Stream", of: (row) => `${placeOf(row)} #${row.stream ?? "-"}` },
  ...["kernels", "copies", "fills"].map((key) => number(key[0].toUpperCase() + key.slice(1), key, (count) => (count ? whole(count) : "-"))),
  number("Busy", "busy_share", percent),
  time("Overlap", "overlap_ns"),
  number("Queue", "queue_max", whole, "The largest number of launches whose work had not begun"),
  ...DELAYS(),
];

/** @returns {import("./table.js").Column[]} */
const copyColumns = () => [
  { name: "Device", of: placeOf },
  number("Count", "count", whole), number("Bytes", "bytes", size), time("Duration", "duration_ns"),
  number("Per second", "bytes_per_second", (speed) => (speed === null ? "-" : `${size(Math.trunc(speed))}/s`)),
  { name: "Copy", of: (row) => row.name, show: (row) => shown(row.name), whole: (row) => wholeName(row.name) },
];

/** @returns {import("./table.js").Column[]} */
const opColumns = () => [
  number("Calls", "count", whole), time("Device self", "self_device_time_total_ns"), time("Device total", "device_time_total_ns"),
  { name: "Operator", of: (row) => row.name, show: (row) => shown(row.name), whole: (row) => wholeName(row.name) },
];

/** @returns {import("./table.js").Column[]} */
const metricColumns = () => [
  { name: "Track", of: (row) => printable(row.track) },
  ...["Mean", "Min", "Max"].map((name) => ({
    name, number: true, of: (/** @type {any} */ row) => row[name.toLowerCase()], show: (/** @type {any} */ row) => inUnit(row.name, row[name.toLowerCase()]),
  })),
  { name: "Metric", of: (row) => row.name, show: (row) => shown(row.name) },
];

/** The last words of a metric's name are its unit, as in Prometheus. @param {string} name @param {number} value */
function inUnit(name, value) {
  if (name.endsWith("_bytes_per_second")) return `${size(Math.round(value))}/s`;
  if (name.endsWith("_bytes")) return size(Math.round(value));
  if (name.endsWith("_hertz")) return `${whole(Math.round(value / 1e6))} MHz`;
  if (name.endsWith("_ratio")) return percent(value);
  const digits = value.toLocaleString("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
  return name.endsWith("_watts") ? `${digits} W` : digits;
}

/** @param {any} links */
function linkWords(links) {
  if (links.share === null) return `${counted(links.device_events, "device event")}; the trace does not say what launched them.`;
  const found = links.share === 1 ? "100%" : `${(100 * Math.min(links.share, 0.9999)).toFixed(2)}%`;
  const unknown = links.device_events - links.stated;
  const more = unknown ? `; the launches of ${whole(unknown)} more are not in the trace` : "";
  return `${found} of ${counted(links.stated, "device event")} found the call that launched them${more}.`;
}
