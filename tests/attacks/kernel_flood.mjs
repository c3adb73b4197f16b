// A kernel that says a line without end, and one that floods: the engine must neither keep it all nor stop to serve others.
//
// holds: pid namespace
const LIMIT = 64; // MiB that the engine may grow by

export default async function kernelFlood(target) {
  const flood = (bytes) => `
import os, stat
for fd in range(3, 64):
    try:
        if stat.S_ISSOCK(os.fstat(fd).st_mode) or stat.S_ISFIFO(os.fstat(fd).st_mode):
            for _ in range(100):
                view = memoryview(${bytes})
                while len(view): view = view[os.write(fd, view):]
    except OSError: pass
`;
  await target.kernel(flood(`b'x' * (1 << 20)`));
  await target.kernel(flood(`b'{"type": "unknown"}\\n' * 50000`));
  await target.kernel('print(1)');
  const grown = await target.grown();
  target.why = `the engine grew by ${grown.toFixed(1)} MiB`;
  return grown > LIMIT && `the engine grew by ${grown} MiB`;
}
