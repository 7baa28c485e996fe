"""The calls of the target: made by the user's FUNC(device, dtype, seed), or from a literal description."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kernelwright.worker import wire
from kernelwright.worker.loading import Loaded, TargetFunction, describe, load, with_live_function
from kernelwright.worker.wire import BadInputs, Json

RUN_LIMIT = 1 << 22
"""Elements up to which a call is tried on real data while loading."""


@dataclass
class LiveCall:
    """One call with real values. `leaves` are its arguments by path, defaults filled in."""

    index: int
    target: TargetFunction
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    owner: Any = None
    raises: type[BaseException] | None = None
    note: str = ""
    unordered: bool = False
    problem: str | None = None

    def run(self) -> Any:
        """Run the function on these very values."""
        return self.target.call(self.owner, self.args, self.kwargs)

    def bound(self) -> dict[str, Any]:
        """The arguments by parameter, defaults filled in.

        Raises:
            TypeError: they do not fit the signature.
        """
        assert self.target.function is not None
        signature = inspect.signature(self.target.function)
        binding = signature.bind(*self.target.first(self.owner), *self.args, **self.kwargs)
        binding.apply_defaults()
        return dict(list(binding.arguments.items())[len(self.target.first(self.owner)) :])


@dataclass
class Maker:
    """Makes the target's calls again with any device, dtype and seed."""

    target: TargetFunction
    origin: str
    spec: str
    literal: list[Json] = field(default_factory=list)
    root: Path | None = None
    _module: Loaded | None = None

    def make(self, device: str, dtype: str, seed: int) -> list[LiveCall]:
        """All calls.

        Raises:
            BadInputs: the description does not fit the function.
        """
        if self.origin == "file":
            return self._from_file(device, dtype, seed)
        return [self._from_literal(device, seed)]

    def _from_file(self, device: str, dtype: str, seed: int) -> list[LiveCall]:
        module, name = self._inputs_module()
        function = getattr(module.module, name, None)
        if not callable(function):
            raise BadInputs(f"{module.path.name} has no function {name}")
        try:
            made = function(device, wire.dtype_of(dtype), seed)
        except Exception as error:
            raise BadInputs(f"{name} failed: {describe(error, str(module.path))}") from error
        if not isinstance(made, (list, tuple)) or not all(isinstance(item, dict) for item in made):
            raise BadInputs(f"{name} must return a list of dicts")
        if not made:
            raise BadInputs(f"{name} returned no calls")
        return [self._call(index, item) for index, item in enumerate(made)]

    def _inputs_module(self) -> tuple[Loaded, str]:
        path_text, _, name = self.spec.rpartition(":")
        if self._module is None:
            self._module = self._load_inputs(path_text)
        return self._module, name

    def _load_inputs(self, path_text: str) -> Loaded:
        document = self.target.loaded
        bases = [Path(), self.root, document.path.parent]
        for base in bases:
            path = (base / path_text).resolve() if base is not None else None
            if path is not None and path.is_file():
                return document if path == document.path.resolve() else load(path, path.read_text("utf-8"), self.root)
        raise BadInputs(f"there is no file {path_text!r}")

    def _call(self, index: int, item: dict[str, Any]) -> LiveCall:
        args, kwargs = tuple(item.get("args", ())), dict(item.get("kwargs", {}))
        target, owner = self.target, item.get("self")
        if "fn" in item:
            target, bound = with_live_function(target, item["fn"])
            owner = bound if owner is None else owner
        elif target.function is None:
            raise BadInputs(f"{target.qualname} is a nested function: the dict must give it as `fn` (call {index})")
        if target.kind == "method" and owner is None:
            owner = self._default_owner()
        raises = item.get("raises")
        unordered = bool(item.get("unordered", False))
        return LiveCall(index, target, args, kwargs, owner, raises, str(item.get("note", "")), unordered)

    def _default_owner(self) -> Any:
        cls = self.target.owner_class
        try:
            return cls() if cls is not None else None
        except Exception as error:
            raise BadInputs(
                f"{self.target.qualname} is a method and {cls.__name__ if cls else 'its class'}() cannot be made without "
                f"arguments ({error}): give its object with --inputs PATH:FUNC and a `self`"
            ) from error

    def _from_literal(self, device: str, seed: int) -> LiveCall:
        import torch

        target = self.target
        if target.function is None:
            raise BadInputs(f"{target.qualname} is a nested function: use --inputs PATH:FUNC and give it as `fn`")
        generator = torch.Generator().manual_seed(seed)
        highest = _index_range(self.literal)
        values = {item["name"]: _literal_value(item, generator, highest, device) for item in self.literal}
        owner = self._default_owner() if target.kind == "method" else None
        if isinstance(owner, torch.nn.Module):
            owner = owner.to(device)
        for name in [name for name in values if name.startswith("self.")]:
            _set_attribute(owner, name, values.pop(name))
        args, kwargs = _arrange(target, values)
        return LiveCall(0, target, args, kwargs, owner)


