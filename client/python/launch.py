"""Starts the language server from the extension's folder, whatever the interpreter has installed.

Run as `python -I -X utf8 launch.py`: isolated, so a hostile PYTHONPATH or working folder cannot shadow a module.
"""

import sys
from pathlib import Path

TOO_OLD = 3

if sys.version_info < (3, 10):  # noqa: UP036  # any interpreter may be picked: it gets a message, not a traceback
    sys.stderr.write("Kernelwright needs Python 3.10 or newer; this is %d.%d\n" % sys.version_info[:2])  # noqa: UP031
    sys.exit(TOO_OLD)

here = Path(__file__).resolve().parent
sys.path[:0] = [str(here / "libs"), str(here)]
sys.dont_write_bytecode = True

from kernelwright.lsp.server import serve  # noqa: E402

sys.exit(serve())
