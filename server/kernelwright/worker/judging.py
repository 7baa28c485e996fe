"""Making cases and judging what came back. The truth is computed only when the candidate has finished."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from kernelwright.worker import compare, wire
from kernelwright.worker.cases import Builder, NotApplicable
from kernelwright.worker.inputs import LiveCall, argument, duplicate, leaves
from kernelwright.worker.precise import run_in_float64
from kernelwright.worker.wire import Json

PERTURBATIONS = (11, 12)
FLOAT_LIMIT = 1 << 26
"""Elements of the inputs up to which a case is perturbed: beyond, two more float64 runs take too long."""


@dataclass
class Traced:
    """The graphs, and for each call its own graph and sizes."""

    graphs: list[Json] = field(default_factory=list)
    graph_of: dict[int, Json] = field(default_factory=dict)
    symbols_of: dict[int, dict[str, int]] = field(default_factory=dict)


@dataclass
class Prepared:
    """A case as it was written. `call` and `storages` (by file name) keep the inputs as they were."""

    case: Json
    call: LiveCall
    storages: dict[str, Any]


@dataclass
class Truths:
    """What the function itself does on a case: results, and its inputs afterwards."""

    eager: Any
    precise: Any
    moved: Any
    after: dict[str, torch.Tensor] = field(default_factory=dict)
    precise_after: dict[str, torch.Tensor] = field(default_factory=dict)


@dataclass
class Judge:
    """Writes cases out and compares. `prepared` is by folder."""

    builder: Builder
    prepared: dict[str, Prepared] = field(default_factory=dict)
    count: int = 0

    def make(self, case: Json, folder: Path) -> Json:
        """Write one case under a folder of its own, if the function accepts it."""
        try:
            call = self.builder.build(case)
            self._try(call)
            self.count += 1
            place = folder / f"case{self.count}"
            target = call.target
            data = wire.CallData(
                call.args, call.kwargs, call.owner if target.kind == "method" else None, target.kind, target.is_async
            )
            storages = wire.write_call(place, data)
        except NotApplicable as reason:
            return {"not_applicable": str(reason), "exception": reason.exception}
        except wire.Unsupported as reason:
            return {"not_applicable": str(reason), "exception": None}
        self.prepared[str(place)] = Prepared(case, call, storages)
        return {"folder": str(place)}

    def _try(self, call: LiveCall) -> None:
        """Whether eager takes it; a call that is meant to raise is written as it is."""
        if call.raises is not None:
            return
        try:
            with torch.no_grad():
                duplicate(call).run()
        except Exception as error:
            raise NotApplicable(f"the function raises {type(error).__name__}: {error}", type(error).__name__) from error

    def judge(self, case: Json, folder: str) -> Json:
        """Compare what lies in the folder with the truth."""
        prepared = self.prepared.get(folder)
        if prepared is None:
            return {"not_applicable": "this case was not made here", "exception": None}
        try:
            got = wire.read_output(Path(folder))
        except wire.Malformed as error:
            return self._disagree(prepared, "", compare.Difference("K204", f"the output cannot be read: {error}"))
        try:
            truths = find_truths(prepared.call)
        except Exception as error:
            name = type(error).__name__
            return {"not_applicable": f"the function raises {name}: {error}", "exception": name}
        unordered = prepared.call.unordered
        result = compare.compare_trees(_to_cpu(got), truths.eager, truths.precise, truths.moved, unordered)
        if isinstance(result, compare.Agreement):
            result = check_inputs(prepared, truths, Path(folder), result)
        if isinstance(result, compare.Agreement):
            return {"agreed": {"error": result.error, "limit": result.limit}}
        return self._disagree(prepared, *result)

    def _disagree(self, prepared: Prepared, output: str, difference: compare.Difference) -> Json:
        arguments = [argument(path, value) for path, value in leaves(prepared.call)]
        return {
            "disagreed": {
                "finding": {"code": difference.code, "message": difference.message, "line": None},
                "counterexample": {
                    "case": prepared.case,
                    "arguments": arguments,
                    "output": output,
                    "index": list(difference.index),
                    "got": difference.got,
                    "expected": difference.expected,
                    "error": _finite(difference.error),
                    "limit": _finite(difference.limit),
                },
            }
        }


def _finite(value: float | None) -> float | None:
    return value if value is not None and value - value == 0 else None


def _to_cpu(value: Any) -> Any:
    from torch.utils._pytree import tree_map

    return tree_map(lambda item: item.detach().cpu() if isinstance(item, torch.Tensor) else item, value)


def find_truths(call: LiveCall) -> Truths:
    """Run the function in its own dtypes, in float64, and in float64 on perturbed inputs."""
    eager_call = duplicate(call)
    with torch.no_grad():
        eager = eager_call.run()
    after = _changed(call, eager_call)
    try:
        precise, precise_call = run_in_float64(call)
        compatible = _same_structure(eager, precise)
    except Exception:
        compatible = False  # an op without float64: then eager is the only truth there is
    if not compatible:
        return Truths(_to_cpu(eager), _as_precise(eager), None, after, _as_precise(after))
    moved = None
    if sum(value.numel() for _, value in leaves(call) if isinstance(value, torch.Tensor)) <= FLOAT_LIMIT:
        moved = _conditioning(call, precise)
    precise_leaves = {path: value for path, value in leaves(precise_call) if isinstance(value, torch.Tensor)}
    precise_after = {path: precise_leaves[path].detach().cpu() for path in after}
    return Truths(_to_cpu(eager), _to_cpu(precise), moved, after, precise_after)


def _changed(before: LiveCall, after: LiveCall) -> dict[str, torch.Tensor]:
    """The tensors that eager wrote into, as they are afterwards, by path."""
    pairs = zip(leaves(before), leaves(after), strict=False)
    return {
        path: new.detach().cpu()
        for (path, old), (_, new) in pairs
        if isinstance(old, torch.Tensor) and not _identical(old.detach().cpu(), new.detach().cpu())
    }


def _identical(left: torch.Tensor, right: torch.Tensor) -> bool:
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    return torch.equal(_bits(left), _bits(right))


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    dense = torch.empty(tensor.numel(), dtype=tensor.dtype).copy_(tensor.flatten())
    return dense.view(torch.uint8) if dense.numel() else torch.empty(0, dtype=torch.uint8)


def _as_precise(value: Any) -> Any:
    from torch.utils._pytree import tree_map

    from kernelwright.worker.precise import widen

    return _to_cpu(tree_map(widen, value))


def _same_structure(left: Any, right: Any) -> bool:
    if isinstance(left, torch.Tensor):
        return isinstance(right, torch.Tensor) and left.shape == right.shape
    if isinstance(left, (tuple, list)):
        return isinstance(right, (tuple, list)) and len(left) == len(right) and all(map(_same_structure, left, right))
    if isinstance(left, dict):
        return (
            isinstance(right, dict)
            and left.keys() == right.keys()
            and all(_same_structure(left[k], right[k]) for k in left)
        )
    return True


def _conditioning(call: LiveCall, precise: Any) -> Any:
    moved = None
    for seed in PERTURBATIONS:
        try:
            perturbed, _ = run_in_float64(call, seed)
            distance = compare.distance_trees(_to_cpu(perturbed), _to_cpu(precise))
        except Exception:
            return moved  # perturbed inputs may leave the function's domain
        moved = distance if moved is None else compare.larger_trees(moved, distance)
    return moved


# --- The inputs afterwards -------------------------------------------------------------------------------------------


def check_inputs(
    prepared: Prepared, truths: Truths, folder: Path, so_far: compare.Agreement
) -> compare.Agreement | tuple[str, compare.Difference]:
    """Whether the candidate changed what the function changes, rightly, and nothing else."""
    tensors = {path: value for path, value in leaves(prepared.call) if isinstance(value, torch.Tensor)}
    worst = so_far
    for name, storage in prepared.storages.items():
        before = torch.empty(0, dtype=torch.uint8).set_(storage.cpu())
        try:
            data = wire.read_regular(folder / name, before.numel())
        except wire.Malformed as error:
            return name, compare.Difference("K206", f"the memory of an input cannot be read any more: {error}")
        if len(data) != before.numel():
            return name, compare.Difference("K206", "the memory of an input has another size than before")
        found = wire.own_storage(data)
        mine = {path: value for path, value in tensors.items() if _lies_in(value, storage)}
        result = _check_storage(before, found, mine, truths, prepared.call.unordered)
        if isinstance(result, tuple):
            return result
        worst = max(worst, result, key=_share)
    return worst


def _share(agreement: compare.Agreement) -> float:
    return agreement.error / (agreement.limit or 1.0)


def _lies_in(tensor: torch.Tensor, storage: Any) -> bool:
    return bool(tensor.numel()) and tensor.untyped_storage().data_ptr() == storage.data_ptr()


def _check_storage(
    before: torch.Tensor, found: Any, tensors: dict[str, torch.Tensor], truths: Truths, unordered: bool
) -> compare.Agreement | tuple[str, compare.Difference]:
    """One input storage: mutated tensors are compared as outputs, every other byte must be as before."""
    written = {path: value for path, value in tensors.items() if path in truths.after}
    after = torch.empty(0, dtype=torch.uint8).set_(found)
    changed = before != after
    for value in written.values():
        mask = torch.zeros(before.numel(), dtype=torch.uint8)
        _over(mask.untyped_storage(), value).copy_(_ones(value))
        changed &= mask == 0
    if bool(changed.any()):
        return _name_change(int(changed.to(torch.uint8).argmax()), before, found, tensors, bool(written))
    worst = compare.Agreement(0.0, 0.0)
    for path, value in written.items():
        got = _over(found, value)
        truth = compare.Truth(truths.after[path], truths.precise_after[path], None, unordered)
        result = compare.compare_tensor(got, truth)
        if isinstance(result, compare.Difference):
            untouched = _identical(got, _over(before.untyped_storage(), value))
            message = "the function writes to it, the kernel does not" if untouched else result.message
            return path, replace(result, code="K207", message=f"{path}: {message}")
        worst = max(worst, result, key=_share)
    return worst


def _ones(value: torch.Tensor) -> torch.Tensor:
    """A tensor of the same kind and shape whose every byte is non-zero."""
    raw = torch.full((value.numel() * value.element_size(),), 255, dtype=torch.uint8)
    return raw.view(value.dtype).view(value.shape)


def _over(storage: Any, like: torch.Tensor) -> torch.Tensor:
    """The tensor that lies in `storage` as `like` does in its own."""
    made = torch.empty(0, dtype=like.dtype)
    return made.set_(storage, like.storage_offset(), tuple(like.shape), tuple(like.stride()))


def _name_change(
    position: int, before: torch.Tensor, found: Any, tensors: dict[str, torch.Tensor], written: bool
) -> tuple[str, compare.Difference]:
    """The finding for a changed byte: in a tensor, or in the memory between its elements."""
    for path, value in tensors.items():
        old, new = _over(before.untyped_storage(), value), _over(found, value)
        differs = _byte_differs(old, new)
        if bool(differs.any()):
            index = tuple(
                int(item) for item in torch.unravel_index(differs.flatten().to(torch.uint8).argmax(), old.shape)
            )
            message = f"{path} was changed, and the function does not change it"
            return path, compare.Difference("K206", message, index, str(new[index].item()), str(old[index].item()))
    path = next(iter(tensors), "an input")
    message = f"memory beside the elements of {path} was changed (byte {position} of its storage)"
    return path, compare.Difference("K206", message)


def _byte_differs(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    width = left.element_size()
    pair = [_bits(tensor).view(-1, width) for tensor in (left, right)]
    return (pair[0] != pair[1]).any(-1).view(left.shape)
