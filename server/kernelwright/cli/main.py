"""Arguments → app → text or JSON.

Exit status: 0 proposed or passed · 3 declined · 4 failed or refuted · 5 kept · 2 usage · 1 our own fault.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import traceback
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from kernelwright import __version__
from kernelwright.app import App
from kernelwright.cli import commands
from kernelwright.errors import KernelwrightError, UsageError
from kernelwright.settings import parse_strict

Command: TypeAlias = Callable[[App, argparse.Namespace], Coroutine[Any, Any, int]]


def run(argv: Sequence[str]) -> int:
    """Run one command. Faults become a message on standard error and a status; with --json also an object."""
    arguments = _parser().parse_args(argv)
    try:
        return asyncio.run(_run(arguments))
    except KeyboardInterrupt:
        return _fail(arguments, 130, "cancelled")
    except UsageError as error:
        return _fail(arguments, 2, str(error))
    except KernelwrightError as error:
        return _fail(arguments, 1, str(error))
    except Exception:
        # The edge: anything that reaches it is our own fault, and is reported whole.
        return _fail(arguments, 1, f"a fault of Kernelwright's own, please report it:\n{traceback.format_exc()}")


async def _run(arguments: argparse.Namespace) -> int:
    settings = parse_strict(_settings(arguments))
    root = Path(arguments.root).resolve() if arguments.root else Path.cwd()
    app = App(settings, root=root)
    command: Command = arguments.command
    try:
        return await command(app, arguments)
    finally:
        await app.close()


def _settings(arguments: argparse.Namespace) -> dict[str, Any]:
    given: dict[str, Any] = {"provider": getattr(arguments, "provider", None), "interpreter": arguments.interpreter}
    if getattr(arguments, "seconds", None) is not None:
        given["verify"] = {"seconds": arguments.seconds}
    return {key: value for key, value in given.items() if value is not None}


def _fail(arguments: argparse.Namespace, status: int, message: str) -> int:
    print(f"kernelwright: {message}", file=sys.stderr)
    if getattr(arguments, "json", False):
        outcome = {2: "usage", 130: "cancelled"}.get(status, "error")
        print(json.dumps({"outcome": outcome, "reason": message}))
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kernelwright", description="Checked Triton kernels for PyTorch functions.")
    parser.add_argument("--version", action="version", version=f"kernelwright {__version__}")
    commands_ = parser.add_subparsers(required=True, metavar="COMMAND")
    generate = _command(commands_, "generate", commands.generate, "write a kernel, check it, show the edit")
    generate.add_argument("--provider", help="builtin (the default), anthropic or openai")
    generate.add_argument("--instruction", default="", help="what to ask of the provider, in words")
    generate.add_argument("--apply", action="store_true", help="write the edit into the file")
    generate.add_argument("--seconds", type=float, help="how long the checking of values may take")
    verify = _command(commands_, "verify", commands.verify, "check someone's kernel against the function")
    verify.add_argument("candidate", metavar="CANDIDATE.py[::ENTRY]")
    verify.add_argument("--seconds", type=float, help="how long the checking of values may take")
    _command(commands_, "profile", commands.profile, "bytes, flops, floor; times where there is a GPU")
    _command(commands_, "analyse", commands.analyse, "the targets of a file and their class", target="FILE[::QUALNAME]")
    _command(
        commands_, "doctor", commands.doctor, "what this machine can do, and what to do about the rest", target=None
    )
    commands_.add_parser("serve", help="the language server on standard input and output")
    return parser


def _command(
    parent: Any, name: str, command: Command, summary: str, target: str | None = "FILE::QUALNAME"
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = parent.add_parser(name, help=summary, description=summary)
    if target:
        parser.add_argument("target", metavar=target)
        parser.add_argument(
            "--inputs",
            metavar="SRC",
            help="a literal, 'x: bf16[8192, 4096], eps=1e-6', or PATH.py:FUNCTION, "
            "which takes (device, dtype, seed) and returns a list of dicts with args",
        )
    parser.add_argument("--json", action="store_true", help="print one JSON object on standard output")
    parser.add_argument("--interpreter", help="the Python that has torch and Triton (default: this one)")
    parser.add_argument("--root", help="the folder that imports start from (default: the current one)")
    parser.set_defaults(command=command)
    return parser
