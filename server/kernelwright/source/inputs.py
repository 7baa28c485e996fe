"""What a function is called with, from text: a literal, a comment above it, or its annotations. Pure; reads no file.

A literal is a list of `NAME: DTYPE[SIZES]` for tensors and `NAME=VALUE` for everything else:
    x: bf16[8192, 4096], weight: bf16[4096], eps=1e-6, mode="tanh", bias=None
A name may be an attribute of a method's object: `self.weight: f32[4096]`.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from kernelwright.errors import BadInputs
from kernelwright.model import Inputs, Json, Parameter, Target, TensorSpec
from kernelwright.source.syntax import Text

DTYPES = {
    "float64": ("f64", "double"), "float32": ("f32", "float"), "float16": ("f16", "half"), "bfloat16": ("bf16",),
    "float8_e4m3fn": ("f8e4m3", "fp8e4m3"), "float8_e5m2": ("f8e5m2", "fp8e5m2"),
    "int64": ("i64", "long"), "int32": ("i32", "int"), "int16": ("i16", "short"), "int8": ("i8",),
    "uint8": ("u8",), "uint16": ("u16",), "uint32": ("u32",), "uint64": ("u64",),
    "bool": ("b1",), "complex64": ("c64",), "complex128": ("c128",),
}  # fmt: skip
_ALIASES = {alias: dtype for dtype, aliases in DTYPES.items() for alias in (dtype, *aliases)}
_SHORT = {dtype: aliases[0] for dtype, aliases in DTYPES.items()} | {"bool": "bool"}

_FILE = re.compile(r"(?P<path>\S.*\.py):(?P<function>[^\W\d]\w*)\Z")
_NAME = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_FORM = "NAME: DTYPE[SIZES] (x: bf16[8192, 4096]) or NAME=VALUE (eps=1e-6)"


@dataclass(frozen=True)
class LiteralArgument:
    """One item of a literal: a tensor's dtype and shape, or a plain value as `model.Argument` has it."""

    name: str
    tensor: TensorSpec | None = None
    value: Json = None


def inputs_from_spec(spec: str) -> Inputs:
    """What someone wrote: PATH.py:FUNCTION, or a literal.

    Raises:
        BadInputs: it is neither.
    """
    text = " ".join(spec.split())
    if _FILE.match(text):
        return Inputs("file", text)
    if re.search(r"\.py\b", text) and "[" not in text:
        raise BadInputs(f"{text!r} names no function: write PATH.py:FUNCTION, or a literal of {_FORM}")
    if not text:
        raise BadInputs(f"nothing is given: write PATH.py:FUNCTION, or a literal of {_FORM}")
    parse_literal(text)
    return Inputs("literal", text)


# --- the literal -----------------------------------------------------------------------------------------------------


def parse_literal(text: str) -> tuple[LiteralArgument, ...]:
    """The items of a literal.

    Raises:
        BadInputs: with the 1-based column where it stops making sense, and what was expected there.
    """
    found: list[LiteralArgument] = []
    for start, item in _items(text):
        argument = _argument(text, start, item)
        if any(argument.name == other.name for other in found):
            blank = len(item) - len(item.lstrip())
            raise _bad(text, start + blank, f"{argument.name} is given twice")
        found.append(argument)
    return tuple(found)


def to_wire(literal: tuple[LiteralArgument, ...]) -> list[dict[str, Json]]:
    """The form that the reference worker takes."""
    return [
        {"name": item.name, "tensor": {"dtype": item.tensor.dtype, "shape": list(item.tensor.shape)}}
        if item.tensor
        else {"name": item.name, "value": item.value}
        for item in literal
    ]


