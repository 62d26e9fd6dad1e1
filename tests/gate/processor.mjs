// Runs SQL over traces in Perfetto's own trace processor (WebAssembly), under Node 20 or later.
//
//   node processor.mjs <folder of the trace processor>  < requests  > answers
//
// A request is a line `{"trace": path, "queries": [SQL texts]}`, its answer a line `{"loadError": text or null, "results": [...]}`,
// where a result is `{"columns": [...], "rows": [[...], ...]}` or `{"error": text}`; `{"failed": text}` where the processor gave up.
// Each trace has a processor of its own; they share the compiled module, which takes a second. 64-bit integers are JSON numbers while they are exact
// and strings of digits when they are not. Called by `cargo xtask gate` and `cargo xtask picture`; it never writes a file.

import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import vm from 'node:vm';

// What is executed is what was looked at: another build of either file is refused.
const PINNED = {
  'engine_bundle.node.js': '390f39007f0a617c44d88df051cbec33f52b1cffad145748a51f5b4961a4ffd9',
  'trace_processor.wasm': 'c1c25c299b74cc9b9651592c94b669c91916434a2990f214f03c8135c848d3fa',
};

function pinned(folder, name) {
  const bytes = readFileSync(join(folder, name));
  const hash = createHash('sha256').update(bytes).digest('hex');
  if (hash !== PINNED[name]) {
    throw new Error(`${name} has the hash ${hash}, not the pinned one: remove ${folder} and run the gate again`);
  }
  return bytes;
}

// What every processor shares: the bytes, which are looked at once, and what is compiled of them.
class Program {
  constructor(folder) {
    this.wasm = pinned(folder, 'trace_processor.wasm');
    this.bundle = new vm.Script(pinned(folder, 'engine_bundle.node.js').toString('utf8'), { filename: 'engine_bundle.js' });
    this.modules = new Map();
  }

  // The bundle compiles its program and some small probes.
  module(target, bytes) {
    if (bytes.length < 1 << 20) return new target(bytes);
    if (!this.modules.has(bytes.length)) this.modules.set(bytes.length, new target(bytes));
    return this.modules.get(bytes.length);
  }
}

// The bundle is a browser's worker. This gives it the few things of a worker's scope that it asks for.
function startWorker(program) {
  const wasm = program.wasm;
  class LocalRequest {
    open(_method, url) {
      this.url = url;
    }
    send() {
      if (this.url !== 'trace_processor.wasm') throw new Error(`the trace processor asked for ${this.url}`);
      this.response = wasm;
      this.status = 200;
    }
  }
  // The package holds the 32-bit build alone, and the bundle would take the 64-bit one wherever the engine can run it.
  const refusesMemory64 = new Proxy(WebAssembly.Module, {
    construct(target, [bytes]) {
      const isProbe = bytes.length === 23 && bytes[8] === 5 && bytes[11] === 4;
      if (isProbe) throw new WebAssembly.CompileError('32-bit memories only');
      return program.module(target, bytes);
    },
  });
  const webAssembly = Object.create(null);
  for (const name of Object.getOwnPropertyNames(WebAssembly)) webAssembly[name] = WebAssembly[name];
  webAssembly.Module = refusesMemory64;

  // The processor's own log says nothing that its `stats` table does not; standard output belongs to the answer.
  const quiet = { log() {}, warn() {}, error() {}, info() {}, debug() {} };
  const scope = {
    WebAssembly: webAssembly,
    XMLHttpRequest: LocalRequest,
    WorkerGlobalScope: function WorkerGlobalScope() {},
    importScripts() {},
    location: { href: 'file:///engine_bundle.js' },
    console: quiet,
    performance, crypto, TextDecoder, TextEncoder, URL, setTimeout, clearTimeout, queueMicrotask, atob, btoa,
    Uint8Array, Int8Array, Uint16Array, Int16Array, Uint32Array, Int32Array, Float32Array, Float64Array,
    BigInt64Array, BigUint64Array, ArrayBuffer, DataView, Object, Array, Math, Error, TypeError, Promise,
  };
  scope.self = scope;
  scope.globalThis = scope;
  program.bundle.runInNewContext(scope);
  return scope;
}

// One end of the message port through which the bundle talks; calls in are synchronous, answers come while they run.
class Port {
  received = [];
  postMessage(bytes) {
    this.received.push(Buffer.from(bytes));
  }
  take() {
    const all = Buffer.concat(this.received);
    this.received = [];
    return all;
  }
}

// Just enough protobuf: varints and length-delimited fields.
function varint(value) {
  const out = [];
  let rest = BigInt(value);
  while (rest > 127n) {
    out.push(Number(rest & 127n) | 128);
    rest >>= 7n;
  }
  out.push(Number(rest));
  return Buffer.from(out);
}

function number(field, value) {
  return Buffer.concat([varint(field << 3), varint(value)]);
}

function bytes(field, value) {
  return Buffer.concat([varint((field << 3) | 2), varint(value.length), value]);
}

function readVarint(buffer, at) {
  let value = 0n;
  let shift = 0n;
  for (;;) {
    const byte = buffer[at++];
    if (byte === undefined) throw new Error('the trace processor answered with a message that is cut short');
    value |= BigInt(byte & 127) << shift;
    if (byte < 128) return [value, at];
    shift += 7n;
  }
}

