// Wheels made on the spot, for tests that install packages without any network.
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';

// A wheel is a zip file with a module, three files of metadata, and the hashes of them all.
const BUILD_WHEEL = `
import base64, hashlib, sys, zipfile
folder, name, version, requires = sys.argv[1:5]
info = f"{name}-{version}.dist-info"
files = {
    f"{name}/__init__.py": f"VERSION = {version!r}\\ndef hello(): return 'hello from {name}'\\n",
    f"{info}/METADATA": f"Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n" + (f"Requires-Dist: {requires}\\n" if requires else ""),
    f"{info}/WHEEL": "Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
}
digest = lambda text: base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
record = "".join(f"{path},sha256={digest(text)},{len(text.encode())}\\n" for path, text in files.items())
with zipfile.ZipFile(f"{folder}/{name}-{version}-py3-none-any.whl", "w") as wheel:
    for path, text in {**files, f"{info}/RECORD": record + f"{info}/RECORD,,\\n"}.items():
        wheel.writestr(path, text)
`;

/** A folder with wheels, each given as [name, version] or [name, version, what it requires]. */
export function writeWheels(folder, wheels) {
  fs.mkdirSync(folder, { mode: 0o755 });
  for (const [name, version, requires = ''] of wheels)
    execFileSync('/usr/bin/python3', ['-c', BUILD_WHEEL, folder, name, version, requires]);
  return folder;
}
