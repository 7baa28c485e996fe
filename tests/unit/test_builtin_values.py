"""Every golden module computes what its function computes, in Triton's interpreter, and compiles for GPUs."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from builtin_samples import GENERATED

GOLDEN = Path(__file__).parents[1] / "golden" / "builtin"
HERE = Path(__file__).parent


def run(script, **environment):
    """One process for all: importing torch and Triton takes longer than a function's cases."""
    command = [sys.executable, str(HERE / script), *(f"{name}={GOLDEN / name}.py" for name in GENERATED)]
    kept = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    finished = subprocess.run(command, capture_output=True, text=True, env=kept | environment, timeout=900)
    assert finished.returncode == 0, finished.stderr[-3000:]
    return {result["name"]: result for result in map(json.loads, finished.stdout.splitlines())}


@pytest.fixture(scope="module")
def values():
    return run("builtin_run.py", TRITON_INTERPRET="1")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    return run("builtin_compile.py", TRITON_CACHE_DIR=str(tmp_path_factory.mktemp("triton")))


@pytest.mark.parametrize("name", GENERATED)
def test_the_module_agrees_with_eager(values, name):
    """Shapes, dtypes, layouts, rows longer than a block, NaN and infinities."""
    assert values[name]["wrong"] == []
    assert values[name]["runs"] >= 20


@pytest.mark.parametrize("name", GENERATED)
def test_every_kernel_compiles(compiled, name):
    assert compiled[name]["wrong"] == []
    source = (GOLDEN / f"{name}.py").read_text()
    launched = set(re.findall(r"def (_\w*kernel\w*)\(", source))
    assert set(compiled[name]["kernels"]) == launched
