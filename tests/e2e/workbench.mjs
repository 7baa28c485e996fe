// A real VS Code in a test: its own server and web workbench with our .vsix installed, in headless Chromium.
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { after, before, suite, test } from 'node:test';
import { chromium } from 'playwright-core';
import { Editor } from './editor.mjs';

export const ROOT = path.resolve(import.meta.dirname, '../..');
export const PYTHON = process.env.E2E_PYTHON ?? path.join(ROOT, '.venv/bin/python');
export const SHOTS = path.join(import.meta.dirname, 'screenshots-out');
const NODE = path.join(ROOT, '.toolchain/workbench/node');
const SERVER = path.join(ROOT, '.toolchain/workbench/node_modules/code-server/lib/vscode/out/server-main.js');
// No marketplace and no telemetry: code-server's defaults go to the network.
const ENV = { ...process.env, EXTENSIONS_GALLERY: '{}', CS_TELEMETRY_URL: 'http://127.0.0.1:9/' };
for (const key of ['ANTHROPIC_API_KEY', 'OPENAI_API_KEY']) delete ENV[key];
const SETTINGS = {
  'security.workspace.trust.enabled': false,
  'telemetry.telemetryLevel': 'off',
  'update.mode': 'none',
  'extensions.autoUpdate': false,
  'extensions.autoCheckUpdates': false,
  'extensions.ignoreRecommendations': true,
  'workbench.enableExperiments': false,
  'workbench.startupEditor': 'none',
  'workbench.tips.enabled': false,
  'workbench.reduceMotion': 'on',
  'workbench.secondarySideBar.defaultVisibility': 'hidden',
  'chat.disableAIFeatures': true,
  'git.enabled': false,
  'files.autoSave': 'off',
  'editor.accessibilitySupport': 'off',
  'editor.hover.delay': 100,
  'editor.minimap.enabled': false,
  'editor.stickyScroll.enabled': false,
  'diffEditor.renderSideBySide': true,
};

/** Starts the server half: VS Code's own, with the extension installed, on a folder. `stop` ends its whole process group. */
export async function startServer({
  vsix,
  folder,
  root,
  settings = {},
  machine = {},
  env = {},
  port = 0,
  prepare,
}) {
  const [data, extensions] = [path.join(root, 'data'), path.join(root, 'extensions')];
  for (const [scope, values] of [
    ['User', { ...SETTINGS, ...settings }],
    ['Machine', machine],
  ]) {
    fs.mkdirSync(path.join(data, 'data', scope), { recursive: true });
    fs.writeFileSync(path.join(data, 'data', scope, 'settings.json'), JSON.stringify(values));
  }
  const common = [
    SERVER,
    '--accept-server-license-terms',
    '--server-data-dir',
    data,
    '--extensions-dir',
    extensions,
  ];
  execFileSync(NODE, [...common, '--install-extension', vsix, '--force'], { env: ENV, stdio: 'pipe' });
  const installed = fs.readdirSync(extensions).find(name => name.startsWith('kernelwright.'));
  prepare?.(path.join(extensions, installed));

  const log = path.join(root, 'server.log');
  const out = fs.openSync(log, 'w');
  const process_ = spawn(
    NODE,
    [...common, '--host', '127.0.0.1', '--port', `${port}`, '--without-connection-token'],
    {
      env: {
        ...ENV,
        TMPDIR: root,
        XDG_RUNTIME_DIR: root,
        KERNELWRIGHT_HOME: path.join(root, 'home'),
        ...env,
      },
      stdio: ['ignore', out, out],
      detached: true, // a process group of its own
    },
  );
  fs.closeSync(out);
  const actual = await until(
    () => /listening on (\d+)/.exec(fs.readFileSync(log, 'utf8'))?.[1],
    () => `the server to listen: ${fs.readFileSync(log, 'utf8')}`,
  );
  return {
    pid: process_.pid,
    port: Number(actual),
    address: `http://127.0.0.1:${actual}/?folder=${encodeURIComponent(folder)}`,
    async stop(signal = 'SIGTERM') {
      const ended =
        process_.exitCode === null && process_.signalCode === null ? once(process_, 'exit') : undefined;
      signalGroup(process_.pid, signal);
      const timer = setTimeout(() => signalGroup(process_.pid, 'SIGKILL'), 5000);
      await ended;
      clearTimeout(timer);
      signalGroup(process_.pid, 'SIGKILL');
    },
  };
}

function signalGroup(pid, signal) {
  try {
    process.kill(-pid, signal);
  } catch (error) {
    if (error.code !== 'ESRCH') throw error;
  }
}

