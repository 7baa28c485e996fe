// Proposals as diffs of two virtual documents, and their tabs.
import * as path from 'node:path';
import * as vscode from 'vscode';
import type { Server } from './client';
import { text } from './log';
import { Proposals } from './protocol';
import type { ProposalInfo, ProposalsChanged } from './protocol';

export const SCHEME = 'kernelwright';
const REFRESH_MS = 300;

type Side = 'original' | 'proposed';

export class Diffs implements vscode.TextDocumentContentProvider, vscode.Disposable {
  private readonly shown = new Map<string, ProposalInfo>();
  private readonly changed = new vscode.EventEmitter<vscode.Uri>();
  private readonly disposables: { dispose(): unknown }[];
  private timer: NodeJS.Timeout | undefined;
  readonly onDidChange = this.changed.event;

  constructor(
    private readonly server: Server,
    private readonly log: vscode.LogOutputChannel,
  ) {
    this.disposables = [
      this.changed,
      vscode.workspace.registerTextDocumentContentProvider(SCHEME, this),
      vscode.workspace.onDidChangeTextDocument(({ document }) => {
        this.followDocument(document);
      }),
      server.onDidChangeProposals(changes => {
        void this.followProposals(changes);
      }),
    ];
  }

  provideTextDocumentContent(uri: vscode.Uri): string {
    const info = this.shown.get(idOf(uri));
    if (!info) return '';
    return sideOf(uri) === 'original' ? info.originalText : info.proposedText;
  }

  /** Opens a proposal as a diff, or brings its diff to the front. */
  async show(info: ProposalInfo): Promise<void> {
    this.keep(info);
    const [original, proposed] = [sideUri(info, 'original'), sideUri(info, 'proposed')];
    await vscode.commands.executeCommand('vscode.diff', original, proposed, info.title, { preview: false });
  }

  /** The proposal whose diff is in front. */
  active(): ProposalInfo | undefined {
    const id = idOfTab(vscode.window.tabGroups.activeTabGroup.activeTab);
    return id === undefined ? undefined : this.shown.get(id);
  }

  /** Closes a proposal's diff, wherever it is open. */
  async close(id: string): Promise<void> {
    const tabs = vscode.window.tabGroups.all.flatMap(group => group.tabs).filter(tab => idOfTab(tab) === id);
    await vscode.window.tabGroups.close(tabs, true);
    this.shown.delete(id);
  }

  dispose(): void {
    clearTimeout(this.timer);
    for (const disposable of this.disposables) disposable.dispose();
  }

  private keep(info: ProposalInfo): void {
    this.shown.set(info.id, info);
    this.changed.fire(sideUri(info, 'original'));
    this.changed.fire(sideUri(info, 'proposed'));
  }

  private async followProposals({ proposals }: ProposalsChanged): Promise<void> {
    for (const { id, state, qualname } of proposals) {
      if (state === 'pending' || !this.shown.has(id)) continue;
      this.log.info(`the kernel for ${qualname} is ${state}`);
      await this.close(id);
    }
  }

  /** A diff shows the file as it is: once typing pauses, the proposals of that file are asked for anew. */
  private followDocument(document: vscode.TextDocument): void {
    const uri = this.server.uriOf(document.uri);
    if (![...this.shown.values()].some(info => info.uri === uri)) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => void this.refresh(uri), REFRESH_MS);
  }

  private async refresh(uri: string): Promise<void> {
    try {
      const { proposals } = await this.server.request(Proposals, { uri });
      for (const info of proposals) if (this.shown.has(info.id)) this.keep(info);
    } catch (error) {
      this.log.warn(`the diff of ${uri} was not renewed: ${text(error)}`);
    }
  }
}

/** `kernelwright:/SIDE/ID/NAME.py`: the extension of the name makes it Python, also for a notebook's cell. */
function sideUri({ id, uri }: ProposalInfo, side: Side): vscode.Uri {
  const name = path.posix.basename(vscode.Uri.parse(uri).path);
  return vscode.Uri.from({
    scheme: SCHEME,
    path: `/${side}/${id}/${name.endsWith('.py') ? name : `${name}.py`}`,
  });
}

function sideOf(uri: vscode.Uri): Side {
  return uri.path.split('/')[1] === 'original' ? 'original' : 'proposed';
}

function idOf(uri: vscode.Uri): string {
  return uri.path.split('/')[2] ?? '';
}

function idOfTab(tab: vscode.Tab | undefined): string | undefined {
  const input = tab?.input;
  return input instanceof vscode.TabInputTextDiff && input.modified.scheme === SCHEME
    ? idOf(input.modified)
    : undefined;
}
