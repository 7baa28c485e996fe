"""How the sizes of a trace hang together: equalities become substitutions, the rest becomes a few readable guards.

A symbolic trace records every question that torch asked about a size. Most are about memory layout, or only say that a
size is not 0 or 1; what remains is what the graph needs: divisibility, equal sizes, bounds.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import sympy
from torch.utils._sympy.functions import FloorDiv, Max, Mod, PythonMod

_TRIED = range(2, 400)
_SAMPLES = 4000


@dataclass
class Relations:
    """What `relate` found. `define` says what a symbol stands for; `guards` must hold of the others."""

    define: dict[sympy.Symbol, Any] = field(default_factory=dict)
    guards: list[Any] = field(default_factory=list)

    def apply(self, expression: Any) -> Any:
        """The expression over the symbols that are left."""
        for _ in range(8):
            replaced = expression.xreplace(self.define)
            if replaced == expression:
                break
            expression = replaced
        return expression


def relate(
    guards: Iterable[tuple[Any, bool]], order: list[sympy.Symbol], holds: Callable[[Any, Mapping[Any, int]], bool]
) -> Relations:
    """Sort the guards out.

    Args:
        guards: sympy conditions, each with whether the user's own code asked.
        order: the symbols, in the order of the arguments; of two equal ones the later is replaced.
        holds: evaluates a condition for given sizes.
    """
    found = Relations()
    asked = [(reduce_factors(guard), by_user) for guard, by_user in guards if by_user or matters(guard)]
    for _ in range(len(order) + 1):
        pending = [(found.apply(guard), by_user) for guard, by_user in asked]
        known = [guard for guard, _ in pending]
        step = next((pair for guard in known if (pair := _solved(guard, order) or _divided(guard, known))), None)
        if step is None:
            break
        found.define[step[0]] = step[1]
    rest = [(guard, by_user) for guard, by_user in pending if guard not in (sympy.true, True)]
    for symbol in list(found.define):
        _invert(symbol, found, [guard for guard, _ in rest], holds)
    rest = [(found.apply(guard), by_user) for guard, by_user in rest]
    found.guards = prune([pair for pair in rest if pair[0] not in (sympy.true, True)], holds)
    return found


def matters(guard: Any) -> bool:
    """Whether a question of torch's own is about what is computed, and not about layout or sizes 0 and 1."""
    if guard in (sympy.true, True) or isinstance(guard, sympy.Ne) or guard.has(Max):
        return False
    if isinstance(guard, sympy.Eq):
        return True
    if not isinstance(guard, sympy.core.relational.Relational):
        return False
    bound = [side for side in guard.args if side.is_Integer]
    return not (bound and int(bound[0]) < 3) and not (bound and int(bound[0]) > 1 << 40)


def reduce_factors(guard: Any) -> Any:
    """An equality with the common positive factors of its sides taken out."""
    if not isinstance(guard, sympy.Eq):
        return guard
    left, right = guard.args
    if isinstance(left, (Mod, PythonMod)) and right == 0:
        part, whole = left.args
        factor = _common(part, whole)
        return sympy.Eq(Mod(sympy.cancel(part / factor), sympy.cancel(whole / factor)), 0)
    factor = _common(left, right)
    return guard if factor == 1 else sympy.Eq(sympy.cancel(left / factor), sympy.cancel(right / factor))


def _common(left: Any, right: Any) -> Any:
    """The product of the symbols (not numbers) that divide both."""
    factors = [set(sympy.Mul.make_args(side)) for side in (left, right)]
    return sympy.Mul(*(factor for factor in factors[0] & factors[1] if factor.is_Symbol))


def _solved(guard: Any, order: list[sympy.Symbol]) -> tuple[sympy.Symbol, Any] | None:
    """An equality as symbol := expression, for a symbol that the expression does not hold."""
    if not isinstance(guard, sympy.Eq):
        return None
    sides = guard.args
    choices = [
        (one, other)
        for one, other in (sides, sides[::-1])
        if one in order and one not in other.free_symbols and other.free_symbols <= set(order)
    ]
    return max(choices, key=lambda pair: order.index(pair[0]), default=None)


def _divided(guard: Any, known: list[Any]) -> tuple[sympy.Symbol, Any] | None:
    """symbol // k == expression, where k is known to divide the symbol, as symbol := k * expression."""
    if not isinstance(guard, sympy.Eq):
        return None
    for one, other in (guard.args, guard.args[::-1]):
        if not isinstance(one, FloorDiv) or not one.args[0].is_Symbol or one.args[0] in other.free_symbols:
            continue
        symbol, factor = one.args
        if factor.is_Integer and any(sympy.Eq(kind(symbol, factor), 0) in known for kind in (Mod, PythonMod)):
            return symbol, factor * other
    return None


def _invert(
    symbol: sympy.Symbol, found: Relations, guards: list[Any], holds: Callable[[Any, Mapping[Any, int]], bool]
) -> None:
    """Where symbol := f(base) and base is always k times it, keep the symbol and let base := k * symbol."""
    definition = found.apply(found.define[symbol])
    if len(definition.free_symbols) != 1:
        return
    (base,) = definition.free_symbols
    about = [guard for guard in map(found.apply, guards) if guard.free_symbols == {base}]
    if not about:
        return
    valid = [size for size in _TRIED if all(holds(guard, {base: size}) for guard in about)]
    if len(valid) < 3:
        return
    values = [int(definition.xreplace({base: sympy.Integer(size)})) for size in valid]
    ratios = {size // value if value and size % value == 0 else 0 for size, value in zip(valid, values, strict=True)}
    if len(ratios) == 1 and (ratio := ratios.pop()) > 1:
        del found.define[symbol]
        found.define[base] = ratio * symbol


def prune(guards: list[tuple[Any, bool]], holds: Callable[[Any, Mapping[Any, int]], bool]) -> list[Any]:
    """The guards without those of torch's own that follow from the others, as far as sampled sizes show."""
    kept: list[Any] = []
    ordered = sorted(dict(guards).items(), key=lambda pair: (not pair[1], len(str(pair[0]))))
    for guard, by_user in ordered:
        if by_user or not _follows(guard, kept, holds):
            kept.append(guard)
    own = [guard for guard, by_user in ordered if not by_user]
    for guard in own:  # a later bound may be the stronger one
        if guard in kept and _follows(guard, [other for other in kept if other is not guard], holds):
            kept.remove(guard)
    return kept


def _follows(guard: Any, kept: list[Any], holds: Callable[[Any, Mapping[Any, int]], bool]) -> bool:
    related = [other for other in kept if other.free_symbols & guard.free_symbols]
    symbols = sorted(set().union(guard.free_symbols, *(other.free_symbols for other in related)), key=str)
    seen = 0
    for sizes in _samples(symbols):
        if all(holds(other, sizes) for other in related):
            seen += 1
            if not holds(guard, sizes):
                return False
            if seen > 200:
                break
    return seen >= 8


def _samples(symbols: list[sympy.Symbol]) -> Iterable[dict[sympy.Symbol, int]]:
    """All small combinations, then random ones, always the same."""
    small = itertools.product(range(2, 5), repeat=len(symbols))
    for values in itertools.islice(small, 243):
        yield dict(zip(symbols, values, strict=True))
    numbers = random.Random(0)
    for _ in range(_SAMPLES):
        factor = numbers.choice((1, 1, 2, 3, 4, 6, 8, 32))
        yield {symbol: factor * numbers.randint(2, 24) for symbol in symbols}
