# ruff: noqa: E501 (a row of a table reads best on one line)
"""Assembling a candidate and its guard."""

from __future__ import annotations

import ast
from dataclasses import replace

import pytest
from source_samples import RMS_NORM, RMS_NORM_DOMAIN, document, example, plus_one, plus_one_domain

from kernelwright.source.layout import indented
from kernelwright.source.locate import find_target
from kernelwright.source.module import OWN_SUPPORTS, assemble
from kernelwright.source.rename import rename

TARGET = example("rms_norm", "rms_norm")


def names(source: str) -> set[str]:
    return {node.name for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}


def test_the_module_defines_the_function_and_supports() -> None:
    module = assemble(RMS_NORM, TARGET, RMS_NORM_DOMAIN)
    assert names(module) == {"_rms_norm_kernel", "rms_norm", "_why_not", "supports"}
    assert module.startswith(RMS_NORM)


def test_assembling_again_changes_only_the_guard() -> None:
    module = assemble(RMS_NORM, TARGET, RMS_NORM_DOMAIN)
    assert assemble(module, TARGET, RMS_NORM_DOMAIN) == module
    narrower = replace(RMS_NORM_DOMAIN, variants=(replace(RMS_NORM_DOMAIN.variants[0], max_size={"s1": 17}),))
    other = assemble(module, TARGET, narrower)
    assert "17" in other
    assert "65536" not in other
    assert other == assemble(RMS_NORM, TARGET, narrower)


def test_the_candidates_own_supports_stays_a_condition() -> None:
    source = RMS_NORM + "\n\ndef supports(x, weight, eps=1e-6):\n    return x.shape[1] < 10\n"
    module = assemble(source, TARGET, RMS_NORM_DOMAIN)
    assert names(module) == {"_rms_norm_kernel", "rms_norm", "_why_not", "supports", OWN_SUPPORTS}
    assert f"if not {OWN_SUPPORTS}(x, weight, eps):" in module
    assert assemble(module, TARGET, RMS_NORM_DOMAIN) == module


def test_autotuned_kernels_are_looked_through() -> None:
    tuned = RMS_NORM.replace("@triton.jit", "@triton.autotune(configs=[], key=['n'])\n@triton.jit")
    assert "isinstance(_rms_norm_kernel.fn, triton.JITFunction)" in assemble(tuned, TARGET, RMS_NORM_DOMAIN)


def test_a_launcher_that_switches_devices_runs_on_any() -> None:
    assert "current_device()" in assemble(RMS_NORM, TARGET, RMS_NORM_DOMAIN)
    switching = RMS_NORM.replace(
        "    y = torch.empty_like(x)\n", "    y = torch.empty_like(x)\n    torch.cuda.device(x.device)\n"
    )
    assert "current_device()" not in assemble(switching, TARGET, RMS_NORM_DOMAIN)


def test_imports_are_added_where_they_are_missing_and_dropped_where_unused() -> None:
    source = RMS_NORM.replace("import torch\nimport triton\n", '"""Doc."""\nimport math\nfrom triton import cdiv\n')
    lines = assemble(source, TARGET, RMS_NORM_DOMAIN).splitlines()
    assert {"import torch", "import triton", "from triton import cdiv", '"""Doc."""'} <= set(lines)
    assert "import math" not in lines
    guarded = replace(RMS_NORM_DOMAIN, variants=(replace(RMS_NORM_DOMAIN.variants[0], guards=("floor(s1 / 2) > 0",)),))
    assert "import math" in assemble(RMS_NORM, TARGET, guarded).splitlines()


def test_names_of_the_candidates_are_not_taken() -> None:
    source = RMS_NORM + "\n\ndef _why_not():\n    return None\n"
    module = assemble(source, TARGET, RMS_NORM_DOMAIN)
    assert names(module) == {"_rms_norm_kernel", "rms_norm", "_why_not", "supports", "guard_why_not"}


def test_a_target_called_supports() -> None:
    target = find_target(document("import torch\ndef supports(x): return torch.relu(x)"), "supports")
    module = assemble(plus_one("supports", "x"), target, plus_one_domain())
    assert names(module) == {"_plus_one_kernel", "supports", "_why_not"}


@pytest.mark.parametrize("source", ["def f(:", "x = 1\n"])
def test_what_no_check_would_have_let_through(source: str) -> None:
    with pytest.raises(ValueError, match="the candidate"):
        assemble(source, TARGET, RMS_NORM_DOMAIN)


RENAMES = {
    "uses and definitions": ("def f(a=N):\n    # N\n    return N + a.N\nN = 1\n", "def f(a=M):\n    # N\n    return M + a.N\nM = 1\n"),
    "locals": ("def f(N):\n    return N\ndef g():\n    N = 1\n    return N\n", None),
    "a nested function": ("def f():\n    def g(): return N\n    return g\n", "def f():\n    def g(): return M\n    return g\n"),
    "annotations and decorators": ("@N\ndef f(a: N.b) -> N:\n    pass\n", "@M\ndef f(a: M.b) -> M:\n    pass\n"),
    "keywords and strings": ("f(N=1, x='N')\n", None),
    "a function": ("def N():\n    return N()\n", "def M():\n    return M()\n"),
    "after an emoji": ("x = '🎉', N\n", "x = '🎉', M\n"),
    "lambdas": ("f = lambda N: N\ng = lambda x=N: N\n", "f = lambda N: N\ng = lambda x=M: M\n"),
}  # fmt: skip


@pytest.mark.parametrize("before, after", RENAMES.values(), ids=RENAMES)
def test_renaming(before: str, after: str | None) -> None:
    assert rename(before, {"N": "M"}) == (after or before)


LAYOUTS = {
    "levels": ("if 1:\n  x = (1,\n       2)\n", ["\tif 1:", "\t\tx = (1,", "\t\t     2)", ""]),
    "comments": ("# a\nif 1:\n    # b\n    x\n# c\ny\n", ["\t# a", "\tif 1:", "\t\t# b", "\t\tx", "\t# c", "\ty", ""]),
    "docstrings": ('def f():\n    """a\n    b\n    """\n', ["\tdef f():", '\t\t"""a', "\t\tb", '\t\t"""', ""]),
    "strings": ('x = """a\n  b\n"""\ny\n', ['\tx = """a', "  b", '"""', "\ty", ""]),
    "comments in brackets": ("x = [\n    # one\n    1,\n]\n", ["\tx = [", "\t    # one", "\t    1,", "\t]", ""]),
}  # fmt: skip


@pytest.mark.parametrize("before, after", LAYOUTS.values(), ids=LAYOUTS)
def test_indenting(before: str, after: list[str]) -> None:
    assert indented(before, "\t", 1) == after


def test_strings_in_kernels_are_indented_since_triton_dedents_them() -> None:
    source = 'def k():\n    asm("""a\n    b\n    """)\n'
    assert indented(source, "    ", 1, [(1, 4)]) == [
        "    def k():",
        '        asm("""a',
        "        b",
        '        """)',
        "",
    ]
