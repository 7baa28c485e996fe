import assert from 'node:assert/strict';
import * as fs from 'node:fs';
import * as os from 'node:os';
import * as path from 'node:path';
import { suite, test } from 'node:test';
import { choose, environmentPython, probe } from '../src/interpreters';
import type { Candidate, Probed } from '../src/interpreters';

/** What each fake interpreter says of itself; a string is why it cannot be used. */
const WORLD: Record<string, Probed | string> = {
  torch: { executable: '/usr/bin/torch', version: [3, 11], torch: true },
  bare: { executable: '/usr/bin/bare', version: [3, 12], torch: false },
  other: { executable: '/usr/bin/other', version: [3, 13], torch: false },
  old: { executable: '/usr/bin/old', version: [3, 9], torch: true },
  '/env/bin/python': { executable: '/real/python', version: [3, 10], torch: false },
  gone: 'no such file',
};

function guess(command: string): Candidate {
  return { command, from: 'PATH', explicit: false };
}

function named(command: string): Candidate {
  return { command, from: 'a setting', explicit: true };
}

suite('choose', () => {
  const table: [string, Candidate[], string][] = [
    ['the first guess with torch, not the first', [guess('bare'), guess('torch')], '/usr/bin/torch'],
    [
      'the first that works, when none has torch',
      [guess('gone'), guess('bare'), guess('other')],
      '/usr/bin/bare',
    ],
    ['what a person chose, though a guess has torch', [named('bare'), guess('torch')], '/usr/bin/bare'],
    ['a guess, when what was chosen does not run', [named('gone'), guess('torch')], '/usr/bin/torch'],
    ['never one that is too old', [named('old'), guess('old'), guess('bare')], '/usr/bin/bare'],
    ['a path as it was written', [named('/env/bin/python')], '/env/bin/python'],
  ];
  for (const [title, candidates, executable] of table) {
    test(title, async () => {
      const found = await choose(candidates, command => Promise.resolve(WORLD[command] ?? 'unknown'));
      assert.equal(found.kind === 'found' && found.executable, executable);
    });
  }

  test('nothing else is tried after our own setting', async () => {
    const own = { ...named('old'), final: true };
    assert.deepEqual(await choose([own, guess('torch')], command => Promise.resolve(WORLD[command] ?? '')), {
      kind: 'notFound',
      message: 'a setting is old: Python 3.9 is older than 3.10',
      reasons: ['old (a setting): Python 3.9 is older than 3.10'],
    });
  });

  test('the reasons are kept when there is none', async () => {
    const found = await choose([guess('gone'), guess('old')], command =>
      Promise.resolve(WORLD[command] ?? ''),
    );
    assert.deepEqual(found, {
      kind: 'notFound',
      message: 'No Python 3.10 or newer was found',
      reasons: ['gone (PATH): no such file', 'old (PATH): Python 3.9 is older than 3.10'],
    });
  });
});

suite('probe', () => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'probe-'));
  const script = (name: string, body: string, mode = 0o755): string => {
    const file = path.join(folder, name);
    fs.writeFileSync(file, `#!/bin/sh\n${body}\n`, { mode });
    return file;
  };

  const table: [string, string, Probed | string][] = [
    [
      'reads the last line, whatever was printed before',
      script('chatty', `echo hello; echo '{"executable": "/p", "version": [3, 11], "torch": true}'`),
      { executable: '/p', version: [3, 11], torch: true },
    ],
    ['not Python', script('cat', 'echo meow'), 'did not answer as Python does'],
    ['ends badly', script('bad', 'exit 7'), 'ended with 7'],
    ['not executable', script('plain', 'exit 0', 0o644), 'not executable'],
    ['not there', path.join(folder, 'nothing'), 'no such file'],
    ['hangs', script('hang', 'exec sleep 60'), 'did not answer in time'],
  ];
  for (const [title, command, expected] of table) {
    test(title, async () => {
      assert.deepEqual(await probe(command, title === 'hangs' ? 200 : 10_000), expected);
    });
  }

  test('the real one', async () => {
    const said = await probe('python3');
    if (typeof said === 'string') assert.fail(said);
    assert.ok(path.isAbsolute(said.executable));
    assert.equal(said.version[0], 3);
  });
});

suite('environmentPython', () => {
  const table: [string, NodeJS.Platform, string][] = [
    ['/w/.venv', 'linux', '/w/.venv/bin/python'],
    ['C:\\w\\.venv', 'win32', 'C:\\w\\.venv\\Scripts\\python.exe'],
  ];
  for (const [where, platform, expected] of table) {
    test(platform, () => {
      assert.equal(environmentPython(where, platform), expected);
    });
  }
});
