"""What crosses a process boundary: JSON lines on private descriptors, and tensors as raw bytes in a case folder.

Standard library and torch only; torch is imported where it is needed, so that a message can be read without it.
Nothing is ever unpickled. What `read_output` reads was written by a candidate: it is hostile, and is refused unless
every name, size, stride and type of it makes sense.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias

Json: TypeAlias = Any
Tree: TypeAlias = Any
"""Python containers with tensors, numbers, strings, dtypes and devices as leaves."""

DTYPES = (
    "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool",
    "complex64", "complex128", "uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2",
)  # fmt: skip
MAX_JSON_BYTES = 4 << 20
MAX_NODES = 20_000
MAX_DEPTH = 64
MAX_OUTPUT_BYTES = 8 << 30


class Fault(Exception):
    """A fault that the other side knows by the name of its class (see kernelwright.errors)."""


class BadInputs(Fault):
    """An input description that the function does not accept."""


class TargetNotFound(Fault):
    """The document has no function of that qualified name."""


class EnvironmentProblem(Fault):
    """The user's interpreter cannot run the worker."""


class Malformed(Exception):
    """The candidate's output files do not say what they must."""


class Unsupported(Exception):
    """A value that cannot cross the boundary; the message names its path and type."""


# --- Messages --------------------------------------------------------------------------------------------------------


