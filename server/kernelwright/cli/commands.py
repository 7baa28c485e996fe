"""One coroutine a command: look up, call the app, print. No logic here."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from kernelwright.app import App
from kernelwright.cli import render
from kernelwright.errors import BadInputs, UsageError
from kernelwright.model import Candidate, Declined, Document, Failed, Kept, Passed, Proposed

STATUS: dict[type, int] = {Proposed: 0, Declined: 3, Failed: 4, Kept: 5}


async def generate(app: App, arguments: argparse.Namespace) -> int:
    """kernelwright generate FILE::QUALNAME"""
    document, qualname = read_target(arguments.target)
    if app.provider_note:
        print(f"note: {app.provider_note}", file=sys.stderr)
    outcome = await app.generate(
        document,
        qualname,
        inputs=inputs_argument(arguments.inputs),
        instruction=arguments.instruction,
        report=render.Progress(sys.stderr),
    )
    edit = app.edit(outcome, document) if isinstance(outcome, Proposed) else None
    diff = edit.diff if edit else None
    if arguments.json:
        print(json.dumps(render.outcome_json(outcome, app.provider.name, diff)))
    else:
        print(render.outcome_text(outcome, diff))
    if edit and arguments.apply:
        write_text(document.path, edit.text)
        if edit.sibling:
            write_text(*edit.sibling)
        print(f"written to {document.path}", file=sys.stderr)
    return STATUS[type(outcome)]


async def verify(app: App, arguments: argparse.Namespace) -> int:
    """kernelwright verify FILE::QUALNAME CANDIDATE.py[::ENTRY]"""
    document, qualname = read_target(arguments.target)
    path, _, entry = arguments.candidate.partition("::")
    candidate = Candidate(read_document(path).text, "file", entry=entry or qualname.rsplit(".", 1)[-1])
    report = render.Progress(sys.stderr)
    _, verdict = await app.verify(
        document, qualname, candidate, inputs=inputs_argument(arguments.inputs), report=report
    )
    if arguments.json:
        print(json.dumps(render.verdict_output(verdict, qualname)))
    else:
        print(render.verdict_text(verdict))
    return 0 if isinstance(verdict, Passed) else 4


async def profile(app: App, arguments: argparse.Namespace) -> int:
    """kernelwright profile FILE::QUALNAME: the floor now; times come with a GPU."""
    document, qualname = read_target(arguments.target)
    task = await app.analyse(document, qualname, inputs=inputs_argument(arguments.inputs))
    print(json.dumps(render.profile_json(task)) if arguments.json else render.profile_text(task))
    return 0


async def analyse(app: App, arguments: argparse.Namespace) -> int:
    """kernelwright analyse FILE[::QUALNAME]"""
    path, _, qualname = arguments.target.partition("::")
    document = read_document(path)
    targets = [target for target in app.targets(document) if not qualname or target.qualname == qualname]
    if qualname and not targets:
        read_target(arguments.target)
        raise UsageError(f"{qualname} does not use torch")
    rows = []
    for target in targets:
        try:
            task = await app.analyse(document, target.qualname, inputs=inputs_argument(arguments.inputs))
            rows.append(render.analysis_row(target, task, None))
        except UsageError as error:
            rows.append(render.analysis_row(target, None, str(error)))
    print(json.dumps({"file": document.path, "targets": rows}) if arguments.json else render.analysis_text(rows))
    return 0


async def doctor(app: App, arguments: argparse.Namespace) -> int:
    """kernelwright doctor"""
    rows = await app.examine()
    print(json.dumps({"checks": rows}) if arguments.json else render.doctor_text(rows))
    return 0 if all(row["state"] != "missing" for row in rows) else 1


def read_target(text: str) -> tuple[Document, str]:
    """FILE::QUALNAME → the document and the name.

    Raises:
        UsageError: the form is wrong, or the file cannot be read.
    """
    path, separator, qualname = text.partition("::")
    if not separator or not qualname:
        raise UsageError(f"{text!r} names no function: write FILE::QUALNAME, such as model.py::RMSNorm.forward")
    return read_document(path), qualname


def read_document(path: str) -> Document:
    """A file from the disk, line endings kept."""
    file = Path(path)
    try:
        data = file.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text (byte {error.start})") from error
    absolute = file.resolve()
    return Document(absolute.as_uri(), str(absolute), text)


def inputs_argument(text: str | None) -> str | None:
    """--inputs as given; a path in PATH.py:FUNCTION is made absolute, and must exist."""
    if text is None:
        return None
    path, separator, function = text.rpartition(":")
    if not separator or not path.endswith(".py"):
        return text
    if not Path(path).is_file():
        raise BadInputs(f"--inputs {text}: there is no file {path}")
    return f"{Path(path).resolve()}:{function.strip()}"


def write_text(path: str, text: str) -> None:
    """Replace a file's text in one step, its line endings as in `text`."""
    temporary = Path(path + ".kernelwright-new")
    temporary.write_bytes(text.encode("utf-8"))
    original = Path(path)
    if original.exists():
        temporary.chmod(original.stat().st_mode & 0o7777)
    temporary.replace(path)
