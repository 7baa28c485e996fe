// The status item: what the server is doing, or why it cannot; its menu.
import * as vscode from 'vscode';
import { describe } from './health';
import type { Health } from './health';

export class StatusItem implements vscode.Disposable {
  private readonly item = vscode.window.createStatusBarItem(
    'kernelwright.status',
    vscode.StatusBarAlignment.Right,
    90,
  );

  constructor() {
    this.item.name = 'Kernelwright';
    this.item.command = 'kernelwright.statusMenu';
  }

  show(health: Health): void {
    const { icon, text, tooltip, severity } = describe(health);
    this.item.text = `$(${icon}) ${text}`;
    this.item.tooltip = new vscode.MarkdownString(tooltip);
    this.item.accessibilityInformation = { label: text };
    this.item.backgroundColor = severity
      ? new vscode.ThemeColor(`statusBarItem.${severity}Background`)
      : undefined;
    this.item.show();
  }

  dispose(): void {
    this.item.dispose();
  }
}

/** What a click on the status item offers; what mends the present state comes first. */
export async function showStatusMenu(health: Health): Promise<void> {
  const { tooltip, fix } = describe(health);
  const entries: (vscode.QuickPickItem & { run?: () => unknown })[] = [
    ...(fix ? [{ label: `$(wrench) ${fix.label}`, run: () => run(fix.command, ...fix.arguments) }] : []),
    { label: '$(output) Show Log', run: () => run('kernelwright.showLog') },
    { label: '$(debug-restart) Restart Server', run: () => run('kernelwright.restart') },
    { label: '$(sparkle) Select Provider…', run: () => run('kernelwright.selectProvider') },
    { label: '$(key) Set API Key…', run: () => run('kernelwright.setApiKey') },
    { label: '$(gear) Open Settings', run: () => run('workbench.action.openSettings', 'kernelwright') },
  ];
  const title = `Kernelwright — ${tooltip.split('\n')[0] ?? ''}`;
  const chosen = await vscode.window.showQuickPick(entries, { title });
  await chosen?.run?.();
}

function run(command: string, ...rest: unknown[]): Thenable<unknown> {
  return vscode.commands.executeCommand(command, ...rest);
}