class Channel:
    """JSON objects, one a line, on two descriptors that no child process inherits."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        for descriptor in (read_fd, write_fd):
            os.set_inheritable(descriptor, False)
        self.read_fd, self.write_fd = read_fd, write_fd
        self._reader = os.fdopen(read_fd, "rb", closefd=False)

    def __iter__(self) -> Iterator[dict[str, Json]]:
        """The requests, until the other side closes its end."""
        for line in self._reader:
            yield json.loads(line)

    def send(self, message: Json) -> None:
        data = memoryview(json.dumps(message, separators=(",", ":"), allow_nan=False).encode() + b"\n")
        while data:
            data = data[os.write(self.write_fd, data) :]


Emit: TypeAlias = Callable[[Json], None]
Operation: TypeAlias = Callable[[dict[str, Json], Emit], Json]


def serve_requests(channel: Channel, operations: Mapping[str, Operation]) -> None:
    """Answer requests one after the other until the end of input. A failing operation is a reply, not an end."""
    for request in channel:
        number = request.get("id")

        def emit(event: Json, number: Json = number) -> None:
            channel.send({"id": number, "event": event})

        channel.send({"id": number, **_answer(operations, request, emit)})


def _answer(operations: Mapping[str, Operation], request: dict[str, Json], emit: Emit) -> dict[str, Json]:
    operation = operations.get(request.get("op", ""))
    if operation is None:
        return _failure("Internal", f"unknown operation {request.get('op')!r}")
    try:
        return {"ok": True, "result": operation(request, emit)}
    except Fault as fault:
        return _failure(type(fault).__name__, str(fault))
    except Exception:  # a worker's main: whatever happened is reported and the next request is served
        return _failure("Internal", traceback.format_exc())


def _failure(kind: str, message: str) -> dict[str, Json]:
    return {"ok": False, "error": {"type": kind, "message": message}}


# --- Values as trees -------------------------------------------------------------------------------------------------


@dataclass
class StorageWriter:
    """Writes each storage once, as `PREFIXn.bin`, so that tensors that share memory go on sharing it."""

    folder: Path
    prefix: str
    names: dict[tuple[str, int, int], str] = field(default_factory=dict)
    kept: dict[str, Any] = field(default_factory=dict)
    """The storages themselves by file name: their addresses are keys, so none may be freed meanwhile."""

    def name(self, storage: Any) -> str:
        key = (str(storage.device), storage.data_ptr(), storage.nbytes())
        if storage.nbytes() and key in self.names:
            return self.names[key]
        name = f"{self.prefix}{len(self.kept)}.bin"
        write_storage(self.folder / name, storage)
        self.names[key] = name
        self.kept[name] = storage
        return name


def write_storage(path: Path, storage: Any) -> None:
    """Write an UntypedStorage of any device as raw bytes."""
    import torch

    if storage.nbytes() == 0:
        path.write_bytes(b"")
        return
    path.unlink(missing_ok=True)
    torch.UntypedStorage.from_file(str(path), True, storage.nbytes()).copy_(storage)


def encode(value: Tree, writer: StorageWriter, path: str = "") -> Json:
    """The tree of `value` as JSON, its tensors' storages written to files.

    Raises:
        Unsupported: a value that is neither data nor a plain object.
    """
    import torch

    if isinstance(value, torch.Tensor):
        return {"tensor": _encode_tensor(value, writer, path)}
    if value is None or isinstance(value, (bool, str)):
        return {"value": value}
    if isinstance(value, Enum):
        return encode(value.value, writer, path)
    if isinstance(value, int):
        return {"value": int(value)}
    if isinstance(value, float):
        return encode_float(float(value))
    if isinstance(value, torch.dtype):
        return {"dtype": dtype_name(value)}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    return _encode_container(value, writer, path)


def _encode_container(value: Tree, writer: StorageWriter, path: str) -> Json:
    from torch import nn

    if isinstance(value, (tuple, list, nn.ModuleList, nn.Sequential, nn.ParameterList)):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {kind: [encode(item, writer, f"{path}[{position}]") for position, item in enumerate(value)]}
    if isinstance(value, (dict, nn.ModuleDict, nn.ParameterDict)):
        items = {str(key): encode(item, writer, f"{path}[{key!r}]") for key, item in value.items()}
        return {"dict": items}
    if is_plain_object(value):
        return {"object": _encode_attributes(value, writer, path)}
    raise Unsupported(f"{path or 'a value'} is a {type(value).__name__}, which cannot be handed to a kernel")


def encode_float(value: float) -> Json:
    """A float; JSON itself has no infinities and no NaN."""
    if math.isfinite(value):
        return {"value": value}
    return {"float": "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"}


def is_plain_object(value: object) -> bool:
    """Whether `value` is data with attributes (a module, a configuration), not code."""
    return hasattr(value, "__dict__") and not isinstance(value, type) and (_is_module(value) or not callable(value))


def _is_module(value: object) -> bool:
    from torch import nn

    return isinstance(value, nn.Module)


def attributes(value: object) -> dict[str, Any]:
    """The data attributes of an object, as a namespace of the same paths needs them; class-level constants too."""
    found: dict[str, Any] = {}
    for name, item in vars(type(value)).items():
        if not name.startswith("_") and isinstance(item, (bool, int, float, str)):
            found[name] = item
    found.update((name, item) for name, item in vars(value).items() if not name.startswith("__"))
    if _is_module(value):
        for table in ("_parameters", "_buffers", "_modules"):
            found.update(getattr(value, table))
        internals = vars(_bare_module()).keys() - {"training"}
        found = {name: item for name, item in found.items() if name not in internals}
    return found


def _bare_module() -> object:
    from torch import nn

    return nn.Module()


def _encode_attributes(value: object, writer: StorageWriter, path: str) -> dict[str, Json]:
    encoded = {}
    for name, item in attributes(value).items():
        if item is value or path.count(".") > MAX_DEPTH // 2:
            continue
        try:
            encoded[name] = encode(item, writer, f"{path}.{name}")
        except Unsupported:
            continue  # a hook, a logger: whoever needs it meets an AttributeError that names it
    return encoded


def _encode_tensor(tensor: Any, writer: StorageWriter, path: str) -> Json:
    import torch

    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise Unsupported(f"{path or 'a tensor'} is a sparse or quantised tensor")
    plain = tensor.detach().resolve_conj().resolve_neg()
    record = {
        "storage": writer.name(plain.untyped_storage()),
        "dtype": dtype_name(plain.dtype),
        "shape": list(plain.shape),
        "strides": list(plain.stride()),
        "offset": plain.storage_offset(),
        "parameter": isinstance(tensor, torch.nn.Parameter),
        "requires_grad": bool(tensor.requires_grad),
    }
    return record if plain.device.type == "cpu" else {**record, "device": str(plain.device)}


def dtype_name(dtype: Any) -> str:
    """ "float32" for torch.float32."""
    return str(dtype).removeprefix("torch.")


def dtype_of(name: str) -> Any:
    """torch.float32 for "float32".

    Raises:
        Malformed: a name that is not in DTYPES, or that this torch does not have.
    """
    import torch

    if name not in DTYPES or not hasattr(torch, name):
        raise Malformed(f"unknown dtype {name!r}")
    return getattr(torch, name)


def decode(tree: Json, tensor: Callable[[Json], Any], depth: int = 0) -> Tree:
    """The value of a JSON tree; `tensor` makes a tensor of its record.

    Raises:
        Malformed: not a tree.
    """
    import torch

    if not isinstance(tree, dict) or len(tree) != 1 or depth > MAX_DEPTH:
        raise Malformed("not a tree of values")
    ((kind, item),) = tree.items()
    if kind == "tensor":
        return tensor(item)
    if kind == "value" and (item is None or isinstance(item, (bool, int, float, str))):
        return item
    if kind == "float" and item in ("inf", "-inf", "nan"):
        return float(item)
    if kind == "dtype" and isinstance(item, str):
        return dtype_of(item)
    if kind == "device" and isinstance(item, str) and re.fullmatch(r"[a-z]+(:\d+)?", item):
        return torch.device(item)
    if kind in ("list", "tuple") and isinstance(item, list):
        items = [decode(part, tensor, depth + 1) for part in item]
        return items if kind == "list" else tuple(items)
    if kind in ("dict", "object") and isinstance(item, dict):
        named = {name: decode(part, tensor, depth + 1) for name, part in item.items()}
        return named if kind == "dict" else SimpleNamespace(**named)
    raise Malformed(f"not a value: {str(tree)[:80]}")


# --- A case folder ---------------------------------------------------------------------------------------------------


@dataclass
class CallData:
    """One call as data. `storages` are the inputs' own, by file name: shared with the file after `read_call`."""

    args: tuple[Tree, ...]
    kwargs: dict[str, Tree]
    owner: Tree = None
    """`self` of a method: any object when written, a plain namespace when read; None for a function."""
    method: str = "function"
    is_async: bool = False
    storages: dict[str, Any] = field(default_factory=dict)


