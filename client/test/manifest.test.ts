// What package.json promises, against what the client does.
import assert from 'node:assert/strict';
import * as fs from 'node:fs';
import { suite, test } from 'node:test';
import manifest from '../../package.json';

suite('package.json', () => {
  const commands = manifest.contributes.commands.map(({ command }) => command);

  test('each command is in the table of commands.ts, and the other way round', () => {
    const source = fs.readFileSync('client/src/commands.ts', 'utf8');
    const table = source.slice(source.indexOf('const table'), source.indexOf('return Object.entries'));
    const registered = [...table.matchAll(/^ {6}(\w+): \(/gm)].map(
      ([, name]) => `kernelwright.${name ?? ''}`,
    );
    assert.deepEqual(registered.toSorted(), commands.toSorted());
  });

  test('each menu names a command that there is', () => {
    const named = Object.values(manifest.contributes.menus).flatMap(entries =>
      entries.map(({ command }) => command),
    );
    assert.deepEqual(
      named.filter(command => !commands.includes(command)),
      [],
    );
  });

  test('nothing else needs to be installed', () => {
    assert.ok(!('extensionDependencies' in manifest) && !('dependencies' in manifest));
  });

  test('a workspace that is not trusted cannot choose where keys are sent, who writes, or what is run', () => {
    assert.deepEqual(manifest.capabilities.untrustedWorkspaces.restrictedConfigurations.toSorted(), [
      'kernelwright.anthropic.baseUrl',
      'kernelwright.interpreter',
      'kernelwright.openai.baseUrl',
      'kernelwright.provider',
    ]);
  });
});
