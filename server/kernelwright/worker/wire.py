"""What passes between the processes: JSON lines on private descriptors, tensors as raw bytes in a case folder.

Nothing is unpickled. What a candidate's process wrote is read as hostile: every size, stride, dtype and path is checked.
Imports the standard library only; torch is imported where a tensor is touched.
"""

from __future__ import annotations

import json
import math
import os
import stat
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

Json = Any
MAX_LINE = 64 << 20
"""Bytes of one message."""
MAX_JSON = 4 << 20
"""Bytes of one outputs.json."""
MAX_TENSORS = 256
DTYPES = [
    "float64",
    "float32",
    "bfloat16",
    "float16",
    "float8_e4m3fn",
    "float8_e5m2",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint8",
    "bool",
    "complex64",
    "complex128",
]


class Malformed(Exception):
    """Bytes from a candidate's process that are not what the protocol says."""


# --- messages --------------------------------------------------------------------------------------------------------


class Channel:
    """Whole JSON lines over two descriptors, blocking."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._reader = os.fdopen(read_fd, "rb", buffering=1 << 16)
        self._write_fd = write_fd

    def __iter__(self) -> Iterator[Json]:
        """Requests until the other side closes."""
        while line := self._reader.readline(MAX_LINE):
            yield json.loads(line)

    def send(self, message: Json) -> None:
        """Write one message whole."""
        data = memoryview(json.dumps(message, allow_nan=True).encode() + b"\n")
        while data:
            data = data[os.write(self._write_fd, data) :]


def serve(channel: Channel, operations: Mapping[str, Callable[[Json], Json]]) -> None:
    """Answer requests in order until end of input. An exception becomes an error reply; the loop goes on."""
    import traceback

    for request in channel:
        try:
            result = operations[request["op"]](request)
            channel.send({"id": request["id"], "ok": True, "result": result})
        except Exception as error:
            # The worker's edge: whatever happened is told to the server, and the worker stays usable.
            named = getattr(error, "reported_as", None)
            message = str(error) if named else traceback.format_exc()
            channel.send({"id": request["id"], "ok": False, "error": {"type": named or "Internal", "message": message}})


# --- calls and outputs -----------------------------------------------------------------------------------------------


class StoredCall(NamedTuple):
    """A call as read from a folder. `receiver` is the namespace that stands for `self`, or None."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    receiver: Any
    method: str
    is_async: bool


def write_call(
    folder: Path,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    receiver: Json | None = None,
    method: str = "function",
    is_async: bool = False,
) -> None:
    """Write a call's inputs. `receiver` is a nested dict of attributes: {"weight": tensor, "proj": {"weight": ...}}."""
    writer = _Writer(folder, "in")
    tree = {
        "args": [writer.tree(value) for value in args],
        "kwargs": {name: writer.tree(value) for name, value in kwargs.items()},
        "self": None if receiver is None else writer.object_tree(receiver),
        "method": method,
        "is_async": is_async,
    }
    (folder / "call.json").write_text(json.dumps(tree), encoding="utf-8")


def read_call(folder: Path, device: str = "cpu") -> StoredCall:
    """Rebuild a call. On the CPU its storages are the files themselves, mapped shared: a write shows in the file."""
    tree = json.loads((folder / "call.json").read_text(encoding="utf-8"))
    reader = _Reader(folder, shared=True, device=device, limit=None)
    args = tuple(reader.value(item) for item in tree["args"])
    kwargs = {name: reader.value(item) for name, item in tree["kwargs"].items()}
    receiver = None if tree["self"] is None else reader.value(tree["self"])
    return StoredCall(args, kwargs, receiver, tree["method"], tree["is_async"])


def write_output(folder: Path, output: Any, nonce: str) -> None:
    """Write what a call returned: outputs.json and one file a storage."""
    writer = _Writer(folder, "out")
    document = {"nonce": nonce, "output": writer.tree(output)}
    (folder / "outputs.json").write_text(json.dumps(document), encoding="utf-8")