def write_call(folder: Path, call: CallData) -> dict[str, Any]:
    """Write `call.json` and the inputs' storages. Returns the storages that were written, by file name.

    Raises:
        Unsupported: an argument that is not data.
    """
    folder.mkdir(parents=True, exist_ok=True)
    writer = StorageWriter(folder, "in")
    message = {
        "args": [encode(item, writer, f"args[{position}]") for position, item in enumerate(call.args)],
        "kwargs": {name: encode(item, writer, name) for name, item in call.kwargs.items()},
        "self": None if call.owner is None else encode(call.owner, writer, "self"),
        "method": call.method,
        "is_async": call.is_async,
    }
    (folder / "call.json").write_text(json.dumps(message, allow_nan=False), encoding="utf-8")
    return writer.kept


def read_call(folder: Path, *, on_cpu: bool = False) -> CallData:
    """The call of a case folder, every input storage mapped shared: a write to an input is a write to its file.

    With `on_cpu` no tensor goes to the device that it belongs on: a compiler needs shapes and dtypes only.
    """
    import torch

    message = json.loads((folder / "call.json").read_text(encoding="utf-8"))
    storages: dict[str, Any] = {}

    def tensor(record: Json) -> Any:
        name = record["storage"]
        if name not in storages:
            storages[name] = _map_storage(folder / name)
        storage = storages[name]
        device = "cpu" if on_cpu else record.get("device", "cpu")
        if device != "cpu":
            key = f"{name}@{device}"
            if key not in storages:
                storages[key] = storage.to(device=torch.device(device))
            storage = storages[key]
        made = strided(storage, record)
        if record["parameter"]:
            return torch.nn.Parameter(made, requires_grad=record["requires_grad"])
        return made.requires_grad_(record["requires_grad"])

    owner = None if message["self"] is None else decode(message["self"], tensor)
    return CallData(
        args=tuple(decode(item, tensor) for item in message["args"]),
        kwargs={name: decode(item, tensor) for name, item in message["kwargs"].items()},
        owner=owner,
        method=message["method"],
        is_async=message["is_async"],
        storages=storages,
    )


def write_back(folder: Path, call: CallData) -> None:
    """Copy input storages that live on another device back to their files; those on the CPU are the files."""
    for name, storage in call.storages.items():
        file_name, _, device = name.partition("@")
        if device:
            call.storages[file_name].copy_(storage)


def _map_storage(path: Path) -> Any:
    import torch

    size = path.stat().st_size
    return torch.UntypedStorage.from_file(str(path), True, size) if size else torch.UntypedStorage(0)


