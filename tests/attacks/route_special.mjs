// A pipe that nobody writes, a link to one: reads of them and writes to them must not hold the engine up.
//
// holds: mount namespace
const SECONDS = 2;

export default async function routeSpecial(target) {
  const { home } = target;
  await target.sh('mkfifo pipe; ln -s pipe link; mkdir below; mkfifo below/pipe');
  const hangs = (action) => async () => {
    const late = new Promise((resolve) => setTimeout(resolve, SECONDS * 1000, 'late'));
    return (await Promise.race([action(), late])) === 'late';
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
