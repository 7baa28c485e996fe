// `serve.mjs VSIX FOLDER`: the workbench for a person. Prints the address; ends with everything that it started.
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { PYTHON, startServer } from './workbench.mjs';

const [vsix, folder] = process.argv.slice(2);
const root = fs.mkdtempSync(path.join(os.tmpdir(), 'kernelwright-vscode-'));
const server = await startServer({
  vsix,
  folder,
  root,
  settings: { 'security.workspace.trust.enabled': true },
  machine: { 'kernelwright.interpreter': PYTHON },
  port: Number(process.env.PORT ?? 0),
});
console.log(`VS Code with Kernelwright on ${folder}:\n\n    ${server.address}\n\nCtrl+C stops it.`);
for (const signal of ['SIGINT', 'SIGTERM']) {
  process.once(signal, async () => {
    await server.stop();
    fs.rmSync(root, { recursive: true, force: true });
    process.exit(0);
  });
}
