// The client against the real server with a scripted core: every way that a request can end, decided by the function's name.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { alive, until, workbenchSuite } from './workbench.mjs';

const FILE = 'outcomes.py';
const BLOCK = '# >>> kernelwright: propose';
const DISPATCH = '@_kernelwright_propose';
const options = () => ({
  files: path.join(import.meta.dirname, 'fixtures/scripted'),
  scripted: true,
  open: FILE,
});

workbenchSuite('scripted', options, step => {
  step('lens: above each function that uses torch, and no other', async ({ page, editor }) => {
    await editor.lens('Generate Triton kernel').waitFor();
    await editor.status('Kernelwright').waitFor();
    await page.keyboard.press('Control+End');
    await editor.line('def plain').waitFor();
    await page.keyboard.press('Control+Home');
  });

  step('lens: generate, then reject from the diff', async ({ editor, read }) => {
    const before = read(FILE);
    await editor.clickLens('Generate Triton kernel', 'def propose');
    await editor.proposedLine(BLOCK).waitFor();
    await editor.titleAction('Reject Kernel').click();
    await editor.tab('Triton kernel for propose').waitFor({ state: 'detached' });
    await editor.lens('Generate Triton kernel').waitFor();
    assert.equal(await editor.lens('Review kernel').count(), 0);
    assert.equal(read(FILE), before);
  });

  step(
    'lightbulb: generate, close the diff, review from the lens, accept; one undo restores the bytes',
    async wb => {
      const { page, editor, read } = wb;
      const before = read(FILE);
      await editor.cursorTo('return x * scaled');
      await page.keyboard.press('Control+.');
      await page
        .locator('.action-widget .monaco-list-row', { hasText: /Generate/ })
        .first()
        .click();
      await editor.proposedLine(BLOCK).waitFor();
      await editor.closeTab();
      await editor.clickLens('Review kernel', 'def propose');
      await editor.proposedLine(BLOCK).waitFor();
      await editor.accept('propose');
      await editor.save();
      const lines = read(FILE).split('\n');
      const line = lines.indexOf('def propose(x: torch.Tensor) -> torch.Tensor:') + 1;
      assert.equal(lines[line - 2], DISPATCH);
      assert.deepEqual(await editor.cursor(), { line, column: 5 });
      await page.keyboard.press('Control+z');
      await editor.line(DISPATCH).waitFor({ state: 'detached' });
      await editor.line('def propose').waitFor(); // the view follows
      await editor.save();
      assert.equal(read(FILE), before);
    },
  );

  step('typing above the function keeps the proposal good', async ({ page, editor, read }) => {
    await editor.clickLens('Generate Triton kernel', 'def propose');
    await editor.proposedLine(BLOCK).waitFor();
    await editor.tab(FILE).click();
    await page.locator('.editor-instance .monaco-editor.focused').waitFor();
    await page.keyboard.press('Control+Home');
    await editor.cursorTo('import torch');
    await page.keyboard.type('  # for tensors');
    await editor.tab('Triton kernel for propose').click();
    await page.locator('.monaco-diff-editor .monaco-editor.focused').waitFor();
    await page.keyboard.press('Control+Home');
    await editor.proposedLine('# for tensors').waitFor();
    await editor.accept('propose');
    await editor.line(DISPATCH).waitFor();
    await editor.save();
    assert.match(read(FILE), /# for tensors[^]*\n@_kernelwright_propose\ndef propose/);
  });

  step('re-check and remove an accepted kernel', async ({ editor, page, read }) => {
    await editor.clickLens('Re-check', 'def propose');
    await editor.toast('passed').or(editor.toast('Passed')).first().waitFor();
    await editor.clearToasts();
    await editor.clickLens('Remove', 'def propose');
    await editor.line(DISPATCH).waitFor({ state: 'detached' });
    await page.keyboard.press('Control+z');
    await editor.line(DISPATCH).waitFor();
    await page.keyboard.press('Control+z');
    await editor.line(DISPATCH).waitFor({ state: 'detached' });
    await editor.save();
    assert.doesNotMatch(read(FILE), /_kernelwright_/);
  });

  step(
    'typing inside the function makes the proposal stale: its diff closes and Accept is refused',
    async wb => {
      const { page, editor, read } = wb;
      await editor.clickLens('Generate Triton kernel', 'def propose');
      await editor.proposedLine(BLOCK).waitFor();
      await editor.tab(FILE).click();
      await editor.cursorTo('return x * scaled');
      await page.keyboard.type(' + 1');
      await editor.tab('Triton kernel for propose').waitFor({ state: 'detached' });
      await editor.run('Kernelwright: Accept Kernel');
      await editor.toast('No kernel waits for your decision here').waitFor();
      assert.doesNotMatch(read(FILE), /_kernelwright_/);
      await editor.clearToasts();
      for (let typed = 0; typed < ' + 1'.length; typed++) await page.keyboard.press('Backspace');
      await editor.lens('Review kernel').waitFor();
    },
  );

  for (const [name, message, button] of [
    ['decline', 'sort', 'Other Provider…'],
    ['fail', 'a value is wrong', 'Show Problem'],
    ['keep', 'torch.compile', 'Show Log'],
    ['crash', 'fault', 'Restart Server'],
  ]) {
    step(`a request that ends otherwise says so: ${name}`, async ({ editor }, shot) => {
      await editor.rightClick(`def ${name}`, 'Generate Triton Kernel');
      const toast = editor.toast(message);
      await editor.button(toast, button).waitFor();
      await shot(`outcome-${name}`);
      await editor.clearToasts();
    });
  }

  step('inputs are asked for: prefilled, validated, cancellable', async ({ page, editor }, shot) => {
    await editor.rightClick('def ask', 'Generate Triton Kernel');
    const box = editor.inputBox();
    await page.locator('.quick-input-widget', { hasText: 'What is ask called with?' }).waitFor();
    assert.equal(await box.inputValue(), 'x: f32[1024]');
    await box.fill('x: q32[');
    await page.locator('.quick-input-message', { hasText: 'q32' }).first().waitFor();
    await shot('inputs-refused');
    await box.fill('x: f32[8, 33]');
    await page.keyboard.press('Enter');
    await editor.proposedLine('# >>> kernelwright: ask').waitFor();
    await editor.titleAction('Reject Kernel').click();
    await editor.tab('Triton kernel for ask').waitFor({ state: 'detached' });
  });

  for (const name of ['hang_tracing', 'hang_checking']) {
    step(`cancel: ${name}`, async ({ editor, scriptLog }, shot) => {
      await editor.rightClick(`def ${name}`, 'Generate Triton Kernel');
      const toast = editor.toast(`Triton kernel for ${name}`);
      await toast.filter({ hasText: name === 'hang_tracing' ? 'Traced' : 'Checking values' }).waitFor();
      await editor.status('1 running').waitFor();
      await shot(`progress-${name}`);
      await editor.button(toast, 'Cancel').click();
      await toast.waitFor({ state: 'detached' });
      await until(() => scriptLog().includes(`cancelled ${name}`), 'the core to be cancelled', 2000);
      await editor.status('1 running').waitFor({ state: 'detached' });
    });
  }

  step('outside of a function, the command says what it needs', async ({ page, editor }) => {
    await page.keyboard.press('Control+Home');
    await editor.cursorTo('import torch');
    await editor.run('Kernelwright: Generate Triton Kernel');
    await editor.toast('Put the cursor into a function that uses torch').waitFor();
    await editor.clearToasts();
  });

  step('restart: a new server, and lenses again', async ({ editor, processes }) => {
    const { server: old } = processes();
    await editor.run('Kernelwright: Restart Server');
    const { pid } = await until(() => {
      const { server } = processes();
      return server?.pid !== old.pid && server;
    }, 'another server');
    await until(() => !alive(old.pid), 'the old server to end');
    assert.notEqual(pid, old.pid);
    await editor.lens('Generate Triton kernel').waitFor();
  });

  step('status menu', async ({ page, editor }, shot) => {
    await editor.status('Kernelwright').click();
    await editor.row('Restart Server').waitFor();
    await shot('status-menu');
    await page.keyboard.press('Escape');
  });

  step('an API key: typed, it is in the environment of a new server; cleared, it is gone', async wb => {
    const { page, editor, processes } = wb;
    const keyOfServer = () => {
      const { server } = processes();
      const environment = server && fs.readFileSync(`/proc/${server.pid}/environ`, 'utf8').split('\0');
      return environment?.length > 1
        ? (environment.find(each => each.startsWith('ANTHROPIC_API_KEY=')) ?? 'none')
        : 'starting';
    };
    assert.equal(keyOfServer(), 'none');
    await editor.run('Kernelwright: Select Provider…');
    await editor.row('Anthropic').first().click();
    await page.locator('.quick-input-widget', { hasText: 'API key of Anthropic' }).waitFor();
    await page.keyboard.type('sk-ant-not-a-key');
    await page.keyboard.press('Enter');
    await until(
      () => keyOfServer() === 'ANTHROPIC_API_KEY=sk-ant-not-a-key',
      () => `the key: ${keyOfServer()}`,
    );
    await editor.run('Kernelwright: Clear API Key…');
    await editor.row('Anthropic').first().click();
    await until(
      () => keyOfServer() === 'none',
      () => `no key: ${keyOfServer()}`,
    );
    assert.doesNotMatch(wb.log(), /sk-ant/);
  });

  step('nothing was asked of the network', async ({ offsite }) => {
    assert.deepEqual(offsite, []);
  });

  step('killing the editor ends the server', async ({ server, processes }) => {
    const { server: python } = await until(() => {
      const found = processes();
      return found.server && found;
    }, 'the server');
    process.kill(server.pid, 'SIGKILL');
    await until(() => !alive(python.pid), 'the language server to end', 15_000);
  });
});
