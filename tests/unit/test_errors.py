"""The error tree: as drawn in the module's docstring, and what the errors carry."""

import inspect

import pytest

from kernelwright import errors

CLASSES = {name: value for name, value in vars(errors).items() if inspect.isclass(value)}


def test_the_drawing_is_the_tree():
    """Each line of the drawing names a class, indented under its base."""
    drawn: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        words = line.lstrip("│├└─ ").split()
        if not words or words[0] not in CLASSES:
            continue
        indent = len(line) - len(line.lstrip("│├└─ "))
        above = [(depth, name) for depth, name in above if depth < indent]
        if above:
            drawn[words[0]] = above[-1][1]
        above.append((indent, words[0]))
    root = errors.KernelwrightError
    assert drawn == {name: value.__base__.__name__ for name, value in CLASSES.items() if value is not root}


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_the_message_is_shown_as_it_stands(name):
    extra = ("x: f32[8]",) if name == "InputsNeeded" else ()
    assert str(CLASSES[name]("do this next", *extra)) == "do this next"


def test_what_errors_carry():
    assert errors.InputsNeeded("why", "x: f32[8]").suggestion == "x: f32[8]"
    assert errors.ProviderError("why", 3.5).retry_after_s == 3.5
    assert errors.ProviderError("why").retry_after_s is None
