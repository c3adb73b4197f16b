// Watches /proc in a loop while commands and contexts are started again and again: a process that has not yet given up
// its privileges, seen in that moment, would be a way to them.
//
// holds: pid namespace, user namespace, seccomp
export default async function watchRestarts(target) {
  let gained;
  for (const user of target.users) {
    const watching = target.python('kit/watch_proc.py', ['2', '10'], user);
    await target.startProcesses(watching);
    const { new: seen, gained: got } = JSON.parse(await watching);
    if (seen < 10) throw new Error(`only ${seen} processes were seen to start`);
    target.why = `${seen} processes seen`;
    if (got.length) gained = `${user}: ${JSON.stringify(got)}`;
  }
  return gained;
}
