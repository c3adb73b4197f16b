// What /proc shows of the process that serves the file routes: its memory, environment, open files. Through the routes, and
// through links to there that the attacker made.
//
// holds: pid namespace, mount namespace
export default async function routeMagic(target) {
  const { home } = target;
  const names = ['/proc/self/cmdline', '/proc/self/mem', '/proc/1/environ', '/proc/1/maps', '/proc/1/auxv', '/proc/self/fd/0', '/proc/self/fd/3', '/proc/self/fd/4', '/proc/self/exe', '/proc/thread-self/environ'];
  await target.sh(`ln -s /proc/self self; ln -s /proc/self/fd/3 three; ln -s /proc/self/exe program; ln -s self/environ chain`);
  const read = (file) => async () => (await target.read(file)).length > 0;
  // Unconfined the process is this test's own: a read of its sockets would never return.
  const harmless = ['/proc/self/environ', '/proc/self/maps', `${home}/self/environ`, `${home}/program`, `${home}/chain`];
  const all = target.unconfined ? harmless : [...harmless, ...names, `${home}/three`];
  return target.all(Object.fromEntries(all.map((n) => [n, read(n)])));
}
