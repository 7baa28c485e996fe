import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { describe } from '../src/health';
import type { Health } from '../src/health';

const interpreter = { executable: '/env/bin/python', from: '.venv', torch: true };
const ready: Health = { state: 'running', interpreter, provider: 'builtin', note: '', jobs: 0 };
const details = 'Interpreter: `/env/bin/python` (.venv)\n\nProvider: builtin';

suite('describe', () => {
  const table: [string, Health, ReturnType<typeof describe>][] = [
    [
      'starting',
      { state: 'starting' },
      { icon: 'sync~spin', text: 'Kernelwright', tooltip: 'The server is starting' },
    ],
    ['ready', ready, { icon: 'circuit-board', text: 'Kernelwright', tooltip: `Ready\n\n${details}` }],
    [
      'busy',
      { ...ready, jobs: 2 },
      { icon: 'sync~spin', text: 'Kernelwright: 2 running', tooltip: `2 kernels in work\n\n${details}` },
    ],
    [
      'the model has no key',
      { ...ready, note: 'no key for anthropic' },
      {
        icon: 'info',
        text: 'Kernelwright: built-in',
        tooltip: `Ready\n\nno key for anthropic\n\n${details}`,
      },
    ],
    [
      'stopped',
      { state: 'stopped', message: 'it ended' },
      {
        icon: 'error',
        text: 'Kernelwright',
        tooltip: 'The server is not running: it ended',
        severity: 'error',
      },
    ],
  ];
  for (const [title, health, expected] of table) {
    test(title, () => {
      assert.deepEqual(describe(health), expected);
    });
  }

  const broken: [string, Health, string][] = [
    ['no interpreter', { state: 'noInterpreter', message: 'none was found' }, 'Kernelwright: no Python'],
    ['no torch', { ...ready, interpreter: { ...interpreter, torch: false } }, 'Kernelwright: no torch'],
  ];
  for (const [title, health, text] of broken) {
    test(`${title}: a warning, with the setting as the fix`, () => {
      const { text: shown, severity, fix } = describe(health);
      assert.deepEqual([shown, severity, fix?.arguments], [text, 'warning', ['kernelwright.interpreter']]);
    });
  }
});
