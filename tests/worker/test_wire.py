"""The wire: tensors keep their layout and sharing; what a candidate writes is refused unless it makes sense."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from kernelwright.worker import wire


def test_a_call_crosses_with_layouts_sharing_and_kinds(tmp_path: Path) -> None:
    base = torch.arange(24.0).reshape(4, 6)
    owner = torch.nn.Linear(3, 2)
    call = wire.CallData(
        args=(base.t(), base[1:, ::2], torch.ones(1, 3).expand(5, 3), torch.zeros(0, 4, dtype=torch.bfloat16)),
        kwargs={"eps": float("inf"), "dtype": torch.int8, "mode": "mean", "deep": {"list": [1, (None, True)]}},
        owner=owner,
        method="method",
    )
    wire.write_call(tmp_path, call)
    read = wire.read_call(tmp_path)
    for sent, got in zip(call.args, read.args, strict=True):
        assert (got.shape, got.stride(), got.storage_offset()) == (sent.shape, sent.stride(), sent.storage_offset())
        assert torch.equal(got, sent)
    assert read.kwargs == call.kwargs
    assert isinstance(read.owner, SimpleNamespace)
    assert isinstance(read.owner.weight, torch.nn.Parameter)
    assert torch.equal(read.owner.bias, owner.bias)
    assert read.owner.in_features == 3
    read.args[0][0, 0] = -1.0
    assert wire.read_call(tmp_path).args[0][0, 0] == -1.0
    assert base[0, 0] == 0.0


def test_an_argument_that_is_not_data_is_named(tmp_path: Path) -> None:
    with pytest.raises(wire.Unsupported, match="hook is a function"):
        wire.write_call(tmp_path, wire.CallData((), {"hook": lambda: None}))


@pytest.mark.parametrize("value", [torch.randn(3, 4).t(), (torch.ones(2), [torch.tensor(3)]), None, {"a": 1.5}])
def test_an_output_comes_back(tmp_path: Path, value: object) -> None:
    wire.write_output(tmp_path, value, "n")
    got = wire.read_output(tmp_path, "n")
    assert repr(got) == repr(value)


GOOD = {"storage": "out0.bin", "dtype": "float32", "shape": [2, 2], "strides": [2, 1], "offset": 0}
HOSTILE = {
    "unknown dtype": {"dtype": "object"},
    "dtype of another kind": {"dtype": 7},
    "strides outside of the storage": {"strides": [3, 1]},
    "offset outside of the storage": {"offset": 1},
    "negative stride": {"strides": [-2, 1]},
    "negative size": {"shape": [-2, 2]},
    "boolean size": {"shape": [True, 2]},
    "ranks that differ": {"strides": [1]},
    "huge expansion": {"shape": [1 << 40, 2], "strides": [0, 0]},
    "a name that climbs": {"storage": "../out0.bin"},
    "a name of ours": {"storage": "in0.bin"},
    "a missing file": {"storage": "out7.bin"},
}


@pytest.mark.parametrize("hazard", HOSTILE)
def test_a_hostile_tensor_is_refused(tmp_path: Path, hazard: str) -> None:
    (tmp_path / "out0.bin").write_bytes(bytes(16))
    (tmp_path / "in0.bin").write_bytes(bytes(16))
    write_tree(tmp_path, {"tensor": {**GOOD, **HOSTILE[hazard]}})
    with pytest.raises(wire.Malformed):
        wire.read_output(tmp_path, "n")


def test_the_same_tensor_without_the_hazard_is_read(tmp_path: Path) -> None:
    (tmp_path / "out0.bin").write_bytes(bytes(16))
    write_tree(tmp_path, {"tensor": GOOD})
    assert torch.equal(wire.read_output(tmp_path, "n"), torch.zeros(2, 2))


def write_tree(folder: Path, tree: object) -> None:
    (folder / "outputs.json").write_text(json.dumps({"nonce": "n", "output": tree}))


def deep(levels: int) -> object:
    tree: object = {"value": 1}
    for _ in range(levels):
        tree = {"list": [tree]}
    return tree


@pytest.mark.parametrize("tree", [deep(100), {"pickle": "x"}, [], {"value": {"a": 1}}, {"value": 1, "list": []}, None])
def test_a_tree_that_is_none_is_refused(tmp_path: Path, tree: object) -> None:
    write_tree(tmp_path, tree)
    with pytest.raises(wire.Malformed):
        wire.read_output(tmp_path, "n")


def test_links_pipes_and_foreign_runs_are_refused(tmp_path: Path) -> None:
    write_tree(tmp_path, {"value": 1})
    with pytest.raises(wire.Malformed, match="another run"):
        wire.read_output(tmp_path, "m")
    secret = tmp_path / "secret"
    secret.write_bytes(bytes(16))
    (tmp_path / "out0.bin").symlink_to(secret)
    write_tree(tmp_path, {"tensor": GOOD})
    with pytest.raises(wire.Malformed):
        wire.read_output(tmp_path, "n")
    (tmp_path / "out0.bin").unlink()
    os.mkfifo(tmp_path / "out0.bin")
    with pytest.raises(wire.Malformed, match="regular"):
        wire.read_output(tmp_path, "n")


def test_a_file_above_the_limit_is_refused(tmp_path: Path) -> None:
    wire.write_output(tmp_path, torch.zeros(1024)[:2], "n")
    with pytest.raises(wire.Malformed, match="more than"):
        wire.read_output(tmp_path, "n", limit=1000 * 4)
    with pytest.raises(wire.Malformed, match="elements"):
        wire.read_output(tmp_path, "n", limit=4)


def test_requests_are_answered_one_by_one_and_faults_named() -> None:
    there, back = os.pipe(), os.pipe()
    requests = [
        {"id": 1, "op": "add", "x": 2},
        {"id": 2, "op": "bad"},
        {"id": 3, "op": "none"},
        {"id": 4, "op": "crash"},
    ]
    os.write(there[1], "".join(json.dumps(request) + "\n" for request in requests).encode())
    os.close(there[1])

    def add(request: dict[str, int], emit: wire.Emit) -> int:
        emit({"seen": request["x"]})
        return request["x"] + 1

    def bad(request: dict[str, int], emit: wire.Emit) -> None:
        raise wire.BadInputs("no")

    def crash(request: dict[str, int], emit: wire.Emit) -> None:
        raise ZeroDivisionError

    wire.serve_requests(wire.Channel(there[0], back[1]), {"add": add, "bad": bad, "crash": crash})
    os.close(back[1])
    with os.fdopen(back[0]) as reader:
        event, first, second, third, fourth = map(json.loads, reader)
    os.close(there[0])
    assert (event, first) == ({"id": 1, "event": {"seen": 2}}, {"id": 1, "ok": True, "result": 3})
    assert second == {"id": 2, "ok": False, "error": {"type": "BadInputs", "message": "no"}}
    assert third["error"]["type"] == fourth["error"]["type"] == "Internal"
    assert "ZeroDivisionError" in fourth["error"]["message"]
