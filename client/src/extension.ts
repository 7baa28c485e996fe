// The extension's life: put together on activation, started once the workspace is trusted, stopped with the window.
import * as vscode from 'vscode';
import { Server } from './client';
import { Commands } from './commands';
import { Diffs } from './diff';
import { Generator } from './generate';
import type { Health } from './health';
import { createLog } from './log';
import { Interpreters } from './python';
import { Secrets } from './secrets';
import { StatusItem } from './status';

let server: Server | undefined;

export async function activate(context: vscode.ExtensionContext): Promise<void> {
  const log = createLog();
  const secrets = new Secrets(context.secrets);
  const interpreters = new Interpreters(log);
  const running = (server = new Server(context, log, interpreters, secrets));
  const diffs = new Diffs(running, log);
  const generator = new Generator(running, diffs, log);
  const status = new StatusItem();
  context.subscriptions.push(
    log,
    interpreters,
    running,
    diffs,
    status,
    ...new Commands(running, diffs, generator, secrets, log).register(),
    running.onDidChangeHealth(health => {
      status.show(health);
    }),
    running.onDidChangeHealth(sayOnce()),
  );
  const start = async (): Promise<void> => {
    // Only a trusted workspace may name an interpreter, so nothing is looked for before.
    context.subscriptions.push(interpreters.onDidChange(() => void running.followInterpreters()));
    await running.restart();
  };
  if (vscode.workspace.isTrusted) {
    await start();
  } else {
    log.info('the workspace is not trusted: waiting');
    context.subscriptions.push(vscode.workspace.onDidGrantWorkspaceTrust(start));
  }
}

export async function deactivate(): Promise<void> {
  await server?.stop();
}

/** Shows the server's note (the chosen model has no key, say) once, not at each start. */
function sayOnce(): (health: Health) => void {
  let said = '';
  return health => {
    if (health.state !== 'running' || !health.note || health.note === said) return;
    said = health.note;
    void offerKey(health.note);
  };
}

async function offerKey(note: string): Promise<void> {
  const chosen = await vscode.window.showWarningMessage(note, 'Set API Key…', 'Other Provider…');
  if (chosen === 'Set API Key…') await vscode.commands.executeCommand('kernelwright.setApiKey');
  if (chosen === 'Other Provider…') await vscode.commands.executeCommand('kernelwright.selectProvider');
}
