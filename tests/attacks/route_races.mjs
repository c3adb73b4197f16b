// Swaps a folder for a link to the host, or to /proc/self, while the routes read, write, list, move and remove below it.
// Whoever looks first and acts afterwards is caught.
//
// holds: mount namespace
import { setTimeout as sleep } from 'node:timers/promises';

const SECONDS = 4;
const DEADLINE = 30;

/** How often each of the folders was swapped, once both programs have ended. */
async function swaps(target) {
  for (const end = Date.now() + DEADLINE * 1000; Date.now() < end; await sleep(200)) {
    const said = (await target.sh('cat swaps-host swaps-self')).split('\n').filter(Boolean).map(Number);
    if (said.length === 2) return said;
  }
  throw new Error('the programs that swap have not ended');
}

export default async function routeRaces(target) {
  const { home, outside } = target;
  await target.write(`${home}/swap.py`, await target.source('kit/swap.py'));
  await target.sh(`mkdir host self; for f in secret victim environ; do echo innocent > host/$f; echo innocent > self/$f; done; ln -s ${outside} to-host; ln -s /proc/self to-self`);
  await target.shBackground(`/usr/bin/python3 swap.py host to-host ${SECONDS + 2} > swaps-host`);
  await target.shBackground(`/usr/bin/python3 swap.py self to-self ${SECONDS + 2} > swaps-self`);
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
  const swapped = await swaps(target);
  if (swapped.includes(0)) throw new Error(`a folder was never swapped: ${swapped}`);
  target.why = `${rounds} rounds, ${swapped.join(' and ')} swaps`;
  return target.unconfined && won.size < 3 ? undefined : [...won].join(', ');
}
