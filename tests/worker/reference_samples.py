"""A reference worker on documents written in the test, and a candidate that is a plain function on the mapped inputs."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from kernelwright.worker import wire
from kernelwright.worker.reference import Reference


def quiet(event: Any) -> None:
    """Nobody listens."""


def loaded(folder: Path, text: str, qualname: str, inputs: str = "document.py:make_inputs", **extra: Any) -> Reference:
    """A worker that has loaded `text` as document.py and traced its target."""
    reference = Reference()
    reference.load(request(folder, text, qualname, inputs, **extra), quiet)
    return reference


def request(folder: Path, text: str, qualname: str, inputs: Any = "document.py:make_inputs", **extra: Any) -> Any:
    """A load request; `inputs` is a spec of origin "file", or a parsed literal."""
    path = folder / "document.py"
    source = textwrap.dedent(text)
    path.write_text(source, encoding="utf-8")
    described = (
        {"origin": "file", "spec": inputs}
        if isinstance(inputs, str)
        else {"origin": "literal", "spec": "", "literal": inputs}
    )
    return {"path": str(path), "text": source, "qualname": qualname, "inputs": described, "root": str(folder), **extra}


def graphs(reference: Reference) -> Any:
    return reference.trace({}, quiet)["graphs"]


def traced(folder: Path, text: str, qualname: str, inputs: Any = "document.py:make_inputs") -> Any:
    """The graphs of a document's target."""
    return graphs(loaded(folder, text, qualname, inputs))


def tensor(name: str, dtype: str, *shape: int) -> Any:
    """One item of a parsed literal."""
    return {"name": name, "tensor": {"dtype": dtype, "shape": list(shape)}}


def judged(reference: Reference, folder: Path, case: Any, candidate: Callable[..., Any]) -> Any:
    """What the judge says of `candidate` on one case: it gets the mapped inputs, and its result is written out."""
    case = {"call": 0, "seed": 0, **case}
    (made,) = reference.make({"folder": str(folder / "cases"), "cases": [case]}, quiet)["made"]
    if "folder" not in made:
        return made
    place = Path(made["folder"])
    call = wire.read_call(place)
    first = () if call.owner is None else (call.owner,)
    with torch.no_grad():
        result = candidate(*first, *call.args, **call.kwargs)
    wire.write_output(place, result, "n")
    return reference.judge({"cases": [{"case": case, "folder": str(place)}]}, quiet)["judged"][0]
