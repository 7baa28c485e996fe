"""What a trace says: sizes as symbols, scalars as expressions, branches as guards, casts as eager makes them, refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from reference_samples import graphs, quiet, tensor, traced

from kernelwright.worker.classify import words
from kernelwright.worker.reference import Reference

X = tensor("x", "bfloat16", 6, 8)


def ops(graph: Any) -> list[str]:
    return [node["op"].removeprefix("aten.") for node in graph["nodes"]]


def one(folder: Path, body: str, *literal: Any, parameters: str = "x") -> Any:
    """The only graph of a function with that body."""
    text = f"import torch\nimport torch.nn.functional as F\ndef f({parameters}):\n    {body}\n"
    (graph,) = traced(folder, text, "f", list(literal) or [X])
    return graph


def test_a_norm_is_traced_with_its_sizes_scalar_casts_and_lines(tmp_path: Path) -> None:
    text = """
    import torch
    def rms_norm(x, weight, eps=1e-6):
        variance = x.float().pow(2).mean(-1, keepdim=True)
        return weight * (x.float() * torch.rsqrt(variance + eps)).to(x.dtype)
    """
    (graph,) = traced(tmp_path, text, "rms_norm", [tensor("x", "bfloat16", 6, 8), tensor("weight", "bfloat16", 8)])
    assert [(item["path"], item["shape"]) for item in graph["placeholders"]] == [
        ("x", ["s0", "s1"]),
        ("weight", ["s1"]),
    ]
    assert graph["symbols"] == {"s0": 6, "s1": 8}
    assert graph["scalars"] == [{"name": "eps", "path": "eps", "type": "float", "example": 1e-6}]
    assert (graph["guards"], graph["fixed"], graph["kind"]) == ([], [], "row reduction")
    assert [(node["op"], node["dtype"], node["line"]) for node in graph["nodes"]][-3:] == [
        ("aten.mul.Tensor", "float32", 5),
        ("aten._to_copy.default", "bfloat16", 5),
        ("aten.mul.Tensor", "bfloat16", 5),
    ]
    assert {"expr": "eps"} in next(node["args"] for node in graph["nodes"] if node["op"] == "aten.add.Tensor")
    assert graph["bytes_moved"] == 2 * (6 * 8 * 2 + 8)


PRIMITIVE = {
    "softmax": "return torch.softmax(x, -1)",
    "log_softmax": "return F.log_softmax(x, dim=-1)",
    "layer_norm": "return F.layer_norm(x, x.shape[-1:])",
    "rms_norm": "return F.rms_norm(x, x.shape[-1:])",
    "group_norm": "return F.group_norm(x, 2)",
    "gelu": "return F.gelu(x) + F.gelu(x, approximate='tanh')",
    "activations": "return F.silu(x) + F.mish(x) + F.softplus(x) + F.elu(x) + F.leaky_relu(x) + F.hardswish(x) + F.relu6(x)",
    "variance": "return torch.var_mean(x, -1)[0] + x.std(-1) + x.var(-1, unbiased=False)",
    "logsumexp": "return torch.logsumexp(x, -1)",
    "addcmul": "return torch.addcmul(x, x, x, value=0.5) + torch.addcdiv(x, x, x) + torch.lerp(x, x, 0.3)",
    "losses": "return F.mse_loss(x, x) + F.smooth_l1_loss(x, x) + F.binary_cross_entropy_with_logits(x, x)",
    "cross_entropy": "return F.cross_entropy(x, x.argmax(-1))",
    "aminmax": "return sum(torch.aminmax(x, dim=1))",
    "norm": "return torch.norm(x, dim=-1) + torch.linalg.vector_norm(x, dim=-1)",
}
ALLOWED = words(
    "_to_copy abs add amax amin argmax bitwise_and bitwise_not bitwise_or cat clamp clone div eq erf exp "
    "expand expm1 full gather ge getitem gt index isinf le log log1p logical_and logical_not logical_or lt "
    "maximum mean minimum mul ne neg pow reciprocal relu rsqrt scalar_tensor select sigmoid sign slice sqrt "
    "squeeze sub sum tanh unsqueeze view where permute any empty fill"
)


@pytest.mark.parametrize("name", PRIMITIVE)
def test_composite_functions_become_primitive_ops(tmp_path: Path, name: str) -> None:
    graph = one(tmp_path, PRIMITIVE[name])
    assert graph["refusal"] is None
    assert {op.split(".")[0] for op in ops(graph)} - ALLOWED == set()


@pytest.mark.parametrize("name", ["softmax", "layer_norm", "rms_norm"])
def test_half_precision_is_computed_in_float32_and_rounded_once(tmp_path: Path, name: str) -> None:
    graph = one(tmp_path, PRIMITIVE[name])
    dtypes = [node["dtype"] for node in graph["nodes"]]
    assert dtypes == ["float32"] * (len(dtypes) - 1) + ["bfloat16"]


def test_scalars_become_expressions_and_branches_guards(tmp_path: Path) -> None:
    body = "return x * (1.0 - lr * wd) if alpha >= 0 else x * alpha"
    graph = one(tmp_path, body, X, parameters="x, lr=0.1, wd=0.01, alpha=-1.0")
    assert [node["args"][1] for node in graph["nodes"]] == [{"expr": "alpha"}]
    assert graph["guards"] == ["alpha < 0"]
    other = one(tmp_path, body, X, {"name": "alpha", "value": 2.0}, parameters="x, lr=0.1, wd=0.01, alpha=-1.0")
    assert [node["args"][1] for node in other["nodes"]] == [{"expr": "1.0 - lr * wd"}]
    assert other["guards"] == ["alpha >= 0"]


def test_a_scalar_that_cannot_be_followed_is_fixed(tmp_path: Path) -> None:
    graph = one(tmp_path, "return x * __import__('math').exp(t)", X, parameters="x, t=0.25")
    assert graph["scalars"] == []
    assert graph["fixed"] == [{"path": "t", "value": 0.25}]


def test_equal_sizes_are_one_symbol_and_divisible_ones_a_guard(tmp_path: Path) -> None:
    graph = one(tmp_path, "return x + sum(c.chunk(2, -1))", X, tensor("c", "bfloat16", 6, 16), parameters="x, c")
    assert [item["shape"] for item in graph["placeholders"]] == [["s0", "s1"], ["s0", "2 * s1"]]
    assert graph["guards"] == []
    assert one(tmp_path, "return F.group_norm(x, 2)")["guards"] == ["s1 % 2 == 0"]


def test_a_question_about_a_size_is_a_guard(tmp_path: Path) -> None:
    assert one(tmp_path, "return x * 2 if x.shape[0] != 5 else x")["guards"] == ["s0 != 5"]
    assert one(tmp_path, "return x * 2 if x.shape[0] < 100 else x")["guards"] == ["s0 < 100"]


def test_writes_to_arguments_are_named(tmp_path: Path) -> None:
    graph = one(tmp_path, "x.data.mul_(0.5); x[:, 1:].add_(1)", X)
    (placeholder,) = graph["placeholders"]
    assert placeholder["mutated_by"] in {node["name"] for node in graph["nodes"]}
    assert graph["output"] == {"value": None}


def test_outputs_keep_their_structure(tmp_path: Path) -> None:
    graph = one(tmp_path, "y = x + 1; return {'a': [y, x], 'b': (None, 3, x.clone())}")
    node, copy = graph["nodes"]
    assert graph["output"] == {
        "dict": {
            "a": {"list": [{"node": node["name"]}, {"placeholder": "x"}]},
            "b": {"tuple": [{"value": None}, {"value": 3}, {"node": copy["name"]}]},
        }
    }
    assert copy["op"] == "aten.clone.default"


def test_what_needs_a_contiguous_argument_says_so(tmp_path: Path) -> None:
    def needs(body: str) -> bool:
        return bool(one(tmp_path, body)["placeholders"][0]["needs_contiguous"])

    assert needs("return x.view(-1) * 2")
    assert needs("return x.unsqueeze(0).view(-1) * 2")
    assert not needs("return x.reshape(-1) * 2")
    assert not needs("return x.contiguous().view(-1) * 2")


MODULE = """
import torch
class Scale(torch.nn.Module):
    def __init__(self, n, bias):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(n))
        self.bias = torch.nn.Parameter(torch.randn(n)) if bias else None
        self.tau, self.mode, self.unused = 0.5, "mean", 3
    def forward(self, x):
        y = x * self.weight / self.tau
        if self.bias is not None:
            y = y + self.bias
        return y.mean(-1) if self.mode == "mean" else y
