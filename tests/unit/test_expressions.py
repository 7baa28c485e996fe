import pytest

from kernelwright.source.expressions import evaluate, names

VALUES = {"s0": 7, "s1": 4, "eps": 0.5}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (12, 12),
        ("s0", 7),
        ("s0 // 2 + 1", 4),
        ("s0 % 2 == 1", True),
        ("1 < s1 <= 4", True),
        ("1 < s1 < 4", False),
        ("not (eps >= 1) and s1 != s0", True),
        ("s0 < 1 or eps == 0.5", True),
        ("max(s0, s1) ** 2", 49),
        ("-eps / 2", -0.25),
    ],
)
def test_value(expression, expected):
    assert evaluate(expression, VALUES) == expected


@pytest.mark.parametrize(
    "expression",
    ["__import__('os')", "s0.bit_length()", "[s0]", "s0 if s1 else 0", "lambda: 1", "'text'", "s0 +", "open(s0)"],
)
def test_anything_else_is_refused(expression):
    with pytest.raises(ValueError):
        evaluate(expression, VALUES)


def test_unknown_name():
    with pytest.raises(KeyError):
        evaluate("s9 + 1", VALUES)


def test_names():
    assert names("max(s0, 2) * s1") == {"s0", "s1"}
    assert names(3) == frozenset()
