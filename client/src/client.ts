// The language server: started in the interpreter that was found, restarted on demand, asked and told things.
import * as path from 'node:path';
import * as vscode from 'vscode';
import {
  DidChangeConfigurationNotification,
  ExecuteCommandRequest,
  LanguageClient,
  State,
  TransportKind,
} from 'vscode-languageclient/node';
import type { LanguageClientOptions, LSPAny, RequestType, ServerOptions } from 'vscode-languageclient/node';
import type { Health } from './health';
import type { Found } from './interpreters';
import { text } from './log';
import { DidChangeProposals, Status } from './protocol';
import type { CommandResult, InitializationOptions, ProposalsChanged } from './protocol';
import type { Interpreters } from './python';
import type { Secrets } from './secrets';

// Schemes are named, so that diff and preview documents are not served. A notebook's cells are matched by their own filter.
const SELECTOR = [
  { scheme: 'file', language: 'python' },
  { scheme: 'untitled', language: 'python' },
  { notebook: '*', language: 'python' },
];

/** Nothing can be asked: no interpreter, an untrusted workspace, or a server that does not start. Its text is for people. */
export class Unavailable extends Error {}

export class Server implements vscode.Disposable {
  private client: LanguageClient | undefined;
  private interpreter: Found | undefined;
  /** Starts and stops happen one after another. */
  private queue: Promise<void> = Promise.resolve();
  private current: Health = { state: 'starting' };
  private jobs = 0;
  private readonly healthChanged = new vscode.EventEmitter<Health>();
  private readonly proposalsChanged = new vscode.EventEmitter<ProposalsChanged>();
  readonly onDidChangeHealth = this.healthChanged.event;
  readonly onDidChangeProposals = this.proposalsChanged.event;

  constructor(
    private readonly context: vscode.ExtensionContext,
    private readonly log: vscode.LogOutputChannel,
    private readonly interpreters: Interpreters,
    private readonly secrets: Secrets,
  ) {}

  get health(): Health {
    return this.current;
  }

  /** Starts the server, or starts it anew. Never rejects: how it went is in `health`. */
  restart(): Promise<void> {
    return this.enqueue(async () => {
      await this.end();
      await this.begin();
    });
  }

  /** Follows a change of what interpreters there are: a new server where its own changed, else new settings for it. */
  followInterpreters(): Promise<void> {
    return this.enqueue(async () => {
      const found = await this.interpreters.find(vscode.workspace.workspaceFolders?.[0]);
      const same = found.kind === 'found' && found.executable === this.interpreter?.executable;
      if (same && this.client?.isRunning()) {
        await this.client.sendNotification(DidChangeConfigurationNotification.type, { settings: null });
      } else {
        await this.end();
        await this.begin();
      }
    });
  }

  stop(): Promise<void> {
    return this.enqueue(() => this.end());
  }

  /**
   * Asks the server, once it runs.
   * @throws Unavailable; ResponseError from the server, also for a cancelled request.
   */
  async request<P, R>(
    type: RequestType<P, R, void>,
    params: P,
    token?: vscode.CancellationToken,
  ): Promise<R> {
    const client = await this.ready();
    // Given by name, an absent token would count as a second parameter.
    return token
      ? client.sendRequest<R>(type.method, params, token)
      : client.sendRequest<R>(type.method, params);
  }

  /** Runs one of the server's own commands. */
  async execute(command: string, ...rest: LSPAny[]): Promise<CommandResult> {
    const client = await this.ready();
    return (await client.sendRequest(ExecuteCommandRequest.type, {
      command,
      arguments: rest,
    })) as CommandResult;
  }

  /** The client, for progress of a request. */
  async ready(): Promise<LanguageClient> {
    await this.queue;
    if (this.client?.isRunning()) return this.client;
    if (!vscode.workspace.isTrusted) {
      throw new Unavailable(
        'Kernelwright runs code of the workspace, so it waits until the workspace is trusted.',
      );
    }
    throw new Unavailable(
      'message' in this.current ? this.current.message : 'The Kernelwright server is not running.',
    );
  }

  /** A document's address as the server knows it. */
  uriOf(uri: vscode.Uri): string {
    return this.client?.code2ProtocolConverter.asUri(uri) ?? uri.toString();
  }

