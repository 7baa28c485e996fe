"""How a worker starts and ends: no terminal, no stray output in the protocol, gone when its parent is. No torch."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import threading
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Ask Linux to kill this process when the thread that started it ends; elsewhere the end of input does it."""
    if not sys.platform.startswith("linux"):
        return
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the request was in place
        os._exit(0)


def detach_standard_streams(log: Path | None = None) -> None:
    """fd 0 from /dev/null; fd 2 to `log`, or where the parent pointed it; fd 1 with it: prints never reach the wire."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    if log is not None:
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, 2)
        os.close(file)
    os.dup2(2, 1)


def exit_at_hangup(read_fd: int) -> None:
    """End the process as soon as the other side of `read_fd` is closed, also in the middle of a long operation.

    Starts a thread, so it is not for a process that forks.
    """
    poll = select.poll()
    poll.register(read_fd, 0)  # no events asked for: only the hang-up is reported

    def watch() -> None:
        poll.poll()
        os._exit(0)

    threading.Thread(target=watch, name="hangup", daemon=True).start()
