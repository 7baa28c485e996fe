"""JSON ↔ the words of `model`, by cattrs. What a reference worker says is trusted to be well-meant, not to be well-formed."""

from __future__ import annotations

from typing import Any, TypeVar

from cattrs import Converter
from cattrs.errors import BaseValidationError, StructureHandlerNotFoundError

from kernelwright.errors import WorkerError
from kernelwright.model import Dim, Json

T = TypeVar("T")


def _make_converter() -> Converter:
    converter = Converter()
    converter.register_structure_hook_func(lambda kind: kind is Any or kind is Json, lambda value, _: value)
    converter.register_structure_hook_func(lambda kind: kind == Dim, _structure_dim)
    return converter


def _structure_dim(value: object, _: object) -> int | str:
    if isinstance(value, int | str) and not isinstance(value, bool):
        return value
    raise ValueError(f"a size is a number or an expression, not {value!r}")


_CONVERTER = _make_converter()


def decode(value: Json, kind: type[T]) -> T:
    """The value as a word of the model.

    Raises:
        WorkerError: it does not have that form.
    """
    try:
        return _CONVERTER.structure(value, kind)
    except (BaseValidationError, StructureHandlerNotFoundError, ValueError, TypeError, KeyError) as error:
        raise WorkerError(f"a worker's answer is not a {kind.__name__}: {error!r}") from error


def encode(value: object) -> Json:
    """A word of the model as JSON."""
    return _CONVERTER.unstructure(value)
