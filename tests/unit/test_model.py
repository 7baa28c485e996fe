"""The values: hashes that see what matters and nothing else, names, descriptions."""

from dataclasses import FrozenInstanceError, replace

import pytest
from samples import HARDWARE, INPUTS, TARGET, TASK

from kernelwright.model import Candidate, Case, CaseResult, Domain, Passed, digest

SOURCE = "def scale(x):\n    return x * 2\n"


@pytest.mark.parametrize(
    ("source", "same"),
    [
        (SOURCE, True),
        (SOURCE.replace("\n", "\r\n"), True),
        ("    def scale(x):\n        return x * 2\n", True),
        ("def scale(x):\n\treturn x * 2\n", True),
        ("def scale(x):   \n    return x * 2  \n", True),
        (f"@_kernelwright_scale\n{SOURCE}", True),
        ("def scale(x):\n    return x * 3\n", False),
        ("def scale(y):\n    return x * 2\n", False),
        (f"@torch.jit.script\n{SOURCE}", False),
        (SOURCE.replace("* 2", "*  2"), False),
        (SOURCE.replace("2\n", "2  # twice\n"), False),
    ],
)
def test_a_source_hash_sees_the_code_and_not_its_layout(source, same):
    plain = replace(TARGET, source=SOURCE).source_hash
    assert (replace(TARGET, source=source).source_hash == plain) is same


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({}, True),
        ({"graphs": ()}, True),
        ({"instruction": "faster"}, False),
        ({"inputs": replace(INPUTS, spec="x: f32[8]")}, False),
        ({"hardware": replace(HARDWARE, gpu="NVIDIA H200")}, False),
        ({"target": replace(TARGET, source="def scale(x): ...")}, False),
    ],
)
def test_a_task_is_the_question(changes, same):
    assert (replace(TASK, **changes).key == TASK.key) is same


@pytest.mark.parametrize("text", ["", "x", "ünï — 😀", "lone \udce9 surrogate"])
def test_a_digest_is_sixteen_hex_digits(text):
    assert len(digest(text)) == 16
    assert int(digest(text), 16) >= 0
    assert digest(text) != digest(f"{text} ")


@pytest.mark.parametrize(
    ("qualname", "name"),
    [("scale", "scale"), ("Norm.forward", "forward"), ("outer.<locals>.inner", "inner")],
)
def test_the_name_of_a_target(qualname, name):
    assert replace(TARGET, qualname=qualname).name == name


def test_a_candidate_is_its_text():
    assert Candidate("a", "builtin").id == Candidate("a", "openai", "m").id
    assert Candidate("a", "builtin").id != Candidate("b", "builtin").id


@pytest.mark.parametrize(
    ("case", "text"),
    [
        (Case(0), "call 0 · seed 0"),
        (Case(2, 7, "float16", {"s0": 1, "s1": 17}, "outlier", "transposed"),
         "call 2 · float16 · s0=1, s1=17 · outlier · transposed · seed 7"),
        (Case(1, values="zeros", layout="user"), "call 1 · zeros · seed 0"),
    ],
)  # fmt: skip
def test_a_case_in_words(case, text):
    assert case.describe() == text


@pytest.mark.parametrize(("errors", "worst"), [((), 0.0), ((1e-7, 3e-7, 2e-7), 3e-7)])
def test_the_worst_error_of_what_passed(errors, worst):
    results = tuple(CaseResult(Case(0), error, 1e-6) for error in errors)
    assert Passed(Candidate("a", "x"), Domain("cuda", ()), results).max_error == worst


@pytest.mark.parametrize("value", [TARGET, TASK, Candidate("a", "x"), Case(0)])
def test_values_are_frozen(value):
    name = next(iter(vars(value)))
    with pytest.raises(FrozenInstanceError):
        setattr(value, name, None)
