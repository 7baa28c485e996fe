# ruff: noqa: E501 (a row of a table reads best on one line)
"""The guard lets through what was checked, and gives one reason for everything else."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from source_samples import document

from kernelwright.model import Domain, Fixed, Scalar, Target, TensorDomain, Variant
from kernelwright.source.describe import describe_domain
from kernelwright.source.guard import render_guard
from kernelwright.source.locate import find_target

FLOATS = ("float32", "bfloat16")


class JITFunction:
    """Stands for Triton's: what a kernel is where no interpreter is on."""


def target(parameters: str = "x, y=None", head: str = "def f") -> Target:
    text = f"import torch\n{head}({parameters}): return x"
    return find_target(document(text), "f")


def module(domain: Domain, where: Target, *, interpreted: bool = True, **options: Any) -> dict[str, Any]:
    """The guard as a module's names; the kernel looks interpreted, so that CPU tensors pass."""
    kernel = object() if interpreted else JITFunction()
    names = {
        "torch": torch,
        "math": __import__("math"),
        "triton": SimpleNamespace(JITFunction=JITFunction),
        "k": kernel,
    }
    exec(render_guard(where, domain, "k", **options), names)
    return names


def guard(*variants: Variant, parameters: str = "x, y=None", **options: Any) -> Callable[..., str | None]:
    found: Callable[..., str | None] = module(Domain("cuda", variants), target(parameters), **options)["_why_not"]
    return found


def t(path: str, *shape: int | str, **options: Any) -> TensorDomain:
    return TensorDomain(path, options.pop("dtypes", FLOATS), shape, **options)


MATRIX = Variant((t("x", "s0", "s1"),))
PAIR = Variant((t("x", "s0", "s1"), t("y", "s1")))
x, bf = torch.ones(3, 4), torch.ones(3, 4, dtype=torch.bfloat16)


class Sub(torch.Tensor):
    """A tensor of a class of its own."""


def module_of(**attributes: Any) -> Any:
    return SimpleNamespace(**attributes)


