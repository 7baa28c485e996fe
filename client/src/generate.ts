// The long requests: progress, cancelling, asking for inputs, and saying how it ended.
import { randomUUID } from 'node:crypto';
import * as vscode from 'vscode';
import { LSPErrorCodes, ResponseError, WorkDoneProgress } from 'vscode-languageclient/node';
import type { Server } from './client';
import type { Diffs } from './diff';
import { text } from './log';
import { Generate, Recheck, ValidateInputs } from './protocol';
import type { GenerateResult } from './protocol';
import { ask, buttonsFor } from './outcomes';
import type { Button } from './outcomes';

/** A function in a document, as the server names both. */
export interface Target {
  uri: string;
  qualname: string;
}

export class Generator {
  constructor(
    private readonly server: Server,
    private readonly diffs: Diffs,
    private readonly log: vscode.LogOutputChannel,
  ) {}

  /** The whole request: asks for inputs as often as it needs to, then shows the diff or says why there is none. */
  async generate(target: Target, instruction?: string): Promise<void> {
    let inputs: string | undefined;
    for (;;) {
      const result = await this.attempt(target, instruction, inputs);
      if (!result) return;
      this.log.info(`${target.qualname}: ${result.outcome}: ${result.message}`);
      const question = ask(result, inputs);
      if (!question) {
        await this.conclude(target, result, instruction);
        return;
      }
      inputs = await this.askInputs(target, question);
      if (inputs === undefined) return;
    }
  }

  /** Checks an accepted kernel again and says what came of it. */
  async recheck(target: Target): Promise<void> {
    const result = await this.withProgress(
      `Checking the kernel of ${target.qualname}`,
      (workDoneToken, token) => this.server.request(Recheck, { ...target, workDoneToken }, token),
    );
    if (!result) return;
    this.log.info(`${target.qualname}: ${result.outcome}: ${result.message}`);
    if (result.outcome === 'passed') {
      void vscode.window.showInformationMessage(result.message);
    } else {
      await this.offer('warning', result.message, buttonsFor(result.outcome), () => this.recheck(target));
    }
  }

  private attempt(
    target: Target,
    instruction?: string,
    inputs?: string,
  ): Promise<GenerateResult | undefined> {
    return this.withProgress(`Triton kernel for ${target.qualname}`, (workDoneToken, token) => {
      const given = { ...(inputs ? { inputs } : {}), ...(instruction ? { instruction } : {}) };
      return this.server.request(Generate, { ...target, ...given, workDoneToken }, token);
    });
  }

  private async conclude(target: Target, result: GenerateResult, instruction?: string): Promise<void> {
    if (result.outcome === 'proposed' && result.proposal) {
      await this.diffs.show(result.proposal);
      return;
    }
    const level =
      result.outcome === 'error' ? 'error' : result.outcome === 'kept' ? 'information' : 'warning';
    await this.offer(level, result.message, buttonsFor(result.outcome), () =>
      this.generate(target, instruction),
    );
  }

  /** Shows a message with buttons and does what was chosen. */
  private async offer(
    level: 'information' | 'warning' | 'error',
    message: string,
    buttons: readonly Button[],
    again: () => Promise<void>,
  ): Promise<void> {
    const show = {
      information: vscode.window.showInformationMessage,
      warning: vscode.window.showWarningMessage,
      error: vscode.window.showErrorMessage,
    }[level];
    const chosen = await show(message, ...buttons.map(button => button.label));
    const button = buttons.find(({ label }) => label === chosen);
    if (button?.command) await vscode.commands.executeCommand(button.command);
    else if (button) await again();
  }

  private async askInputs(
    target: Target,
    question: { problem: string; value: string },
  ): Promise<string | undefined> {
    const refused = question.problem ? question.value : undefined;
    const answer = await vscode.window.showInputBox({
      title: `What is ${target.qualname} called with?`,
      prompt:
        question.problem || 'Shapes and dtypes as in: x: bf16[8192, 4096], weight: bf16[4096], eps=1e-6',
      value: question.value,
      ignoreFocusOut: true,
      validateInput: async value => {
        if (!value.trim()) return 'Say what the function is called with';
        // The same text was refused by the function itself, which parsing cannot know.
        if (value === refused) return question.problem;
        return this.problemOf(value);
      },
    });
    return answer?.trim();
  }

  private async problemOf(inputs: string): Promise<string | undefined> {
    try {
      return (await this.server.request(ValidateInputs, { text: inputs })).problem;
    } catch (error) {
      // The box must not be stuck on our own fault: the request itself judges the text again.
      this.log.warn(`the inputs were not looked at: ${text(error)}`);
      return undefined;
    }
  }

  /** Runs a request under a notification that shows its stages. Undefined when it was cancelled or failed, which is said. */
  private async withProgress<R>(
    title: string,
    request: (workDoneToken: string, token: vscode.CancellationToken) => Promise<R>,
  ): Promise<R | undefined> {
    const client = await this.server.ready();
    const workDoneToken = randomUUID();
    const options = { location: vscode.ProgressLocation.Notification, title, cancellable: true };
    const run = () =>
      vscode.window.withProgress(options, async (progress, token) => {
        const stages = client.onProgress(WorkDoneProgress.type, workDoneToken, value => {
          if (value.kind === 'report' && value.message && !token.isCancellationRequested) {
            this.log.debug(`${title}: ${value.message}`);
            progress.report({ message: value.message });
          }
        });
        token.onCancellationRequested(() => {
          progress.report({ message: 'Cancelling' });
        });
        try {
          return await request(workDoneToken, token);
        } catch (error) {
          this.explain(title, error);
          return undefined;
        } finally {
          stages.dispose();
        }
      });
    return this.server.counted(async () => run());
  }

  private explain(title: string, error: unknown): void {
    if (error instanceof ResponseError && error.code === LSPErrorCodes.RequestCancelled) {
      this.log.info(`${title}: cancelled`);
      return;
    }
    this.log.error(`${title}: ${text(error)}`);
    void this.offer('error', `${title}: the server did not answer. ${text(error)}`, buttonsFor('error'), () =>
      Promise.resolve(),
    );
  }
}
