// What is in the .vsix: one file for every platform, nothing that is not meant to be there, and a server that starts from it.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, before, suite, test } from 'node:test';
import { PYTHON, ROOT } from './workbench.mjs';

suite('vsix', () => {
  const vsix = process.env.VSIX ?? path.join(ROOT, 'build/kernelwright.vsix');
  let folder;
  let names;
  before(() => {
    folder = fs.mkdtempSync(path.join(os.tmpdir(), 'vsix-'));
    execFileSync(PYTHON, ['-m', 'zipfile', '-e', vsix, folder]);
    names = fs.readdirSync(path.join(folder, 'extension'), { recursive: true });
  });
  after(() => {
    fs.rmSync(folder, { recursive: true, force: true });
  });

  test('is small', () => {
    const megabytes = fs.statSync(vsix).size / 2 ** 20;
    assert.ok(megabytes < 5, `${megabytes} MB`);
  });

  test('holds what it needs', () => {
    const needed = [
      ...[
        'package.json',
        'readme.md',
        'LICENSE.txt',
        'dist/extension.js',
        'media/icon.png',
        'bundled/launch.py',
      ],
      ...[
        'bundled/kernelwright/lsp/server.py',
        'bundled/kernelwright/worker/main.py',
        'bundled/libs/pygls/__init__.py',
      ],
      ...['lsprotocol', 'cattrs', 'attrs', 'attr', 'exceptiongroup'].map(
        name => `bundled/libs/${name}/__init__.py`,
      ),
      'bundled/libs/typing_extensions.py',
    ];
    assert.deepEqual(
      needed.filter(name => !names.includes(name)),
      [],
    );
  });

  test('holds no source of the client, no tests, no bytecode, nothing native', () => {
    const unwanted =
      /\.(ts|map|pyc|so|pyd|dylib|exe|node)$|node_modules|__pycache__|^(tests|client|server|\.)/;
    assert.deepEqual(
      names.filter(name => unwanted.test(name)),
      [],
    );
  });

  test('its server needs nothing that is installed: it imports without site-packages', () => {
    const bundled = path.join(folder, 'extension/bundled');
    const code = `import sys; sys.path[:0] = [${JSON.stringify(`${bundled}/libs`)}, ${JSON.stringify(bundled)}]
import kernelwright.lsp.server, kernelwright.app
print(kernelwright.__file__, 'torch' in sys.modules)`;
    const said = execFileSync(PYTHON, ['-I', '-S', '-B', '-c', code], { encoding: 'utf8' });
    assert.equal(said.trim(), `${bundled}/kernelwright/__init__.py False`);
  });
});
