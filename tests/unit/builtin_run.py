"""Runs generated modules in Triton's interpreter against eager, for many shapes, dtypes, layouts and values.

usage: TRITON_INTERPRET=1 python builtin_run.py NAME=MODULE.py ... → one JSON line a name: {"name", "runs", "wrong"}
Apart from the tests' own process: the interpreter has to be chosen before Triton is imported.
"""

import importlib.util
import json
import sys
from pathlib import Path

import torch

from kernelwright.worker import interpreter

sys.path.insert(0, str(Path(__file__).parents[1] / "fixtures"))
import functions

# Relative to the largest element of the result: one rounding of the narrow dtypes, some of float32.
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 1.6e-2, torch.float16: 2e-3}
SHAPES = ((3, 96), (1, 1), (5, 257), (2, 16), (4, 3))
LONG = (2, 17001)
LAYOUTS = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.transpose(0, -1).contiguous().transpose(0, -1),
    "stepped": lambda x: torch.stack((x, x), -1).flatten(-2)[..., ::2] if x.dim() else x,
    "offset": lambda x: torch.cat((x[:1], x))[1:] if x.dim() else x,
}
VALUES = {
    "normal": lambda x: x,
    "large": lambda x: x * 100,
    "offset": lambda x: x + 30,
    "nan": lambda x: _poked(x, float("nan")),
    "inf": lambda x: _poked(x, float("inf")),
    "-inf": lambda x: _poked(x, float("-inf")),
    "zeros": torch.zeros_like,
}

SKIPPED = {
    "router": ("nan", "inf", "zeros"),  # torch does not say which of equal elements top-k finds first
    "group_norm_silu": ("inf", "-inf"),  # eager's CPU kernel folds mean and scale, so inf - inf arises elsewhere
}


def _poked(x, value):
    x = x.clone()
    x.view(-1)[:: max(1, x.numel() // 2)] = value
    return x


def load(path):
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def plan(name):
    for dtype in TOLERANCE:
        yield from ((shape, dtype, "contiguous", "normal") for shape in SHAPES)
    yield from (
        ((3, 96), torch.float32, "contiguous", values) for values in VALUES if values not in SKIPPED.get(name, ())
    )
    yield from (((3, 33), torch.bfloat16, layout, "normal") for layout in LAYOUTS)
    if name != "router":
        yield LONG, torch.float32, "contiguous", "normal"
        yield LONG, torch.float32, "contiguous", "nan"


def make(name, shape, dtype, layout, values, seed):
    torch.manual_seed(seed)

    def tensor(*dims):
        return LAYOUTS[layout](VALUES[values](torch.randn(*dims)).to(dtype))

    return functions.CALLS[name](*shape, tensor)


def tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    return [tensor for item in value for tensor in tensors(item)] if isinstance(value, tuple) else []


def fault(got, expected, dtype):
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return f"{got.dtype}{list(got.shape)} instead of {expected.dtype}{list(expected.shape)}"
    left, right = got.double(), expected.double()
    if not torch.equal(left.isnan(), right.isnan()):
        return "NaN in other places"
    finite = right[right.isfinite()]
    scale = finite.abs().max().item() if finite.numel() else 1.0
    bound = TOLERANCE[dtype] * max(scale, 1e-3) if expected.is_floating_point() else 0.0
    if expected.dtype is torch.int8:
        bound = 1.0
    gap = (left - right).abs()
    gap[left == right] = 0
    worst = gap.nan_to_num(0.0, posinf=float("inf")).max().item() if gap.numel() else 0.0
    return None if worst <= bound else f"off by {worst:.3g}, bound {bound:.3g}"


def check(name, entry):
    runs, wrong = 0, []
    for seed, (shape, dtype, layout, values) in enumerate(plan(name)):
        ours, theirs = (make(name, shape, dtype, layout, values, seed) for _ in range(2))
        words = f"{list(shape)} {dtype} {layout} {values}"
        try:
            expected = getattr(functions, name)(*theirs)
        except (RuntimeError, ValueError):
            continue
        got = entry(*ours)
        runs += 1
        pairs = zip(tensors(got) + tensors(ours), tensors(expected) + tensors(theirs), strict=True)
        wrong += [f"{words}: {text}" for left, right in pairs if (text := fault(left, right, dtype))]
    return {"name": name, "runs": runs, "wrong": wrong}


def main():
    interpreter.mend()
    for argument in sys.argv[1:]:
        name, _, path = argument.partition("=")
        print(json.dumps(check(name, getattr(load(path), name))), flush=True)


if __name__ == "__main__":
    main()
