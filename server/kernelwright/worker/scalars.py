"""Float arguments during a trace: numbers that remember how they were computed and which branches they decided.

A traced scalar has two values. Its float value is a sentinel, close to the real one and unlike any constant in a program,
so that the constant that arrives in the graph can be matched back to the expression that made it. Comparisons are
decided by the real value, and each becomes a guard.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

_SYMBOLS = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "pow": "**", "floordiv": "//", "mod": "%"}
_COMPARISONS = {
    "lt": ("<", ">="),
    "le": ("<=", ">"),
    "gt": (">", "<="),
    "ge": (">=", "<"),
    "eq": ("==", "!="),
    "ne": ("!=", "=="),
}
"""Method → the comparison, and what holds when it does not."""
_COMMON = frozenset((0.0, 1.0, -1.0, 2.0, 0.5))


@dataclass
class Scalars:
    """The scalars of one trace. `shift` makes the sentinels of a second trace differ from those of the first."""

    shift: int = 0
    names: dict[str, str] = field(default_factory=dict)
    """Path → name in expressions."""
    examples: dict[str, float] = field(default_factory=dict)
    expressions: dict[float, str] = field(default_factory=dict)
    guards: list[str] = field(default_factory=list)
    pinned: bool = False
    """Whether the program looked at a value in a way that cannot be followed."""

    def wrap(self, path: str, value: float) -> Traced:
        """A traced scalar for the argument at `path`."""
        name = self._name(path)
        self.names[path] = name
        self.examples[path] = value
        step = 0.37 + 0.11 * len(self.names) + 0.053 * self.shift
        sentinel = value * (1 - 1e-3 * step) if value else 1e-3 * step
        return self.record(sentinel, value, name)

    def _name(self, path: str) -> str:
        short = "".join(char if char.isalnum() else "_" for char in path.rsplit(".", 1)[-1]).strip("_") or "scalar"
        taken = set(self.names.values())
        if short not in taken and not (short[0] == "s" and short[1:].isdigit()):
            return short
        long = "".join(char if char.isalnum() else "_" for char in path).strip("_")
        return long if long not in taken else f"{long}_{len(taken)}"

    def record(self, sentinel: float, real: float, expression: str) -> Traced:
        """A traced value, known from now on by its sentinel."""
        if math.isfinite(sentinel) and sentinel not in _COMMON:
            self.expressions.setdefault(sentinel, tidy(expression))
        return Traced(sentinel, real, expression, self)

    def explain(self, constant: float) -> str | None:
        """The expression that computes this constant of the graph, if it came from a scalar."""
        found = self.expressions.get(constant)
        if found is None and -constant in self.expressions:
            return tidy(f"-({self.expressions[-constant]})")
        return found

    def guard(self, text: str) -> None:
        if tidy(text) not in self.guards:
            self.guards.append(tidy(text))


def tidy(expression: str) -> str:
    """The expression without superfluous brackets."""
    return ast.unparse(ast.parse(expression, mode="eval"))


class Traced(float):
    """A float that records what is done with it. See the module's docstring."""

    real_value: float
    expression: str
    scalars: Scalars

    def __new__(cls, sentinel: float, real: float, expression: str, scalars: Scalars) -> Traced:
        made = super().__new__(cls, sentinel)
        made.real_value, made.expression, made.scalars = real, expression, scalars
        return made

    def __copy__(self) -> Traced:
        return self

    def __deepcopy__(self, memo: Any) -> Traced:
        return self

    def __hash__(self) -> int:
        return hash(self.real_value)

    def __bool__(self) -> bool:
        self.scalars.guard(f"{self.expression} {'!=' if self.real_value else '=='} 0.0")
        return bool(self.real_value)

    def __neg__(self) -> Traced:
        return self.scalars.record(-float(self), -self.real_value, f"(-{self.expression})")

    def __abs__(self) -> Traced:
        return self.scalars.record(abs(float(self)), abs(self.real_value), f"abs({self.expression})")

    def __int__(self) -> int:
        self.scalars.pinned = True
        return int(self.real_value)

    __trunc__ = __floor__ = __int__

    def __round__(self, digits: Any = None) -> Any:
        self.scalars.pinned = True
        return round(self.real_value, digits)

    def is_integer(self) -> bool:
        self.scalars.pinned = True
        return self.real_value.is_integer()


def _parts(value: Any) -> tuple[float, float, str] | None:
    """Sentinel, real value and expression of an operand; None for what is not a plain number."""
    if isinstance(value, Traced):
        return float(value), value.real_value, value.expression
    if isinstance(value, (int, float)):
        return float(value), float(value), f"({value!r})"
    return None


def _binary(name: str, reflected: bool) -> Callable[[Traced, Any], Any]:
    compute = getattr(float, f"__{name}__")

    def method(self: Traced, other: Any) -> Any:
        pair = (_parts(other), _parts(self)) if reflected else (_parts(self), _parts(other))
        left, right = pair
        if left is None or right is None:
            return NotImplemented
        try:
            real = compute(left[1], right[1])
        except (ZeroDivisionError, OverflowError):
            real = math.nan
        return self.scalars.record(compute(left[0], right[0]), real, f"({left[2]} {_SYMBOLS[name]} {right[2]})")

    return method


def _comparison(name: str) -> Callable[[Traced, Any], Any]:
    compute = getattr(float, f"__{name}__")

    def method(self: Traced, other: Any) -> Any:
        right = _parts(other)
        if right is None:
            return NotImplemented
        held = bool(compute(self.real_value, right[1]))
        self.scalars.guard(f"{self.expression} {_COMPARISONS[name][0 if held else 1]} {right[2]}")
        return held

    return method


for _name in _SYMBOLS:
    setattr(Traced, f"__{_name}__", _binary(_name, reflected=False))
    setattr(Traced, f"__r{_name}__", _binary(_name, reflected=True))
for _name in _COMPARISONS:
    setattr(Traced, f"__{_name}__", _comparison(_name))