def make_inputs(device, dtype, seed):
    x = torch.randn(4, 6).to(dtype)
    return [dict(self=Scale(6, bias).to(dtype), args=(x[:n],)) for bias, n in ((True, 4), (True, 3), (False, 4))]
"""


def test_a_module_gives_paths_scalars_and_one_graph_a_variant(tmp_path: Path) -> None:
    with_bias, without = traced(tmp_path, MODULE, "Scale.forward")
    assert (with_bias["calls"], without["calls"]) == ([0, 1], [2])
    assert [item["path"] for item in with_bias["placeholders"]] == ["x", "self.weight", "self.bias"]
    assert [item["path"] for item in with_bias["scalars"]] == ["self.tau"]
    assert with_bias["fixed"] == [{"path": "self.mode", "value": "mean"}]
    assert without["fixed"] == [{"path": "self.bias", "value": None}, {"path": "self.mode", "value": "mean"}]


REFUSALS = {
    "item": ("return x * x.sum().item()", "reads the value of a tensor"),
    "branch": ("return x if x.sum() > 0 else -x", "reads the value of a tensor"),
    "mask": ("return x[x > 0]", "size of a result depends"),
    "nonzero": ("return x.nonzero()", "size of a result depends"),
    "random": ("return x + torch.randn_like(x)", "random"),
    "global tensor": ("return x * GAIN", "GAIN"),
    "global counter": ("global COUNT; COUNT += 1; return x * 2", "COUNT"),
    "numpy": ("return torch.from_numpy(x.float().numpy())", ""),
    "another type": ("return object()", "returns a object"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_cannot_be_a_kernel_is_refused_with_the_reason_and_line(tmp_path: Path, name: str) -> None:
    body, reason = REFUSALS[name]
    text = f"import torch\nGAIN = torch.ones(8)\nCOUNT = 0\ndef f(x):\n    {body}\n"
    (graph,) = traced(tmp_path, text, "f", [X])
    assert reason in graph["refusal"]["reason"]
    if name in ("item", "branch", "mask", "nonzero", "random", "global tensor"):
        assert graph["refusal"]["line"] == 5
        assert graph["refusal"]["op"]


CASES = Path(__file__).parents[1] / "cases" / "open"


@pytest.mark.parametrize("path", sorted(CASES.glob("*.py")), ids=lambda path: path.stem)
def test_every_real_function_gives_graphs_or_reasons(path: Path) -> None:
    if path.name.startswith("23"):
        pytest.skip("a loop of a thousand nodes: half a minute")
    namespace = {
        line.split(" = ")[0]: line.split('"')[1] for line in path.read_text().splitlines() if line.startswith("TARGET")
    }
    reference = Reference()
    spec = {"origin": "file", "spec": f"{path}:make_inputs"}
    calls = reference.load(
        {"path": str(path), "text": path.read_text(), "qualname": namespace["TARGET"], "inputs": spec, "root": None},
        quiet,
    )["calls"]
    found = graphs(reference)
    json.dumps(found, allow_nan=False)
    seen = sorted(call for graph in found for call in graph["calls"])
    assert seen == [call["index"] for call in calls if call["raises"] is None]
    for graph in found:
        defined = {size for item in graph["placeholders"] for size in item["shape"] if isinstance(size, str)}
        assert graph["refusal"] or set(graph["symbols"]) <= defined
