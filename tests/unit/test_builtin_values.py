"""Every golden module computes what its function computes: shapes, dtypes, layouts, NaN and infinities."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from builtin_samples import GENERATED

GOLDEN = Path(__file__).parents[1] / "golden" / "builtin"
RUN = Path(__file__).with_name("builtin_run.py")


@pytest.fixture(scope="module")
def results():
    """One process for all: importing torch and Triton takes longer than a function's cases."""
    command = [sys.executable, str(RUN), *(f"{name}={GOLDEN / name}.py" for name in GENERATED)]
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    finished = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900)
    assert finished.returncode == 0, finished.stderr[-3000:]
    return {result["name"]: result for result in map(json.loads, finished.stdout.splitlines())}


@pytest.mark.parametrize("name", GENERATED)
def test_the_module_agrees_with_eager(results, name):
    assert results[name]["wrong"] == []
    assert results[name]["runs"] >= 20
