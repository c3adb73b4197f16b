// A pipe that nobody writes, a link to one: reads of them and writes to them must not hold the engine up.
//
// holds: mount namespace
const SECONDS = 10; // an answer that comes later is none, on a busy machine too
const UNCONFINED = 2; // there it never comes

export default async function routeSpecial(target) {
  const { home } = target;
  await target.sh('mkfifo pipe; ln -s pipe link; mkdir below; mkfifo below/pipe');
  const hangs = (action) => async () => {
    let timer;
    const late = new Promise((resolve) => (timer = setTimeout(resolve, (target.unconfined ? UNCONFINED : SECONDS) * 1000, 'late')));
    return (await Promise.race([action(), late]).finally(() => clearTimeout(timer))) === 'late';
  };
  try {
    return await target.all(
      {
        'read a pipe': hangs(() => target.read(`${home}/pipe`)),
        'read a link to it': hangs(() => target.read(`${home}/link`)),
        'write to a pipe': hangs(() => target.write(`${home}/below/pipe`, 'x')),
      },
    );
  } finally {
    await target.sh('timeout 1 bash -c "echo > pipe"; timeout 1 bash -c "cat below/pipe"; true');
  }
}