REASONS: dict[str, tuple[Variant, tuple[Any, ...], str | None]] = {
    "fits": (MATRIX, (x,), None),
    "a parameter": (MATRIX, (torch.nn.Parameter(x, requires_grad=False),), None),
    "a transposed one": (MATRIX, (x.t(),), None),
    "an expanded one": (MATRIX, (torch.ones(1, 4).expand(3, 4),), None),
    "no rows": (MATRIX, (torch.ones(0, 4),), None),
    "not a tensor": (MATRIX, (3.0,), "x is not a plain tensor"),
    "None": (MATRIX, (None,), "x is not a plain tensor"),
    "a subclass": (MATRIX, (x.as_subclass(Sub),), "x is not a plain tensor"),
    "sparse": (MATRIX, (x.to_sparse(),), "x is sparse, or negated or conjugated lazily"),
    "lazily negated": (MATRIX, (torch.ones(3, 4, dtype=torch.complex64).conj().imag,), "x is sparse, or negated or conjugated lazily"),
    "another device": (MATRIX, (x.to("meta"),), "x is not on a CUDA device"),
    "two devices": (PAIR, (x, torch.ones(4, device="meta")), "y is on another device than x"),
    "another dtype": (MATRIX, (x.double(),), "x is not float32 or bfloat16"),
    "integers": (MATRIX, (x.int(),), "x is not float32 or bfloat16"),
    "one dtype": (PAIR, (bf, torch.ones(4, dtype=torch.bfloat16)), None),
    "two dtypes": (PAIR, (bf, torch.ones(4)), "y has another dtype than x"),
    "its own dtype each": (Variant((t("x", "s0", dtypes=("bfloat16",)), t("y", "s0", dtypes=("float32",))), same_dtype=False), (bf[0], x[0]), None),
    "its own dtype each, swapped": (Variant((t("x", "s0", dtypes=("bfloat16",)), t("y", "s0", dtypes=("float32",))), same_dtype=False), (x[0], bf[0]), "x is not bfloat16"),
    "dtypes by position": (Variant((t("x", "s0"), t("y", "s0", dtypes=("float32", "float32"))), same_dtype=False), (bf[0], x[0]), None),
    "an index tensor": (Variant((t("x", "s0"), t("y", "s1", dtypes=("int64",)))), (x[0], torch.ones(2, dtype=torch.int64)), None),
    "rank": (MATRIX, (x[0],), "x is not 2-dimensional"),
    "a scalar tensor": (Variant((t("x"),)), (torch.tensor(1.0),), None),
    "sizes agree": (PAIR, (x, torch.ones(4)), None),
    "sizes differ": (PAIR, (x, torch.ones(5)), "y.shape[0] is not x.shape[1]"),
    "a fixed size": (Variant((t("x", "s0", 4),)), (x,), None),
    "another fixed size": (Variant((t("x", "s0", 5),)), (x,), "x.shape[1] is not 5"),
    "an expression before its symbol": (Variant((t("x", "2*s0"), t("y", "s0"))), (torch.ones(6), torch.ones(3)), None),
    "an expression that fails": (Variant((t("x", "2*s0"), t("y", "s0"))), (torch.ones(7), torch.ones(3)), "x.shape[0] is not 2*y.shape[0]"),
    "a guard": (Variant((t("x", "s0", "s1"),), guards=("s1 % 2 == 0",)), (x,), None),
    "a guard that fails": (Variant((t("x", "s0", "s1"),), guards=("s0 % 2 == 0",)), (x,), "the kernel was checked for x.shape[0] % 2 == 0 only"),
    "a guard that divides by zero": (Variant((t("x", "s0", "s1"),), guards=("s1 % s0 == 0",)), (torch.ones(0, 4),), "the kernel was checked for x.shape[1] % x.shape[0] == 0 only"),
    "a guard with floor": (Variant((t("x", "s0", "s1"),), guards=("floor(s1 / 3) == 1 and max(s0, 2) == 3",)), (x,), None),
    "a guard on what nobody knows": (Variant((t("x", "s0", "s1"),), guards=("u0 > 1",)), (x,), "the kernel was checked for u0 > 1 only, which cannot be told from a call"),
    "too small": (Variant((t("x", "s0", "s1"),), min_size={"s0": 4}), (x,), "x.shape[0] is less than 4: smaller than was checked"),
    "too large": (Variant((t("x", "s0", "s1"),), max_size={"s1": 3}), (x,), "x.shape[1] is more than 3: larger than was checked"),
    "contiguous": (Variant((t("x", "s0", "s1", layout="contiguous"),)), (x.t(),), "x is not contiguous"),
    "dense": (Variant((t("x", "s0", "s1", layout="dense"),)), (x.t(),), None),
    "not dense": (Variant((t("x", "s0", "s1", layout="dense"),)), (x[:, ::2],), "x has gaps or overlaps in memory"),
    "written": (Variant((t("x", "s0", "s1", mutated=True),)), (x[:, ::2].t(),), None),
    "written and overlapping": (Variant((t("x", "s0", "s1", mutated=True),)), (torch.ones(6).as_strided((3, 2), (1, 1)),), "x is written to, and its elements overlap in memory"),
    "written and expanded": (Variant((t("x", "s0", "s1", mutated=True),)), (torch.ones(1, 4).expand(3, 4),), "x is written to, and its elements overlap in memory"),
    "written and shared": (Variant((t("x", "s0", mutated=True), t("y", "s0"))), (x[0], x[1]), "x is written to, and shares memory with y"),
    "gradients": (MATRIX, (torch.ones(3, 4, requires_grad=True),), "gradients are needed, and the kernel has no backward"),
    "an absent argument": (Variant((t("x", "s0", "s1"),), fixed=(Fixed("y", None),)), (x,), None),
    "an argument that is not absent": (Variant((t("x", "s0", "s1"),), fixed=(Fixed("y", None),)), (x, x), "y is not None"),
    "a flag": (Variant((t("x", "s0", "s1"),), fixed=(Fixed("y", True),)), (x, 1), "y is not True"),
    "a number": (Variant((t("x", "s0", "s1"),), fixed=(Fixed("y", 1),)), (x, True), "y is not 1"),
    "the number": (Variant((t("x", "s0", "s1"),), fixed=(Fixed("y", 1),)), (x, 1), None),
    "a word": (Variant((t("x", "s0", "s1"),), fixed=(Fixed("y", 'a"b'),)), (x, "c"), "y is not 'a\"b'"),
    "a dtype": (Variant((t("x", "s0", "s1"),), fixed=(Fixed("y", {"repr": "torch.int8"}),)), (x, torch.int8), None),
    "another dtype argument": (Variant((t("x", "s0", "s1"),), fixed=(Fixed("y", {"repr": "torch.int8"}),)), (x, torch.int16), "y is not torch.int8"),
    "the tensors' device": (Variant((t("x", "s0", "s1"),), fixed=(Fixed("y", {"repr": "device(type='cpu')"}),)), (x, torch.device("cpu")), None),
    "infinity": (Variant((t("x", "s0", "s1"),), fixed=(Fixed("y", {"repr": "inf"}),)), (x, float("inf")), None),
    "a list": (Variant((t("x", "s0", "s1"),), fixed=(Fixed("y", [1, 2]),)), (x, (1, 2)), None),
    "another list": (Variant((t("x", "s0", "s1"),), fixed=(Fixed("y", [1, 2]),)), (x, (1, 3)), "y is not [1, 2]"),
    "a float": (Variant((t("x", "s0"),), (Scalar("y", "y", "float", 1.0),)), (x[0], 2.5), None),
    "an int for a float": (Variant((t("x", "s0"),), (Scalar("y", "y", "float", 1.0),)), (x[0], 2), None),
    "an int for a float among integers": (Variant((t("x", "s0", dtypes=("int64",)),), (Scalar("y", "y", "float", 1.0),)), (torch.ones(2, dtype=torch.int64), 2), "y is not a plain Python float"),
    "a flag for a float": (Variant((t("x", "s0"),), (Scalar("y", "y", "float", 1.0),)), (x[0], True), "y is not a plain Python float"),
    "a tensor for a float": (Variant((t("x", "s0"),), (Scalar("y", "y", "float", 1.0),)), (x[0], x[0]), "y is not a plain Python float"),
    "a guard over a scalar": (Variant((t("x", "s0"),), (Scalar("alpha", "y", "float", 1.0),), guards=("alpha >= 0",)), (x[0], -1.0), "the kernel was checked for alpha >= 0 only"),
    "attributes": (Variant((t("y.proj.weight", "s0"), t("x", "s0"))), (x[0], module_of(proj=module_of(weight=x[1]))), None),
    "a missing attribute": (Variant((t("y.proj.weight", "s0"), t("x", "s0"))), (x[0], module_of(proj=None)), "y lacks what it had when the kernel was checked"),
    "an element": (Variant((t("y[1]", "s0"), t("x", "s0"))), (x[0], [None, x[1]]), None),
    "a missing element": (Variant((t("y[1]", "s0"), t("x", "s0"))), (x[0], [x[1]]), "y lacks what it had when the kernel was checked"),
    "a path to nowhere": (Variant((t("z", "s0"),)), (x[0],), "z is not an argument of the call"),
}  # fmt: skip


