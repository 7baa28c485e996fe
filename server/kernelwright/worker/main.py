"""The entry of every worker: role and descriptors from argv, then that role's loop."""

from __future__ import annotations

import os
import sys

from kernelwright.worker import lifetime


def main(arguments: list[str] | None = None) -> None:
    """Run `ROLE READ_FD WRITE_FD`; returns at end of input."""
    role, read_fd, write_fd = arguments or sys.argv[1:4]
    lifetime.die_with_parent()
    lifetime.detach_standard_streams()
    os.set_inheritable(int(read_fd), False)
    os.set_inheritable(int(write_fd), False)
    if role == "reference":
        from kernelwright.worker.reference import serve
    elif role in ("candidate", "compile"):
        from kernelwright.worker.zygote import serve  # type: ignore[assignment]
    else:
        raise SystemExit(f"no such role: {role}")
    serve(int(read_fd), int(write_fd), role)


if __name__ == "__main__":
    main()
