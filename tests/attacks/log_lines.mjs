// Puts line ends and terminal escapes into whatever the engine might write to its log.
//
// holds: mount namespace
const FORGED = '\u001b[31m\nop=create sandbox=forged\u0007';

export default async function logLines(target) {
  const tries = [
    () => target.read(`${target.home}/${FORGED}`),
    () => target.write(`/proc/${FORGED}`, 'x'),
    () => target.list(`${target.home}/${FORGED}`),
    () => target.move(`${target.home}/${FORGED}`, `/sys/${FORGED}`),
    () => target.sh(`exec -a "$(printf '\\e[31m\\nop=create sandbox=forged')" false; printf '\\e[31m\\nop=create sandbox=forged\\n' >&2`),
    async () => target.client?.(FORGED),
  ];
  for (const one of tries) await one().catch(() => {});
  const log = target.log();
  if (/[\u0000-\u0008\u000b-\u001f\u007f]/.test(log)) return 'a control character in the log';
  return /^op=create sandbox=forged/m.test(log) && 'a line in the log';
}