/** Starts both halves on a copy of the folder `files`, and opens the window. The caller must `stop()`. */
export async function startWorkbench({ files, settings, env, scripted = false, interpreter = PYTHON, open }) {
  const root = fs.mkdtempSync(path.join(os.tmpdir(), 'workbench-'));
  const folder = path.join(root, path.basename(files));
  fs.cpSync(files, folder, { recursive: true, filter: name => !name.endsWith('__pycache__') });
  const server = await startServer({
    vsix: process.env.VSIX ?? path.join(ROOT, 'build/kernelwright.vsix'),
    folder,
    root,
    settings,
    machine: interpreter ? { 'kernelwright.interpreter': interpreter } : {},
    env: { SCRIPT_LOG: path.join(root, 'script.log'), ...env },
    prepare: scripted ? useScriptedCore : undefined,
  });
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    args: [
      ...[
        '--no-sandbox',
        '--disable-gpu',
        '--disable-quic',
        '--no-first-run',
        '--disable-background-networking',
      ],
      ...['--disable-component-update', '--disable-sync'],
      '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost',
    ],
  });
  const context = await browser.newContext({ viewport: { width: 1400, height: 900 } });
  const page = await context.newPage();
  page.setDefaultTimeout(40_000);
  const offsite = [];
  page.on('request', request => {
    const { protocol, hostname } = new URL(request.url());
    if (/^(http|ws)/.test(protocol) && hostname !== '127.0.0.1') offsite.push(request.url());
  });
  const payload = [['skipWelcome', 'true']];
  if (open) payload.push(['openFile', `vscode-remote://127.0.0.1:${server.port}${path.join(folder, open)}`]);
  await page.goto(`${server.address}&payload=${encodeURIComponent(JSON.stringify(payload))}`);
  const editor = new Editor(page, folder);
  await editor.watchMessages();
  return {
    ...{ root, folder, server, browser, page, editor, offsite },
    read: name => fs.readFileSync(path.join(folder, name), 'utf8'),
    scriptLog: () => readIfThere(path.join(root, 'script.log')),
    log: () => readLog(path.join(root, 'data')),
    processes: () => processesOf(server.pid),
    async stop() {
      await browser.close();
      await server.stop();
      if (!process.env.E2E_KEEP) fs.rmSync(root, { recursive: true, force: true });
    },
  };
}

/** The installed extension's server gets the scripted core of the LSP tests: how a request ends is the function's name. */
function useScriptedCore(extension) {
  const bundled = path.join(extension, 'bundled');
  const scripted = fs.readFileSync(path.join(ROOT, 'tests/lsp/scripted_server.py'), 'utf8');
  fs.writeFileSync(path.join(bundled, 'scripted_server.py'), scripted);
  const launcher = path.join(bundled, 'launch.py');
  const text = fs.readFileSync(launcher, 'utf8');
  const changed = text
    .replace('from kernelwright.lsp.server import serve', 'from scripted_server import ScriptedCore, serve')
    .replace('serve()', 'serve(ScriptedCore)');
  fs.writeFileSync(launcher, changed);
}

/**
 * A suite on one workbench: `body` gets a function that declares a test. The tests build on each other as a person's
 * session does, so after a failure, which leaves a screenshot and the log, the rest is skipped.
 */
export function workbenchSuite(name, options, body) {
  suite(name, { timeout: 300_000 }, () => {
    let workbench;
    let failed = false;
    before(async () => {
      fs.mkdirSync(SHOTS, { recursive: true });
      workbench = await startWorkbench(options());
    });
    after(() => workbench?.stop());
    body((title, run) => {
      test(title, async context => {
        if (failed) return context.skip('after a failure');
        try {
          await run(workbench, shot => workbench.page.screenshot({ path: path.join(SHOTS, `${shot}.png`) }));
        } catch (error) {
          failed = true;
          await workbench.page.screenshot({ path: path.join(SHOTS, `FAILED-${name}.png`) });
          console.error(workbench.log());
          throw error;
        }
      });
    });
  });
}

/** Polls for a value that is truthy: for what the page cannot tell, such as files and processes. */
export async function until(check, what, ms = 20_000) {
  for (const end = Date.now() + ms; ;) {
    const value = await check();
    if (value) return value;
    if (Date.now() > end)
      throw new Error(`timed out after ${ms} ms: ${typeof what === 'function' ? what() : what}`);
    await new Promise(resolve => setTimeout(resolve, 50));
  }
}

function readIfThere(file) {
  return fs.existsSync(file) ? fs.readFileSync(file, 'utf8') : '';
}

function readLog(data) {
  const logs = path.join(data, 'data', 'logs');
  const files = fs.existsSync(logs) ? fs.readdirSync(logs, { recursive: true }) : [];
  return files
    .filter(name => /kernelwright.*\.log$/i.test(name))
    .map(name => fs.readFileSync(path.join(logs, name), 'utf8'))
    .join('\n');
}

/** The language server under a VS Code server, and its own children and grandchildren, as {pid, command}. */
function processesOf(ancestor) {
  const all = new Map();
  for (const pid of fs.readdirSync('/proc').filter(name => /^\d+$/.test(name))) {
    try {
      const stat = fs.readFileSync(`/proc/${pid}/stat`, 'utf8');
      const [state, parent] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
      const command = fs.readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0').join(' ').trim();
      if (state !== 'Z') all.set(Number(pid), { pid: Number(pid), parent: Number(parent), command });
    } catch {
      // It ended meanwhile.
    }
  }
  const under = root =>
    [...all.values()].filter(({ parent }) => parent === root).flatMap(one => [one, ...under(one.pid)]);
  const server = under(ancestor).find(({ command }) => command.includes('bundled/launch.py'));
  return { server, workers: server ? under(server.pid) : [] };
}

/** Whether a process is alive; a zombie is not. */
export function alive(pid) {
  try {
    return !/^State:\s+Z/m.test(fs.readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
}