def _items(text: str) -> Iterator[tuple[int, str]]:
    """The comma-separated items with the index at which each starts; commas in brackets and quotes do not count."""
    depth, quote, start = 0, "", 0
    for index, char in enumerate(text):
        if quote:
            quote = "" if char == quote and text[index - 1] != "\\" else quote
        elif char in "\"'":
            quote = char
        elif char in "[(":
            depth += 1
        elif char in "])":
            depth -= 1
            if depth < 0:
                raise _bad(text, index, f"there is a {char!r} with nothing to close")
        elif char == "," and depth == 0:
            yield start, text[start:index]
            start = index + 1
    if quote or depth:
        raise _bad(text, len(text), "a quote is not closed" if quote else "a bracket is not closed")
    if text[start:].strip() or start == 0 < len(text.strip()):
        yield start, text[start:]


def _argument(text: str, start: int, item: str) -> LiteralArgument:
    start += len(item) - len(item.lstrip())
    item = item.strip()
    name = _NAME.match(item)
    if name is None:
        raise _bad(text, start, f"expected {_FORM}")
    rest = item[name.end() :].lstrip()
    at = start + len(item) - len(rest)
    if rest.startswith(":"):
        return LiteralArgument(name[0], tensor=_tensor(text, at + 1, rest[1:]))
    if rest.startswith("="):
        return LiteralArgument(name[0], value=_value(text, at + 1, rest[1:]))
    raise _bad(text, at, f"expected ':' or '=' after {name[0]}, as in {_FORM}")


def _tensor(text: str, start: int, form: str) -> TensorSpec:
    start += len(form) - len(form.lstrip())
    form = form.strip()
    match = re.fullmatch(r"(?:torch\.)?([\w.]*)\s*\[(.*)\]", form, re.DOTALL)
    if match is None:
        raise _bad(text, start, "expected DTYPE[SIZES], as in bf16[8192, 4096]")
    dtype = _ALIASES.get(match[1].lower())
    if dtype is None:
        known = ", ".join(_SHORT.values())
        raise _bad(
            text, start, f"{match[1] or 'nothing'!r} is no dtype: expected one of {known} or a full name of torch's"
        )
    shape = []
    at = start + match.start(2)
    for size in match[2].split(",") if match[2].strip() else []:
        number = size.strip().replace("_", "")
        if not number.isdecimal():
            blank = len(size) - len(size.lstrip())
            raise _bad(text, at + blank, f"{size.strip() or 'nothing'!r} is no size: expected a whole number")
        shape.append(int(number))
        at += len(size) + 1
    return TensorSpec(dtype, tuple(shape))


def _value(text: str, start: int, form: str) -> Json:
    """A Python literal, a dtype (torch.float32), inf or nan."""
    start += len(form) - len(form.lstrip())
    form = form.strip()
    dtype = _ALIASES.get(form.removeprefix("torch."))
    if dtype and (form.startswith("torch.") or form == dtype != "bool"):
        return {"repr": f"torch.{dtype}"}
    special = re.fullmatch(r"(?:float\(['\"])?([+-]?)(?:math\.|torch\.)?(inf|nan)(?:['\"]\))?", form)
    if special:
        return {"float": f"{special[1].strip('+')}{special[2]}"}
    try:
        value = _json(ast.literal_eval(form))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        value = NotImplemented
    if value is NotImplemented:
        expected = "expected a number, a string in quotes, True, False, None, a list, or a dtype such as torch.float32"
        raise _bad(text, start, f"{form or 'nothing'} is no value: {expected}")
    return value


