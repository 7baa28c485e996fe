"""Expressions as Triton text: one table entry a kind, with Python's precedence, so that no needless bracket is written."""

from __future__ import annotations

from typing import NamedTuple

ATOM, UNARY, PRODUCT, SUM, BITS, TEST = 13, 11, 10, 9, 7, 4


class Text(NamedTuple):
    """Words and how tightly they bind."""

    words: str
    binds: int = ATOM

    def within(self, binds: int) -> str:
        return self.words if self.binds >= binds else f"({self.words})"


TYPES = {
    "float32": "tl.float32",
    "bfloat16": "tl.bfloat16",
    "float16": "tl.float16",
    "int64": "tl.int64",
    "int32": "tl.int32",
    "int16": "tl.int16",
    "int8": "tl.int8",
    "uint8": "tl.uint8",
    "bool": "tl.int1",
}

INFIX = {
    "add": ("+", SUM),
    "sub": ("-", SUM),
    "mul": ("*", PRODUCT),
    "div": ("/", PRODUCT),
    "eq": ("==", TEST),
    "ne": ("!=", TEST),
    "lt": ("<", TEST),
    "le": ("<=", TEST),
    "gt": (">", TEST),
    "ge": (">=", TEST),
    "and": ("&", BITS),
    "or": ("|", BITS),
    "xor": ("^", BITS),
    "fmod_whole": ("%", PRODUCT),
}

PREFIX = {"neg": "-", "not": "~", "invert": "~"}

NAN = "propagate_nan=tl.PropagateNan.ALL"
CALLS = {
    "abs": "tl.abs({})",
    "floor": "tl.floor({})",
    "ceil": "tl.ceil({})",
    "exp": "tl.exp({})",
    "exp2": "tl.exp2({})",
    "log": "tl.log({})",
    "log2": "tl.log2({})",
    "sqrt": "tl.sqrt({})",
    "rsqrt": "tl.rsqrt({})",
    "sigmoid": "tl.sigmoid({})",
    "erf": "tl.erf({})",
    "div_exact": "tl.div_rn({}, {})",
    "maximum": f"tl.maximum({{}}, {{}}, {NAN})",
    "minimum": f"tl.minimum({{}}, {{}}, {NAN})",
    "maximum_whole": "tl.maximum({}, {})",
    "minimum_whole": "tl.minimum({}, {})",
    "where": "tl.where({}, {}, {})",
    # libdevice is as accurate as eager: its sin and cos reduce large arguments, its rint rounds half to even.
    "round": "libdevice.rint({})",
    "trunc": "libdevice.trunc({})",
    "sin": "libdevice.sin({})",
    "cos": "libdevice.cos({})",
    "tan": "libdevice.tan({})",
    "asin": "libdevice.asin({})",
    "acos": "libdevice.acos({})",
    "atan": "libdevice.atan({})",
    "sinh": "libdevice.sinh({})",
    "cosh": "libdevice.cosh({})",
    "asinh": "libdevice.asinh({})",
    "acosh": "libdevice.acosh({})",
    "atanh": "libdevice.atanh({})",
    "tanh": "libdevice.tanh({})",
    "log10": "libdevice.log10({})",
    "log1p": "libdevice.log1p({})",
    "expm1": "libdevice.expm1({})",
    "erfc": "libdevice.erfc({})",
    "pow": "libdevice.pow({}, {})",
    "fmod": "libdevice.fmod({}, {})",
    "atan2": "libdevice.atan2({}, {})",
}

# Compounds that name an operand twice: the operands are put into variables first.
REPEATING = {
    "square": ("{0} * {0}", PRODUCT),
    "isnan": ("{0} != {0}", TEST),
    "isinf": ('tl.abs({0}) == float("inf")', TEST),
    "isfinite": ('tl.abs({0}) < float("inf")', TEST),
    "sign": ("({0} > 0).to(tl.float32) - ({0} < 0).to(tl.float32)", SUM),
    "sign_whole": ("({0} > 0).to({type}) - ({0} < 0).to({type})", SUM),
    "div_floor": ("{0} // {1} - (({0} % {1} != 0) & (({0} < 0) != ({1} < 0)))", SUM),
    "div_trunc": ("{0} // {1}", PRODUCT),
    "remainder_whole": ("{0} % {1} + tl.where(({0} % {1} != 0) & (({0} < 0) != ({1} < 0)), {1}, 0)", SUM),
    "remainder": (
        "libdevice.fmod({0}, {1}) + tl.where((libdevice.fmod({0}, {1}) != 0) & (({0} < 0) != ({1} < 0)), {1}, 0.0)",
        SUM,
    ),
}