def _arrange(target: TargetFunction, values: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Values by name as positional and keyword arguments: by position as long as none is left out."""
    assert target.function is not None
    parameters = list(inspect.signature(target.function).parameters.values())
    if target.kind in ("method", "classmethod"):
        parameters = parameters[1:]
    names = {parameter.name for parameter in parameters}
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    unknown = [name for name in values if name not in names]
    if unknown and not takes_any:
        raise BadInputs(f"{target.qualname} has no parameter {unknown[0]!r}")
    args: list[Any] = []
    kwargs = dict(values)
    for parameter in parameters:
        positional = parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        if positional and parameter.name in kwargs and parameter.default is parameter.empty:
            args.append(kwargs.pop(parameter.name))
        else:
            break
    missing = [
        parameter.name
        for parameter in parameters[len(args) :]
        if parameter.default is parameter.empty and parameter.name not in kwargs
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if missing:
        raise BadInputs(f"{target.qualname} needs {', '.join(missing)}, which the inputs do not give")
    return tuple(args), kwargs


def _index_range(literal: list[Json]) -> int:
    """Integers below this are valid indices into any dimension of any floating tensor described beside them."""
    floats = [item["tensor"] for item in literal if "tensor" in item and "float" in item["tensor"]["dtype"]]
    sizes = [size for tensor in floats for size in tensor["shape"] if size > 1]
    return min(sizes, default=8)


def _literal_value(item: Json, generator: Any, highest: int, device: str) -> Any:
    if "tensor" in item:
        spec = item["tensor"]
        return random_tensor(spec["dtype"], tuple(spec["shape"]), generator, highest).to(device)
    return _scalar(item.get("value"))


def _scalar(value: Json) -> Any:
    import torch

    if isinstance(value, dict) and len(value) == 1:
        ((kind, text),) = value.items()
        if kind == "float":
            return float(text)
        if kind == "device":
            return torch.device(text)
        name = str(text).removeprefix("torch.")
        if kind in ("dtype", "repr") and name in wire.DTYPES:
            return wire.dtype_of(name)
        raise BadInputs(f"{text!r} is not a value that inputs can give")
    return [_scalar(part) for part in value] if isinstance(value, list) else value


def random_tensor(dtype_name: str, shape: tuple[int, ...], generator: Any, highest: int) -> Any:
    """Normal numbers for floats and complex, 0 ≤ n < highest for integers, coin flips for bools."""
    import torch

    try:
        dtype = wire.dtype_of(dtype_name)
    except wire.Malformed as error:
        raise BadInputs(str(error)) from None
    if dtype is torch.bool:
        return torch.rand(shape, generator=generator) > 0.5
    if dtype.is_complex:
        return torch.randn(shape, generator=generator, dtype=torch.complex64).to(dtype)
    if dtype.is_floating_point:
        return torch.randn(shape, generator=generator).to(dtype)
    ceiling = max(1, min(highest, torch.iinfo(dtype).max))
    return torch.randint(0, ceiling, shape, generator=generator).to(dtype)


def _set_attribute(owner: Any, path: str, value: Any) -> None:
    *steps, last = path.split(".")[1:]
    for step in steps:
        owner = getattr(owner, step)
    current = getattr(owner, last, None)
    import torch

    if isinstance(current, torch.nn.Parameter) and isinstance(value, torch.Tensor):
        value = torch.nn.Parameter(value, requires_grad=value.is_floating_point())
    setattr(owner, last, value)


# --- What a call looks like ------------------------------------------------------------------------------------------


def leaves(call: LiveCall) -> Iterator[tuple[str, Any]]:
    """Every leaf that the call hands over, by path, `self`'s data attributes included."""
    for name, value in call.bound().items():
        yield from _walk(name, value, set())
    if call.owner is not None and call.target.kind == "method":
        yield from _walk("self", call.owner, set())


def _walk(path: str, value: Any, seen: set[int]) -> Iterator[tuple[str, Any]]:
    import torch

    if isinstance(value, torch.Tensor) or value is None or isinstance(value, (bool, int, float, str)):
        yield path, value
    elif isinstance(value, (torch.nn.ModuleList, torch.nn.Sequential, torch.nn.ParameterList, list, tuple)):
        for position, item in enumerate(value):
            yield from _walk(f"{path}[{position}]", item, seen)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _walk(f"{path}[{key!r}]", item, seen)
    elif wire.is_plain_object(value):
        if id(value) not in seen:
            seen.add(id(value))
            for name, item in wire.attributes(value).items():
                yield from _walk(f"{path}.{name}", item, seen)
    elif not (path.startswith("self.") and callable(value)):
        yield path, value


def describe_call(call: LiveCall) -> Json:
    """The call as model.Call."""
    arguments = [argument(path, value) for path, value in leaves(call)]
    raises = call.raises.__name__ if call.raises else None
    return {"index": call.index, "arguments": arguments, "note": call.note, "raises": raises}


def argument(path: str, value: Any) -> Json:
    """One leaf as model.Argument."""
    import torch

    if isinstance(value, torch.Tensor):
        return {"path": path, "tensor": tensor_spec(value), "value": None}
    return {"path": path, "tensor": None, "value": plain(value)}


def plain(value: Any) -> Json:
    """A scalar as JSON; {"repr": ...} for what JSON cannot hold."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"repr": repr(float(value))}
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, float)):
        return int(value) if isinstance(value, int) else float(value)
    return {"repr": repr(value)}


def tensor_spec(tensor: Any) -> Json:
    """A tensor as model.TensorSpec."""
    return {
        "dtype": wire.dtype_name(tensor.dtype),
        "shape": list(tensor.shape),
        "strides": list(tensor.stride()),
        "offset": tensor.storage_offset(),
        "device": str(tensor.device),
        "requires_grad": bool(tensor.requires_grad),
    }


def rebuild(call: LiveCall, convert: Callable[[Any], Any]) -> LiveCall:
    """A deep copy of a call in which `convert` makes each tensor; what is shared stays shared."""
    import torch

    memo: dict[int, Any] = {}
    keep = [value for _, value in leaves(call) if isinstance(value, torch.Tensor)]
    with torch.no_grad():
        for value in keep:
            if id(value) not in memo:
                memo[id(value)] = convert(value)
        owner, args, kwargs = copy.deepcopy((call.owner, call.args, call.kwargs), memo)
    return replace(call, args=args, kwargs=kwargs, owner=owner)


def duplicate(call: LiveCall) -> LiveCall:
    """A deep copy that runs on its own: tensors keep their layouts and the memory they share among themselves."""
    import torch

    storages: dict[int, Any] = {}

    def convert(value: Any) -> Any:
        plain_value = value.detach()
        storage = plain_value.untyped_storage()
        if storage._cdata not in storages:
            storages[storage._cdata] = storage.clone()
        made = torch.empty(0, dtype=value.dtype, device=value.device).set_(
            storages[storage._cdata], plain_value.storage_offset(), plain_value.shape, plain_value.stride()
        )
        if isinstance(value, torch.nn.Parameter):
            return torch.nn.Parameter(made, value.requires_grad)
        return made

    return rebuild(call, convert)


def try_out(call: LiveCall) -> None:
    """Run a small call once, to see that the function takes it (or raises what it must).

    Raises:
        BadInputs: it does not; the message holds the exception.
    """
    import torch

    try:
        call.bound()
    except TypeError as error:
        if call.raises is None or not isinstance(error, call.raises):
            raise BadInputs(f"call {call.index} does not fit {call.target.qualname}: {error}") from error
        return
    tensors = [value for _, value in leaves(call) if isinstance(value, torch.Tensor)]
    if sum(tensor.numel() for tensor in tensors) > RUN_LIMIT:
        return
    path = str(call.target.loaded.path)
    try:
        with torch.no_grad():
            duplicate(call).run()
    except Exception as error:
        if call.raises is None:
            raise BadInputs(f"call {call.index} is rejected: {describe(error, path)}") from error
        if not isinstance(error, call.raises):
            raise BadInputs(
                f"call {call.index} must raise {call.raises.__name__} but raises {describe(error, path)}"
            ) from error
        return
    if call.raises is not None:
        raise BadInputs(f"call {call.index} must raise {call.raises.__name__}, but it does not")
