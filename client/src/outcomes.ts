// What follows from how a request ended: buttons, or a question. No import of vscode here.
import type { GenerateResult, RecheckResult } from './protocol';

/** A button of a message; without a command it does the request again. */
export interface Button {
  label: string;
  command?: string;
}

const PROBLEMS: Button = { label: 'Show Problem', command: 'workbench.actions.view.problems' };
const LOG: Button = { label: 'Show Log', command: 'kernelwright.showLog' };
const PROVIDER: Button = { label: 'Other Provider…', command: 'kernelwright.selectProvider' };
const RESTART: Button = { label: 'Restart Server', command: 'kernelwright.restart' };
const AGAIN: Button = { label: 'Try Again' };

export function buttonsFor(outcome: GenerateResult['outcome'] | RecheckResult['outcome']): readonly Button[] {
  switch (outcome) {
    case 'declined':
      return [PROBLEMS, PROVIDER];
    case 'failed':
      return [PROBLEMS, AGAIN, PROVIDER];
    case 'refuted':
      return [PROBLEMS];
    case 'kept':
      return [LOG];
    case 'stale':
      return [AGAIN];
    case 'error':
      return [LOG, RESTART];
    default:
      return [];
  }
}

/** What to ask when a request ended for want of inputs: the text to start from, and what was wrong with the last. */
export function ask(
  result: GenerateResult,
  given: string | undefined,
): { problem: string; value: string } | undefined {
  const suggestion = result.suggestion ?? '';
  if (result.outcome === 'inputsNeeded') return { problem: '', value: suggestion };
  if (result.outcome !== 'invalidInputs') return undefined;
  return { problem: result.problem ?? result.message, value: given ?? suggestion };
}