def read_output(folder: Path, limit: int) -> Any:
    """Read a candidate's output, at most `limit` bytes of tensors. A value that JSON cannot say is an `Opaque`.

    Raises:
        Malformed: anything is not exactly as the protocol says.
    """
    try:
        data = _read_regular(folder / "outputs.json", MAX_JSON)
        document = json.loads(data)
        return _Reader(folder, shared=False, device="cpu", limit=limit).value(document["output"])
    except Malformed:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise Malformed(f"the output cannot be read: {type(error).__name__}: {error}") from error


class Opaque(NamedTuple):
    """A value of a type that the protocol does not carry."""

    type_name: str


class _Writer:
    """Turns values into trees; tensors that share a storage share a file."""

    def __init__(self, folder: Path, prefix: str) -> None:
        self._folder, self._prefix = folder, prefix
        self._files: dict[int, str] = {}
        self._keep: list[Any] = []

    def tree(self, value: Any) -> Json:
        import torch

        if isinstance(value, torch.Tensor):
            return {"tensor": self._tensor(value)}
        if isinstance(value, torch.dtype):
            return {"dtype": str(value).removeprefix("torch.")}
        if isinstance(value, torch.device):
            return {"device": str(value)}
        if isinstance(value, dict):
            return {"dict": {str(key): self.tree(item) for key, item in value.items()}}
        if isinstance(value, list | tuple):
            return {"list" if isinstance(value, list) else "tuple": [self.tree(item) for item in value]}
        if isinstance(value, float) and not math.isfinite(value):
            return {"float": str(value)}
        if value is None or isinstance(value, bool | int | float | str):
            return {"value": value}
        return {"opaque": type(value).__name__}

    def object_tree(self, attributes: Mapping[str, Any]) -> Json:
        """A namespace; nested mappings are nested namespaces."""
        return {
            "object": {
                name: self.object_tree(value) if isinstance(value, dict) else self.tree(value)
                for name, value in attributes.items()
            }
        }

    def _tensor(self, tensor: Any) -> Json:
        import torch

        exact = type(tensor)
        data = tensor.detach()
        if data.is_sparse or data.layout is not torch.strided or data.is_conj() or data.is_neg():
            data = data.to_dense() if data.layout is not torch.strided else data.resolve_conj().resolve_neg()
        described = {
            "shape": list(data.shape),
            "strides": list(data.stride()),
            "offset": data.storage_offset(),
            "dtype": str(data.dtype).removeprefix("torch."),
            "device": str(tensor.device),
            "parameter": isinstance(tensor, torch.nn.Parameter),
            "requires_grad": bool(tensor.requires_grad),
            "exact": exact in (torch.Tensor, torch.nn.Parameter),
        }
        return described | {"storage": self._storage(data)}

    def _storage(self, data: Any) -> str:
        import torch

        storage = data.untyped_storage()
        key = storage.data_ptr() or -id(storage)
        if key not in self._files:
            name = f"{self._prefix}{len(self._files)}.bin"
            flat = torch.empty(0, dtype=torch.uint8, device=data.device).set_(storage)
            (self._folder / name).write_bytes(memoryview(flat.cpu().numpy()))
            self._files[key] = name
            self._keep.append(storage)
        return self._files[key]


