import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { ask, buttonsFor } from '../src/outcomes';
import type { GenerateResult } from '../src/protocol';
import { PROVIDERS, keyProblem } from '../src/providers';
import manifest from '../../package.json';

function result(outcome: GenerateResult['outcome'], rest: Partial<GenerateResult> = {}): GenerateResult {
  return { outcome, message: 'message', qualname: 'f', ...rest };
}

suite('ask', () => {
  const table: [string, GenerateResult, string | undefined, ReturnType<typeof ask>][] = [
    ['proposed: nothing', result('proposed'), undefined, undefined],
    ['failed: nothing, though there were inputs', result('failed'), 'x: f32[8]', undefined],
    [
      'needed: the suggestion',
      result('inputsNeeded', { suggestion: 'x: f32[1024]' }),
      undefined,
      { problem: '', value: 'x: f32[1024]' },
    ],
    [
      'invalid: what was typed, and what is wrong with it',
      result('invalidInputs', { suggestion: 'x: f32[1024]', problem: 'x: what is q32?' }),
      'x: q32[8]',
      { problem: 'x: what is q32?', value: 'x: q32[8]' },
    ],
    [
      'invalid in the file: the suggestion',
      result('invalidInputs'),
      undefined,
      { problem: 'message', value: '' },
    ],
  ];
  for (const [title, given, inputs, expected] of table) {
    test(title, () => {
      assert.deepEqual(ask(given, inputs), expected);
    });
  }
});

suite('buttonsFor', () => {
  const contributed = new Set(manifest.contributes.commands.map(({ command }) => command));
  const outcomes = ['declined', 'failed', 'refuted', 'kept', 'stale', 'error', 'proposed', 'passed'] as const;
  for (const outcome of outcomes) {
    test(`${outcome}: commands of ours exist`, () => {
      const ours = buttonsFor(outcome).flatMap(({ command }) =>
        command?.startsWith('kernelwright.') ? [command] : [],
      );
      assert.deepEqual(
        ours.filter(command => !contributed.has(command)),
        [],
      );
    });
  }
});

suite('providers', () => {
  test('the picker offers what the setting allows', () => {
    const setting = manifest.contributes.configuration.properties['kernelwright.provider'];
    assert.deepEqual(
      PROVIDERS.map(({ id }) => id),
      setting.enum,
    );
    assert.deepEqual(
      PROVIDERS.map(({ label }) => label),
      setting.enumItemLabels,
    );
  });

  const keys: [string, string | undefined][] = [
    ['sk-ant-123', undefined],
    ['  sk-ant-123\n', undefined],
    ['', 'Paste the key'],
    ['   ', 'Paste the key'],
    ['sk one two', 'A key holds no spaces'],
  ];
  for (const [key, expected] of keys) {
    test(`key ${JSON.stringify(key)}`, () => {
      assert.equal(keyProblem(key), expected);
    });
  }
});
