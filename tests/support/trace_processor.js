"use strict";
// The engine of Perfetto's UI, as its page runs it in a worker: requests from stdin, replies to stdout.
// node trace_processor.js FOLDER, where FOLDER has engine_bundle.js and the WebAssembly.

const fs = require("fs");
const path = require("path");
const vm = require("vm");

const folder = process.argv[2];
const requests = new Uint8Array(fs.readFileSync(0));
const failed = (error) => {
  fs.writeSync(2, `${error.stack || error}\n`);
  process.exit(1);
};
process.on("uncaughtException", failed);
process.on("unhandledRejection", failed);

const bytes = (name) => new Uint8Array(fs.readFileSync(path.join(folder, path.basename(name)))).buffer;
const said = (line) => fs.writeSync(2, `${line}\n`);
const port = { onmessage: null, postMessage: (data) => fs.writeSync(1, data) };

class XMLHttpRequest {
  open(_, name) {
    this.name = name;
  }
  send() {
    this.status = 200;
    this.response = bytes(this.name);
  }
}

const self = { location: { href: "http://localhost/engine_bundle.js" } };
const world = {
  ...{ self, location: self.location, XMLHttpRequest, WebAssembly, importScripts() {} },
  ...{ WorkerGlobalScope: class {}, console: { log: said, warn: said, error: said } },
  ...{ setTimeout, clearTimeout, TextDecoder, TextEncoder, performance, URL, crypto: globalThis.crypto },
  // Those that its numbers and errors are of.
  ...{ Uint8Array, Int8Array, Uint16Array, Int16Array, Uint32Array, Int32Array, Float32Array, Float64Array },
  ...{ BigInt64Array, BigUint64Array, ArrayBuffer, Error, TypeError, RangeError },
};
world.globalThis = world;
vm.createContext(world);
vm.runInContext(fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8"), world);
self.onmessage({ data: port });
// What it has begun is over by then.
setImmediate(() => {
  port.onmessage({ data: requests });
  process.exit(0);
});
