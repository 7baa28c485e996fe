"""How long the editor waits: lenses, hover and actions of a 5,000-line file, idle and while a job runs.

Starts the real server over stdio, as an editor does. Prints a table; with --output writes it as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import statistics
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

from lsprotocol import types
from pygls.lsp.client import BaseLanguageClient

FUNCTIONS = 200
LINES = 5000
ROUNDS = 40
LENS_LIMIT_MS, REQUEST_LIMIT_MS, MEMORY_LIMIT_MB = 200.0, 20.0, 100.0
BUSY = "import torch\n\n\n# inputs: x: f32[64, 1000]\ndef busy(x):\n    return torch.softmax(x, -1)\n"


def large_file() -> str:
    """A file of LINES lines with FUNCTIONS functions that use torch."""
    body = [f"    # step {line}" for line in range(LINES // FUNCTIONS - 5)]
    parts = ["import torch"]
    for number in range(FUNCTIONS):
        parts += [
            "",
            "",
            f"def f{number}(x, weight, eps=1e-6):",
            *body,
            "    y = x * weight + eps",
            "    return torch.softmax(y, -1)",
        ]
    return "\n".join(parts) + "\n"


class Editor:
    """Enough of an editor to ask the server what VS Code asks it."""

    def __init__(self, folder: Path) -> None:
        self.client = BaseLanguageClient("bench", "1")
        self.folder = folder

    async def start(self) -> None:
        await self.client.start_io(sys.executable, "-m", "kernelwright", "serve")
        capabilities = types.ClientCapabilities(window=types.WindowClientCapabilities(work_done_progress=True))
        await self.client.initialize_async(
            types.InitializeParams(
                capabilities=capabilities,
                process_id=None,
                root_uri=self.folder.as_uri(),
                initialization_options={"clientCommands": True},
            )
        )
        self.client.initialized(types.InitializedParams())

    def open(self, name: str, text: str) -> str:
        path = self.folder / name
        path.write_text(text)
        item = types.TextDocumentItem(uri=path.as_uri(), language_id="python", version=1, text=text)
        self.client.text_document_did_open(types.DidOpenTextDocumentParams(item))
        return path.as_uri()

    async def lenses(self, uri: str) -> int:
        found = await self.client.text_document_code_lens_async(types.CodeLensParams(types.TextDocumentIdentifier(uri)))
        return len(found or [])

    async def hover(self, uri: str, line: int) -> None:
        await self.client.text_document_hover_async(
            types.HoverParams(types.TextDocumentIdentifier(uri), types.Position(line, 5))
        )

    async def actions(self, uri: str, line: int) -> int:
        at = types.Position(line, 5)
        context = types.CodeActionContext(diagnostics=[])
        found = await self.client.text_document_code_action_async(
            types.CodeActionParams(types.TextDocumentIdentifier(uri), types.Range(at, at), context)
        )
        return len(found or [])

    def memory_mb(self) -> float:
        """Resident memory of the server."""
        status = Path(f"/proc/{self.client._server.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024

    async def stop(self) -> None:
        await self.client.shutdown_async(None)
        self.client.exit(None)
        await self.client.stop()


async def timed(make, rounds: int = ROUNDS) -> list[float]:
    """Milliseconds of each of `rounds` awaits."""
    times = []
    for number in range(rounds):
        start = time.perf_counter()
        await make(number)
        times.append((time.perf_counter() - start) * 1e3)
    return times


async def measure(folder: Path) -> dict[str, dict[str, float]]:
    editor = Editor(folder)
    await editor.start()
    rows: dict[str, dict[str, float]] = {
        "memory after start, MB": {"worst": editor.memory_mb(), "limit": MEMORY_LIMIT_MB}
    }
    uri = editor.open("large.py", large_file())
    start = time.perf_counter()
    count = await editor.lenses(uri)
    rows["first lenses, ms"] = {"worst": (time.perf_counter() - start) * 1e3, "limit": LENS_LIMIT_MS}
    if count < FUNCTIONS:
        raise SystemExit(f"only {count} lenses for {FUNCTIONS} functions")
    step = LINES // FUNCTIONS
    lines = [3 + step * number for number in range(FUNCTIONS)]
    for state in ("idle", "busy"):
        job = None
        if state == "busy":
            busy = editor.open("busy.py", BUSY)
            job = asyncio.ensure_future(
                editor.client.protocol.send_request_async("kernelwright/generate", {"uri": busy, "qualname": "busy"})
            )
            await asyncio.sleep(3)  # workers up and at work: the measurement starts in the middle of the job
        rows |= await ask_all(editor, uri, lines, state)
        if job is not None and job.done():
            print("note: the job ended before the measurement did", file=sys.stderr)
        if job is not None:
            await job
    await editor.stop()
    return rows


async def ask_all(editor: Editor, uri: str, lines: list[int], state: str) -> dict[str, dict[str, float]]:
    rows = {}
    requests = {
        "hover": lambda number: editor.hover(uri, lines[number]),
        "code actions": lambda number: editor.actions(uri, lines[number]),
        "lenses again": lambda number: editor.lenses(uri),
    }
    for name, make in requests.items():
        times = sorted(await timed(make))
        worst = times[int(len(times) * 0.95) - 1]
        limit = LENS_LIMIT_MS if name.startswith("lenses") else REQUEST_LIMIT_MS
        rows[f"{name}, {state}, ms"] = {"median": statistics.median(times), "worst": worst, "limit": limit}
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = asyncio.run(measure(Path(folder)))
    for name, row in rows.items():
        verdict = "ok" if row["worst"] <= row["limit"] else "TOO SLOW"
        median = row.get("median", row["worst"])
        print(f"{name:28s} median {median:8.2f}  95 % {row['worst']:8.2f}  limit {row['limit']:6.0f}  {verdict}")
    if arguments.output:
        machine = {
            "date": date.today().isoformat(),
            "python": platform.python_version(),
            "machine": platform.processor() or platform.machine(),
        }
        arguments.output.write_text(json.dumps(machine | {"rows": rows}, indent=2) + "\n")
    return 0 if all(row["worst"] <= row["limit"] for row in rows.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
