// A kernel that lies in its frames: no JSON, unknown kinds, bytes that are no text, forged ends, other sandboxes' names, too deep.
// Its client must get well-formed lines of known kinds only, with one end; and the next run its own answer.
//
// holds: pid namespace
const KINDS = new Set(['number_of_executions', 'stdout', 'stderr', 'result', 'error', 'end_of_execution', 'unexpected_end_of_execution', 'keepalive']);
const END = '{"type": "end_of_execution"}\\n';
const LIES = {
  garbage: `b'GARBAGE \\x1b[2J \\x00 \\n'`,
  'no object': `b'[1, 2]\\n"text"\\nnull\\n'`,
  'unknown kind': `b'{"type": "sandbox", "op": "kill"}\\n'`,
  'no text': `b'{"type": "stdout", "text": "\\xff\\xfe\\xc0\\x80"}\\n'`,
  'cut in half': `b'{"type": "stdout", "text": "never'`,
  'two in one': `b'{"type": "stdout", "text": "a"}{"type": "end_of_execution"}\\n'`,
  'control characters': `b'{"type": "stdout", "text": "a\\x07\\x1b"}\\n'`,
  'many ends': `b'${END}' * 50`,
  'ends and more': `b'${END}{"type": "stdout", "text": "late"}\\n' * 20`,
  'ready again': `b'{"type": "ready"}\\n' * 20`,
  'another sandbox': `b'{"type": "result", "sandboxID": "i00000000000000000000", "op": "end"}\\n{"op": "run", "code": "1"}\\n'`,
  'too deep': `b'{"type": "result", "json": ' + b'[' * 200000 + b']' * 200000 + b'}\\n'`,
  'signal of a status': `b'0\\n137\\n-1\\n'`,
};

/** Code that says it wherever the engine may listen. */
const saying = (bytes) => `
import os, stat
for fd in range(3, 64):
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode): os.write(fd, ${bytes})
    except OSError: pass
`;

/** What is wrong with the bytes of an answer. */
function fault(bytes) {
  const text = bytes.toString('utf8');
  if (!Buffer.from(text).equals(bytes)) return 'bytes that are no text';
  if (/[\u0000-\u0009\u000b-\u001f]/.test(text)) return 'control characters';
  const lines = text.split('\n').filter(Boolean);
  for (const line of lines) {
    let frame;
    try {
      frame = JSON.parse(line);
    } catch {
      return 'a line that is no JSON';
    }
    if (!KINDS.has(frame?.type)) return `a frame of kind ${frame?.type}`;
    let depth = 0;
    let deepest = 0;
    for (const c of line) {
      if (c === '[' || c === '{') deepest = Math.max(deepest, ++depth);
      else if (c === ']' || c === '}') depth--;
    }
    if (deepest > 1000) return `a frame ${deepest} deep`;
  }
  const ends = lines.filter((l) => /"(unexpected_)?end_of_execution"/.test(l)).length;
  return ends > 1 ? `${ends} ends` : undefined;
}

export default async function kernelLies(target) {
  const wrong = {};
  for (const [name, bytes] of Object.entries(LIES)) {
    const found = fault(await target.kernel(saying(bytes)));
    if (found) wrong[name] = found;
    const next = await target.kernel('print(1 + 1)');
    const broken = fault(next) ?? (target.unconfined || /"text": "2\\n".*\n(.*\n)*.*"end_of_execution"/.test(next) ? undefined : `${next}`);
    if (broken) wrong[`after ${name}`] = broken;
  }
  const absent = ['two in one', 'ready again'];
  if (target.unconfined && Object.keys(LIES).some((name) => !wrong[name] && !absent.includes(name))) return undefined;
  return Object.keys(wrong).length ? JSON.stringify(wrong) : undefined;
}
