"""Integer expressions over sizes and loop indices, kept as polynomials so that equal ones compare equal.

`Size` is a sum of terms, a term a whole number times a product of atoms. Atoms are symbols (run-time sizes, at least
1 wherever a kernel runs), loop indices with their extent, and floor divisions and remainders that could not be
resolved. Everything that an index transformation needs (reshape, slice, flip) is exact arithmetic here.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias


@dataclass(frozen=True)
class Symbol:
    """A run-time size. `least` is what the guards promise."""

    name: str
    least: int = field(default=1, compare=False)


@dataclass(frozen=True)
class Index:
    """A loop index: 0 <= index < extent."""

    name: str
    extent: Size


@dataclass(frozen=True)
class Opaque:
    """An integer that is a value of the kernel, such as a gathered label: nothing is known of it but its bounds."""

    key: int
    extent: Size | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Quotient:
    """dividend // divisor, for a positive divisor. `exact`: the guards promise that nothing is left over."""

    dividend: Size
    divisor: Size
    exact: bool = field(default=False, compare=False)


@dataclass(frozen=True)
class Remainder:
    dividend: Size
    divisor: Size


Atom: TypeAlias = Symbol | Index | Opaque | Quotient | Remainder
Monomial: TypeAlias = tuple[Atom, ...]


@dataclass(frozen=True)
class Size:
    """A polynomial: ((atoms, coefficient), ...), sorted, without zero coefficients."""

    terms: tuple[tuple[Monomial, int], ...] = ()

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(self.terms)

    @property
    def constant(self) -> int | None:
        """The number this is, or None."""
        if not self.terms:
            return 0
        if len(self.terms) == 1 and not self.terms[0][0]:
            return self.terms[0][1]
        return None

    def __add__(self, other: Size | int) -> Size:
        sums = dict(self.terms)
        for atoms, coefficient in size(other).terms:
            sums[atoms] = sums.get(atoms, 0) + coefficient
        return _make(sums)

    def __sub__(self, other: Size | int) -> Size:
        return self + size(other) * -1

    def __mul__(self, other: Size | int) -> Size:
        sums: dict[Monomial, int] = {}
        for left, a in self.terms:
            for right, b in size(other).terms:
                atoms = tuple(sorted(left + right, key=repr))
                sums[atoms] = sums.get(atoms, 0) + a * b
        return _make(sums)

    def __floordiv__(self, other: Size | int) -> Size:
        quotient, rest = divide(self, size(other))
        return quotient if rest is None else quotient + _make({(Quotient(rest, size(other)),): 1})

    def __mod__(self, other: Size | int) -> Size:
        divisor = size(other)
        quotient, rest = divide(self, divisor)
        if rest is None:
            return self - quotient * divisor
        return _make({(Remainder(rest, divisor),): 1})


def size(value: Size | int | Atom) -> Size:
    """Anything as a Size."""
    if isinstance(value, Size):
        return value
    return _make({(): value}) if isinstance(value, int) else _make({(value,): 1})


def _make(sums: Mapping[Monomial, int]) -> Size:
    kept = [(atoms, coefficient) for atoms, coefficient in sums.items() if coefficient]
    return Size(tuple(sorted(kept, key=lambda term: (-len(term[0]), repr(term[0])))))


ZERO, ONE = size(0), size(1)


def product(sizes: tuple[Size, ...]) -> Size:
    result = ONE
    for extent in sizes:
        result = result * extent
    return result


def divide(dividend: Size, divisor: Size) -> tuple[Size, Size | None]:
    """(quotient, None) where the floor division resolves, else (whole part, what is left to divide)."""
    if divisor == ONE:
        return dividend, None
    if nonnegative(dividend) and nonnegative(divisor - 1 - dividend):
        return ZERO, None
    quotient, rest = _long_division(dividend, divisor)
    if rest == ZERO:
        return quotient, None
    if rest.constant is not None and divisor.constant:
        return quotient + rest.constant // divisor.constant, None
    if nonnegative(rest) and nonnegative(divisor - 1 - rest):
        return quotient, None
    return quotient, rest


