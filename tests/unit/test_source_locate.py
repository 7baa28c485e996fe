"""Targets are found in any text that an editor may hold."""

# ruff: noqa: E501 (a sample is a whole file, and reads best on one line)
from __future__ import annotations

import pytest
from source_samples import document

from kernelwright.errors import TargetNotFound
from kernelwright.model import Parameter
from kernelwright.source.locate import find_target, find_targets, target_at


def names(text: str) -> list[str]:
    return [target.qualname for target in find_targets(document(text))]


T = "import torch\nimport torch.nn.functional as F\n"

USES = {
    "a name of torch's": ("import torch\ndef f(x): return torch.relu(x)", ["f"]),
    "an alias": ("import torch as th\ndef f(x): return th.relu(x)", ["f"]),
    "functional": ("from torch.nn import functional as F\ndef f(x): return F.relu(x)", ["f"]),
    "a submodule": ("import torch.nn\ndef f(x): return torch.nn.functional.relu(x)", ["f"]),
    "from torch": ("from torch import (\n    relu,\n    Tensor as TT,\n)\ndef f(x): return relu(x)", ["f"]),
    "an import inside": ("def f(x):\n    import torch\n    return torch.relu(x)", ["f"]),
    "an annotation": ("from torch import Tensor\ndef f(x: Tensor): return x * 2", ["f"]),
    "jaxtyping": ("import torch\nfrom jaxtyping import Float\ndef f(x: Float[T, 'a b']): return x * 2", ["f"]),
    "a text annotation": ("import torch\ndef f(x: 'torch.Tensor'): return x * 2", ["f"]),
    "tensor methods": ("import torch\ndef f(x): return x.float().softmax(-1)", ["f"]),
    "matrix product": ("import torch\ndef f(x, y): return x @ y", ["f"]),
    "star import": ("from torch import *\ndef f(x): return softmax(x, 0)", ["f"]),
    "no torch in the file": ("def f(x): return x.float() @ x", []),
    "plain helpers": (T + "def f(a, b): return sorted(a.split() + [b])", []),
    "numpy on the side": (T + "import numpy as np\ndef f(n): return np.sum(np.arange(n))", []),
    "only in a string": (T + "def f(a):\n    'uses torch'\n    return a + 1", []),
    "a parameter called torch's kind": (T + "def f(a): return a.name.upper()", []),
}


@pytest.mark.parametrize("text, expected", USES.values(), ids=USES)
def test_only_functions_that_use_torch(text: str, expected: list[str]) -> None:
    assert names(text) == expected


KINDS = {
    "async": (T + "async def f(x): return torch.relu(x)", ["f"]),
    "methods": (T + "class A:\n  def f(self, x): return torch.relu(x)\n  class B:\n    def g(self, x): return torch.relu(x)", ["A.f", "A.B.g"]),
    "nested": (T + "def f(x):\n  def g(y): return torch.relu(y)\n  return g(x)", ["f", "f.<locals>.g"]),
    "class in a function": (T + "def f():\n  class A:\n    def g(self, y): return torch.relu(y)\n  return A", ["f", "f.<locals>.A.g"]),
    "under if and try": (T + "if 1:\n  try:\n    def f(x): return torch.relu(x)\n  except E:\n    def g(x): return torch.relu(x)", ["f", "g"]),
    "forward of a module": (T + "class A(torch.nn.Module):\n  def forward(self, x): return self.a(x) * 2", ["A.forward"]),
    "not __init__": (T + "class A:\n  def __init__(self): self.w = torch.ones(3)\n  def __call__(self, x): return torch.relu(x)", ["A.__call__"]),
    "overloads": (T + "from typing import overload\n@overload\ndef f(x: torch.Tensor): ...\ndef f(x): return torch.relu(x)", ["f"]),
    "properties": (T + "class A:\n  @property\n  def p(self): return torch.ones(1)\n  @p.setter\n  def p(self, v): torch.ones(v)", []),
    "generators": (T + "def f(x):\n  yield torch.relu(x)\ndef g(x):\n  def inner(): yield 1\n  return torch.relu(x)", ["g"]),
    "lambdas": (T + "f = lambda x: torch.relu(x)", []),
    "Triton kernels": (T + "import triton\n@triton.autotune([], [])\n@triton.jit\ndef k(x): torch.x\n@torch.jit.script\ndef f(x): return torch.relu(x)", ["f"]),
    "jit from triton": (T + "from triton import jit\n@jit\ndef k(x): torch.x", []),
    "notebook cells": ("# %% [markdown]\n# text\n# %%\nimport torch\n%matplotlib inline\n!pip install x\ny = !ls\n# %%\ndef f(x): return torch.relu(x)\nf?", ["f"]),
}  # fmt: skip


@pytest.mark.parametrize("text, expected", KINDS.values(), ids=KINDS)
def test_kinds_of_functions(text: str, expected: list[str]) -> None:
    assert names(text) == expected