def _json(value: object) -> Json:
    """A literal's value as JSON; NotImplemented for what JSON cannot hold."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        parts = [_json(part) for part in value]
        return NotImplemented if any(part is NotImplemented for part in parts) else parts
    return NotImplemented


def _bad(text: str, index: int, problem: str) -> BadInputs:
    return BadInputs(f"the inputs {text.strip()!r} do not parse at column {index + 1}: {problem}")


# --- what the file says ----------------------------------------------------------------------------------------------


def find_inputs(target: Target) -> Inputs | None:
    """What a comment directly above the function says, else what its jaxtyping annotations say.

    Raises:
        BadInputs: a comment that begins with `inputs:` and does not parse.
    """
    return _from_comment(target) or _from_annotations(target)


def _from_comment(target: Target) -> Inputs | None:
    text = Text(target.document.text)
    line = target.span.start_line
    comments: list[str] = []
    while line > 0 and text.bare(line - 1).lstrip().startswith("#"):
        line -= 1
        comments.insert(0, text.bare(line).lstrip().lstrip("#").strip())
    for index, comment in enumerate(comments):
        marked = re.match(r"inputs\s*:(?!\s*\w+\[)\s*(.*)", comment, re.IGNORECASE)
        where = f"the comment in line {line + index + 1}"
        if marked:
            try:
                found = inputs_from_spec(_continued(marked[1], comments[index + 1 :]))
            except BadInputs as error:
                raise BadInputs(f"{where}: {error}") from None
            return Inputs("file" if found.origin == "file" else "comment", found.spec, where)
    for index, comment in enumerate(comments):
        try:
            literal = parse_literal(comment)
        except BadInputs:
            continue
        if any(item.tensor for item in literal):
            return Inputs("comment", comment, f"the comment in line {line + index + 1}")
    return None


def _continued(first: str, following: list[str]) -> str:
    """A description with the lines that go on with it: each but the last ends in a comma or an open bracket."""
    text = first
    for line in following:
        if not text.rstrip().endswith((",", "[")):
            break
        text = f"{text} {line}"
    return text


_JAXTYPING = {
    "Float": "float32", "Inexact": "float32", "Shaped": "float32", "Num": "float32", "Real": "float32",
    "Int": "int64", "Integer": "int64", "UInt": "uint8", "Bool": "bool", "Complex": "complex64",
    "Float16": "float16", "Float32": "float32", "Float64": "float64", "BFloat16": "bfloat16",
    "Float8e4m3fn": "float8_e4m3fn", "Float8e5m2": "float8_e5m2", "Complex64": "complex64", "Complex128": "complex128",
} | {f"{kind}{bits}": f"{kind.lower()}{bits}" for kind in ("Int", "UInt") for bits in (8, 16, 32, 64)}  # fmt: skip
_ANNOTATION = re.compile(r"(?:\w+\.)*(\w+)\[\s*(?:\w+\.)*\w+\s*,\s*f?[rR]?['\"]([^'\"]*)['\"]\s*\]")
_SIZES = {
    4: "b batch bs n",
    512: "s seq t time l len length tokens q k rows h w height width",
    8: "heads head groups experts",
    64: "dh hd head_dim headdim",
    1024: "d dim hidden features feature c channels model d_model embed width vocab v cols",
}
_SIZE_OF = {name: size for size, names in _SIZES.items() for name in names.split()}


def _from_annotations(target: Target) -> Inputs | None:
    """A literal from annotations such as Float[Tensor, "batch dim"]; None unless they cover every needed argument."""
    items: list[str] = []
    sizes: dict[str, int] = {}
    tensors = 0
    for parameter in _arguments(target):
        annotation = parameter.annotation or ""
        match = _ANNOTATION.fullmatch(annotation.strip().strip("\"'") if "[" not in annotation[:1] else annotation)
        if match and match[1] in _JAXTYPING and parameter.default is None:
            shape = [str(_size(dim, sizes)) for dim in match[2].split()]
            items.append(f"{parameter.name}: {_SHORT[_JAXTYPING[match[1]]]}[{', '.join(shape)}]")
            tensors += 1
        elif parameter.default is None:
            if annotation not in ("float", "bool"):
                return None
            items.append(f"{parameter.name}={'1.0' if annotation == 'float' else 'False'}")
    return Inputs("annotated", ", ".join(items), f"the annotations of {target.qualname}") if tensors else None


def _size(dim: str, sizes: dict[str, int]) -> int:
    """The size of one dimension; a name has the same size wherever it stands."""
    name = dim.lstrip("*#?_").partition("=")[2] or dim.lstrip("*#?")
    if name.isdecimal():
        return int(name)
    if name in ("", "_", "..."):
        return 4
    if name.isidentifier():
        return sizes.setdefault(name, _SIZE_OF.get(name.lower(), 128))
    words = {word: _size(word, sizes) for word in re.findall(r"[^\W\d]\w*", name)}
    return _arithmetic(name, words)


def _arithmetic(text: str, values: dict[str, int]) -> int:
    """A size such as "dim+1" or "2*dim"; 128 where it is none."""
    from kernelwright.source.expressions import evaluate

    try:
        value = evaluate(text, values)
    except (ValueError, KeyError, ArithmeticError):
        return 128
    return int(value) if value > 0 else 128


def _arguments(target: Target) -> list[Parameter]:
    """The parameters that a caller fills in, by name."""
    bound = 1 if target.kind in ("method", "classmethod") else 0
    return [parameter for parameter in target.parameters[bound:] if not parameter.kind.startswith("var_")]


# --- a literal to start from -----------------------------------------------------------------------------------------

_VECTORS = re.compile(r"(weight|bias|gamma|beta|scale|shift|w|b|g|mean|var|running_\w+|ln_\w+)\Z")
_INDICES = re.compile(r"(.*_)?(ids?|idx|index|indices|labels?|targets?|positions?)\Z", re.IGNORECASE)
_MASKS = re.compile(r"(.*_)?(mask|keep|valid)\Z", re.IGNORECASE)
_FLOATS = {"eps": "1e-6", "epsilon": "1e-6", "lr": "0.001", "alpha": "1.0", "temperature": "1.0", "p": "0.1", "dropout": "0.0",
           "weight_decay": "0.1", "beta1": "0.9", "beta2": "0.99", "momentum": "0.9", "gamma": "2.0", "factor": "2.0",
           "threshold": "0.5", "tau": "1.0"}  # fmt: skip
_INTS = {
    "dim": "-1",
    "axis": "-1",
    "n_heads": "8",
    "num_heads": "8",
    "heads": "8",
    "groups": "8",
    "num_groups": "8",
    "k": "8",
}


def suggest(target: Target) -> str:
    """A literal to start from: tensors by name and annotation, scalars by their defaults. `parse_literal` accepts it."""
    annotated = _from_annotations(target)
    if annotated:
        return annotated.spec
    names = {parameter.name for parameter in target.parameters}
    items = [item for parameter in _arguments(target) for item in _suggestion(parameter, "q" in names or "v" in names)]
    return ", ".join(items)


def _suggestion(parameter: Parameter, attention: bool) -> Iterator[str]:
    """At most one item. `attention` says that `k` is a tensor beside q and v, not a count."""
    name, annotation = parameter.name, (parameter.annotation or "").strip("\"'")
    if parameter.default is not None:
        try:
            parse_literal(f"{name}={parameter.default}")
        except BadInputs:
            return
        if parameter.default != "None":
            yield f"{name}={parameter.default}"
        return
    if annotation == "str":
        yield f'{name}=""'
    elif annotation == "bool":
        yield f"{name}=False"
    elif annotation == "int" or (not annotation and name in _INTS and not (name == "k" and attention)):
        yield f"{name}={_INTS.get(name, '1')}"
    elif annotation == "float" or (not annotation and name in _FLOATS and not _VECTORS.match(name)):
        yield f"{name}={_FLOATS.get(name, '1.0')}"
    elif annotation.endswith("dtype") or (not annotation and name.endswith("dtype")):
        yield f"{name}=torch.float32"
    elif _INDICES.match(name):
        yield f"{name}: i64[512]"
    elif _MASKS.match(name):
        yield f"{name}: bool[512, 1024]"
    else:
        yield f"{name}: f32[1024]" if _VECTORS.match(name) else f"{name}: f32[512, 1024]"
