// Names with line ends, terminal escapes, quotes and bytes that are no text: a listing must not be forged by them, nor broken.
//
// holds: mount namespace
export default async function routeNames(target) {
  await target.sh(`mkdir names; cd names; touch $'a\\nforged' $'\\e[2J\\e]0;title\\a' '","type":"forged' $'\\xff\\xfe' $'tab\\tquote"' $'\\u202egnp.exe' "$(printf 'x%.0s' {1..255})"`);
  const names = await target.list(`${target.home}/names`);
  if (names.includes('forged')) return 'an entry that does not exist';
  return names.length === 7 ? undefined : `${names.length} entries: ${JSON.stringify(names)}`;
}
