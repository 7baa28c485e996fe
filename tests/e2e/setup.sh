#!/usr/bin/env bash
# Installs the real VS Code of the tests into .toolchain/workbench (530 MB, under a minute), and Chromium. Does nothing when up to date.
set -euo pipefail
cd "$(dirname "$0")"
root=$(cd ../.. && pwd)
target=$root/.toolchain/workbench
stamp=$target/.ready-$(cat setup.sh workbench/package-lock.json | sha256sum | cut -c1-12)
[ ! -e "$stamp" ] || exit 0

if ! command -v chromium >/dev/null; then
  [ "$(id -u)" = 0 ] || { echo "install chromium first: sudo apt-get install chromium" >&2; exit 2; }
  apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null
fi

case "$(uname -m)" in x86_64) arch=x64 ;; aarch64) arch=arm64 ;; *) echo "no workbench for $(uname -m)" >&2; exit 2 ;; esac
node_home=$root/node_modules/node-linux-$arch # Node 24, with the headers that node-gyp would download
export PATH=$node_home/bin:$PATH npm_config_nodedir=$node_home

echo "setting up the workbench in .toolchain (once)"
rm -rf "$target" && mkdir -p "$target"
cp workbench/package.json workbench/package-lock.json workbench/.npmrc "$target"
cd "$target"
npm ci --no-progress --loglevel=error
ln -sfn "$node_home/bin/node" node

cd node_modules/code-server/lib/vscode
# Leave out what only Copilot's agent host, Windows, Kerberos and ssh need: 270 MB and two minutes.
node -e '
  const fs = require("fs"), manifest = JSON.parse(fs.readFileSync("package.json", "utf8"));
  for (const name of ["@devcontainers/cli", "@github/copilot-sdk", "@microsoft/mxc-sdk", "@vscode/sandbox-runtime",
    "@vscode/copilot-api", "@vscode/sqlite3", "@vscode/windows-process-tree", "@vscode/windows-registry", "kerberos", "ssh2"])
    delete manifest.dependencies[name];
  delete manifest.overrides; delete manifest.allowScripts;
  fs.writeFileSync("package.json", JSON.stringify(manifest, null, 2));'
npm install --ignore-scripts --omit=dev --no-audit --no-fund --no-progress --loglevel=error # versions: the tarball's shrinkwrap
npm rebuild --ignore-scripts=false --no-progress --loglevel=error @vscode/spdlog @vscode/native-watchdog @vscode/fs-copyfile @vscode/deviceid
rm -rf extensions/copilot # the other built-in extensions stay: the web bundle lists them
touch "$stamp"