def strided(storage: Any, record: Json) -> Any:
    """The tensor that `record` describes over `storage`."""
    import torch

    empty = torch.empty(0, dtype=dtype_of(record["dtype"]), device=storage.device)
    return empty.set_(storage, record["offset"], tuple(record["shape"]), tuple(record["strides"]))


def write_output(folder: Path, value: Tree, nonce: str) -> None:
    """Write what a candidate returned as `outputs.json` and `outN.bin`."""
    tree = encode(value, StorageWriter(folder, "out"), "output")
    text = json.dumps({"nonce": nonce, "output": tree}, allow_nan=False)
    (folder / "outputs.json").write_text(text, encoding="utf-8")


def read_output(folder: Path, nonce: str | None = None, limit: int = MAX_OUTPUT_BYTES) -> Tree:
    """What the candidate returned, copied into this process's own memory. `limit` is in bytes.

    Raises:
        Malformed: missing, foreign or nonsensical files.
    """
    message = _parse_output(read_regular(folder / "outputs.json", MAX_JSON_BYTES))
    if nonce is not None and message["nonce"] != nonce:
        raise Malformed("the output belongs to another run")
    budget = [limit, MAX_NODES]
    storages: dict[str, Any] = {}

    def tensor(record: Json) -> Any:
        budget[1] -= 1
        _check_record(record, limit)
        if budget[1] < 0:
            raise Malformed("too many tensors")
        name = record["storage"]
        if name not in storages:
            data = read_regular(folder / name, budget[0])
            budget[0] -= len(data)
            storages[name] = own_storage(data)
        _check_bounds(record, storages[name].nbytes())
        return strided(storages[name], record)

    return decode(message["output"], tensor)


def _parse_output(data: bytearray) -> dict[str, Json]:
    try:
        message = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"outputs.json does not parse: {error}") from None
    if not isinstance(message, dict) or not {"nonce", "output"} <= message.keys():
        raise Malformed("outputs.json lacks nonce or output")
    return message


def read_regular(path: Path, limit: int) -> bytearray:
    """The bytes of a regular file that is not reached through a link and is no longer than `limit`.

    Raises:
        Malformed: anything else.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise Malformed(f"{path.name}: {error.strerror}") from None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise Malformed(f"{path.name} is not a regular file")
        if status.st_size > limit:
            raise Malformed(f"{path.name} holds {status.st_size} bytes, more than {limit}")
        data = bytearray(status.st_size)
        if file.readinto(data) != status.st_size:
            raise Malformed(f"{path.name} changed while it was read")
        return data


def own_storage(data: bytearray) -> Any:
    """A storage over these bytes, without a copy."""
    import torch

    return torch.frombuffer(data, dtype=torch.uint8).untyped_storage() if data else torch.UntypedStorage(0)


def _check_record(record: Json, limit: int) -> None:
    """Whether the types and sizes of a tensor's record are sane."""
    if not isinstance(record, dict) or not {"storage", "dtype", "shape", "strides", "offset"} <= record.keys():
        raise Malformed("a tensor without storage, dtype, shape, strides or offset")
    storage, shape, strides = record["storage"], record["shape"], record["strides"]
    if not isinstance(storage, str) or not re.fullmatch(r"out\d{1,6}\.bin", storage):
        raise Malformed(f"bad storage name {str(storage)[:40]!r}")
    if not isinstance(record["dtype"], str):
        raise Malformed("bad dtype")
    size = dtype_of(record["dtype"]).itemsize
    if not (isinstance(shape, list) and isinstance(strides, list) and len(shape) == len(strides) <= MAX_DEPTH):
        raise Malformed("shape and strides do not match")
    for number in (*shape, *strides, record["offset"]):
        if type(number) is not int or not 0 <= number < 1 << 48:
            raise Malformed(f"bad size, stride or offset {str(number)[:40]}")
    if math.prod(shape) * size > limit:
        raise Malformed(f"a tensor of {math.prod(shape)} elements")


def _check_bounds(record: Json, nbytes: int) -> None:
    """Whether every element of the tensor lies inside of its storage."""
    if math.prod(record["shape"]) == 0:
        furthest = 0
    else:
        reach = sum((size - 1) * stride for size, stride in zip(record["shape"], record["strides"], strict=True))
        furthest = record["offset"] + reach + 1
    if furthest * dtype_of(record["dtype"]).itemsize > nbytes:
        raise Malformed(f"{record['storage']} is too short for its tensor")
