'use strict';
// Driver of one JavaScript context inside a sandbox.
//
// It speaks the same JSON lines with the engine on fd 3 as kernel.py does: {"op": "run", "code": ..., "env": ...} is answered with
// the lines of E2B's /execute stream; {"op": "interrupt"} ends the run that goes on, if one does.
//
// The main thread runs the code, by V8's own mode for consoles: variables of one cell are there in the next and may be declared
// again, await works at the top, and the last expression has a value. The wire, a worker thread, owns fd 3. A run that never
// returns can so be told to end, and nothing that ends the main thread's work can tear a line.
const { isMainThread, parentPort, workerData, Worker } = require('node:worker_threads');
const inspector = require('node:inspector');

const MAX_HELD = 1 << 20; // output between two runs that is kept for the next; what is more is dropped
const MAX_AHEAD = 1 << 20; // output that may wait for the engine
const MAX_TEXT = 1 << 20; // of one result, message or stack
const PIECE = 16 << 10; // characters of output in one line
const LINGER = 5; // milliseconds that output may wait for more
const MIN_PATIENCE = 20; // milliseconds for an answer of the main thread, before it is cut short
const MAX_PATIENCE = 500;
const NO_RUN = -1;

// ---- the wire ----

function wire() {
  const written = workerData;
  const socket = new (require('node:net').Socket)({ fd: 3 });
  const die = () => process.kill(process.pid, 'SIGKILL');
  let count = 0; // runs so far
  let current = 0; // the run that goes on, by its number
  let failed = false; // it has had its error line
  let awaited; // whose end settle() waits for, by the number of the run
  let suspect = false; // a run was interrupted, and what it has left may hold the main thread at any time
  let held = [];
  let heldSize = 0;
  let name = '';
  let parts = [];
  let partsSize = 0;
  let wake = () => {};

  const ascii = (value) => JSON.stringify(value).replace(/[\u007f-\uffff]/g, (c) => '\\u' + c.charCodeAt(0).toString(16).padStart(4, '0'));
  const done = (size) => {
    Atomics.add(written, 0, size);
    Atomics.notify(written, 0);
  };
  const send = (type, rest, size) => socket.write(`{"type": "${type}"${rest}}\n`, () => done(size));

  function flush() {
    const text = parts.join('');
    parts = [];
    partsSize = 0;
    for (let at = 0, end; at < text.length; at = end) {
      end = at + PIECE;
      if (/[\ud800-\udbff]/.test(text[end - 1])) end--;
      const piece = text.slice(at, end);
      const when = new Date().toISOString().replace('Z', '000+00:00');
      send(name, `, "text": ${ascii(piece)}, "timestamp": "${when}"`, piece.length);
    }
  }

  /** Output that comes at once is gathered. */
  function output(kind, text) {
    if (!current) {
      heldSize += text.length;
      if (heldSize <= MAX_HELD) held.push([kind, text]);
      done(text.length);
      return;
    }
    if (kind !== name || partsSize + text.length > PIECE) flush();
    name = kind;
    if (!parts.length) setTimeout(flush, LINGER);
    parts.push(text);
    partsSize += text.length;
  }

  function begin(request) {
    count++;
    current = count;
    failed = false;
    send('number_of_executions', `, "execution_count": ${count}`, 0);
    for (const [kind, text] of held) {
      Atomics.sub(written, 0, text.length);
      output(kind, text);
    }
    held = [];
    heldSize = 0;
    parentPort.postMessage({ op: 'run', id: current, code: request.code, env: request.env });
  }

  function finish() {
    flush();
    send('end_of_execution', '', 0);
    current = 0;
  }

  const soon = (ms) =>
    new Promise((resolve) => {
      const timer = setTimeout(resolve, ms, false);
      wake = () => {
        clearTimeout(timer);
        resolve(true);
      };
    });

  /** The main thread ends a run when asked; when it is busy it is made to. V8 may then cut down what the thread does next in place
   * of what it did: the run has ended when it answers with nothing of that kind on its way. */
  async function settle(id, patience) {
    let session;
    let cutting = false;
    awaited = id;
    for (; ; patience = Math.min(2 * patience, MAX_PATIENCE)) {
      const quiet = !cutting;
      parentPort.postMessage({ op: 'interrupt', id });
      const answered = await soon(patience);
      if (answered && quiet) break;
      if (answered || cutting) continue;
      if (!session) {
        session = new inspector.Session(); // only now: a thread that is watched does not exit
        session.connectToMainThread();
      }
      cutting = true;
      session.post('Runtime.terminateExecution', () => (cutting = false));
    }
    session?.disconnect();
    awaited = undefined;
  }

  async function interrupt() {
    suspect = true;
    await settle(current, MIN_PATIENCE);
    finish();
  }

  async function run(request) {
    if (suspect) await settle(NO_RUN, MAX_PATIENCE);
    begin(request);
  }

  parentPort.on('message', ({ kind, id, text, rest }) => {
    if (kind === 'stdout' || kind === 'stderr') {
      output(kind, text);
    } else if (kind === 'end') {
      if (id === awaited) wake();
      else if (id === current) finish();
    } else if (current && !(kind === 'error' && failed)) {
      flush();
      failed ||= kind === 'error';
      send(kind, Object.entries(rest).map(([key, value]) => `, "${key}": ${ascii(value)}`).join(''), 0);
    }
  });

  let rest = '';
  socket.setEncoding('utf8');
  socket.on('data', (data) => {
    const lines = (rest + data).split('\n');
    rest = lines.pop();
    for (const line of lines) {
      const request = line ? JSON.parse(line) : {};
      if (request.op === 'run') run(request);
      else if (request.op === 'interrupt' && current && awaited === undefined) interrupt();
    }
  });
  socket.on('close', die);
  socket.on('error', die);
  process.on('uncaughtException', die);
  send('ready', '', 0);
}