class _Reader:
    """Turns trees back into values, believing nothing."""

    def __init__(self, folder: Path, *, shared: bool, device: str, limit: int | None) -> None:
        self._folder, self._shared, self._device, self._limit = folder, shared, device, limit
        self._storages: dict[str, Any] = {}
        self._tensors = 0

    def value(self, tree: Json, depth: int = 0) -> Any:
        if depth > 32 or not isinstance(tree, dict) or len(tree) != 1:
            raise Malformed(f"not a value: {str(tree)[:80]}")
        ((kind, content),) = tree.items()
        match kind:
            case "tensor":
                return self._tensor(content)
            case "list":
                return [self.value(item, depth + 1) for item in content]
            case "tuple":
                return tuple(self.value(item, depth + 1) for item in content)
            case "dict":
                return {str(key): self.value(item, depth + 1) for key, item in content.items()}
            case "object":
                return types.SimpleNamespace(**{key: self.value(item, depth + 1) for key, item in content.items()})
            case "opaque":
                return Opaque(str(content)[:80])
        return self._leaf(kind, content)

    def _leaf(self, kind: str, content: Json) -> Any:
        import torch

        if kind == "value" and (content is None or isinstance(content, bool | int | float | str)):
            return content
        if kind == "float" and content in ("inf", "-inf", "nan"):
            return float(content)
        if kind == "dtype" and content in DTYPES:
            return getattr(torch, content)
        if kind == "device" and isinstance(content, str):
            return torch.device(self._device if content.startswith("c") else content)
        raise Malformed(f"not a value: {kind} {str(content)[:80]}")

    def _tensor(self, described: Json) -> Any:
        import torch

        self._tensors += 1
        shape, strides, offset = described["shape"], described["strides"], described["offset"]
        whole = [*shape, *strides, offset]
        if self._tensors > MAX_TENSORS or described["dtype"] not in DTYPES or len(shape) != len(strides):
            raise Malformed(f"not a tensor: {str(described)[:120]}")
        if len(shape) > 32 or not all(type(number) is int and 0 <= number < 1 << 48 for number in whole):
            raise Malformed(f"sizes out of range: {str(described)[:120]}")
        dtype = getattr(torch, described["dtype"])
        storage = self._storage(described["storage"])
        last = offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
        item = dtype.itemsize
        if math.prod(shape) and (last + 1) * item > storage.nbytes():
            raise Malformed(f"a tensor reaches outside of its storage: {str(described)[:120]}")
        tensor = torch.empty(0, dtype=dtype, device=storage.device).set_(storage, offset, shape, strides)
        if described.get("parameter"):
            return torch.nn.Parameter(tensor, requires_grad=bool(described.get("requires_grad")))
        if described.get("requires_grad"):
            tensor.requires_grad_()
        return tensor

    def _storage(self, name: Json) -> Any:
        import torch

        if not isinstance(name, str) or os.sep in name or not name.endswith(".bin"):
            raise Malformed(f"not a storage: {str(name)[:80]}")
        if name not in self._storages:
            path = self._folder / name
            size = _regular_size(path)
            if self._limit is not None:
                self._limit -= size
                if self._limit < 0:
                    raise Malformed("the output is larger than the limit")
            if self._shared and size and self._device == "cpu":
                storage = torch.from_file(str(path), shared=True, size=size, dtype=torch.uint8).untyped_storage()
            else:
                data = bytearray(_read_regular(path, size)) if size else bytearray()
                flat = torch.frombuffer(data, dtype=torch.uint8) if size else torch.empty(0, dtype=torch.uint8)
                storage = flat.to(self._device).untyped_storage()
            self._storages[name] = storage
        return self._storages[name]


def _regular_size(path: Path) -> int:
    """The size of a regular file that is not reached through a link.

    Raises:
        Malformed: it is something else, or missing.
    """
    try:
        status = os.lstat(path)
    except OSError as error:
        raise Malformed(f"{path.name} is missing") from error
    if not stat.S_ISREG(status.st_mode):
        raise Malformed(f"{path.name} is not a plain file")
    return status.st_size


def _read_regular(path: Path, limit: int) -> bytes:
    """A regular file's bytes, at most `limit`; never follows a link, never blocks on a pipe."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise Malformed(f"{path.name} cannot be opened: {error.strerror}") from error
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise Malformed(f"{path.name} is not a plain file")
        data = file.read(limit + 1)
    if len(data) > limit:
        raise Malformed(f"{path.name} is larger than {limit} bytes")
    return data
