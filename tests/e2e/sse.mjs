// Reading server-sent events as they arrive, and the calls that give them.
import assert from 'node:assert/strict';
import { within } from './engine.mjs';

const TYPE = 'text/event-stream';

/** { id, event, data } of each event and { comment } of each comment, as they arrive. */
export async function* events(res) {
  let rest = '';
  for await (const chunk of res.setEncoding('utf8')) {
    const blocks = (rest + chunk).split('\n\n');
    rest = blocks.pop();
    for (const block of blocks) yield parse(block);
  }
  assert.equal(rest, '', 'the last event has no end');
}

function parse(block) {
  if (block.startsWith(':')) return { comment: block.slice(1).trim() };
  const fields = Object.fromEntries(block.split('\n').map((line) => [line.slice(0, line.indexOf(':')), line.slice(line.indexOf(':') + 2)]));
  return { id: Number(fields.id), event: fields.event, data: JSON.parse(fields.data) };
}

/** A stream that is read event by event; everything that came is in `seen`, its comments in `comments`. */
export class Stream {
  constructor(res) {
    Object.assign(this, { res, seen: [], comments: [], reader: events(res) });
  }

  /** The next event that is no comment; undefined at the end. */
  async next(deadline = 60_000) {
    for (;;) {
      const { value, done } = await within(deadline, this.reader.next(), 'the next event');
      if (done) return undefined;
      if (value.comment === undefined) {
        this.seen.push(value);
        return value;
      }
      this.comments.push(value.comment);
    }
  }

  /** Reads until one of this name, with this text in it. */
  async until(name, text = '') {
    for (;;) {
      const e = await this.next();
      assert.ok(e, `the stream ended without ${name} ${text}; it had ${JSON.stringify(this.seen).slice(0, 2000)}`);
      if (e.event === name && JSON.stringify(e.data).includes(text)) return e;
    }
  }

  /** Reads to the end, which must be one last event; returns it. */
  async end() {
    while (await this.next());
    assertWhole(this.seen);
    return this.seen.at(-1);
  }

  /** All text of one name so far. */
  text(name = 'stdout') {
    return this.seen.filter((e) => e.event === name).map((e) => e.data.text).join('');
  }

  leave() {
    this.res.drop();
    this.reader.return?.().catch(() => {});
  }
}

/** Numbered without gaps, with exactly one last event. */
export function assertWhole(all, from = 1) {
  const last = all.filter((e) => e.event === 'done' || e.event === 'failed');
  assert.equal(last.length, 1, `${last.length} last events`);
  assert.equal(all.at(-1), last[0], 'something comes behind the last event');
  let next = from;
  for (const e of all) {
    assert.equal(e.event === 'dropped' ? e.data.from : e.id, next, JSON.stringify(all.slice(0, 20)).slice(0, 1500));
    next = e.id + 1;
  }
}

/** Opens a stream; fails unless it is one. */
export async function openStream(caller, method, target, { headers, ...rest } = {}) {
  const res = await caller.open(method, target, { headers: { accept: TYPE, ...headers }, deadline: 300_000, ...rest });
  if (res.status !== 200 || !res.headers['content-type']?.startsWith(TYPE)) {
    const body = Buffer.concat(await res.toArray()).toString();
    throw Object.assign(new Error(`no stream: ${res.status} ${body}`), { status: res.status, body });
  }
  return new Stream(res);
}
