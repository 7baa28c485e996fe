// The strict client: VS Code's own JSON-RPC library, which one stray byte on standard output breaks for good.
// Run: node --test tests/lsp/strict.test.mjs      ($KERNELWRIGHT_PYTHON: the interpreter; default .venv/bin/python)
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import rpc from 'vscode-jsonrpc/node';

const python =
  process.env.KERNELWRIGHT_PYTHON ?? fileURLToPath(new URL('../../.venv/bin/python', import.meta.url));
const script = fileURLToPath(new URL('scripted_server.py', import.meta.url));
const uri = 'file:///nowhere/model.py';
const text = ['print_a', 'hang_checking', 'propose_a']
  .map(name => `import torch\n\n\ndef ${name}(x):\n    return torch.relu(x)\n`)
  .join('\n');

// A desynchronised connection hangs: that must fail.
const limit = { timeout: 30_000 };

/** Starts the server and initialises it; any framing or protocol error fails the test. */
async function start(t) {
  const server = spawn(python, ['-I', '-X', 'utf8', script], { stdio: ['pipe', 'pipe', 'pipe'] });
  const connection = rpc.createMessageConnection(
    new rpc.StreamMessageReader(server.stdout),
    new rpc.StreamMessageWriter(server.stdin),
  );
  const client = { server, connection, errors: [], log: '', progress: [], waiting: [] };
  server.stderr.setEncoding('utf8').on('data', data => (client.log += data));
  connection.onError(([error]) => client.errors.push(error));
  connection.onUnhandledNotification(message => client.errors.push(message));
  connection.onNotification('kernelwright/proposalsChanged', () => {});
  connection.onNotification('textDocument/publishDiagnostics', () => {});
  connection.onNotification('$/progress', ({ value }) => {
    client.progress.push(value);
    client.waiting.forEach(check => check());
  });
  client.until = condition =>
    new Promise(resolve => {
      const check = () => condition() && resolve();
      client.waiting.push(check);
      check();
    });
  connection.listen();
  t.after(() => {
    connection.dispose();
    server.kill('SIGKILL');
  });
  await connection.sendRequest('initialize', { processId: process.pid, rootUri: null, capabilities: {} });
  await connection.sendNotification('initialized', {});
  const textDocument = { uri, languageId: 'python', version: 1, text };
  await connection.sendNotification('textDocument/didOpen', { textDocument });
  return client;
}

/** Shuts the server down as VS Code does; it must go by itself, with status 0. */
async function stop(client) {
  const exited = once(client.server, 'exit');
  await client.connection.sendRequest('shutdown');
  await client.connection.sendNotification('exit');
  const [status] = await exited;
  assert.equal(status, 0, client.log);
  assert.deepEqual(client.errors, []);
}

test('whatever user code prints goes to standard error', limit, async t => {
  const client = await start(t);
  const result = await client.connection.sendRequest('kernelwright/generate', { uri, qualname: 'print_a' });
  assert.equal(result.outcome, 'proposed');
  const lenses = await client.connection.sendRequest('textDocument/codeLens', { textDocument: { uri } });
  assert.ok(lenses.length >= 3);
  await stop(client);
  for (const printed of ['print\n', 'Content-Length: 5\r\n\r\nhello', 'a child\n']) {
    assert.ok(client.log.includes(printed), client.log);
  }
});

test(
  'a cancelled request is answered as cancelled, its progress ends, and the next one works',
  limit,
  async t => {
    const client = await start(t);
    const source = new rpc.CancellationTokenSource();
    const params = { uri, qualname: 'hang_checking', workDoneToken: 'w' };
    const job = client.connection.sendRequest('kernelwright/generate', params, source.token);
    await client.until(() => client.progress.some(value => value.message?.startsWith('Checking values')));
    source.cancel();
    await assert.rejects(job, { code: -32800 });
    assert.equal(client.progress.at(-1).kind, 'end');
    const next = await client.connection.sendRequest('kernelwright/generate', { uri, qualname: 'propose_a' });
    assert.equal(next.outcome, 'proposed');
    await stop(client);
  },
);

test('shutdown with work in flight', limit, async t => {
  const client = await start(t);
  const params = { uri, qualname: 'hang_checking', workDoneToken: 'w' };
  const job = client.connection.sendRequest('kernelwright/generate', params);
  const ended = assert.rejects(job, { code: -32800 });
  await client.until(() => client.progress.some(value => value.message?.startsWith('Checking values')));
  await stop(client);
  await ended;
});

test('malformed params are answered, and the server lives on', limit, async t => {
  const client = await start(t);
  await assert.rejects(client.connection.sendRequest('kernelwright/generate', { uri: 7 }), { code: -32602 });
  await assert.rejects(client.connection.sendRequest('kernelwright/unheardOf', {}), { code: -32601 });
  assert.equal((await client.connection.sendRequest('kernelwright/status', {})).state, 'ready');
  await stop(client);
});
