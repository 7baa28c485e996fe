# ruff: noqa: E501 (a row of a table reads best on one line)
"""Input descriptions: literals, comments, annotations, and what is suggested."""

from __future__ import annotations

from pathlib import Path

import pytest
from source_samples import document

from kernelwright.errors import BadInputs
from kernelwright.model import Inputs, Json
from kernelwright.source.inputs import find_inputs, inputs_from_spec, parse_literal, suggest, to_wire
from kernelwright.source.locate import find_target, find_targets

CASES = Path(__file__).parents[1] / "cases" / "open"


def tensor(name: str, dtype: str, *shape: int) -> dict[str, Json]:
    return {"name": name, "tensor": {"dtype": dtype, "shape": list(shape)}}


def value(name: str, given: Json) -> dict[str, Json]:
    return {"name": name, "value": given}


LITERALS = {
    'x: bf16[8192, 4096], weight: bf16[4096], eps=1e-6, mode="tanh", bias=None': [
        tensor("x", "bfloat16", 8192, 4096), tensor("weight", "bfloat16", 4096), value("eps", 1e-6), value("mode", "tanh"), value("bias", None),
    ],
    "x:f32[],y :  float64 [ 1_000 ,2 ]": [tensor("x", "float32"), tensor("y", "float64", 1000, 2)],
    "a: i64[1], b: int32[0], c: u8[1], d: bool[2], e: c64[3], f: f8e4m3[4], g: torch.half[5]": [
        tensor("a", "int64", 1), tensor("b", "int32", 0), tensor("c", "uint8", 1), tensor("d", "bool", 2),
        tensor("e", "complex64", 3), tensor("f", "float8_e4m3fn", 4), tensor("g", "float16", 5),
    ],
    "self.norm.weight: f32[4], x: f32[2, 4]": [tensor("self.norm.weight", "float32", 4), tensor("x", "float32", 2, 4)],
    "a=[1, 2.5], b=(3, 'x,y]'), c=-inf, d=float('nan'), e=True, f=-3": [
        value("a", [1, 2.5]), value("b", [3, "x,y]"]), value("c", {"float": "-inf"}), value("d", {"float": "nan"}), value("e", True), value("f", -3),
    ],
    "a=torch.bfloat16, b=float32, c='float32'": [
        value("a", {"repr": "torch.bfloat16"}), value("b", {"repr": "torch.float32"}), value("c", "float32"),
    ],
    "x: f32[2],": [tensor("x", "float32", 2)],
    "": [],
}  # fmt: skip


@pytest.mark.parametrize("text, wire", LITERALS.items(), ids=list(LITERALS))
def test_literals(text: str, wire: list[dict[str, Json]]) -> None:
    assert to_wire(parse_literal(text)) == wire


BAD = {
    "x: bf17[3]": "column 4: 'bf17' is no dtype: expected one of f64, f32",
    "x: f32[3": "column 9: a bracket is not closed",
    "x: f32[3]]": "column 10: there is a ']' with nothing to close",
    "x='a": "column 5: a quote is not closed",
    "x f32": "column 3: expected ':' or '=' after x",
    "3: f32[1]": "column 1: expected NAME: DTYPE",
    ",": "column 1: expected NAME",
    "x: f32[2],, y=1": "column 11: expected NAME",
    "x: f32": "column 4: expected DTYPE[SIZES]",
    "x: f32[a]": "column 8: 'a' is no size",
    "x: f32[2, -3]": "column 11: '-3' is no size",
    "x=foo": "column 3: foo is no value",
    "x={1: 2}": "column 3: {1: 2} is no value",
    "x=__import__('os')": "column 3: __import__('os') is no value",
    "x: f32[3], x=1": "column 12: x is given twice",
    "a.py": "names no function: write PATH.py:FUNCTION",
    "": "nothing is given",
}


@pytest.mark.parametrize("text, message", BAD.items(), ids=list(BAD))
def test_what_is_wrong_is_said_with_its_place(text: str, message: str) -> None:
    with pytest.raises(BadInputs) as caught:
        inputs_from_spec(text)
    assert message in str(caught.value)


