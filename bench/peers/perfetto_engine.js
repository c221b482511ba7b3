// Perfetto's trace processor, the WebAssembly build of its UI, in node: load a trace, ask for averages by name.
//
//   node perfetto_engine.js FOLDER TRACE   ->   JSON: seconds of loading and of the query, rows of its answer
//
// FOLDER holds engine_bundle.js, a worker that speaks TraceProcessorRpc over a MessagePort, and its .wasm. What a
// worker's scope has and node has not is made here.
"use strict";

const fs = require("node:fs");
const path = require("node:path");
const vm = require("node:vm");

const [folder, trace] = process.argv.slice(2);
const SLICE_BYTES = 32 << 20; // what its request buffer takes
const APPEND = 1, FINALIZE = 2, QUERY = 3; // TraceProcessorRpc.TraceProcessorMethod
const REQUEST = 2, FATAL = 5, APPEND_DATA = 101, QUERY_ARGS = 103, APPEND_RESULT = 201, QUERY_RESULT = 203; // its fields
const AVERAGES = "select name, count(*), sum(dur) from slice group by name";

// Synchronous, as in a worker: the module is compiled while the bundle runs.
class XMLHttpRequest {
  open(method, url) { this.url = url; }
  send() {
    this.status = 200;
    const file = fs.readFileSync(path.join(folder, path.basename(this.url)));
    this.response = file.buffer.slice(file.byteOffset, file.byteOffset + file.length);
  }
}

function scope() {
  const given = {
    console, performance, setTimeout, clearTimeout, TextDecoder, TextEncoder, URL, XMLHttpRequest, crypto,
    Uint8Array, // the one that our messages are of
    WorkerGlobalScope: function () {},
    importScripts() {},
    location: { href: "http://localhost/engine_bundle.js" },
  };
  given.self = given;
  return vm.createContext(given);
}

// --- protobuf, as much of it as is needed ---

function varint(value) {
  const bytes = [];
  for (; value > 127; value = Math.floor(value / 128)) bytes.push((value % 128) | 128);
  return [...bytes, value];
}

const number = (field, value) => Buffer.from([...varint(field * 8), ...varint(value)]);
const bytes = (field, value) => Buffer.concat([Buffer.from([...varint(field * 8 + 2), ...varint(value.length)]), value]);

// field -> the values it has, the bytes of strings and messages as they are.
function fields(message) {
  const found = new Map();
  let at = 0;
  const next = () => {
    let value = 0, scale = 1;
    for (;;) {
      const byte = message[at++];
      value += (byte & 127) * scale;
      if (byte < 128) return value;
      scale *= 128;
    }
  };
  while (at < message.length) {
    const key = next(), kind = key % 8, field = Math.floor(key / 8);
    let value;
    if (kind === 0) value = next();
    else if (kind === 2) { const size = next(); value = message.subarray(at, at + size); at += size; }
    else { const size = kind === 1 ? 8 : 4; value = message.subarray(at, at + size); at += size; }
    found.set(field, [...(found.get(field) ?? []), value]);
  }
  return found;
}

// --- the conversation ---

class Engine {
  constructor(context) {
    this.answers = [];
    this.port = { postMessage: (data) => this.answers.push(Buffer.from(data)) };
    context.onmessage({ data: this.port });
  }

  send(message) {
    this.port.onmessage({ data: new Uint8Array(bytes(1, message)) });
    const stream = Buffer.concat(this.answers);
    this.answers = [];
    const answers = (fields(stream).get(1) ?? []).map(fields);
    for (const answer of answers) {
      const failed = answer.get(FATAL) ?? answer.get(APPEND_RESULT)?.map(fields).flatMap((result) => result.get(2) ?? []);
      if (failed?.length) throw new Error(String(failed[0]));
    }
    return answers;
  }

  load(file) {
    const input = fs.openSync(file, "r"), slice = Buffer.alloc(SLICE_BYTES - 64);
    for (let read; (read = fs.readSync(input, slice)) > 0; ) {
      this.send(Buffer.concat([number(REQUEST, APPEND), bytes(APPEND_DATA, slice.subarray(0, read))]));
    }
    fs.closeSync(input);
    this.send(number(REQUEST, FINALIZE));
  }

  // How many rows a query has whose first two columns are text and number; throws what it says of a wrong one.
  query(sql) {
    const answers = this.send(Buffer.concat([number(REQUEST, QUERY), bytes(QUERY_ARGS, bytes(1, Buffer.from(sql)))]));
    const results = answers.flatMap((answer) => answer.get(QUERY_RESULT) ?? []).map(fields);
    const error = results.flatMap((result) => result.get(2) ?? [])[0];
    if (error) throw new Error(String(error));
    const columns = results.flatMap((result) => result.get(1) ?? []).length;
    const batches = results.flatMap((result) => result.get(3) ?? []).map(fields);
    const cells = batches.flatMap((batch) => batch.get(1) ?? []).reduce((sum, packed) => sum + packed.length, 0);
    return columns ? cells / columns : 0; // a cell's type takes one byte
  }
}

function seconds(work) {
  const begin = process.hrtime.bigint(), before = process.cpuUsage();
  const result = work();
  const used = process.cpuUsage(before);
  return { seconds: Number(process.hrtime.bigint() - begin) / 1e9, cpu_seconds: (used.user + used.system) / 1e6, result };
}

const context = scope();
vm.runInContext(fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8"), context);
// The module is ready once the promises of its start have run.
setTimeout(() => {
  const engine = new Engine(context);
  const load = seconds(() => engine.load(trace));
  const query = seconds(() => engine.query(AVERAGES));
  process.stdout.write(JSON.stringify({ load, query }) + "\n");
}, 0);
