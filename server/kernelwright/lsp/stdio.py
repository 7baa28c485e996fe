"""Standard input and output, kept for the protocol alone. Standard library only.

One stray `print` in the middle of a message desynchronises VS Code's client for good, and a child that inherits
descriptor 0 swallows requests. So the real descriptors move to private, non-inheritable numbers before anything else.
"""

from __future__ import annotations

import os
from typing import BinaryIO


def take_stdio() -> tuple[BinaryIO, BinaryIO]:
    """Move the protocol's two streams to private descriptors.

    Afterwards descriptor 0 is the null device, and what anyone writes to descriptor 1 ends up on standard error.
    """
    reader, writer = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    return os.fdopen(reader, "rb"), os.fdopen(writer, "wb")
