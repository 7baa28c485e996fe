"""Whole requests through the real command, workers and all."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
HEADER = "import torch\nimport triton\nimport triton.language as tl\n\n\n"
KERNEL = """
@triton.jit
def double_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    tl.store(out_ptr + offsets, x + {term}, mask=offsets < n)


def double(x):
    out = torch.empty_like(x)
    double_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out


def supports(x):
    return x.is_contiguous()
"""
CANDIDATES = {
    "right": (HEADER + KERNEL.format(term="x"), 0, ""),
    "wrong": (HEADER + KERNEL.format(term="x * 1.001"), 4, "K201"),
    "not a kernel": (HEADER + "def double(x):\n    return x + x\n", 4, "K1"),
    "does not parse": ("def double(x:\n", 4, "K101"),
    "hallucinated": (HEADER + KERNEL.format(term="tl.double(x)"), 4, "K105"),
}


def command(home, *arguments):
    environment = os.environ | {"KERNELWRIGHT_HOME": str(home)}
    line = [sys.executable, "-m", "kernelwright", *map(str, arguments), "--json"]
    finished = subprocess.run(line, capture_output=True, text=True, env=environment, timeout=240)
    return finished, json.loads(finished.stdout)


@pytest.mark.parametrize("name", CANDIDATES)
def test_verify(tmp_path, name):
    text, status, code = CANDIDATES[name]
    (tmp_path / "f.py").write_text(
        "import torch\n\nprint('{')\n\n\n# inputs: x: f32[5, 300]\ndef double(x):\n    return x + x\n"
    )
    (tmp_path / "candidate.py").write_text(text)
    finished, answer = command(tmp_path, "verify", f"{tmp_path / 'f.py'}::double", tmp_path / "candidate.py")
    assert finished.returncode == status, (answer, finished.stderr[-1500:])
    assert answer["verdict"]["passed"] is (status == 0)
    if code:
        assert answer["verdict"]["finding"]["code"].startswith(code)


def test_a_function_that_cannot_be_a_kernel_is_declined_with_its_line(tmp_path):
    finished, answer = command(tmp_path, "generate", f"{EXAMPLES / 'declined.py'}::keep_confident")
    assert finished.returncode == 3
    assert (answer["outcome"], answer["line"]) == ("declined", 9)
    assert answer["reason"]


def test_apply_writes_the_kernel_and_nothing_else(tmp_path):
    path = tmp_path / "softmax.py"
    shutil.copy(EXAMPLES / "softmax.py", path)
    before = path.read_text()
    finished, answer = command(
        tmp_path,
        "generate",
        f"{path}::tempered_softmax",
        "--apply",
        "--inputs",
        "logits: f32[64, 100], temperature=0.5",
    )
    assert finished.returncode == 0, (answer["reason"], finished.stderr[-1500:])
    after = path.read_text()
    assert after != before
    kept = [line for line in before.splitlines() if line not in after.splitlines()]
    assert kept == []
    check = (
        "import torch, warnings; warnings.simplefilter('error'); warnings.filterwarnings('ignore', category=RuntimeWarning);"
        "import softmax; x = torch.randn(3, 9);"
        "assert torch.equal(softmax.tempered_softmax(x, 0.5), torch.softmax(x / 0.5, dim=-1))"
    )
    subprocess.run([sys.executable, "-c", check], cwd=tmp_path, check=True, timeout=120)


def test_analyse_lists_what_uses_torch(tmp_path):
    finished, answer = command(tmp_path, "analyse", EXAMPLES / "rms_norm.py")
    assert finished.returncode == 0
    (row,) = answer["targets"]
    assert (row["qualname"], row["class"], row["refusal"]) == ("rms_norm", "row reduction", None)
    assert row["bytes"] > 2 * 8192 * 4096 * 2


METHODS = """
import torch
from torch import nn


class Span(nn.Module):
    @classmethod
    def of(cls, x):
        return x.amax(-1, keepdim=True) - x.amin(-1, keepdim=True)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.act = nn.SiLU()

    def forward(self, x):
        return x + self.act(x)
"""


def test_a_class_method_is_called_as_one(tmp_path):
    (tmp_path / "m.py").write_text(METHODS)
    finished, answer = command(tmp_path, "generate", f"{tmp_path / 'm.py'}::Span.of", "--inputs", "x: f32[5, 8]")
    assert finished.returncode == 0, (answer["reason"], finished.stderr[-1500:])


def test_a_submodule_that_could_be_replaced_declines(tmp_path):
    (tmp_path / "m.py").write_text(METHODS)
    finished, answer = command(tmp_path, "generate", f"{tmp_path / 'm.py'}::Block.forward", "--inputs", "x: f32[5, 8]")
    assert (finished.returncode, answer["outcome"]) == (3, "declined")
    assert "SiLU" in answer["reason"]


def test_an_interpreter_without_torch_says_what_to_install(tmp_path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"], check=True)
    bare = tmp_path / "bare" / "bin" / "python"
    finished, answer = command(tmp_path, "generate", f"{EXAMPLES / 'rms_norm.py'}::rms_norm", "--interpreter", bare)
    assert finished.returncode == 1
    assert f"{bare} -m pip install torch" in answer["reason"]
