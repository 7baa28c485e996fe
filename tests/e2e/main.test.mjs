// The main job, whole, with nothing scripted: the built-in generator, the real workers, an example of the repository.
import assert from 'node:assert/strict';
import path from 'node:path';
import { ROOT, alive, until, workbenchSuite } from './workbench.mjs';

const FILE = 'rms_norm.py';
const DISPATCH = '@_kernelwright_rms_norm';
const TITLE = 'Triton kernel for rms_norm';
const PROPOSAL_MS = 90_000;

workbenchSuite(
  'main',
  () => ({ files: path.join(ROOT, 'examples'), open: FILE }),
  step => {
    step('right-click: the menu has the entry', async ({ page, editor }, shot) => {
      await editor.lens('Generate Triton kernel').waitFor();
      await page.keyboard.press('Control+b'); // room for the pictures
      await page.locator('.explorer-viewlet').waitFor({ state: 'hidden' });
      await editor.openMenu('def rms_norm');
      await editor.menuItem('Generate Triton Kernel').hover();
      await shot('context-menu');
    });

    step('progress shows the stages as they happen, then the diff opens', async ({ page, editor }, shot) => {
      await page.keyboard.press('Enter');
      await editor.toast(TITLE).filter({ hasText: 'Checking values' }).waitFor({ timeout: PROPOSAL_MS });
      await shot('progress');
      await editor.proposedLine('@triton.jit').waitFor({ timeout: PROPOSAL_MS });
      await editor.toast(TITLE).waitFor({ state: 'detached' });
      await shot('diff');
      const seen = (await editor.messages()).filter(message => message.startsWith(TITLE)).join('\n');
      const stages = ['Starting workers', 'Tracing', 'Writing kernel', 'Checking values'];
      const places = stages.map(stage => seen.indexOf(stage));
      assert.ok(!places.includes(-1), `not every stage was seen:\n${seen}`);
      assert.deepEqual(
        places,
        [...places].sort((a, b) => a - b),
        `out of order:\n${seen}`,
      );
    });

    step('hover over the pending kernel tells its evidence', async ({ page, editor }, shot) => {
      await editor.tab(FILE).click();
      await editor.hoverOver('def rms_norm', 'rms_norm', /cases/);
      await shot('hover-pending');
      await page.keyboard.press('Escape');
    });

    step('accept; one Ctrl+Z restores the file byte for byte', async ({ page, editor, read }, shot) => {
      const before = read(FILE);
      await editor.tab(TITLE).click();
      await editor.accept('rms_norm');
      await shot('accepted');
      await editor.save();
      const after = read(FILE);
      assert.match(after, /^ {4}@triton\.jit$/m);
      assert.ok(after.includes(`${DISPATCH}\ndef rms_norm(`));
      await page.keyboard.press('Control+z');
      await editor.lens('Generate Triton kernel').waitFor();
      await editor.save();
      assert.equal(read(FILE), before);
      await page.keyboard.press('Control+y');
      await page.locator('.tab.active.dirty').waitFor();
      await editor.save();
      assert.equal(read(FILE), after);
    });

    step('hover over the accepted kernel tells its evidence', async ({ page, editor }, shot) => {
      await page.keyboard.press('Control+End');
      await editor.lens('Re-check').waitFor();
      await editor.hoverOver('def rms_norm', 'rms_norm', /cases/);
      await shot('hover');
      await page.keyboard.press('Escape');
    });

    step('evidence that no longer matches the function is a diagnostic', async ({ page, editor }, shot) => {
      await editor.cursorTo('return weight *');
      await page.keyboard.type('  # changed');
      await editor.squiggle('warning').first().waitFor();
      await shot('stale-evidence');
      for (let typed = 0; typed < '  # changed'.length; typed++) await page.keyboard.press('Backspace');
      await editor.squiggle('warning').first().waitFor({ state: 'detached' });
    });

    step(
      'a function that cannot be a kernel is declined, with the reason on its line',
      async ({ page, editor }, shot) => {
        await editor.open('declined.py');
        await editor.rightClick('def keep_confident', 'Generate Triton Kernel');
        await editor.button(editor.toast('keep_confident'), 'Show Problem').click({ timeout: PROPOSAL_MS });
        await page
          .locator('.markers-panel .monaco-list-row', { hasText: 'keep_confident' })
          .or(page.locator('.markers-panel .monaco-list-row .marker-message-line'))
          .first()
          .waitFor();
        await shot('declined');
        await editor.clearToasts();
        await page.keyboard.press('Control+j');
      },
    );

    step(
      'a model without a key: the UI says that the built-in generator is used',
      async ({ page, editor }, shot) => {
        await editor.run('Kernelwright: Select Provider…');
        await editor.row('Anthropic').first().click();
        await page.locator('.quick-input-widget', { hasText: 'API key of Anthropic' }).waitFor();
        await shot('api-key');
        await page.keyboard.press('Escape');
        await editor.button(editor.toast('key'), 'Set API Key…').waitFor();
        await editor.status('Kernelwright: built-in').waitFor();
        await shot('no-key');
        await editor.clearToasts();
        await editor.run('Kernelwright: Select Provider…');
        await editor.row('Built-in generator').first().click();
        await editor.status('Kernelwright: built-in').waitFor({ state: 'detached' });
      },
    );

    step('cancelling ends every worker within two seconds', async ({ editor, processes }) => {
      await editor.open('softmax.py');
      await editor.rightClick('def tempered_softmax', 'Generate Triton Kernel');
      const toast = editor.toast('Triton kernel for tempered_softmax');
      await toast.filter({ hasText: 'Checking values' }).waitFor({ timeout: PROPOSAL_MS });
      const { workers } = processes();
      assert.ok(workers.length > 0, 'no worker was seen');
      const started = Date.now();
      await editor.button(toast, 'Cancel').click();
      await until(
        () => workers.every(({ pid }) => !alive(pid)),
        () => `workers to end: ${JSON.stringify(workers)}`,
        2000,
      );
      await toast.waitFor({ state: 'detached', timeout: 2000 - Math.min(Date.now() - started, 1000) });
      assert.deepEqual(processes().workers, []);
    });

    step(
      'killing the editor in the middle of a job leaves no process',
      async ({ editor, server, processes }) => {
        await editor.rightClick('def tempered_softmax', 'Generate Triton Kernel');
        await editor.toast('Checking values').waitFor({ timeout: PROPOSAL_MS });
        const { server: python, workers } = processes();
        assert.ok(workers.length > 0, 'no worker was seen');
        process.kill(server.pid, 'SIGKILL');
        const left = () => [python, ...workers].filter(({ pid }) => alive(pid));
        await until(
          () => left().length === 0,
          () => `to end: ${JSON.stringify(left())}`,
          15_000,
        );
      },
    );
  },
);