@pytest.mark.parametrize("spec", ["inputs.py:make", "/a b/c.py:make_inputs", "C:\\a b\\c.py:f"])
def test_a_function_that_makes_them(spec: str) -> None:
    assert inputs_from_spec(f" {spec}\n") == Inputs("file", spec)


HEAD = "import torch\nfrom jaxtyping import Float\n"
FOUND = {
    "a comment": ("# inputs: x: bf16[8, 4], eps=1e-6\ndef f(x, eps): return torch.relu(x)", ("comment", "x: bf16[8, 4], eps=1e-6")),
    "over two lines": ("# inputs: x: bf16[8, 4],\n#   eps=1e-6\n# noqa\ndef f(x, eps): return torch.relu(x)", ("comment", "x: bf16[8, 4], eps=1e-6")),
    "without the word": ("# a function\n# x: f32[3], y: f32[3]\n@torch.no_grad()\ndef f(x, y): return torch.relu(x)", ("comment", "x: f32[3], y: f32[3]")),
    "a file": ("# inputs: gen.py:make\ndef f(x): return torch.relu(x)", ("file", "gen.py:make")),
    "not touching": ("# inputs: x: f32[3]\n\ndef f(x): return torch.relu(x)", None),
    "plain words": ("# inputs are tensors, see above\n# eps=1\ndef f(x): return torch.relu(x)", None),
    "annotations": (
        "def f(x: Float[torch.Tensor, 'batch dim'], w: \"BFloat16[Tensor, 'dim 2*dim']\", i: Int64[Tensor, '3 batch'], s: Bool[Tensor, ''], e: float, k=3):\n"
        "    return torch.relu(x)",
        ("annotated", "x: f32[4, 1024], w: bf16[1024, 2048], i: i64[3, 4], s: bool[], e=1.0"),
    ),
    "odd annotations": ("def f(x: Float[Tensor, '*b c=7 _ #d dim+1 ...']): return torch.relu(x)", ("annotated", "x: f32[4, 7, 4, 1024, 1025, 4]")),
    "an unannotated argument": ("def f(x: Float[Tensor, 'a'], y): return torch.relu(x)", None),
    "plain tensors": ("def f(x: torch.Tensor): return torch.relu(x)", None),
}  # fmt: skip


@pytest.mark.parametrize("text, expected", FOUND.values(), ids=FOUND)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_what_the_file_says(text: str, expected: tuple[str, str] | None, end: str) -> None:
    found = find_inputs(find_target(document((HEAD + text).replace("\n", end)), "f"))
    assert (found and (found.origin, found.spec)) == expected
    assert found is None or found.origin == "file" or parse_literal(found.spec)


def test_a_comment_that_does_not_parse_is_said() -> None:
    text = HEAD + "# inputs: x: bf16[8\ndef f(x): return torch.relu(x)"
    with pytest.raises(BadInputs, match=r"the comment in line 3: .* column 10: a bracket is not closed"):
        find_inputs(find_target(document(text), "f"))


def test_a_suggestion() -> None:
    text = (
        "import torch\nclass A:\n    def f(self, x, weight, token_ids, pad_mask, eps, lr: float, n: int, mode: str, flag: bool,\n"
        "          out_dtype, k, p=0.5, z=OTHER, b=None, *args, d=torch.float32, **kw): return torch.relu(x)"
    )
    assert suggest(find_target(document(text), "A.f")) == (
        "x: f32[512, 1024], weight: f32[1024], token_ids: i64[512], pad_mask: bool[512, 1024], eps=1e-6, lr=0.001, n=1, "
        'mode="", flag=False, out_dtype=torch.float32, k=8, p=0.5, d=torch.float32'
    )


def test_every_suggestion_parses() -> None:
    targets = [target for path in sorted(CASES.glob("*.py")) for target in find_targets(document(path.read_text()))]
    assert len(targets) > 24
    for target in targets:
        names = {item.name for item in parse_literal(suggest(target))}
        needed = {item.name for item in target.parameters if item.default is None and not item.kind.startswith("var_")}
        assert needed - {"self"} <= names
