// The model providers that the settings offer, and where their keys come from. No import of vscode here.

export interface Provider {
  id: string;
  label: string;
  detail: string;
  /** The environment variable that hands the key to the server; the built-in generator needs none. */
  keyVariable?: string;
  /** What a key must look like at the least; providers may change the rest. */
  keyHint?: string;
}

export const PROVIDERS: readonly Provider[] = [
  {
    id: 'builtin',
    label: 'Built-in generator',
    detail: 'No model, no key, no network: pointwise and row-reduction functions',
  },
  {
    id: 'anthropic',
    label: 'Anthropic',
    detail: 'A model writes the kernel; needs an API key',
    keyVariable: 'ANTHROPIC_API_KEY',
    keyHint: 'sk-ant-…',
  },
  {
    id: 'openai',
    label: 'OpenAI',
    detail: 'A model writes the kernel; needs an API key',
    keyVariable: 'OPENAI_API_KEY',
    keyHint: 'sk-…',
  },
];

export function provider(id: string): Provider | undefined {
  return PROVIDERS.find(each => each.id === id);
}

/** Why a text cannot be an API key, or undefined. */
export function keyProblem(key: string): string | undefined {
  if (!key.trim()) return 'Paste the key';
  return /\s/.test(key.trim()) ? 'A key holds no spaces' : undefined;
}
