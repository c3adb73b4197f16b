// Watches a folder of the host through a link to it.
//
// holds: mount namespace
import { setTimeout as sleep } from 'node:timers/promises';

const SECONDS = 2; // for what must not come
const UNCONFINED = 15; // for what must

export default async function routeWatch(target) {
  await target.sh(`ln -s ${target.outside} folder; ln -s /proc/self/root${target.outside} magic`);
  const seen = [];
  for (const name of ['folder', 'magic']) {
    let stop;
    try {
      stop = await target.watch(`${target.home}/${name}`, (changed) => seen.push(changed));
    } catch (e) {
      target.why = e.message;
      continue;
    }
    await target.makeOutside(`news-${name}`);
    const end = Date.now() + (target.unconfined ? UNCONFINED : SECONDS) * 1000;
    while (Date.now() < end && !seen.includes(`news-${name}`)) await sleep(50);
    await stop();
  }
  return seen.some((name) => name?.startsWith('news')) && `a change on the host: ${seen}`;
}
