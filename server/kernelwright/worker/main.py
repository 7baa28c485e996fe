"""A worker's entry: `ROLE READ_FD WRITE_FD [LOG]`. See the package's docstring for the roles and the protocol."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from kernelwright.worker.lifetime import detach_standard_streams, die_with_parent
from kernelwright.worker.wire import Channel


def main(argv: list[str] | None = None) -> int:
    """Run the worker of the named role until the end of its input. Returns the exit status."""
    role, read_fd, write_fd, *rest = sys.argv[1:] if argv is None else argv
    die_with_parent()
    if hasattr(os, "nice"):
        os.nice(5)  # the editor and its server come first
    detach_standard_streams(Path(rest[0]) if rest else None)
    channel = Channel(int(read_fd), int(write_fd))
    if role == "reference":
        try:
            import torch  # noqa: F401
        except ImportError as error:
            return refuse(
                channel, f"torch does not import in {sys.executable} ({error}): {sys.executable} -m pip install torch"
            )
        from kernelwright.worker.reference import serve

        serve(channel)
        return 0
    if role in ("candidate", "compile"):
        from kernelwright.worker.zygote import serve as serve_zygote

        serve_zygote(channel, role)
        return 0
    print(f"unknown role {role!r}", file=sys.stderr)
    return 2


def refuse(channel: Channel, message: str) -> int:
    """Answer every request with what is missing, until the end of input."""
    for request in channel:
        error = {"type": "EnvironmentProblem", "message": message}
        channel.send({"id": request.get("id"), "ok": False, "error": error})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
