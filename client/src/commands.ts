// What the commands do: look up the function or the proposal that is meant, call, show.
import * as vscode from 'vscode';
import { Unavailable } from './client';
import type { Server } from './client';
import type { Diffs } from './diff';
import type { Generator, Target } from './generate';
import { text } from './log';
import { PROVIDERS, provider } from './providers';
import { Proposals, ServerCommand, TargetAt } from './protocol';
import type { CommandResult, ProposalInfo } from './protocol';
import type { Secrets } from './secrets';
import { showStatusMenu } from './status';

const NO_TARGET = 'Put the cursor into a function that uses torch.';
const NO_PROPOSAL = 'No kernel waits for your decision here.';

export class Commands {
  constructor(
    private readonly server: Server,
    private readonly diffs: Diffs,
    private readonly generator: Generator,
    private readonly secrets: Secrets,
    private readonly log: vscode.LogOutputChannel,
  ) {}

  register(): vscode.Disposable[] {
    const table: Record<string, (...rest: unknown[]) => unknown> = {
      generate: (...rest) => this.generate(rest),
      generateWithInstruction: (...rest) => this.generateWithInstruction(rest),
      review: (...rest) => this.review(rest),
      accept: (...rest) => this.accept(rest),
      reject: (...rest) => this.reject(rest),
      recheck: (...rest) => this.recheck(rest),
      remove: (...rest) => this.remove(rest),
      restart: () => this.restart(),
      showLog: () => {
        this.log.show();
      },
      selectProvider: () => this.selectProvider(),
      setApiKey: () => this.setApiKey(),
      clearApiKey: () => this.clearApiKey(),
      statusMenu: () => showStatusMenu(this.server.health),
    };
    return Object.entries(table).map(([name, run]) =>
      vscode.commands.registerCommand(`kernelwright.${name}`, (...rest: unknown[]) =>
        this.guarded(() => run(...rest)),
      ),
    );
  }

  /** Says what went wrong, instead of VS Code's "Error running command". */
  private async guarded(run: () => unknown): Promise<void> {
    try {
      await run();
    } catch (error) {
      if (!(error instanceof Unavailable)) this.log.error(error instanceof Error ? error : String(error));
      const chosen = await vscode.window.showErrorMessage(text(error), 'Show Log');
      if (chosen) this.log.show();
    }
  }

  private async generate(rest: unknown[]): Promise<void> {
    const target = await this.target(rest);
    if (target) await this.generator.generate(target);
  }

  private async generateWithInstruction(rest: unknown[]): Promise<void> {
    const target = await this.target(rest);
    if (!target) return;
    const instruction = await vscode.window.showInputBox({
      title: `Instruction for the kernel of ${target.qualname}`,
      placeHolder: 'Such as: two passes over the row, no atomics',
      prompt: 'Told to a model provider; the built-in generator takes none.',
      ignoreFocusOut: true,
    });
    if (instruction !== undefined) await this.generator.generate(target, instruction);
  }

  private async review(rest: unknown[]): Promise<void> {
    const proposal = await this.proposal(rest);
    if (proposal) await this.diffs.show(proposal);
  }

  private async accept(rest: unknown[]): Promise<void> {
    const proposal = await this.proposal(rest);
    if (!proposal) return;
    // In front first, so that the edit is the editor's own: undoing it brings the view back to the function too.
    await this.reveal(proposal);
    const result = await this.server.execute(ServerCommand.accept, proposal.id);
    if (!tell(result)) return;
    await this.diffs.close(proposal.id);
    await this.reveal(proposal);
  }

  private async reject(rest: unknown[]): Promise<void> {
    const proposal = await this.proposal(rest);
    if (!proposal) return;
    const result = await this.server.execute(ServerCommand.reject, proposal.id);
    if (tell(result)) await this.diffs.close(proposal.id);
  }

  private async recheck(rest: unknown[]): Promise<void> {
    const target = await this.target(rest);
    if (target) await this.generator.recheck(target);
  }

  private async remove(rest: unknown[]): Promise<void> {
    const target = await this.target(rest);
    if (!target) return;
    await vscode.workspace.openTextDocument(vscode.Uri.parse(target.uri));
    tell(await this.server.execute(ServerCommand.remove, target.uri, target.qualname));
  }