// ---- import in cells ----

const WORD = /[\p{ID_Start}$_][\p{ID_Continue}$\u200c\u200d]*/uy;
const STATIC =
  /import\s*(?:([\p{ID_Start}$_][\p{ID_Continue}$]*)\s*(,)?\s*)?(?:\*\s*as\s+([\p{ID_Start}$_][\p{ID_Continue}$]*)\s*|\{([^{}]*)\}\s*)?(from\s*)?("[^"\n]*"|'[^'\n]*')(?:\s*with\s*(\{[^{}]*\}))?/uy;
/** Words after which a slash begins a regular expression. */
const OPERATORS = new Set('return typeof void delete in of instanceof new await yield case do else throw extends'.split(' '));

/** V8 does not know how a console imports, so import(x) becomes a call of ours, and a statement becomes a declaration. */
function rewriteImports(code, call) {
  if (!/\bimport\b/.test(code)) return code;
  const stack = []; // of what is open: "`" for the hole of a template, "(if" for the head of an if, or the bracket
  let out = '';
  let copied = 0;
  let last = ''; // the token before: a word, a punctuator, or "x" for a literal
  let word = ''; // the one before it
  for (let at = 0; at < code.length; ) {
    const c = code[at];
    if (/\s/.test(c)) at++;
    else if (code.startsWith('//', at) || (at === 0 && code.startsWith('#!'))) at = until(code, '\n', at);
    else if (code.startsWith('/*', at)) at = until(code, '*/', at + 2);
    else if (c === '"' || c === "'") [at, last] = [quoted(code, at), 'x'];
    else if (c === '`' || (c === '}' && stack.at(-1) === '`')) {
      if (c === '}') stack.pop();
      at = quoted(code, at, '`');
      if (code[at - 1] === '{') [last] = [stack.push('`') && '{'];
      else last = 'x';
    } else if (c === '/' && regexCanFollow(last, word) && regexEnd(code, at) > 0) [at, last] = [regexEnd(code, at), 'x'];
    else {
      WORD.lastIndex = at;
      const [name] = WORD.exec(code) ?? [];
      if (name === 'import' && last !== '.') {
        STATIC.lastIndex = at;
        const found = stack.length ? null : STATIC.exec(code);
        const dynamic = /import(?=(?:\s|\/\*[^]*?\*\/|\/\/.*)*\()/y;
        dynamic.lastIndex = at;
        const text = found ? declaration(found, call) : dynamic.test(code) ? call : name;
        out += code.slice(copied, at) + text;
        copied = at + (found ? found[0].length : name.length);
        at = copied;
        [word, last] = [last, found ? 'x' : name];
      } else if (name) {
        [word, last] = [last, name];
        at += name.length;
      } else if (/\d/.test(c)) {
        at += /^[\w.]+/.exec(code.slice(at, at + 100))[0].length;
        last = 'x';
      } else {
        if (c === '(') stack.push(/^(?:if|while|for|with)$/.test(last) ? '(if' : c);
        else if (c === '[' || c === '{') stack.push(c);
        const closed = ')]}'.includes(c) ? stack.pop() : '';
        const twice = (c === '+' || c === '-') && code[at + 1] === c;
        // What follows "x++" is divided, what follows "++" is not; the head of an if is followed by a statement.
        if (twice) last = regexCanFollow(last, word) ? c : 'x';
        else last = closed === '(if' ? ';' : c;
        at += twice ? 2 : 1;
      }
    }
  }
  return out + code.slice(copied);
}

function until(code, end, at) {
  const found = code.indexOf(end, at);
  return found < 0 ? code.length : found + end.length;
}

/** Where a string ends, or a piece of a template: behind its quote, or behind the "${" of a hole. */
function quoted(code, at, quote = code[at]) {
  for (at++; at < code.length; at++) {
    if (code[at] === '\\') at++;
    else if (code[at] === quote) return at + 1;
    else if (quote === '`' && code.startsWith('${', at)) return at + 2;
    else if (quote !== '`' && code[at] === '\n') return at;
  }
  return code.length;
}

function regexCanFollow(last, word) {
  if (/^[\p{ID_Start}$_]/u.test(last)) return last !== 'x' && OPERATORS.has(last) && word !== '.';
  return last !== ')' && last !== ']';
}

function regexEnd(code, at) {
  for (let inClass = false; ++at < code.length && code[at] !== '\n'; ) {
    if (code[at] === '\\') at++;
    else if (code[at] === '[') inClass = true;
    else if (code[at] === ']') inClass = false;
    else if (code[at] === '/' && !inClass) return at + 1;
  }
  return -1; // not on this line: it was a division
}

function declaration([all, first, , space, names, , from, options], call) {
  const loaded = `await ${call}(${from}${options ? `, {with: ${options}}` : ''})`;
  const lines = '\n'.repeat(all.split('\n').length - 1);
  const picked = (names ?? '').split(',').map((n) => n.trim().replace(/\s+as\s+/, ': ')).filter(Boolean);
  if (first) picked.unshift(`default: ${first}`);
  const pattern = `{${picked.join(', ')}}`;
  if (space) return `const ${space} = ${loaded}${first ? `, ${pattern} = ${space}` : ''};${lines}`;
  return picked.length ? `const ${pattern} = ${loaded};${lines}` : `void (${loaded});${lines}`;
}

// ---- the runs ----

function serve() {
  const { createRequire, isBuiltin } = require('node:module');
  const { pathToFileURL } = require('node:url');
  const path = require('node:path');
  const util = require('node:util');
  const vm = require('node:vm');
  const { promiseHooks } = require('node:v8');
  const { Writable } = require('node:stream');
  const IMPORT = '__import__';
  const written = new Int32Array(new SharedArrayBuffer(4));
  const worker = new Worker(__filename, { workerData: written, stdin: false, env: {} });
  const session = new inspector.Session();
  const environment = process.env;
  const { inspect } = util;
  const post = worker.postMessage.bind(worker);
  let posted = 0;
  let running = 0;
  let saved = []; // what undoes the variables of the run
  const waiting = new Map(); // promises of cells: the inspector does not survive that one is collected before it is settled
  let taken; // the value that V8 last handed over

  const ahead = () => (posted - Atomics.load(written, 0)) | 0;

  /** Text of a stream; waits when the engine does not keep up. */
  function put(kind, text) {
    post({ kind, text });
    posted = (posted + text.length) | 0;
    while (ahead() > MAX_AHEAD) Atomics.wait(written, 0, Atomics.load(written, 0), 50);
  }

  /** process.stdout or stderr. A write is one call: a stream's own states would not survive an interrupt in their middle. */
  function stream(kind, fd) {
    const decoder = new (require('node:string_decoder').StringDecoder)('utf8');
    const out = new Writable({ decodeStrings: false });
    const write = (chunk, encoding, callback) => {
      if (typeof chunk !== 'string' && !ArrayBuffer.isView(chunk))
        throw new TypeError('The "chunk" argument must be of type string or an instance of Buffer or Uint8Array.');
      const text = typeof chunk === 'string' ? chunk : decoder.write(Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength));
      if (text) put(kind, text);
      const then = typeof encoding === 'function' ? encoding : callback;
      if (typeof then === 'function') process.nextTick(then);
      return true;
    };
    const end = (chunk, ...more) => {
      if (chunk !== undefined && chunk !== null && typeof chunk !== 'function') write(chunk, ...more);
      return out; // a context has no other output to go on with
    };
    Object.assign(out, { fd, write, end, destroy: () => out, destroySoon: () => out, _type: 'pipe' });
    Object.defineProperty(process, kind, { configurable: true, enumerable: true, get: () => out });
  }

  const CUT = '\n[text cut: too large]';
  const cut = (text) => (text.length > MAX_TEXT ? text.slice(0, MAX_TEXT) + CUT : text);

  /** A value as text; a string without its quotes, as E2B has it. */
  function shown(value) {
    if (typeof value === 'string') return inspect(value.slice(0, MAX_TEXT), { maxStringLength: Infinity, breakLength: Infinity }).slice(1, -1) + (value.length > MAX_TEXT ? CUT : '');
    try {
      return cut(inspect(value));
    } catch (error) {
      return `[${typeof value}: ${cut(String(error?.message))}]`;
    }
  }

  /** The error of the run; thrown: what the inspector says of it, which knows where a SyntaxError is. */
  function tell(error, thrown) {
    let rest;
    try {
      const known = util.types.isNativeError(error) || error instanceof Error;
      const stack = known ? String(error.stack ?? error) : shown(error);
      const own = stack.split(/\n\s+at (?:Session\.post|\S+ \(node:inspector)/)[0]; // without the driver's frames
      const where = thrown && error instanceof SyntaxError && !/\n\s+at /.test(own);
      rest = {
        name: known ? String(error.name) : 'Error',
        value: known ? String(error.message) : shown(error),
        traceback: where ? `cell-${running}.js:${thrown.lineNumber + 1}:${thrown.columnNumber + 1}\n${own}` : own,
      };
    } catch {
      rest = { name: 'Error', value: 'an error that cannot be told', traceback: '' };
    }
    post({ kind: 'error', rest: { name: rest.name.slice(0, 1000), value: cut(rest.value), traceback: cut(rest.traceback) } });
  }

  function tellInterrupted() {
    const value = 'Script execution was interrupted';
    post({ kind: 'error', rest: { name: 'Error', value, traceback: `Error: ${value}` } });
  }

  function setEnv(env) {
    for (const [name, value] of Object.entries(env ?? {})) {
      saved.push([name, environment[name]]);
      environment[name] = value;
    }
  }

  function restoreEnv() {
    for (const [name, value] of saved.splice(0).reverse()) {
      if (value === undefined) delete environment[name];
      else environment[name] = value;
    }
  }

  /** Gives the promise that is made next; V8 makes that of a cell before its code runs. Returns what ends the wait for it. */
  function firstPromise(found) {
    let stop = promiseHooks.onInit((promise) => {
      end();
      found(promise);
    });
    const end = () => {
      stop?.();
      stop = undefined;
    };
    return end;
  }

  /** The value behind what the inspector says of it. */
  function take({ objectId, unserializableValue, value }) {
    const argument = objectId ? { objectId } : unserializableValue ? { unserializableValue } : { value };
    taken = undefined;
    session.post('Runtime.callFunctionOn', { objectId: taker, functionDeclaration: 'function(v) { this(v) }', arguments: [argument] });
    const got = taken;
    taken = undefined;
    return got;
  }

  function answer(id, failure, { result, exceptionDetails: thrown } = {}) {
    if (id !== running) return; // it was interrupted
    if (failure) {
      tellInterrupted();
    } else if (thrown) {
      tell(take(thrown.exception ?? {}), thrown);
    } else if (result.type !== 'undefined') {
      post({ kind: 'result', rest: { text: shown(take(result)), extra: {}, is_main_result: true } });
    }
    session.post('Runtime.releaseObjectGroup', { objectGroup: 'cell' });
    setImmediate(end, id); // rejections that nobody handles are told before
  }

  function end(id) {
    if (id === running) {
      running = 0;
      restoreEnv();
    }
    post({ kind: 'end', id });
  }

  worker.on('message', ({ op, id, code, env }) => {
    if (op === 'interrupt') {
      if (id === running) tellInterrupted();
      end(id);
      return;
    }
    running = id;
    setEnv(env);
    const expression = `${rewriteImports(code, IMPORT)}\n//# sourceURL=cell-${id}.js`;
    const hold = firstPromise((promise) => waiting.set(id, promise));
    session.post('Runtime.evaluate', { expression, replMode: true, objectGroup: 'cell' }, (failure, done) => {
      waiting.delete(id);
      answer(id, failure, done);
    });
    hold();
  });

  /** import() as from a file in the directory where the context is. Older Nodes find packages as require() does. */
  const loader = vm.constants?.USE_MAIN_CONTEXT_DEFAULT_LOADER;
  const importer = (filename) =>
    vm.runInThisContext('(name, options) => import(name, options)', { filename, importModuleDynamically: loader });
  function importFrom(specifier, options) {
    const name = String(specifier);
    const here = path.join(process.cwd(), 'cell.js');
    if (loader) return importer(here)(name, options);
    if (/^\.{0,2}\//.test(name)) return import(pathToFileURL(path.resolve(name)).href);
    if (isBuiltin(name) || /^[a-z]+:/.test(name)) return import(name);
    return Promise.resolve().then(() => import(pathToFileURL(createRequire(here).resolve(name)).href));
  }
  const { emitWarning } = process;
  process.emitWarning = (warning, ...more) => {
    if (!/USE_MAIN_CONTEXT_DEFAULT_LOADER/.test(warning)) emitWarning.call(process, warning, ...more);
  };

  stream('stdout', 1);
  stream('stderr', 2);
  const hidden = (name, value) => Object.defineProperty(globalThis, name, { value, configurable: true, writable: true });
  hidden(IMPORT, importFrom);
  hidden('require', createRequire(path.join(process.cwd(), 'cell.js')));
  process.argv.length = 1;
  process.on('SIGINT', () => {}); // it is for the programs that code waits for; we are told by the wire
  for (const event of ['uncaughtException', 'unhandledRejection'])
    process.on(event, (error) => {
      if (running) tell(error);
      else put('stderr', `Uncaught ${cut(inspect(error))}\n`);
    });
  process.reallyExit = () => {
    for (let tries = 0; tries < 40 && ahead() > 0; tries++) Atomics.wait(written, 0, Atomics.load(written, 0), 50);
    process.kill(process.pid, 'SIGKILL'); // there is nobody to wait for, and threads that would be waited for
  };
  session.connect();
  let taker;
  hidden('$take', (value) => (taken = value));
  session.post('Runtime.evaluate', { expression: '$take' }, (_, { result }) => (taker = result.objectId));
  delete globalThis.$take;
}

if (!isMainThread) wire();
else if (require.main === module) serve();
else module.exports = { rewriteImports };
