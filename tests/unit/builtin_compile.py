"""Compiles every kernel that a module launches for GPUs that are not there: several architectures, sizes and dtypes.

usage: python builtin_compile.py NAME=MODULE.py ... → one JSON line a name: {"name", "kernels": [names], "wrong": [text]}
Without Triton's interpreter, which accepts code that the compiler rejects.
"""

import json
import sys
from pathlib import Path

import torch
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from kernelwright.worker.stub_driver import StubDriver

sys.path.insert(0, str(Path(__file__).parents[1] / "fixtures"))
import functions
from builtin_run import load

ARCHITECTURES = ("sm_90", "sm_80", "sm_120")
CALLS = (((3, 96), torch.bfloat16), ((2, 17001), torch.float32), ((1, 1), torch.float16))


def main():
    stub = StubDriver(ARCHITECTURES)
    driver.set_active(stub)
    compile_only = JITFunction.run
    names = set()

    def launch(kernel, *arguments, **options):
        names.add(kernel.__name__)
        return compile_only(kernel, *arguments, **{**options, "grid": (1,), "warmup": True})

    JITFunction.run = launch
    for argument in sys.argv[1:]:
        name, _, path = argument.partition("=")
        entry, wrong = getattr(load(path), name), []
        names.clear()
        for number, ((rows, columns), dtype) in enumerate(CALLS):
            for stub.architecture in ARCHITECTURES if number == 0 else ARCHITECTURES[:1]:
                arguments = functions.CALLS[name](
                    rows, columns, lambda *shape, dtype=dtype: torch.randn(*shape).to(dtype)
                )
                try:
                    entry(*arguments)
                except Exception as error:
                    wrong.append(f"{stub.architecture} {rows}x{columns} {dtype}: {' '.join(str(error).split())[-300:]}")
        print(json.dumps({"name": name, "kernels": sorted(names), "wrong": wrong}), flush=True)


main()
