// API keys: kept in VS Code's SecretStorage, handed to the server in its environment, written nowhere else.
import * as vscode from 'vscode';
import { PROVIDERS, keyProblem } from './providers';
import type { Provider } from './providers';

export class Secrets {
  constructor(private readonly storage: vscode.SecretStorage) {}

  /** The environment variables that hold the stored keys. */
  async environment(): Promise<Record<string, string>> {
    const variables: Record<string, string> = {};
    for (const { id, keyVariable } of PROVIDERS) {
      const key = keyVariable && (await this.storage.get(name(id)));
      if (keyVariable && key) variables[keyVariable] = key;
    }
    return variables;
  }

  /** Whether there is a key for this provider, here or in the environment that VS Code was started in. */
  async has({ id, keyVariable }: Provider): Promise<boolean> {
    if (!keyVariable) return true;
    return Boolean(process.env[keyVariable]) || Boolean(await this.storage.get(name(id)));
  }

  /** Asks for a key and keeps it. Returns whether one was given. */
  async ask(given?: Provider): Promise<boolean> {
    const chosen =
      given ??
      (await pick(
        'Set the API key of',
        PROVIDERS.filter(each => each.keyVariable),
      ));
    if (!chosen) return false;
    const key = await vscode.window.showInputBox({
      title: `API key of ${chosen.label}`,
      prompt: 'Kept in the secret storage of VS Code and used by the Kernelwright server only',
      ...(chosen.keyHint ? { placeHolder: chosen.keyHint } : {}),
      password: true,
      ignoreFocusOut: true,
      validateInput: value => keyProblem(value),
    });
    if (!key) return false;
    await this.storage.store(name(chosen.id), key.trim());
    return true;
  }

  /** Asks which key to forget, among those that are kept. Returns whether one was forgotten. */
  async clear(): Promise<boolean> {
    const kept: Provider[] = [];
    for (const each of PROVIDERS) {
      if (each.keyVariable && (await this.storage.get(name(each.id)))) kept.push(each);
    }
    if (!kept.length) {
      void vscode.window.showInformationMessage('Kernelwright keeps no API key.');
      return false;
    }
    const chosen = await pick('Forget the API key of', kept);
    if (chosen) await this.storage.delete(name(chosen.id));
    return chosen !== undefined;
  }
}

function name(id: string): string {
  return `kernelwright.key.${id}`;
}

async function pick(title: string, providers: readonly Provider[]): Promise<Provider | undefined> {
  const items = providers.map(each => ({ label: each.label, each }));
  const chosen = await vscode.window.showQuickPick(items, { title });
  return chosen?.each;
}