function* fields(buffer) {
  let at = 0;
  while (at < buffer.length) {
    let key;
    [key, at] = readVarint(buffer, at);
    const id = Number(key >> 3n);
    switch (Number(key & 7n)) {
      case 0: {
        let value;
        [value, at] = readVarint(buffer, at);
        yield [id, value];
        break;
      }
      case 1:
        yield [id, buffer.subarray(at, at + 8)];
        at += 8;
        break;
      case 2: {
        let length;
        [length, at] = readVarint(buffer, at);
        yield [id, buffer.subarray(at, at + Number(length))];
        at += Number(length);
        break;
      }
      case 5:
        yield [id, buffer.subarray(at, at + 4)];
        at += 4;
        break;
      default:
        throw new Error('the trace processor answered with something that is not protobuf');
    }
  }
}

// Field numbers of TraceProcessorRpc and its methods.
const RPC = { MESSAGE: 1, SEQ: 1, REQUEST: 2, FATAL: 5, APPEND_DATA: 101, QUERY: 103, APPEND_RESULT: 201, FINALIZE_RESULT: 204, QUERY_RESULT: 203 };
const METHOD = { APPEND: 1, FINALIZE: 2, QUERY: 3 };

class Processor {
  sequence = 0;

  constructor(program) {
    this.port = new Port();
    const worker = startWorker(program);
    worker.onmessage({ data: this.port });
    this.worker = worker;
  }

  // The module is compiled synchronously, but it announces itself through a promise.
  async ready() {
    await new Promise((resolve) => setImmediate(resolve));
  }

  call(method, args) {
    this.sequence += 1;
    const request = Buffer.concat([number(RPC.SEQ, this.sequence), number(RPC.REQUEST, method), ...args]);
    const data = bytes(RPC.MESSAGE, request);
    // The bundle checks for its own realm's Uint8Array.
    const own = new this.worker.Uint8Array(data.buffer, data.byteOffset, data.length);
    this.port.onmessage({ data: own });
    const replies = [];
    for (const [id, message] of fields(this.port.take())) {
      if (id !== RPC.MESSAGE) continue;
      const reply = [...fields(message)];
      const fatal = reply.find(([field]) => field === RPC.FATAL);
      if (fatal) throw new Error(`the trace processor gave up: ${fatal[1]}`);
      replies.push(reply);
    }
    return replies;
  }

  // Hands the trace over in pieces and returns the processor's complaint, or null.
  load(trace) {
    const PIECE = 8 << 20;
    for (let at = 0; at < trace.length; at += PIECE) {
      const replies = this.call(METHOD.APPEND, [bytes(RPC.APPEND_DATA, trace.subarray(at, at + PIECE))]);
      const complaint = this.complaint(replies, RPC.APPEND_RESULT, 2);
      if (complaint) return complaint;
    }
    return this.complaint(this.call(METHOD.FINALIZE, []), RPC.FINALIZE_RESULT, 1);
  }

  complaint(replies, result, errorField) {
    for (const reply of replies) {
      for (const [id, message] of reply) {
        if (id !== result || !Buffer.isBuffer(message)) continue;
        for (const [field, value] of fields(message)) {
          if (field === errorField && Buffer.isBuffer(value) && value.length > 0) return value.toString('utf8');
        }
      }
    }
    return null;
  }

  query(sql) {
    const columns = [];
    const values = [];
    for (const reply of this.call(METHOD.QUERY, [bytes(RPC.QUERY, bytes(1, Buffer.from(sql)))])) {
      for (const [id, result] of reply) {
        if (id !== RPC.QUERY_RESULT) continue;
        for (const [field, value] of fields(result)) {
          if (field === 1) columns.push(value.toString('utf8'));
          if (field === 2 && value.length > 0) return { error: value.toString('utf8') };
          if (field === 3) readBatch(value, values);
        }
      }
    }
    const rows = [];
    for (let at = 0; at < values.length; at += columns.length) rows.push(values.slice(at, at + columns.length));
    return { columns, rows };
  }
}

// A batch holds the kinds of its cells in reading order, and the values of each kind apart.
function readBatch(batch, values) {
  let kinds = [];
  const integers = [];
  const floats = [];
  const blobs = [];
  let texts = [];
  for (const [field, value] of fields(batch)) {
    if (field === 1) kinds = [...value];
    if (field === 2) {
      for (let at = 0; at < value.length; ) {
        let raw;
        [raw, at] = readVarint(value, at);
        const signed = BigInt.asIntN(64, raw);
        integers.push(Number.isSafeInteger(Number(signed)) ? Number(signed) : signed.toString());
      }
    }
    if (field === 3) for (let at = 0; at < value.length; at += 8) floats.push(value.readDoubleLE(at));
    if (field === 4) blobs.push(value.toString('hex'));
    if (field === 5) texts = value.toString('utf8').split('\0');
  }
  const next = { integer: 0, float: 0, text: 0, blob: 0 };
  for (const kind of kinds) {
    switch (kind) {
      case 1:
        values.push(null);
        break;
      case 2:
        values.push(integers[next.integer++]);
        break;
      case 3: {
        const float = floats[next.float++];
        values.push(Number.isFinite(float) ? float : String(float));
        break;
      }
      case 4:
        values.push(texts[next.text++]);
        break;
      case 5:
        values.push(blobs[next.blob++]);
        break;
      default:
        throw new Error(`the trace processor answered with a cell of unknown kind ${kind}`);
    }
  }
}

async function answer(program, { trace, queries }) {
  try {
    const processor = new Processor(program);
    await processor.ready();
    const loadError = processor.load(readFileSync(trace));
    return { loadError, results: queries.map((sql) => processor.query(sql)) };
  } catch (error) {
    return { failed: String(error.stack ?? error) };
  }
}

const program = new Program(process.argv[2]);
for await (const request of createInterface({ input: process.stdin })) {
  process.stdout.write(JSON.stringify(await answer(program, JSON.parse(request))) + '\n');
}