@pytest.mark.parametrize("variant, arguments, reason", REASONS.values(), ids=REASONS)
def test_reasons(variant: Variant, arguments: tuple[Any, ...], reason: str | None) -> None:
    names = module(Domain("cuda", (variant,)), target())
    assert names["_why_not"](*arguments) == reason
    assert names["supports"](*arguments) is (reason is None)


def test_what_holds_around_the_call() -> None:
    check = guard(MATRIX)
    wants = torch.ones(3, 4, requires_grad=True)
    with torch.no_grad():
        assert check(wants) is None
    with torch.autocast("cpu"):
        assert check(x) == "autocast is on"
    torch.set_default_dtype(torch.float64)
    try:
        assert check(x) == "the default dtype is not float32"
    finally:
        torch.set_default_dtype(torch.float32)
    inside: list[str | None] = []
    torch.func.vmap(lambda row: (inside.append(check(row)), row)[1])(torch.ones(2, 3, 4))
    with torch.autograd.forward_ad.dual_level():
        inside.append(check(torch.autograd.forward_ad.make_dual(x, x)))
    assert inside == ["the call is inside a torch.func transform or forward-mode differentiation"] * 2


def test_a_compiled_kernel_wants_cuda() -> None:
    assert guard(MATRIX, interpreted=False)(x) == "x is not on a CUDA device"


