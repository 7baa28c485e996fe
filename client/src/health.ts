// How the extension is, as a value, and what the status item says of it. No import of vscode here.
import type { Found } from './interpreters';

export type Health =
  | { state: 'starting' }
  | { state: 'stopped'; message: string }
  | { state: 'noInterpreter'; message: string }
  | {
      state: 'running';
      interpreter: Pick<Found, 'executable' | 'from' | 'torch'>;
      provider: string;
      /** What the server has to say, such as that the chosen model has no key. */
      note: string;
      jobs: number;
    };

export interface Description {
  icon: string;
  text: string;
  /** Markdown; its first line is the state in words. */
  tooltip: string;
  severity?: 'warning' | 'error';
  fix?: { label: string; command: string; arguments: unknown[] };
}

const SELECT_INTERPRETER = {
  label: 'Choose the Interpreter',
  command: 'workbench.action.openSettings',
  arguments: ['kernelwright.interpreter'],
};

/** What the status item shows. */
export function describe(health: Health): Description {
  switch (health.state) {
    case 'starting':
      return { icon: 'sync~spin', text: 'Kernelwright', tooltip: 'The server is starting' };
    case 'stopped':
      return {
        icon: 'error',
        text: 'Kernelwright',
        tooltip: `The server is not running: ${health.message}`,
        severity: 'error',
      };
    case 'noInterpreter':
      return {
        icon: 'warning',
        text: 'Kernelwright: no Python',
        tooltip: `${health.message}\n\nSet \`kernelwright.interpreter\` to the Python that has your torch and Triton.`,
        severity: 'warning',
        fix: SELECT_INTERPRETER,
      };
    case 'running':
      return describeRunning(health);
  }
}

function describeRunning({ interpreter, provider, note, jobs }: Health & { state: 'running' }): Description {
  const details = [
    `Interpreter: \`${interpreter.executable}\` (${interpreter.from})`,
    `Provider: ${provider}`,
  ];
  if (!interpreter.torch) {
    return {
      icon: 'warning',
      text: 'Kernelwright: no torch',
      tooltip: ['This interpreter has no torch, so kernels cannot be checked', ...details].join('\n\n'),
      severity: 'warning',
      fix: SELECT_INTERPRETER,
    };
  }
  const first = jobs ? `${jobs} ${jobs === 1 ? 'kernel' : 'kernels'} in work` : 'Ready';
  return {
    icon: jobs ? 'sync~spin' : note ? 'info' : 'circuit-board',
    text: jobs ? `Kernelwright: ${jobs} running` : note ? 'Kernelwright: built-in' : 'Kernelwright',
    tooltip: [first, ...(note ? [note] : []), ...details].join('\n\n'),
  };
}
