"""Kernels that `generate` proposes for the examples, timed beside eager and torch.compile on this GPU, in one run.

A first bench: one process, CUDA events, cold L2, alternating slices, medians with a 95 % interval. Prints a table and
writes bench/results/<gpu>-<date>.json. Correctness is the verifier's: only what it passed on this GPU is timed.
"""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path

import torch
import triton

ROOT = Path(__file__).resolve().parent.parent
SLICES, PER_SLICE = 30, 10
R = lambda *shape: torch.randn(*shape, device="cuda", dtype=torch.bfloat16)  # noqa: E731
EXAMPLES = {
    "rms_norm.py::rms_norm": lambda: (R(8192, 4096), R(4096)),
    "softmax.py::tempered_softmax": lambda: (R(4096, 16384), 0.7),
    "geglu.py::geglu": lambda: (R(16384, 14336), R(16384, 14336)),
}


def load(path: Path, name: str):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def generate(target: str) -> dict:
    with tempfile.TemporaryDirectory() as home:
        command = [sys.executable, "-m", "kernelwright", "generate", str(ROOT / "examples" / target), "--json"]
        environment = os.environ | {
            "KERNELWRIGHT_HOME": home,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "server"), *sys.path]),
        }
        finished = subprocess.run(command, capture_output=True, text=True, env=environment)
    return json.loads(finished.stdout)


def time_all(functions: dict, arguments: tuple) -> dict[str, list[float]]:
    """Milliseconds of each function, slices alternating so that clocks and heat are the same for all."""
    flush = torch.empty(256 << 20, dtype=torch.int8, device="cuda")
    times: dict[str, list[float]] = {name: [] for name in functions}
    for function in functions.values():
        for _ in range(5):
            function(*arguments)
    torch.cuda.synchronize()
    for _ in range(SLICES):
        for name, function in functions.items():
            pairs = []
            for _ in range(PER_SLICE):
                flush.zero_()
                start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                start.record()
                function(*arguments)
                end.record()
                pairs.append((start, end))
            torch.cuda.synchronize()
            times[name].append(statistics.median(start.elapsed_time(end) for start, end in pairs))
    return times


def main() -> int:
    rows = {}
    for target, make in EXAMPLES.items():
        file, name = target.split("::")
        result = generate(target)
        if result["outcome"] != "proposed":
            print(f"{name:20s} {result['outcome']}: {result['reason']}")
            rows[name] = {"outcome": result["outcome"], "reason": result["reason"]}
            continue
        path = Path(tempfile.mkdtemp()) / f"proposed_{name}.py"
        path.write_text(result["source"])
        eager = getattr(load(ROOT / "examples" / file, f"example_{name}"), name)
        kernel = getattr(load(path, f"proposed_{name}"), name)
        functions = {
            "eager": eager,
            "compile": torch.compile(eager),
            "max_autotune": torch.compile(eager, mode="max-autotune-no-cudagraphs"),
            "kernel": kernel,
        }
        times = time_all(functions, make())
        row = {"outcome": "proposed", "cases": result["verdict"]["cases"], "on_gpu": result["verdict"]["on_gpu"]}
        for key, values in times.items():
            ordered = sorted(values)
            row[f"{key}_ms"] = statistics.median(values)
            row[f"{key}_ci95"] = [ordered[len(ordered) // 2 - 5], ordered[len(ordered) // 2 + 5]]
        rows[name] = row
        best = min(row["compile_ms"], row["max_autotune_ms"])
        print(
            f"{name:20s} eager {row['eager_ms']:.4f}  compile {row['compile_ms']:.4f}  "
            f"max-autotune {row['max_autotune_ms']:.4f}  kernel {row['kernel_ms']:.4f} ms: "
            f"{best / row['kernel_ms']:.2f} times the best torch.compile"
        )
    gpu = torch.cuda.get_device_name()
    output = (
        Path(os.environ.get("OUT", ROOT / "bench" / "results")) / f"{gpu.replace(' ', '-').lower()}-{date.today()}.json"
    )
    machine = {"gpu": gpu, "torch": torch.__version__, "triton": triton.__version__, "date": str(date.today())}
    output.write_text(json.dumps(machine | {"rows": rows}, indent=2) + "\n")
    print(output.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
