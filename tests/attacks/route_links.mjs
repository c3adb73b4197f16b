// Links to files of the host, then the file routes: read, write, list, move, remove. Also by way of /proc, and by "..".
//
// holds: mount namespace
export default async function routeLinks(target) {
  const { outside, home } = target;
  await target.sh(`ln -s ${outside}/secret file; ln -s ${outside} folder; ln -s ${outside}/planted new; ln -s /proc/self/root root; ln -s /proc/1/root init; ln file hard`);
  const up = '../'.repeat(20);
  const tries = {
    'read a link': async () => target.hasSecret(await target.read(`${home}/file`)),
    'read below a link': async () => target.hasSecret(await target.read(`${home}/folder/secret`)),
    'read by /proc/self/root': async () => target.hasSecret(await target.read(`${home}/root${outside}/secret`)),
    'read by /proc/1/root': async () => target.hasSecret(await target.read(`/proc/1/root${outside}/secret`)),
    'read upwards': async () => target.hasSecret(await target.read(`${home}/${up}${outside.slice(1)}/secret`)),
    'list a link': async () => (await target.list(`${home}/folder`)).includes('secret'),
    'write through a link': () => target.write(`${home}/folder/written`, 'x').then(() => target.existsOutside('written')),
    'make through a broken link': () => target.write(`${home}/new`, 'x').then(() => target.existsOutside('planted')),
    'move out of a link': () => target.move(`${home}/folder/victim`, `${home}/stolen`).then(() => !target.existsOutside('victim')),
    'remove below a link': () => target.remove(`${home}/folder/secret`).then(() => !target.existsOutside('secret')),
  };
  return target.all(tries, ['read by /proc/1/root', 'move out of a link']);
}
