"""Index arithmetic: what the built-in generator's fusion relies on."""

import itertools

import pytest

from kernelwright.providers.builtin.fusion import move
from kernelwright.providers.builtin.sizes import (
    Index,
    Quotient,
    Reader,
    Symbol,
    nonnegative,
    ravel,
    size,
    text,
    unravel,
)

S, T = size(Symbol("s")), size(Symbol("t"))
ROW, COL = size(Index("i", S)), size(Index("j", T))


def shown(expression):
    return text(expression, lambda atom: atom.name)


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ((ROW * T + COL) // T, "i"),
        ((ROW * T + COL) % T, "j"),
        ((ROW * T + COL) // (T * 2), "((i * t + j) // (2 * t))"),
        (ROW // S, "0"),
        (COL % T, "j"),
        ((S - 1 - ROW) // S, "0"),
        ((ROW * 4 + 3) // 4, "i"),
        ((ROW * 4 + 3) % 2, "1"),
        (S * T - T * S, "0"),
        ((S + 1) * (S - 1), "s * s - 1"),
        (COL - (COL // 2) * 2, "(j % 2)"),
        ((ROW * (S + 1) + ROW) // (S + 1), "i"),
    ],
)
def test_division_resolves_where_the_bounds_allow(expression, words):
    assert shown(expression) == words


@pytest.mark.parametrize(
    ("expression", "proven"),
    [
        (S - 1 - ROW, True),
        (ROW - S, False),
        (S - 1, True),
        (S - 2, False),
        (T * S - 1 - (ROW * T + COL), True),
        (ROW - 1, False),
        (S // 2, True),
    ],
)
def test_nonnegative_is_proven_only_where_it_holds(expression, proven):
    assert nonnegative(expression) is proven


@pytest.mark.parametrize("shape", [(S, T), (size(2), S, T), (S,), ()])
def test_unravel_undoes_ravel(shape):
    index = tuple(size(Index(f"k{axis}", extent)) for axis, extent in enumerate(shape))
    assert unravel(ravel(index, shape), shape) == index


def test_a_reshape_keeps_the_dims_that_it_does_not_touch():
    index = tuple(size(Index(name, extent)) for name, extent in (("a", S), ("b", size(8)), ("c", T)))
    assert move(index, (S, size(8), T), (S, size(2), size(4), T))[0::3] == (index[0], index[2])


@pytest.mark.parametrize(
    ("guards", "dim", "words"),
    [
        ((), "s0 * 2 + 1", "2 * s0 + 1"),
        (("s0 == s1",), "s1", "s0"),
        (("s1 % 8 == 0",), "s1 // 8 * 8", "s1"),
        (("s3 == (2 + s4) // 3", "s4 + -2 * ((2 + s4) // 3) == s3"), "s4", "3 * s3"),
        (("s2 == s4 + -2 * ((2 + s4) // 3)", "s3 == (2 + s4) // 3", "s2 == s3"), "s2", "s3"),
        (("max(1, s0) == s0",), "s0", "s0"),
    ],
)
def test_guards_are_equations(guards, dim, words):
    assert shown(Reader(guards).read(dim)) == words


def test_arithmetic_agrees_with_whole_numbers():
    """Quotients and remainders of i * t + j + c by small divisors, for every place in small shapes."""
    for s, t, divisor, offset in itertools.product((1, 2, 3), (1, 2, 5), (1, 2, 3, 4), (0, 1, 7)):
        rows, cols = Index("i", size(s)), Index("j", size(t))
        value = size(rows) * t + size(cols) + offset
        for i, j in itertools.product(range(s), range(t)):
            names = {rows: i, cols: j}
            plain = i * t + j + offset
            words = text(value // divisor, lambda atom, names=names: str(names[atom]))
            assert eval(words) == plain // divisor
            words = text(value % divisor, lambda atom, names=names: str(names[atom]))
            assert eval(words) == plain % divisor


def test_an_exact_quotient_is_written_as_its_symbol():
    channels = size(Quotient(size(Symbol("c")), size(4), exact=True)) * 4
    assert shown(channels) == "c"
    assert shown(channels // 4) == "(c // 4)"
