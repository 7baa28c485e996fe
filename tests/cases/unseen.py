"""Runs a proposed module on inputs that its check did not see, against the function itself.

usage: TRITON_INTERPRET=1 python unseen.py CASE.py SOURCE.py → one JSON line {"admitted", "calls", "wrong": [text]}
"""

import importlib.util
import json
import sys

import torch

from kernelwright.worker import interpreter

interpreter.mend()

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
SEEDS = (1009, 2003)
# A generous bound by dtype, eager errs too (5e-5 on a group of one value): this catches a kernel that computes something else.
TOLERANCE = {torch.float32: 2e-4, torch.bfloat16: 2e-2, torch.float16: 3e-3}


def load(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (tuple, list)):
        return [tensor for item in value for tensor in tensors(item)]
    return []


def reference(case, call):
    function = call.get("fn")
    if function is None and "self" in call:
        function = getattr(call["self"], case.TARGET.rsplit(".", 1)[-1])
    if function is None:
        function = case
        for part in case.TARGET.split("."):
            function = getattr(function, part)
    return function(*call["args"], **call.get("kwargs", {}))


def close(got, expected, dtype):
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return f"{got.dtype}{list(got.shape)} instead of {expected.dtype}{list(expected.shape)}"
    if got.numel() == 0:
        return None
    left, right = got.double(), expected.double()
    if not torch.equal(left.isnan(), right.isnan()):
        return "NaN in other places"
    scale = right[right.isfinite()].abs().max().item() if right.isfinite().any() else 1.0
    bound = max(TOLERANCE[dtype], 1e-5) * max(scale, 1e-6)
    if not expected.is_floating_point():
        bound = 1.0
    difference = (left - right).abs()
    difference[left == right] = 0
    worst = difference.nan_to_num(0.0, posinf=float("inf")).max().item()
    return None if worst <= bound else f"off by {worst:.3g}, bound {bound:.3g}"


def main():
    case, kernel = load(sys.argv[1], "case"), load(sys.argv[2], "kernel")
    entry = getattr(kernel, case.TARGET.rsplit(".", 1)[-1])
    admitted, calls, wrong = 0, 0, []
    for dtype in DTYPES:
        for seed in SEEDS:
            pairs = zip(case.make_inputs("cpu", dtype, seed), case.make_inputs("cpu", dtype, seed), strict=False)
            for index, (ours, theirs) in enumerate(pairs):
                calls += 1
                receiver = (ours["self"],) if "self" in ours else ()
                arguments = (*receiver, *ours["args"])
                with torch.no_grad():
                    if not kernel.supports(*arguments, **ours.get("kwargs", {})):
                        continue
                    admitted += 1
                    name = f"call {index} {dtype} seed {seed}"
                    try:
                        expected = reference(case, theirs)
                    except Exception as error:
                        wrong.append(f"{name}: admitted, but the function raises {type(error).__name__}")
                        continue
                    got = entry(*arguments, **ours.get("kwargs", {}))
                if ours.get("unordered"):
                    continue
                pairs_ = list(zip(tensors(got), tensors(expected), strict=False)) or list(
                    zip(tensors(ours["args"]), tensors(theirs["args"]), strict=False)
                )
                faults = [fault for left, right in pairs_ if (fault := close(left, right, dtype))]
                wrong += [f"{name}: {fault}" for fault in faults]
    print(json.dumps({"admitted": admitted, "calls": calls, "wrong": wrong}))


main()