def test_gradients_pass_where_a_backward_was_checked() -> None:
    names = module(Domain("cuda", (MATRIX,), gradients=True), target())
    assert names["_why_not"](torch.ones(3, 4, requires_grad=True)) is None


def test_the_first_variant_that_fits() -> None:
    absent = Variant((t("x", "s0", "s1"),), fixed=(Fixed("y", None),))
    check = guard(absent, PAIR)
    assert check(x) is None
    assert check(x, torch.ones(4)) is None
    assert check(x, torch.ones(5)) == "y is not None / y.shape[0] is not x.shape[1]"
    assert check(x[0]) == "x is not 2-dimensional" + " / y is not a plain tensor"


def test_the_candidates_own_condition_counts() -> None:
    text = render_guard(target(), Domain("cuda", (MATRIX,)), "k", extra="own")
    names = {"torch": torch, "triton": SimpleNamespace(JITFunction=JITFunction), "k": 0, "own": lambda x, y: y == 1}
    exec(text, names)
    assert names["_why_not"](x, 1) is None  # type: ignore[operator]
    assert names["_why_not"](x, 2) == "f's kernel declines this call itself"  # type: ignore[operator]


def test_nothing_was_checked() -> None:
    assert guard()(x) == "no kind of call was checked"


SIGNATURES = {
    "keyword only": ("x, *, y=None", (x,), {"y": None}),
    "positional only": ("x, /, y=None", (x,), {}),
    "variadic": ("x, *rest, y=None, **more", (x, 1, 2), {"y": None, "z": 3}),
    "names of ours": ("x, device=None, s0=1, torch_=2, reasons=3", (x,), {}),
    "a default of the module's own": ("x, y=OWN", (x, None), {}),
}


@pytest.mark.parametrize("parameters, args, kwargs", SIGNATURES.values(), ids=SIGNATURES)
def test_signatures(parameters: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    names = module(Domain("cuda", (MATRIX, MATRIX)), target(parameters))
    assert names["supports"](*args, **kwargs) is True


def test_a_default_that_means_nothing_here_fits_nothing() -> None:
    check = guard(Variant((t("x", "s0", "s1"),), fixed=(Fixed("y", 1),)), parameters="x, y=OWN")
    assert check(x, 1) is None
    assert check(x) == "y is not 1"


def test_the_bound_object_may_have_any_name() -> None:
    where = find_target(document("import torch\nclass A:\n    def f(me, x): return torch.relu(x)"), "A.f")
    names = module(Domain("cuda", (Variant((t("x", "s0"), t("self.w", "s0"))),)), where)
    assert names["_why_not"](module_of(w=x[0]), x[1]) is None


DOMAINS = {
    "one dtype list": (
        Domain("cuda", (PAIR,)),
        "float32/bfloat16, x [s0, s1], y [s1], any strides, CUDA, no gradients",
    ),
    "much of everything": (
        Domain(
            "cuda",
            (
                Variant(
                    (t("x", "s0", 4, layout="contiguous", mutated=True), t("i", "s0", dtypes=("int64",))),
                    (Scalar("eps", "eps", "float", 1.0),), (Fixed("mode", "tanh"), Fixed("d", {"repr": "device(type='cpu')"})), ("s0 % 2 == 0",), {"s0": 2}, {"s0": 9},
                ),
            ),
            gradients=True,
        ),
        "float32/bfloat16, x [s0, 4] (written to), int64 i [s0], x contiguous, mode='tanh', any eps, s0 ≥ 2, s0 ≤ 9, s0 % 2 == 0, CUDA",
    ),
    "variants": (
        Domain("cuda", (Variant((t("x", "s0", layout="contiguous"),), fixed=(Fixed("y", None),)), Variant((t("x", "s0", layout="contiguous"),), fixed=(Fixed("y", 1),)))),
        "float32/bfloat16, x [s0], contiguous, y=None or float32/bfloat16, x [s0], contiguous, y=1, CUDA, no gradients",
    ),
    "nothing": (Domain("cuda", ()), "nothing, CUDA, no gradients"),
}  # fmt: skip


@pytest.mark.parametrize("domain, words", DOMAINS.values(), ids=DOMAINS)
def test_a_domain_in_words(domain: Domain, words: str) -> None:
    assert describe_domain(domain) == words
