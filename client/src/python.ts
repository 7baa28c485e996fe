// Gathers the Pythons that VS Code, its Python extension and the workspace know of.
import * as fs from 'node:fs';
import * as os from 'node:os';
import * as path from 'node:path';
import * as vscode from 'vscode';
import { choose, environmentPython, probe } from './interpreters';
import type { Candidate, Found, NotFound, Probed } from './interpreters';

const PYTHON_EXTENSION = 'ms-python.python';
const CHANGE_MS = 200;

/** The part of the Python extension's public API that is used. */
interface PythonExtension {
  environments: {
    getActiveEnvironmentPath(resource?: vscode.Uri): { path: string };
    resolveEnvironment(at: { path: string }): Promise<{ executable: { uri?: vscode.Uri } } | undefined>;
    onDidChangeActiveEnvironmentPath: vscode.Event<unknown>;
  };
}

/** Finds the interpreter of each workspace folder, once; `onDidChange` says when an answer may have changed. */
export class Interpreters implements vscode.Disposable {
  private readonly found = new Map<string, Promise<Found | NotFound>>();
  private readonly probed = new Map<string, Promise<Probed | string>>();
  private readonly changed = new vscode.EventEmitter<void>();
  private readonly disposables: { dispose(): unknown }[] = [this.changed];
  private watching = false;
  private timer: NodeJS.Timeout | undefined;
  readonly onDidChange = this.changed.event;

  constructor(private readonly log: vscode.LogOutputChannel) {
    const watched = ['kernelwright.interpreter', 'python.defaultInterpreterPath'];
    this.disposables.push(
      vscode.workspace.onDidChangeConfiguration(event => {
        if (watched.some(name => event.affectsConfiguration(name))) this.reset();
      }),
    );
  }

  /** The interpreter for a folder (or for none), probed at most once until something changes. */
  find(folder: vscode.WorkspaceFolder | undefined): Promise<Found | NotFound> {
    const key = folder?.uri.toString() ?? '';
    let found = this.found.get(key);
    if (!found) {
      found = this.search(folder);
      this.found.set(key, found);
    }
    return found;
  }

  dispose(): void {
    clearTimeout(this.timer);
    for (const disposable of this.disposables) disposable.dispose();
  }

  /** Waits a little: changes come in bursts, and the running client has a change of its settings to pass on first. */
  private reset(): void {
    this.found.clear();
    this.probed.clear();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      this.changed.fire();
    }, CHANGE_MS);
  }

  private async search(folder: vscode.WorkspaceFolder | undefined): Promise<Found | NotFound> {
    const found = await choose(await this.candidates(folder), command => this.probeOnce(command));
    const where = folder ? ` for ${folder.name}` : '';
    if (found.kind === 'found') {
      const torch = found.torch ? '' : ', without torch';
      this.log.info(
        `interpreter${where}: ${found.executable} (${found.from}; Python ${found.version.join('.')}${torch})`,
      );
    } else {
      this.log.warn(`no interpreter${where}: ${found.message}`);
      for (const reason of found.reasons) this.log.warn(`  ${reason}`);
    }
    return found;
  }

  private probeOnce(command: string): Promise<Probed | string> {
    let probed = this.probed.get(command);
    if (!probed) {
      probed = probe(command);
      this.probed.set(command, probed);
    }
    return probed;
  }

  private async candidates(folder: vscode.WorkspaceFolder | undefined): Promise<Candidate[]> {
    const own = vscode.workspace.getConfiguration('kernelwright', folder).get('interpreter', '').trim();
    if (own) {
      return [
        { command: expand(own, folder), from: 'kernelwright.interpreter', explicit: true, final: true },
      ];
    }
    const active = await this.activeEnvironment(folder);
    return [
      ...(active ? [{ command: active, from: 'the Python extension', explicit: true }] : []),
      ...configuredDefault(folder),
      ...environmentsOf(folder),
      ...['python3', 'python'].map(command => ({ command, from: 'PATH', explicit: false })),
    ];
  }

  private async activeEnvironment(folder: vscode.WorkspaceFolder | undefined): Promise<string | undefined> {
    const extension = vscode.extensions.getExtension<Partial<PythonExtension>>(PYTHON_EXTENSION);
    if (!extension) return undefined;
    try {
      const { environments } = await extension.activate();
      if (!environments) return undefined;
      if (!this.watching) {
        this.watching = true;
        this.disposables.push(
          environments.onDidChangeActiveEnvironmentPath(() => {
            this.reset();
          }),
        );
      }
      const resolved = await environments.resolveEnvironment(
        environments.getActiveEnvironmentPath(folder?.uri),
      );
      return resolved?.executable.uri?.fsPath;
    } catch (error) {
      this.log.warn(`the Python extension did not say which environment is active: ${String(error)}`);
      return undefined;
    }
  }
}

function configuredDefault(folder: vscode.WorkspaceFolder | undefined): Candidate[] {
  // Without the Python extension the setting is not declared, but it can still be set.
  const setting = vscode.workspace
    .getConfiguration('python', folder)
    .inspect<unknown>('defaultInterpreterPath');
  const value = setting?.workspaceFolderValue ?? setting?.workspaceValue ?? setting?.globalValue;
  if (typeof value !== 'string' || !value.trim()) return [];
  return [{ command: expand(value.trim(), folder), from: 'python.defaultInterpreterPath', explicit: true }];
}

function environmentsOf(folder: vscode.WorkspaceFolder | undefined): Candidate[] {
  if (folder?.uri.scheme !== 'file') return [];
  return ['.venv', 'venv']
    .map(name => ({
      command: environmentPython(path.join(folder.uri.fsPath, name)),
      from: name,
      explicit: false,
    }))
    .filter(({ command }) => fs.existsSync(command));
}

/** Replaces the variables that people write in such paths; a relative path is the folder's. */
function expand(value: string, folder: vscode.WorkspaceFolder | undefined): string {
  const home = os.homedir();
  const root = folder?.uri.fsPath ?? '';
  const expanded = value
    .replace(/^~(?=[\\/])/, home)
    .replaceAll('${workspaceFolder}', root)
    .replaceAll('${userHome}', home)
    .replace(/\$\{env:(\w+)\}/g, (_, name: string) => process.env[name] ?? '');
  return root && /[\\/]/.test(expanded) && !path.isAbsolute(expanded) ? path.join(root, expanded) : expanded;
}
