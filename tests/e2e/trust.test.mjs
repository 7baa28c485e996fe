// An untrusted workspace: nothing is run and no interpreter is looked for until trust is granted. Then the `.venv` is found.
import assert from 'node:assert/strict';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after } from 'node:test';
import { PYTHON, until, workbenchSuite } from './workbench.mjs';

/** A workspace whose own `.venv` tells of each time that its Python is run, and which names it in its settings too. */
function hostileWorkspace() {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'hostile-'));
  after(() => {
    fs.rmSync(folder, { recursive: true, force: true });
  });
  const files = path.join(folder, 'workspace');
  fs.cpSync(path.join(import.meta.dirname, 'fixtures/scripted'), files, { recursive: true });
  fs.mkdirSync(path.join(files, '.venv/bin'), { recursive: true });
  const script = `#!/bin/sh\necho "$@" >> "$(dirname "$0")/runs"\nexec ${PYTHON} "$@"\n`;
  fs.writeFileSync(path.join(files, '.venv/bin/python'), script, { mode: 0o755 });
  fs.mkdirSync(path.join(files, '.vscode'));
  const settings = { 'kernelwright.interpreter': '${workspaceFolder}/.venv/bin/python' };
  fs.writeFileSync(path.join(files, '.vscode/settings.json'), JSON.stringify(settings));
  return files;
}

const options = () => ({
  files: hostileWorkspace(),
  scripted: true,
  open: 'outcomes.py',
  interpreter: '',
  settings: { 'security.workspace.trust.enabled': true, 'security.workspace.trust.startupPrompt': 'always' },
});

workbenchSuite('trust', options, step => {
  const runs = ({ folder }) => path.join(folder, '.venv/bin/runs');

  step('untrusted: no process, no lens, no menu entry', async wb => {
    const { page, editor } = wb;
    const dialog = page.locator('.monaco-dialog-box', { hasText: 'Do you trust the authors' });
    await dialog.locator('.monaco-button', { hasText: "No, I don't trust" }).click();
    await editor.status('Restricted Mode').waitFor();
    await editor.line('def propose').waitFor();
    await until(() => wb.log().includes('not trusted: waiting'), 'the extension to wait');
    assert.equal(wb.processes().server, undefined);
    assert.ok(!fs.existsSync(runs(wb)), 'an interpreter of the workspace was run');
    assert.equal(await editor.lens('Generate').count(), 0);
    await editor.openMenu('def propose');
    await editor.menuItem('Copy').waitFor();
    assert.equal(await editor.menuItem('Generate Triton Kernel').count(), 0);
    await page.keyboard.press('Escape');
    await editor.run('Kernelwright: Restart Server');
    await editor.toast('The workspace is not trusted yet').waitFor();
    assert.equal(wb.processes().server, undefined);
    assert.ok(!fs.existsSync(runs(wb)), 'an interpreter of the workspace was run');
  });

  step('trust granted: the server starts', async (wb, shot) => {
    const { page, editor } = wb;
    await editor.status('Restricted Mode').click();
    await page
      .locator('.workspace-trust-editor .monaco-button', { hasText: /^Trust$/ })
      .first()
      .click();
    await editor.lens('Generate Triton kernel').waitFor();
    await page.locator('.monaco-modal-editor-block .action-label[aria-label^="Close"]').first().click();
    await page.locator('.monaco-modal-editor-block').waitFor({ state: 'detached' });
    assert.match(fs.readFileSync(runs(wb), 'utf8'), /-X utf8 -c/);
    assert.ok(wb.processes().server);
    await shot('trusted');
  });

  step('a broken interpreter: the status item says so; mending the setting mends it', async (wb, shot) => {
    const { editor, folder } = wb;
    const settings = path.join(folder, '.vscode/settings.json');
    fs.writeFileSync(settings, JSON.stringify({ 'kernelwright.interpreter': '/no/such/python' }));
    await editor.status('Kernelwright: no Python').waitFor();
    await editor.run('Kernelwright: Generate Triton Kernel');
    await editor.toast('kernelwright.interpreter is /no/such/python').waitFor();
    await shot('no-python');
    await editor.clearToasts();
    fs.writeFileSync(settings, '{}');
    await editor.status('Kernelwright: no Python').waitFor({ state: 'detached' });
    await until(() => wb.processes().server, 'the server');
    await until(() => /\.venv; Python/.test(wb.log()), '.venv to be found');
  });
});