  /** Counts a job in the status item while it lasts. */
  async counted<T>(job: () => Promise<T>): Promise<T> {
    this.jobs += 1;
    this.report();
    try {
      return await job();
    } finally {
      this.jobs -= 1;
      this.report();
    }
  }

  dispose(): void {
    this.healthChanged.dispose();
    this.proposalsChanged.dispose();
  }

  private enqueue(step: () => Promise<void>): Promise<void> {
    this.queue = this.queue.then(step).catch((error: unknown) => {
      this.log.error(text(error));
    });
    return this.queue;
  }

  private async begin(): Promise<void> {
    this.set({ state: 'starting' });
    const found = await this.interpreters.find(vscode.workspace.workspaceFolders?.[0]);
    if (found.kind === 'notFound') {
      this.set({ state: 'noInterpreter', message: found.message });
      return;
    }
    this.interpreter = found;
    const client = new LanguageClient(
      'kernelwright',
      'Kernelwright',
      await this.launch(found),
      this.options(),
    );
    client.onDidChangeState(({ newState }) => {
      this.followState(client, newState);
    });
    client.onNotification(DidChangeProposals, changed => {
      this.proposalsChanged.fire(changed);
    });
    this.client = client;
    try {
      await client.start();
      await this.refresh();
    } catch (error) {
      this.log.error(`the server did not start: ${text(error)}`);
      this.set({ state: 'stopped', message: 'it did not start; the log says why' });
    }
  }

  private async end(): Promise<void> {
    const client = this.client;
    this.client = undefined;
    this.interpreter = undefined;
    if (!client) return;
    try {
      await client.dispose();
    } catch (error) {
      this.log.info(`the server did not stop as it should: ${text(error)}`);
    }
  }

  private async launch(found: Found): Promise<ServerOptions> {
    const launcher = this.context.asAbsolutePath(path.join('bundled', 'launch.py'));
    // Isolated (-I): no PYTHONPATH, no user site, no working folder on the module path of the process that holds the keys.
    return {
      command: found.executable,
      args: ['-I', '-X', 'utf8', launcher],
      transport: TransportKind.stdio,
      options: { env: { ...process.env, ...(await this.secrets.environment()) }, shell: false },
    };
  }

  private options(): LanguageClientOptions {
    const initializationOptions: InitializationOptions = { clientCommands: true };
    return {
      documentSelector: SELECTOR,
      initializationOptions,
      outputChannel: this.log,
      middleware: {
        workspace: {
          configuration: async (params, token, next) => {
            const answers = (await next(params, token)) as unknown[];
            const scopes = params.items.map(item => (item.section === 'kernelwright' ? item.scopeUri : null));
            const filled = await Promise.all(answers.map((answer, at) => this.fillIn(answer, scopes[at])));
            setTimeout(() => void this.refresh(), 0);
            return filled;
          },
        },
      },
    };
  }

  /** Settings for the server: `interpreter` is the one that was found, whoever named it. */
  private async fillIn(settings: unknown, scope: string | null | undefined): Promise<unknown> {
    if (scope === null || typeof settings !== 'object' || settings === null) return settings;
    const folder =
      scope === undefined ? undefined : vscode.workspace.getWorkspaceFolder(vscode.Uri.parse(scope));
    const found = await this.interpreters.find(folder ?? vscode.workspace.workspaceFolders?.[0]);
    return found.kind === 'found' ? { ...settings, interpreter: found.executable } : settings;
  }

  private followState(client: LanguageClient, state: State): void {
    if (client !== this.client) return;
    if (state === State.Starting) this.set({ state: 'starting' });
    if (state === State.Stopped) this.set({ state: 'stopped', message: 'it ended; the log says why' });
    if (state === State.Running) void this.refresh();
  }

  /** Asks the server how it is. */
  private async refresh(): Promise<void> {
    const { client, interpreter } = this;
    if (!client?.isRunning() || !interpreter) return;
    try {
      const { provider, message } = await client.sendRequest(Status, {});
      this.set({ state: 'running', interpreter, provider, note: message, jobs: this.jobs });
    } catch (error) {
      this.log.warn(`the server did not say how it is: ${text(error)}`);
    }
  }

  private report(): void {
    if (this.current.state === 'running') this.set({ ...this.current, jobs: this.jobs });
  }

  private set(health: Health): void {
    this.current = health;
    this.healthChanged.fire(health);
  }
}