def _long_division(dividend: Size, divisor: Size) -> tuple[Size, Size]:
    """Polynomial division: dividend == quotient * divisor + rest, exact for any integers."""
    quotient, rest = ZERO, dividend
    if not divisor.terms:
        return quotient, rest
    lead, weight = divisor.terms[0]
    for _ in range(16):
        step = next((step for step in (_over(term, lead, weight) for term in rest.terms) if step), None)
        if step is None:
            break
        quotient, rest = quotient + step, rest - step * divisor
    return quotient, rest


def _over(term: tuple[Monomial, int], lead: Monomial, weight: int) -> Size | None:
    atoms, coefficient = list(term[0]), term[1]
    if not lead:
        whole = coefficient // weight if coefficient >= 0 else 0
        return _make({term[0]: whole}) if whole else None
    for atom in lead:
        if atom not in atoms:
            return None
        atoms.remove(atom)
    return _make({tuple(atoms): coefficient // weight}) if coefficient % weight == 0 else None


def nonnegative(expression: Size) -> bool:
    """Whether `expression` is provably >= 0 for every value of its indices and symbols."""
    lowest = _lowest(expression)
    if lowest is None:
        return False
    shifted = ZERO
    for atoms, coefficient in lowest.terms:
        term = size(coefficient)
        for atom in atoms:
            least = atom.least if isinstance(atom, Symbol) else 0
            term = term * (size(atom) + least)
        shifted = shifted + term
    return all(coefficient >= 0 for _, coefficient in shifted.terms)


def _lowest(expression: Size) -> Size | None:
    """A lower bound free of loop indices, by putting each index at the end that makes it smallest."""
    for _ in range(12):
        atom = next((a for atoms, _ in expression.terms for a in atoms if _bounds(a)), None)
        if atom is None:
            return expression
        low, high = _bounds(atom) or (ZERO, ZERO)
        factor, rest = _split(expression, atom)
        if factor is None:
            return None
        if nonnegative(factor):
            expression = rest + factor * low
        elif nonnegative(factor * -1):
            expression = rest + factor * high
        else:
            return None
    return None


def _split(expression: Size, atom: Atom) -> tuple[Size | None, Size]:
    """expression == factor * atom + rest; factor None where the atom appears squared."""
    factor, rest = ZERO, ZERO
    for atoms, coefficient in expression.terms:
        if atoms.count(atom) > 1:
            return None, ZERO
        others = tuple(a for a in atoms if a != atom)
        if len(others) < len(atoms):
            factor = factor + _make({others: coefficient})
        else:
            rest = rest + _make({atoms: coefficient})
    return factor, rest


def _bounds(atom: Atom) -> tuple[Size, Size] | None:
    if isinstance(atom, Index):
        return ZERO, atom.extent - 1
    if isinstance(atom, Opaque) and atom.extent is not None:
        return ZERO, atom.extent - 1
    if isinstance(atom, Remainder):
        return ZERO, atom.divisor - 1
    if isinstance(atom, Quotient) and indices(size(atom)):
        highest = _lowest(atom.dividend * -1)
        return (ZERO, (highest * -1) // atom.divisor) if highest is not None else None
    return None


def atoms_of(expression: Size) -> set[Atom]:
    """Every atom in the expression, also inside quotients and remainders; not inside the extents of indices."""
    found: set[Atom] = set()
    for monomial, _ in expression.terms:
        for atom in monomial:
            found.add(atom)
            if isinstance(atom, Quotient | Remainder):
                found |= atoms_of(atom.dividend) | atoms_of(atom.divisor)
    return found


def indices(expression: Size) -> set[Index]:
    return {atom for atom in atoms_of(expression) if isinstance(atom, Index)}


def symbols(expression: Size) -> set[Symbol]:
    return {atom for atom in atoms_of(expression) if isinstance(atom, Symbol)}


def substitute(expression: Size, values: Mapping[Atom, Size]) -> Size:
    """The expression with atoms replaced, also inside quotients and remainders (not in those that are exact)."""
    if not values:
        return expression
    total = ZERO
    for monomial, coefficient in expression.terms:
        term = size(coefficient)
        for atom in monomial:
            term = term * _replaced(atom, values)
        total = total + term
    return total


def _replaced(atom: Atom, values: Mapping[Atom, Size]) -> Size:
    if atom in values:
        return values[atom]
    if isinstance(atom, Quotient) and not atom.exact:
        made = substitute(atom.dividend, values) // substitute(atom.divisor, values)
        return values.get(made.terms[0][0][0], made) if len(made.terms) == 1 and len(made.terms[0][0]) == 1 else made
    if isinstance(atom, Remainder):
        return substitute(atom.dividend, values) % substitute(atom.divisor, values)
    return size(atom)


def ravel(index: tuple[Size, ...], shape: tuple[Size, ...]) -> Size:
    """The row-major position of `index` in `shape`."""
    position = ZERO
    for step, extent in zip(index, shape, strict=True):
        position = position * extent + step
    return position


def unravel(position: Size, shape: tuple[Size, ...]) -> tuple[Size, ...]:
    """The row-major index in `shape` at `position`."""
    index: list[Size] = []
    for axis, extent in enumerate(shape):
        inner = product(shape[axis + 1 :])
        step = ZERO if extent == ONE else position // inner
        index.append(step)
        position = position - step * inner
    return tuple(index)


# --- Text ------------------------------------------------------------------------------------------------------------


def text(expression: Size, name: Callable[[Atom], str]) -> str:
    """Python text, atoms other than quotients and remainders named by `name`."""
    parts: list[str] = []
    expression = _with_remainders(expression)
    for atoms, coefficient in sorted(expression.terms, key=lambda term: term[1] < 0):
        factors = []
        for atom in atoms:
            whole = atom.divisor.constant if isinstance(atom, Quotient) and atom.exact else None
            if isinstance(atom, Quotient) and whole and coefficient % whole == 0:
                coefficient //= whole
                factors.append(text(atom.dividend, name))
            else:
                factors.append(_factor(atom, name))
        if abs(coefficient) != 1 or not factors:
            factors.insert(0, str(abs(coefficient)))
        sign = "-" if coefficient < 0 else "+"
        parts.append(f"{sign} {' * '.join(factors)}")
    if not parts:
        return "0"
    joined = " ".join(parts)
    return joined[2:] if joined.startswith("+") else "-" + joined[2:]


def _with_remainders(expression: Size) -> Size:
    """a - b * (a // b) as a % b."""
    for atoms, _ in expression.terms:
        for atom in atoms:
            if isinstance(atom, Quotient) and not atom.exact:
                remainder = size(Remainder(atom.dividend, atom.divisor))
                shorter = expression - (atom.dividend - atom.divisor * size(atom)) + remainder
                if len(shorter.terms) < len(expression.terms):
                    return _with_remainders(shorter)
    return expression


def _factor(atom: Atom, name: Callable[[Atom], str]) -> str:
    if isinstance(atom, Quotient | Remainder):
        sign = "//" if isinstance(atom, Quotient) else "%"
        left, right = text(atom.dividend, name), text(atom.divisor, name)
        return f"({_grouped(left)} {sign} {_grouped(right)})"
    return name(atom)


def _grouped(words: str) -> str:
    return f"({words})" if " " in words and not (words.startswith("(") and _closes_at_end(words)) else words


def _closes_at_end(words: str) -> bool:
    depth = 0
    for position, character in enumerate(words):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return position == len(words) - 1
    return False


def _parse(words: str) -> ast.expr | None:
    try:
        return ast.parse(words, mode="eval").body
    except SyntaxError:
        return None


def _eliminated(gap: Size) -> Atom | None:
    """The atom of an equation `gap == 0` to express by the others: a quotient first, else the symbol named last."""
    alone = [atoms[0] for atoms, coefficient in gap.terms if len(atoms) == 1 and abs(coefficient) == 1]
    single = [atom for atom in alone if sum(atom in atoms for atoms, _ in gap.terms) == 1]
    single = [atom for atom in single if not any(atom in _inside(other) for other in atoms_of(gap) - {atom})]
    divisions = [atom for atom in single if isinstance(atom, Quotient | Remainder)]
    named = sorted((atom for atom in single if isinstance(atom, Symbol)), key=lambda atom: (len(atom.name), atom.name))
    return divisions[0] if divisions else named[-1] if named else None


def _inside(atom: Atom) -> set[Atom]:
    return atoms_of(atom.dividend) | atoms_of(atom.divisor) if isinstance(atom, Quotient | Remainder) else set()


class Reader:
    """Reads the tracer's expressions, applying what the guards promise: equal sizes, divisibility, least sizes."""

    def __init__(self, guards: tuple[str, ...]) -> None:
        self._least: dict[str, int] = {}
        self._same: dict[Atom, Size] = {}
        compared = [tree for tree in map(_parse, guards) if isinstance(tree, ast.Compare) and len(tree.ops) == 1]
        for tree in compared:
            self._learn_least(tree)
        for tree in compared:
            self._learn_same(tree)

    def _learn_least(self, tree: ast.Compare) -> None:
        left, op, right = tree.left, tree.ops[0], tree.comparators[0]
        if isinstance(right, ast.Name) and not isinstance(left, ast.Name):
            left, right = right, left
            op = {ast.LtE: ast.GtE, ast.Lt: ast.Gt, ast.GtE: ast.LtE, ast.Gt: ast.Lt}.get(type(op), type(op))()
        match left, op, right:
            case ast.Name(id=name), ast.GtE(), ast.Constant(value=int() as number):
                self._least[name] = max(number, self._least.get(name, 1))
            case ast.Name(id=name), ast.Gt(), ast.Constant(value=int() as number):
                self._least[name] = max(number + 1, self._least.get(name, 1))

    def _learn_same(self, tree: ast.Compare) -> None:
        """From an equality, what its least basic atom stands for: elimination, as for linear equations."""
        if not isinstance(tree.ops[0], ast.Eq):
            return
        match tree.left, tree.comparators[0]:
            case ast.BinOp(left=ast.Name(id=name), op=ast.Mod(), right=ast.Constant(value=int() as divisor)), (
                ast.Constant(value=0)
            ):
                symbol = Symbol(name, self._least.get(name, 1))
                if symbol not in self._same:
                    self._learn(symbol, size(Quotient(size(symbol), size(divisor), exact=True)) * divisor)
                return
        try:
            gap = self._read(tree.left) - self._read(tree.comparators[0])
        except ValueError:
            return
        chosen = _eliminated(gap)
        if chosen is not None:
            factor, rest = _split(gap, chosen)
            assert factor is not None and factor.constant is not None
            self._learn(chosen, rest * -factor.constant)

    def _learn(self, atom: Atom, value: Size) -> None:
        self._same = {known: substitute(words, {atom: value}) for known, words in self._same.items()}
        self._same[atom] = value

    def read(self, dim: int | str) -> Size:
        """The size that a dimension of the graph says.

        Raises:
            ValueError: anything but whole-number arithmetic.
        """
        if isinstance(dim, int):
            return size(dim)
        tree = _parse(dim)
        if tree is None:
            raise ValueError(f"not a size: {dim}")
        return self._read(tree)

    def _read(self, node: ast.expr) -> Size:
        return substitute(self._plain(node), self._same)

    def _plain(self, node: ast.expr) -> Size:
        match node:
            case ast.Constant(value=int() as number):
                return size(number)
            case ast.Name(id=name):
                return size(Symbol(name, self._least.get(name, 1)))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self._read(operand) * -1
            case ast.BinOp(left=left, op=op, right=right):
                a, b = self._read(left), self._read(right)
                match op:
                    case ast.Add():
                        return a + b
                    case ast.Sub():
                        return a - b
                    case ast.Mult():
                        return a * b
                    case ast.FloorDiv():
                        return a // b
                    case ast.Mod():
                        return a % b
                    case ast.Pow() if b.constant is not None and b.constant >= 0:
                        return product((a,) * b.constant)
        raise ValueError(f"not a size: {ast.unparse(node)}")
