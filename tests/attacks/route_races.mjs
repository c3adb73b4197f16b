// Swaps a folder for a link to the host, or to /proc/self, while the routes read, write, list, move and remove below it.
// Whoever looks first and acts afterwards is caught.
//
// holds: mount namespace
const SECONDS = 4;

export default async function routeRaces(target) {
  const { home, outside } = target;
  await target.write(`${home}/swap.py`, await target.source('kit/swap.py'));
  await target.sh(`mkdir host self; for f in secret victim environ; do echo innocent > host/$f; echo innocent > self/$f; done; ln -s ${outside} to-host; ln -s /proc/self to-self`);
  await target.shBackground(`/usr/bin/python3 swap.py host to-host ${SECONDS + 2}`);
  await target.shBackground(`/usr/bin/python3 swap.py self to-self ${SECONDS + 2}`);
  const { racy } = target;
  const tricks = {
    read: async () => target.hasSecret(await racy.read(`${home}/host/secret`)),
    'read /proc': async () => !/^(innocent\n)?$/.test(Buffer.from(await racy.read(`${home}/self/environ`)).toString('latin1')),
    write: async (n) => {
      await racy.write(`${home}/host/planted${n}`, 'x');
      return target.existsOutside(`planted${n}`);
    },
    list: async () => (await racy.list(`${home}/host/.`)).includes('outside-only'),
    remove: async (n) => {
      await target.makeOutside(`doomed${n}`);
      await racy.remove(`${home}/host/doomed${n}`);
      return !target.existsOutside(`doomed${n}`);
    },
    move: async (n) => {
      await target.makeOutside(`loot${n}`);
      await racy.move(`${home}/host/loot${n}`, `${home}/loot${n}`);
      return !target.existsOutside(`loot${n}`);
    },
  };
  await target.makeOutside('outside-only');
  const won = new Set();
  let rounds = 0;
  const end = Date.now() + SECONDS * 1000;
  await Promise.all(
    Object.entries(tricks).map(async ([name, trick]) => {
      for (let n = 0; Date.now() < end && !won.has(name); n++) {
        rounds++;
        if (await trick(n).catch(() => false)) won.add(name);
      }
    }),
  );
  target.why = `${rounds} rounds`;
  return target.unconfined && won.size < 3 ? undefined : [...won].join(', ');
}
