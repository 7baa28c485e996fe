"""The reference worker: the user's code in the user's interpreter. It traces, makes inputs, and knows the truth."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from typing import Any

import torch

from kernelwright.worker import inputs
from kernelwright.worker.cases import Builder
from kernelwright.worker.judging import Judge, Prepared, Traced
from kernelwright.worker.lifetime import exit_at_hangup
from kernelwright.worker.loading import find, load
from kernelwright.worker.wire import BadInputs, Channel, Emit, Json, serve_requests

THREADS = 2
DTYPES = ("bfloat16", "float32")
"""The dtypes that FUNC(device, dtype, seed) is tried with, in this order. In bfloat16 every cast of the function shows in
the trace, and tensors that stay float32 whatever the dtype can be told from those that follow it; in float32 neither
does."""


class Reference:
    """The state between requests: one target, its calls, its graphs."""

    def __init__(self) -> None:
        self.maker: inputs.Maker | None = None
        self.calls: list[inputs.LiveCall] = []
        self.dtype = "float32"
        self.traced = Traced()
        self._judge: Judge | None = None

    def load(self, request: dict[str, Json], emit: Emit) -> Json:
        """Execute the document, find the target, make and try its calls."""
        path = Path(request["path"])
        root = Path(request["root"]) if request.get("root") else None
        target = find(load(path, request["text"], root), request["qualname"])
        asked = request["inputs"]
        self.maker = inputs.Maker(target, asked["origin"], asked["spec"], asked.get("literal") or [], root)
        self.traced, self._judge = Traced(), None
        wanted = request.get("dtype")
        self.calls = self._first_that_works((wanted,) if wanted else DTYPES)
        return {"calls": [inputs.describe_call(call) for call in self.calls]}

    def _first_that_works(self, dtypes: tuple[str, ...]) -> list[inputs.LiveCall]:
        assert self.maker is not None
        problem: BadInputs | None = None
        for dtype in dtypes:
            try:
                calls = self.maker.make("cpu", dtype, 0)
                for call in calls:
                    inputs.try_out(call)
            except BadInputs as error:
                problem = error
                continue
            self.dtype = dtype
            return calls
        assert problem is not None
        raise problem

    def trace(self, request: dict[str, Json], emit: Emit) -> Json:
        """One graph a variant."""
        from kernelwright.worker.variants import trace_calls  # symbolic shapes take a second to import

        self.traced, self._judge = trace_calls(self.calls), None
        return {"graphs": self.traced.graphs}

    def make(self, request: dict[str, Json], emit: Emit) -> Json:
        """Write the cases that the function accepts, each in a folder of its own."""
        judge = self._the_judge()
        return {"made": [judge.make(case, Path(request["folder"])) for case in request["cases"]]}

    def judge(self, request: dict[str, Json], emit: Emit) -> Json:
        """Compare the outputs in the cases' folders with the truth, computed now."""
        judge = self._the_judge()
        return {"judged": [judge.judge(item["case"], item["folder"]) for item in request["cases"]]}

    def prepared(self, folder: str) -> Prepared:
        """The case that was written into `folder`."""
        return self._the_judge().prepared[folder]

    def _the_judge(self) -> Judge:
        if self.maker is None:
            raise BadInputs("nothing has been loaded")
        if self._judge is None:
            builder = Builder(self.maker, self.dtype, self.traced.graph_of, self.traced.symbols_of)
            self._judge = Judge(builder)
        return self._judge

    def hardware(self, request: dict[str, Json], emit: Emit) -> Json:
        """model.Hardware; Triton's version without importing it."""
        from importlib.metadata import PackageNotFoundError, version

        try:
            triton = version("triton")
        except PackageNotFoundError:
            triton = ""
        gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
        return {
            "gpu": gpu,
            "architectures": [_architecture()] if gpu else [],
            "torch": torch.__version__,
            "triton": triton,
            "python": platform.python_version(),
            "platform": f"{sys.platform}-{platform.machine()}",
        }


def _architecture() -> str:
    if torch.version.hip:
        return str(torch.cuda.get_device_properties(0).gcnArchName).split(":")[0]
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}"


def operations(reference: Reference) -> dict[str, Any]:
    """The protocol's operations by name."""
    return {
        "load": reference.load,
        "trace": reference.trace,
        "make": reference.make,
        "judge": reference.judge,
        "hardware": reference.hardware,
    }


def serve(channel: Channel) -> None:
    """Answer requests until the end of input."""
    exit_at_hangup(channel.read_fd)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", THREADS)))
    serve_requests(channel, operations(Reference()))