  private async restart(): Promise<void> {
    if (!vscode.workspace.isTrusted) throw new Unavailable('The workspace is not trusted yet.');
    this.log.info('restarting the server');
    await this.server.restart();
  }

  private async selectProvider(): Promise<void> {
    const configuration = vscode.workspace.getConfiguration('kernelwright');
    const current = configuration.get<string>('provider');
    const items = PROVIDERS.map(each => ({
      label: each.label,
      detail: each.detail,
      ...(each.id === current ? { description: 'in use' } : {}),
      each,
    }));
    const chosen = await vscode.window.showQuickPick(items, { title: 'Who writes the kernels?' });
    if (!chosen) return;
    const inWorkspace = configuration.inspect('provider')?.workspaceValue !== undefined;
    const place = inWorkspace ? vscode.ConfigurationTarget.Workspace : vscode.ConfigurationTarget.Global;
    await configuration.update('provider', chosen.each.id, place);
    if (!(await this.secrets.has(chosen.each)) && (await this.secrets.ask(chosen.each)))
      await this.server.restart();
  }

  private async setApiKey(): Promise<void> {
    const chosen = provider(vscode.workspace.getConfiguration('kernelwright').get('provider', ''));
    // The server gets the keys in its environment, so it is started anew.
    if (await this.secrets.ask(chosen?.keyVariable ? chosen : undefined)) await this.server.restart();
  }

  private async clearApiKey(): Promise<void> {
    if (await this.secrets.clear()) await this.server.restart();
  }

  /** The function that is meant: a lens names it, a menu means the one at the cursor. */
  private async target(rest: unknown[]): Promise<Target | undefined> {
    const [uri, qualname] = rest;
    if (typeof uri === 'string' && typeof qualname === 'string') return { uri, qualname };
    await this.server.ready();
    const editor = vscode.window.activeTextEditor;
    const found = editor && (await this.targetAtCursor(editor));
    if (!found) void vscode.window.showInformationMessage(NO_TARGET);
    return found;
  }

  private async targetAtCursor(editor: vscode.TextEditor): Promise<Target | undefined> {
    if (editor.document.languageId !== 'python') return undefined;
    const uri = this.server.uriOf(editor.document.uri);
    const { line, character } = editor.selection.active;
    const { qualname } = await this.server.request(TargetAt, { uri, position: { line, character } });
    return qualname === undefined ? undefined : { uri, qualname };
  }

  /** The proposal that is meant: named by a lens, shown in front, or of the function at the cursor. */
  private async proposal(rest: unknown[]): Promise<ProposalInfo | undefined> {
    const id = typeof rest[2] === 'string' ? rest[2] : this.diffs.active()?.id;
    const target = id === undefined ? await this.target(rest) : undefined;
    if (id === undefined && !target) return undefined;
    const { proposals } = await this.server.request(Proposals, {});
    const found = proposals.find(each => (target ? isOf(each, target) : each.id === id));
    if (!found) void vscode.window.showWarningMessage(NO_PROPOSAL);
    return found;
  }

  /** Puts the cursor at the function, in the editor that has the file already, if one has. */
  private async reveal({ uri, qualname }: Target): Promise<void> {
    const document = await vscode.workspace.openTextDocument(vscode.Uri.parse(uri));
    const { position } = await this.server.request(TargetAt, { uri, qualname });
    const at = position && new vscode.Position(position.line, position.character);
    const group = vscode.window.tabGroups.all.find(({ tabs }) =>
      tabs.some(({ input }) => shows(input, document)),
    );
    await vscode.window.showTextDocument(document, {
      ...(group ? { viewColumn: group.viewColumn } : {}),
      ...(at ? { selection: new vscode.Range(at, at) } : {}),
    });
  }
}

function isOf(proposal: ProposalInfo, { uri, qualname }: Target): boolean {
  return proposal.uri === uri && proposal.qualname === qualname;
}

function shows(input: unknown, document: vscode.TextDocument): boolean {
  return input instanceof vscode.TabInputText && input.uri.toString() === document.uri.toString();
}

/** Shows a command's answer: a failure as a warning, a success for a moment in the status bar. Returns whether it went well. */
function tell({ applied, message }: CommandResult): boolean {
  if (applied) vscode.window.setStatusBarMessage(`$(check) ${message}`, 5000);
  else void vscode.window.showWarningMessage(message);
  return applied;
}
