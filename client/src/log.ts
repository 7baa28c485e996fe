// The output channel "Kernelwright": the client's own lines, the server's standard error and, on request, the messages.
import * as vscode from 'vscode';

export function createLog(): vscode.LogOutputChannel {
  return vscode.window.createOutputChannel('Kernelwright', { log: true });
}

/** An error as one line for the log. */
export function text(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
