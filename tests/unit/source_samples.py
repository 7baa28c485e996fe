"""Kernels, domains and documents that the tests of source/ and checks/ share."""

from __future__ import annotations

from pathlib import Path

from kernelwright.model import Document, Domain, Evidence, Fixed, Hardware, Scalar, Target, TensorDomain, Variant
from kernelwright.source.locate import find_target

EXAMPLES = Path(__file__).parents[2] / "examples"
FLOATS = ("float32", "float16", "bfloat16")
HARDWARE = Hardware(None, ("sm_80", "sm_90"), "2.13.0", "3.7.1", "3.11")

RMS_NORM = '''import torch
import triton
import triton.language as tl


@triton.jit
def _rms_norm_kernel(x_ptr, w_ptr, y_ptr, x_row, n, eps, BLOCK: tl.constexpr):
    """One program a row."""
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n
    x = tl.load(x_ptr + row * x_row + cols, mask=mask, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, axis=0) / n + eps)
    w = tl.load(w_ptr + cols, mask=mask, other=0.0)
    y = w * (x * scale).to(w.dtype)
    tl.store(y_ptr + row * n + cols, y, mask=mask)


def rms_norm(x, weight, eps=1e-6):
    rows, n = x.shape
    y = torch.empty_like(x)
    _rms_norm_kernel[(rows,)](x, weight, y, x.stride(0), n, eps, BLOCK=triton.next_power_of_2(n))
    return y
'''
RMS_NORM_DOMAIN = Domain(
    "cuda",
    (
        Variant(
            (TensorDomain("x", FLOATS, ("s0", "s1"), "contiguous"), TensorDomain("weight", FLOATS, ("s1",))),
            (Scalar("eps", "eps", "float", 1e-6),),
            min_size={"s0": 1},
            max_size={"s1": 65536},
        ),
    ),
)

# One kernel for whatever a test's function is called: it adds one to a vector, or in place.
PLUS_ONE = """import torch
import triton
import triton.language as tl


@triton.jit
def _plus_one_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    # Each program takes BLOCK elements.
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + index, mask=index < n)
    tl.store(y_ptr + index, x + 1, mask=index < n)


def NAME(PARAMETERS):
    y = OUTPUT
    _plus_one_kernel[(triton.cdiv(x.shape[0], 64),)](x, y, x.shape[0], BLOCK=64)
    return y
"""


def plus_one(name: str, parameters: str, output: str = "torch.empty_like(x)") -> str:
    """A candidate that returns x + 1."""
    return PLUS_ONE.replace("NAME", name).replace("PARAMETERS", parameters).replace("OUTPUT", output)


def plus_one_domain(*fixed: Fixed, mutated: bool = False, scalars: tuple[Scalar, ...] = ()) -> Domain:
    """Vectors of float32."""
    tensor = TensorDomain("x", ("float32",), ("s0",), "contiguous", mutated)
    return Domain("cuda", (Variant((tensor,), scalars, fixed),))


def document(text: str, path: str = "user.py") -> Document:
    return Document(f"file:///{path}", path, text)


def example(name: str, qualname: str) -> Target:
    return find_target(document((EXAMPLES / f"{name}.py").read_text(), f"examples/{name}.py"), qualname)


def evidence(target: Target, domain: Domain, **changes: object) -> Evidence:
    """Evidence without a GPU."""
    values: dict[str, object] = {
        "id": "0123456789abcdef", "provider": "builtin", "model": "", "created": "2026-12-01", "hardware": HARDWARE,
        "source_hash": target.source_hash, "domain": domain, "cases": 212, "max_error": 1.2e-7,
        "architectures": ("sm_80", "sm_90"), "inputs": "comment: x: f32[8]",
    }  # fmt: skip
    return Evidence(**(values | changes))  # type: ignore[arg-type]
