// Bundles the client into dist/extension.js; with --test, each unit test into dist-test/.
import fs from 'node:fs';
import { build } from 'esbuild';

const testing = process.argv.includes('--test');
const tests = fs.readdirSync('client/test').filter(name => name.endsWith('.test.ts'));
if (testing) fs.rmSync('dist-test', { recursive: true, force: true });

await build({
  entryPoints: testing ? tests.map(name => `client/test/${name}`) : ['client/src/extension.ts'],
  ...(testing ? { outdir: 'dist-test' } : { outfile: 'dist/extension.js' }),
  bundle: true,
  platform: 'node',
  format: 'cjs',
  target: 'node20',
  external: ['vscode'],
  minify: !testing,
  sourcemap: testing ? 'inline' : false,
  logLevel: 'warning',
});
