// The README as the tests read it: its sections, their fenced blocks, and answers that leave something out.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { TOP } from './gateway.mjs';

export const README = fs.readFileSync(path.join(TOP, 'README.md'), 'utf8');

/** Fenced blocks and the text between them, of the section with this title. */
export function section(title, text = README) {
  const parts = [];
  let inside = false;
  let fence = null;
  for (const [i, line] of text.split('\n').entries()) {
    const mark = line.match(/^```(.*)$/);
    if (!fence && line.startsWith('## ')) inside = line === `## ${title}`;
    else if (!inside) continue;
    else if (!fence && mark) fence = { language: mark[1], line: i + 1, lines: [] };
    else if (fence && line === '```') {
      parts.push({ language: fence.language, line: fence.line, text: fence.lines.join('\n') });
      fence = null;
    } else if (fence) {
      assert.ok(!mark, `README.md:${fence.line}: a block that does not end`);
      fence.lines.push(line);
    } else parts.push({ language: null, line: i + 1, text: line });
  }
  assert.equal(fence, null, 'a block that does not end');
  assert.ok(parts.length, `there is no section "${title}"`);
  return parts;
}

export const blocks = (title, text) => section(title, text).filter((part) => part.language !== null);

/** The rows of all tables of a section, as lists of cells. */
export const tableRows = (title) =>
  section(title)
    .filter((part) => part.language === null && part.text.startsWith('|'))
    .map((part) =>
      part.text
        .slice(1, -1)
        .split('|')
        .map((cell) => cell.trim()),
    );

// ------------------------------------------------------------------------------------------------------------- answers

/** What differs from one run to the next, and how it must look. */
const VARYING = {
  sandbox_id: /^[a-z0-9]{15,40}$/,
  execution_id: /^x_[a-z0-9]{20}$/,
  request_id: /^[0-9a-f]{32}$/,
  created_at: /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00$/,
  execution_time_ms: /^\d+$/,
};
for (const key of ['last_activity', 'expires_at', 'modified_at']) VARYING[key] = VARYING.created_at;

/** "..." in a text stands for anything. */
export function assertText(shown, got, where = '') {
  const pattern = shown
    .split('...')
    .map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'))
    .join('[^]*');
  assert.match(got, new RegExp(`^${pattern}$`), where);
}

function assertSame(shown, got, where) {
  const key = where.slice(where.lastIndexOf('.') + 1);
  if (VARYING[key] && shown !== null) {
    assert.match(String(shown), VARYING[key], `${where}, as shown`);
    assert.match(String(got), VARYING[key], where);
    assert.equal(typeof got, typeof shown, where);
  } else if (typeof shown === 'string' && typeof got === 'string') {
    assertText(shown, got, where);
  } else if (Array.isArray(shown) && Array.isArray(got)) {
    assert.equal(got.length, shown.length, `${where}: how many`);
    shown.forEach((value, i) => assertSame(value, got[i], `${where}[${i}]`));
  } else if (shown && got && typeof shown === 'object' && typeof got === 'object') {
    const { '...': more, ...fields } = shown;
    const names = Object.keys(got).filter((name) => !more || name in fields);
    assert.deepEqual(names.sort(), Object.keys(fields).sort(), `${where}: its fields`);
    for (const name of names) assertSame(fields[name], got[name], `${where}.${name}`);
  } else {
    assert.deepEqual(got, shown, where);
  }
}

/** An object may end in ", ...}": it has more fields. Nothing else may differ but what varies. */
export function assertJson(shown, got) {
  assertSame(JSON.parse(shown.replaceAll(/, \.\.\.\}/g, ', "...": true}')), JSON.parse(got), 'answer');
}