GOOD = "def {0}(x):\n    return torch.relu(x)\n"
BROKEN = {
    "an open bracket": T + GOOD.format("a") + "x = (1,\n" + GOOD.format("b"),
    "a half-written def": T + GOOD.format("a") + "def c(x\n" + GOOD.format("b"),
    "an operator too many": T + GOOD.format("a") + "def c(x):\n    return x + * 2\n" + GOOD.format("b"),
    "an open string": T + GOOD.format("a") + 'def c(x):\n    """half\n' + GOOD.format("b"),
    "a stray else": T + GOOD.format("a") + "else:\n    pass\n" + GOOD.format("b"),
    "odd indentation": T + GOOD.format("a") + "def c(x):\n    if x:\n  return 1\n" + GOOD.format("b"),
    "a null byte": T + GOOD.format("a") + "x = '\0'\n" + GOOD.format("b"),
    "at the very end": T + GOOD.format("a") + GOOD.format("b") + "def c(",
    "a conflict": T + GOOD.format("a") + "<<<<<<< ours\nx = 1\n=======\nx = 2\n>>>>>>> theirs\n" + GOOD.format("b"),
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_intact_functions_are_found_around_a_syntax_error(text: str, end: str) -> None:
    found = find_targets(document(text.replace("\n", end)))
    assert [target.qualname for target in found] == ["a", "b"]
    assert [target.source.replace(end, "\n") for target in found] == [GOOD.format(name).rstrip() for name in "ab"]


def test_a_broken_method_hides_none_of_its_class() -> None:
    text = T + (
        "class A(torch.nn.Module):\n    def a(self, x): return torch.relu(x)\n\n    def bad(self, x:\n        return (\n\n"
        "    def b(self, x):\n        def c(y): return torch.relu(y)\n        return c(x)\n"
    )
    assert names(text) == ["A.a", "A.b", "A.b.<locals>.c"]


def test_text_at_the_margin_of_a_string_is_no_code() -> None:
    text = T + 'def a(x):\n    """doc\ndef no(x): torch\n"""\n    return torch.relu(x)\ndef bad(:\n' + GOOD.format("b")
    assert names(text) == ["a", "b"]


POSITIONS = {
    "plain": ("", "\n"),
    "CRLF": ("", "\r\n"),
    "an emoji before": ("x = '🎉🎉'; ", "\n"),
    "a form feed": ("\f\n", "\n"),
    "a byte order mark": ("\ufeff# coding: utf-8\n", "\n"),
}


@pytest.mark.parametrize("before, end", POSITIONS.values(), ids=POSITIONS)
def test_positions_and_source(before: str, end: str) -> None:
    body = "@torch.no_grad()\n# why\n@F.deco(\n  1)\nasync def f(self, /, x, y=1.5e-3, *a, k: 'str' = None, **kw):\n\treturn torch.relu('🎉', x)  # end"
    text = f"{before}y = 1\n{T}class A:\n" + "".join(f"\t{line}\n" for line in body.split("\n")).rstrip("\n")
    (target,) = find_targets(document(text.replace("\n", end)))
    lines = text.split("\n")
    first = lines.index("\t@torch.no_grad()")
    assert target.source == "\n".join(lines[first:]).replace("\n", end)
    assert (target.span.start_line, target.span.start_column) == (first, 1)
    assert (target.span.end_line, target.span.end_column) == (len(lines) - 1, len("\t\treturn torch.relu('🎉', x)"))
    assert lines[target.def_line].lstrip().startswith("async def f")
    assert (target.qualname, target.kind, target.is_async, target.nested) == ("A.f", "method", True, False)
    assert target.decorators == ("torch.no_grad()", "F.deco(\n\t  1)".replace("\n", end))
    assert target.parameters == (
        Parameter("self", "positional_only"),
        Parameter("x"),
        Parameter("y", default="1.5e-3"),
        Parameter("a", "var_positional"),
        Parameter("k", "keyword_only", "None", "'str'"),
        Parameter("kw", "var_keyword"),
    )


def test_the_source_hash_is_blind_to_layout_and_to_our_decorator() -> None:
    plain = find_target(document(T + GOOD.format("f")), "f")
    others = [
        T.replace("\n", "\r\n") + GOOD.format("f").replace("\n", "\r\n"),
        T + "@_kernelwright_f\n" + GOOD.format("f").rstrip("\n"),
        T + "if 1:\n" + "".join(f"    {line}\n" for line in GOOD.format("f").splitlines()),
    ]
    assert {find_target(document(text), "f").source_hash for text in others} == {plain.source_hash}
    assert find_target(document(T + GOOD.format("f").replace("relu", "tanh")), "f").source_hash != plain.source_hash


NESTED = (
    T
    + "class A:\n  def f(self, x):\n    def g(y): return y\n    return torch.relu(x)\n  @property\n  def p(self): return 1\ndef plain(a): return a\ndef plain(b): return b\n"
)


def test_find_target_by_name() -> None:
    doc = document(NESTED)
    assert find_target(doc, "A.f").qualname == "A.f"
    assert find_target(doc, "A.f.g").qualname == find_target(doc, "A.f.<locals>.g").qualname == "A.f.<locals>.g"
    assert find_target(doc, "plain").parameters == (Parameter("b"),), "the later definition counts, as in Python"


@pytest.mark.parametrize(
    "name, message",
    [("f", "did you mean A.f?"), ("A.ff", "did you mean A.f?"), ("A.p", "it is a property"), ("zzz", "there is no function zzz")],
)  # fmt: skip
def test_what_is_not_found_is_said(name: str, message: str) -> None:
    with pytest.raises(TargetNotFound, match=message.replace("?", r"\?")):
        find_target(document(NESTED), name)


def test_target_at_gives_the_innermost() -> None:
    doc = document(T + "def f(x):\n  def g(y):\n    return torch.relu(y)\n  return g(x)\n\nz = 1\n")
    found = [target_at(doc, line) for line in range(8)]
    assert [target and target.qualname for target in found] == [
        None,
        None,
        "f",
        "f.<locals>.g",
        "f.<locals>.g",
        "f",
        None,
        None,
    ]
