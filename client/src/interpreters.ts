// Which Python to use, given the candidates: no import of vscode here.
import { execFile } from 'node:child_process';
import * as os from 'node:os';
import * as path from 'node:path';

export const OLDEST: readonly [number, number] = [3, 10];
const PROBE_TIMEOUT_MS = 10_000;

// find_spec executes nothing of the package; dropping '' keeps the working folder's modules out.
const PROBE = `
import sys
sys.path[:] = [p for p in sys.path if p]
import json, importlib.util
found = lambda name: importlib.util.find_spec(name) is not None
print(json.dumps({"executable": sys.executable, "version": sys.version_info[:2], "torch": found("torch")}))
`;

/** A Python that may do. The `explicit` ones were chosen by a person and are taken before a guess that is better equipped. */
export interface Candidate {
  command: string;
  from: string;
  explicit: boolean;
  /** Nothing else is tried when this one does not work. */
  final?: boolean;
}

/** What an interpreter said of itself. */
export interface Probed {
  executable: string;
  version: readonly [number, number];
  torch: boolean;
}

export type Probe = (command: string) => Promise<Probed | string>;

export interface Found extends Probed {
  kind: 'found';
  from: string;
}

export interface NotFound {
  kind: 'notFound';
  /** Why each candidate was passed over, for the log. */
  reasons: string[];
  message: string;
}

/**
 * Picks the interpreter: the first explicit candidate that works, else the first guess that has torch, else the first
 * guess that works.
 */
export async function choose(candidates: readonly Candidate[], probe: Probe): Promise<Found | NotFound> {
  const reasons: string[] = [];
  let second: Found | undefined;
  for (const candidate of candidates) {
    const probed = await probe(candidate.command);
    const problem = typeof probed === 'string' ? probed : tooOld(probed);
    if (problem !== undefined || typeof probed === 'string') {
      reasons.push(`${candidate.command} (${candidate.from}): ${problem ?? 'does not run'}`);
      if (candidate.final) {
        return {
          kind: 'notFound',
          reasons,
          message: `${candidate.from} is ${candidate.command}: ${problem ?? 'it does not run'}`,
        };
      }
      continue;
    }
    // A path is kept as it is written: behind it may be a wrapper that sets up an environment.
    const executable = path.isAbsolute(candidate.command) ? candidate.command : probed.executable;
    const found: Found = { ...probed, kind: 'found', from: candidate.from, executable };
    if (candidate.explicit || found.torch) return found;
    second ??= found;
  }
  return second ?? { kind: 'notFound', reasons, message: `No Python ${OLDEST.join('.')} or newer was found` };
}

function tooOld({ version }: Probed): string | undefined {
  const [major, minor] = version;
  const old = major < OLDEST[0] || (major === OLDEST[0] && minor < OLDEST[1]);
  return old ? `Python ${version.join('.')} is older than ${OLDEST.join('.')}` : undefined;
}

/** Asks an interpreter about itself; a string says why it cannot be used. */
export function probe(command: string, timeout = PROBE_TIMEOUT_MS): Promise<Probed | string> {
  return new Promise(resolve => {
    // Run from a folder of nobody's, so that a relative name is looked up on the PATH only.
    const options = { timeout, killSignal: 'SIGKILL', cwd: path.parse(os.homedir()).root } as const;
    execFile(command, ['-X', 'utf8', '-c', PROBE], options, (error, stdout) => {
      resolve(error ? failure(error) : (parse(stdout) ?? 'did not answer as Python does'));
    });
  });
}

function failure(
  error: Error & { code?: string | number | null | undefined; killed?: boolean | undefined },
): string {
  if (error.code === 'ENOENT') return 'no such file';
  if (error.code === 'EACCES') return 'not executable';
  return error.killed ? 'did not answer in time' : `ended with ${error.code ?? 'a signal'}`;
}

function parse(stdout: string): Probed | undefined {
  try {
    const said = JSON.parse(stdout.trim().split('\n').at(-1) ?? '') as Probed;
    return Array.isArray(said.version) && said.executable ? said : undefined;
  } catch {
    return undefined;
  }
}

/** Where a virtual environment in `folder` keeps its Python. */
export function environmentPython(folder: string, platform = process.platform): string {
  return platform === 'win32'
    ? path.win32.join(folder, 'Scripts', 'python.exe')
    : path.posix.join(folder, 'bin', 'python');
}
