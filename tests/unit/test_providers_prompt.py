"""The prompt: whole ones against goldens, and what goes into one."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from samples import CALL, GRAPH, TASK

from kernelwright.model import (
    Argument,
    Call,
    Candidate,
    Case,
    Counterexample,
    Document,
    Finding,
    Fixed,
    Node,
    Refusal,
    Refuted,
    TensorSpec,
)
from kernelwright.providers.context import find_context
from kernelwright.providers.prompt import MAX_CHARACTERS, Prompt, render
from kernelwright.source.locate import find_target

GOLDEN = Path(__file__).parents[1] / "golden" / "prompts"
DOCUMENT = '''"""A file that is being edited."""
import os
import torch
import torch.nn.functional as F
from torch import nn

FACTOR: float = 3.0
LEFT, RIGHT = 1, 2
_kernelwright_scale = lambda f: f


def deeper(x):
    return x * FACTOR


@torch.jit.script
def helper(x):
    return deeper(x) + LEFT


def unused(x):
    return os.getcwd()


@_kernelwright_scale
def scale(x, factor=2.0):
    """Doubles: ```scale(x)```."""
    return F.silu(helper(x)) * factor


def recursive(x):
    return recursive(x) + 1


class Norm(nn.Module):
    """A norm."""

    WIDTH = 2

    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def _norm(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)

    def forward(self, x, *, residual=None):
        return helper(self._norm(x)) * self.weight * self.WIDTH

    def other(self):
        return unused(1)


def outer(c):
    k = c + 1

    def inner(y, /, *args, flag=True, **rest):
        return torch.relu(y) * k

    return inner


def unfinished(:
'''
SHOWN = Counterexample(
    Case(0, seed=7731, values="outlier"),
    (
        Argument("x", TensorSpec("float32", (1, 3), (1, 2), 5)),
        Argument("factor", value=2.0),
    ),
    "output",
    (0, 2),
    "nan",
    "0.5",
)
LAST = Refuted(
    Candidate("import torch\n\n\ndef scale(x, factor=2.0):\n    return torch.empty_like(x)\n", "x"),
    Finding("K301", "the output is not written", 5),
    SHOWN,
)


def target(qualname, text=DOCUMENT):
    return find_target(Document("file:///a.py", "/a.py", text), qualname)


def text_of(prompt: Prompt) -> str:
    return f"{prompt.system}\n======\n\n{prompt.user}"


@pytest.mark.parametrize(
    ("name", "task", "tried"),
    [
        ("first", replace(TASK, target=target("scale")), ()),
        ("repair", replace(TASK, target=target("scale"), instruction="Use two warps."), (LAST,)),
        ("method", replace(TASK, target=target("Norm.forward")), ()),
    ],
)
def test_whole_prompts(name, task, tried):
    """UPDATE_GOLDENS=1 writes them anew; read the difference."""
    path, prompt = GOLDEN / f"{name}.md", render(task, tried)
    if os.environ.get("UPDATE_GOLDENS"):
        path.write_text(text_of(prompt), encoding="utf-8")
    assert text_of(prompt) == path.read_text(encoding="utf-8")
    assert prompt.left_out == ()


@pytest.mark.parametrize("tried", [(), (LAST,)])
def test_nothing_of_how_a_kernel_is_judged(tried):
    text = text_of(render(TASK, tried)).lower()
    words = (
        "toleran",
        "seed",
        "7731",
        "outlier",
        "sanitiz",
        "verif",
        "float64",
        "interpreter",
        "held",
        "judge",
        "test",
    )
    assert [word for word in words if word in text] == []


@pytest.mark.parametrize(
    ("qualname", "names"),
    [
        ("scale", ["F", "deeper", "helper", "torch", "LEFT", "FACTOR"]),
        ("recursive", []),
        (
            "Norm.forward",
            ["FACTOR", "LEFT", "deeper", "helper", "nn", "self.WIDTH", "self.__init__", "self._norm", "torch"],
        ),
        ("outer.<locals>.inner", ["torch", "k"]),
    ],
)
def test_what_a_function_uses_comes_along(qualname, names):
    assert sorted(piece.name for piece in find_context(target(qualname)).pieces) == sorted(names)


def test_line_ends_do_not_matter():
    windows = find_context(target("scale", DOCUMENT.replace("\n", "\r\n")))
    assert windows.text() == find_context(target("scale")).text()


def test_calls_say_what_is_odd_about_them():
    arguments = (
        Argument("x", TensorSpec("bfloat16", (4, 8), (1, 4), 3, requires_grad=True)),
        Argument("y", TensorSpec("float32", (4, 8), (8, 1))),
        Argument("dtype", value={"repr": "torch.float16"}),
        Argument("mode", value="mean"),
        Argument("mask", value=None),
    )
    call = Call(0, arguments, note="decode", raises="ValueError")
    user = render(replace(TASK, inputs=replace(TASK.inputs, calls=(call,))), ()).user
    expected = (
        "- x: bfloat16[4, 8] strides [1, 4] storage offset 3 requires grad, y: float32[4, 8], dtype=torch.float16, "
        "mode='mean', mask=None (decode) (must raise ValueError)\n"
    )
    assert expected in user


def test_the_graph_in_words():
    nodes = (
        Node(
            "a",
            "aten.sum.dim_IntList",
            ({"node": "x"}, [-1], True),
            {"dtype": {"dtype": "float32"}},
            ("s0", 1),
            "float32",
        ),
        Node("b", "aten.clamp.default", ({"node": "a"}, {"float": "-inf"}, None), {}, ("s0", 1), "float32"),
        Node("c", "aten.max.dim", ({"node": "x"}, 0), {}),
    )
    output = {"dict": {"y": {"tuple": [{"node": "b"}, {"placeholder": "x"}]}, "n": {"value": "none"}}}
    graph = replace(GRAPH, nodes=nodes, output=output, fixed=(Fixed("keep", True),), guards=("s0 == s1",))
    user = render(replace(TASK, graphs=(graph, replace(graph, refusal=Refusal("it prints")))), ()).user
    for line in (
        "calls 0 (pointwise, where keep is True and s0 == s1):\n  x: float32[s0, s1]\n  factor: float\n",
        "  a = aten.sum.dim_IntList(x, [-1], True, dtype=float32) -> float32[s0, 1]\n",
        "  b = aten.clamp.default(a, -inf, None) -> float32[s0, 1]\n  c = aten.max.dim(x, 0)\n",
        "  return {'y': (b, x), 'n': 'none'}\n",
        "where keep is True and s0 == s1); untraced: it prints:\n",
    ):
        assert line in user


LONG = "\n    ".join(["x = x + 1"] * 6000)
LONG_FILE = (
    f"def far(x):\n    {LONG}\n\n\ndef near(x):\n    return far(x)\n\n\ndef scale(x):\n    return near(x).abs()\n"
)


@pytest.mark.parametrize(
    ("task", "left_out"),
    [
        (
            replace(TASK, graphs=(replace(GRAPH, nodes=GRAPH.nodes * 3000),)),
            ("the operations of the traced graph",),
        ),
        (
            replace(TASK, target=target("scale", LONG_FILE)),
            ("the operations of the traced graph", "the text of far"),
        ),
        (replace(TASK, inputs=replace(TASK.inputs, calls=(CALL,) * 11)), ("3 of 11 calls",)),
    ],
)
def test_what_does_not_fit_is_left_out_and_said(task, left_out):
    prompt = render(task, ())
    assert prompt.left_out == left_out
    assert f"Left out for its size: {'; '.join(left_out)}." in prompt.user
    assert len(prompt.user) < MAX_CHARACTERS


def test_a_function_is_never_cut():
    source = f"def scale(x):\n    {LONG}\n    return torch.abs(x)\n"
    task = replace(TASK, target=target("scale", f"import torch\n{source}"))
    assert source.rstrip() in render(task, ()).user


def test_text_that_cannot_be_sent_is_replaced():
    task = replace(TASK, instruction="caf\udce9")
    assert "The user asks: caf?" in render(task, ()).user