WHOLE = {"maximum", "minimum", "sign", "remainder", "fmod"}
"""Kinds with another text for whole numbers: `KIND_whole`."""


def render(kind: str, parts: list[Text], dtype: str) -> Text:
    """The text of a pointwise op over the texts of its operands.

    Raises:
        KeyError: a kind without a text.
    """
    if kind in WHOLE and not dtype.startswith(("float", "bfloat")):
        kind = f"{kind}_whole"
    if kind in INFIX:
        sign, binds = INFIX[kind]
        if kind in ("and", "or", "xor"):
            return Text(f" {sign} ".join(part.within(ATOM) for part in parts), BITS)
        if binds == TEST:
            return Text(f"{parts[0].within(SUM)} {sign} {parts[1].within(SUM)}", TEST)
        return Text(f"{parts[0].within(binds)} {sign} {parts[1].within(binds + 1)}", binds)
    if kind in PREFIX:
        return Text(PREFIX[kind] + parts[0].within(UNARY), UNARY)
    if kind == "reciprocal":
        return Text(f"1.0 / {parts[0].within(UNARY)}", PRODUCT)
    if kind in REPEATING:
        form, binds = REPEATING[kind]
        return Text(form.format(*(part.within(ATOM) for part in parts), type=TYPES[dtype]), binds)
    return Text(CALLS[kind].format(*(part.words for part in parts)))


def constant(kind: str, value: float) -> Text:
    """A Python number as a kernel writes it."""
    if kind == "bool":
        return Text("True" if value else "False")
    if value != value or value in (float("inf"), float("-inf")):
        return Text(f'float("{value}")')
    words = repr(value)
    return Text(words, UNARY if words.startswith("-") else ATOM)


def fold(line: str, width: int = 100) -> list[str]:
    """A line broken as Black does where it is too wide: at the last bracket, then at every comma."""
    if len(line) <= width:
        return [line]
    indent = line[: len(line) - len(line.lstrip())]
    terms = _split(line.strip(), " + ")
    if indent and line.endswith(",") and len(terms) > 1:
        return list(_sum(terms, indent, width))
    opened = _widest_bracket(line)
    if opened is None:
        return [line]
    start, end = opened
    head, inside, tail = line[: start + 1], line[start + 1 : end], line[end:]
    deeper = indent + "    "
    if len(deeper + inside) <= width and "," not in tail:
        return [head, deeper + inside, indent + tail]
    items = split_commas(inside)
    if len(items) == 1:
        return [head, deeper + inside, indent + tail]
    return [head, *_filled(items, deeper, width), indent + tail]


def _filled(items: list[str], indent: str, width: int) -> list[str]:
    """Items side by side, as many a line as fit."""
    lines: list[str] = []
    for item in items:
        if lines and len(lines[-1]) + len(item) + 2 <= width:
            lines[-1] += f" {item},"
        else:
            lines += fold(f"{indent}{item},", width)
    return lines


def _widest_bracket(line: str) -> tuple[int, int] | None:
    """The outermost bracket pair with the most in it."""
    best: tuple[int, int] | None = None
    depth, start = 0, 0
    for position, character in enumerate(line):
        if character in "([{":
            if depth == 0:
                start = position
            depth += 1
        elif character in ")]}":
            depth -= 1
            if depth == 0 and (best is None or position - start > best[1] - best[0]):
                best = (start, position)
    return best


def split_commas(words: str) -> list[str]:
    return [item.strip() for item in _split(words, ",") if item.strip()]


def _sum(terms: list[str], indent: str, width: int) -> list[str]:
    """A long sum inside brackets: as many terms a line as fit."""
    lines = [indent + terms[0]]
    for term in terms[1:]:
        if len(lines[-1]) + len(term) + 3 <= width:
            lines[-1] += f" + {term}"
        else:
            lines.append(f"{indent}+ {term}")
    return lines


def _split(words: str, mark: str) -> list[str]:
    """Cut at every `mark` outside brackets."""
    items, depth, start = [], 0, 0
    for position, character in enumerate(words):
        depth += (character in "([{") - (character in ")]}")
        if depth == 0 and words.startswith(mark, position):
            items.append(words[start:position])
            start = position + len(mark)
    return [*items, words[start:]]
