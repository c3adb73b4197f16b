// A reporter for node --test that prints flat TAP with one line for each leaf test. What a file
// writes itself and what its failures say follows as comments.
import path from 'node:path';
import { inspect } from 'node:util';

const comment = (text) => text.trimEnd().split('\n').map((line) => `# ${line}\n`).join('');

// The error that a test threw sits inside the runner's own.
function details(error) {
  const cause = error?.cause ?? error;
  return comment(cause instanceof Error || typeof cause === 'object' ? inspect(cause) : String(cause));
}

export default async function* tap(events) {
  let number = 0;
  let deepest = 0; // nesting of the report before this one: deeper than ours means it was our child
  const open = []; // names of the tests around the current one

  for await (const { type, data } of events) {
    if (type === 'test:stdout' || type === 'test:stderr') {
      yield comment(data.message);
    } else if (type === 'test:start') {
      open.length = data.nesting;
      open[data.nesting] = data.name;
    } else if (type === 'test:pass' || type === 'test:fail') {
      const leaf = deepest <= data.nesting;
      deepest = data.nesting;
      const error = type === 'test:fail' ? data.details.error : undefined;
      const group = !leaf || (data.details.type === 'suite' && data.skip === undefined);
      if (group && (!error || error.failureType === 'subtestsFailed'))
        continue;
      // A file that is reported itself has crashed, or held no test at all.
      const file = data.nesting === 0 && path.resolve(data.name) === data.file;
      const name = file ? path.basename(data.name) : [...open.slice(0, data.nesting), data.name].join(' > ');
      const passed = !error && !file;
      const note = data.skip !== undefined ? ' # SKIP' : '';
      yield `${passed ? 'ok' : 'not ok'} ${++number} - ${name.replaceAll('\n', ' ').replaceAll('#', '\\#')}${note}\n`;
      if (!passed)
        yield error ? details(error) : comment('ran no test');
    }
  }
  yield `1..${number}\n`;
}
