"""How a worker lives and dies: private descriptors, no terminal, gone when its parent is gone. Standard library only."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int | None = None) -> None:
    """Have the kernel kill this process when its parent ends. `parent` guards against a parent that is gone already."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if parent is not None and os.getppid() != parent:
        os._exit(0)


def detach_standard_streams() -> None:
    """Standard input becomes /dev/null and standard output goes where standard error goes (the log).

    What the user's code or a C library prints can then never reach the protocol.
    """
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    sys.stdin = os.fdopen(os.dup(0), "r", encoding="utf-8")
