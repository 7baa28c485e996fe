"""The command line without workers: usage, exit statuses, what is printed for each outcome."""

import json
from dataclasses import replace

import pytest
from samples import CALL, HARDWARE, TARGET, TASK

from kernelwright.cli import commands, render
from kernelwright.cli.main import run
from kernelwright.model import (
    Candidate,
    Case,
    CaseResult,
    Checking,
    Counterexample,
    Declined,
    Domain,
    Evidence,
    Failed,
    Finding,
    Generating,
    Kept,
    Measurement,
    Passed,
    Proposed,
    Refusal,
    Refuted,
    Starting,
    Tracing,
)
from kernelwright.verify.domain import from_graph

CANDIDATE = Candidate("source", "builtin", entry="scale")
PASSED = Passed(
    CANDIDATE,
    Domain("cuda", (from_graph(TASK.graphs[0]),)),
    (CaseResult(Case(0), 0.25, 1.0), CaseResult(Case(0, values="large"), 90.0, 100.0)),
    ("sm_90",),
)
SHOWN = Counterexample(Case(0, seed=3), CALL.arguments, "output", (0, 5), "nan", "1.5", 1.0, 0.5)
REFUTED = Refuted(CANDIDATE, Finding("K201", "wrong values", 7), SHOWN, 12)
MEASURED = Measurement(PASSED, "GPU", 3.0, 2.0, 1.0, 0.5, (0.9, 1.1))
EVIDENCE = Evidence(
    "id", "builtin", "", "2026-01-01", HARDWARE, "hash", PASSED.domain, 2, 0.25, ("sm_90",), "literal: x"
)
OUTCOMES = {
    "proposed": (Proposed(TASK, PASSED, EVIDENCE, "module"), 0),
    "declined": (Declined(TARGET, Refusal("sorts", "aten.sort", 5), "builtin"), 3),
    "failed": (Failed(TASK, REFUTED, 2), 4),
    "kept": (Kept(TASK, PASSED, MEASURED, "module"), 5),
}


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(tmp_path / "home"))
    (tmp_path / "f.py").write_text("import torch\n\n\ndef scale(x, factor=2.0):\n    return torch.mul(x, factor)\n")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["generate", "{f}"], "names no function"),
        (["generate", "{f}::"], "names no function"),
        (["generate", "nowhere.py::f"], "cannot read nowhere.py"),
        (["generate", "{f}::scael"], "scale"),
        (["generate", "{f}::scale"], "nothing says what scale is called with"),
        (["generate", "{f}::scale", "--inputs", "x: bf17[3]"], "bf17"),
        (["generate", "{f}::scale", "--inputs", "missing.py:make"], "there is no file missing.py"),
        (["generate", "{f}::scale", "--provider", "gemini"], "kernelwright.provider must be one of"),
        (["verify", "{f}::scale", "nowhere.py"], "cannot read nowhere.py"),
        (["analyse", "nowhere.py"], "cannot read nowhere.py"),
    ],
)
def test_wrong_usage_is_status_2_and_says_what_to_do(home, capsys, arguments, words):
    arguments = [part.replace("{f}", str(home / "f.py")) for part in arguments]
    assert run([*arguments, "--json"]) == 2
    printed = capsys.readouterr()
    assert words in printed.err
    answer = json.loads(printed.out)
    assert answer["outcome"] == "usage"
    assert words in answer["reason"]


def test_a_file_that_is_not_text(home, capsys):
    (home / "b.py").write_bytes(b"\xff\xfe\x00")
    assert run(["generate", f"{home / 'b.py'}::f"]) == 2
    assert "not UTF-8" in capsys.readouterr().err


def test_an_interpreter_that_does_not_exist(home, capsys):
    arguments = ["generate", f"{home / 'f.py'}::scale", "--inputs", "x: f32[3]", "--interpreter", "/nowhere/python"]
    assert run(arguments) == 1
    assert "/nowhere/python" in capsys.readouterr().err


@pytest.mark.parametrize("name", sorted(OUTCOMES))
def test_every_outcome_as_json(name):
    outcome, status = OUTCOMES[name]
    answer = json.loads(json.dumps(render.outcome_json(outcome, "builtin", "diff")))
    assert commands.STATUS[type(outcome)] == status
    assert answer["outcome"] == name
    assert {"target", "provider", "reason", "verdict", "measurement", "source", "edit"} <= answer.keys()
    assert answer["target"] == "scale"
    assert answer["reason"]


def test_a_proposal_as_json():
    answer = render.outcome_json(OUTCOMES["proposed"][0], "builtin", "diff")
    assert (answer["source"], answer["edit"], answer["measurement"]) == ("module", "diff", None)
    assert "no GPU" in answer["reason"]
    verdict = answer["verdict"]
    assert (verdict["passed"], verdict["cases"], verdict["max_error"], verdict["max_share"]) == (True, 2, 0.25, 0.9)
    assert verdict["domain"]["dtypes"] == ["bfloat16", "float16", "float32"]


def test_a_refuted_verdict_as_json_can_be_replayed():
    verdict = json.loads(json.dumps(render.verdict_output(REFUTED, "scale")))["verdict"]
    assert verdict["finding"] == {"code": "K201", "message": "wrong values", "line": 7}
    shown = verdict["counterexample"]
    assert shown["shapes"] == {"x": [512, 4096]}
    assert shown["dtypes"] == {"x": "float32"}
    assert shown["strides"] == {"x": [4096, 1]}
    assert (shown["seed"], shown["index"], shown["got"], shown["expected"]) == (3, [0, 5], "nan", "1.5")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("proposed", ["diff", "proposed: a Triton kernel for scale", "passed 2 cases", "not timed", "90%"]),
        ("declined", ["declined: scale cannot be a kernel (line 5): sorts"]),
        ("failed", ["failed after 2 round(s)", "K201: wrong values (line 7", "at output[0, 5]: got nan, expected 1.5"]),
        ("kept", ["keep that"]),
    ],
)
def test_every_outcome_as_text(name, words):
    text = render.outcome_text(OUTCOMES[name][0], "diff")
    assert [word for word in words if word not in text] == []


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (Starting("python3"), "starting workers in python3"),
        (Tracing(TARGET), "tracing scale"),
        (Generating("anthropic", "m", 2), "round 2: anthropic m writes the kernel"),
        (Generating("anthropic", "m", 2, waiting="busy, again in 3 s"), "anthropic: busy, again in 3 s"),
        (Generating("anthropic", "m", 2, 500), ""),
        (Checking(CANDIDATE, "values", 3, 9), "checking values: 3 of 9 cases"),
        (Checking(CANDIDATE, "guard", 9, 9), "guard"),
    ],
)
def test_stages(event, line):
    assert render.stage(event) == line


def test_writing_keeps_line_endings_and_mode(tmp_path):
    path = tmp_path / "f.py"
    path.write_bytes(b"a\r\n")
    path.chmod(0o750)
    commands.write_text(str(path), "a\r\nb\r\n")
    assert path.read_bytes() == b"a\r\nb\r\n"
    assert path.stat().st_mode & 0o777 == 0o750
    assert list(tmp_path.iterdir()) == [path]


def test_reading_keeps_line_endings(tmp_path):
    path = tmp_path / "f.py"
    path.write_bytes("\ufeffa\r\nb".encode())
    assert commands.read_document(str(path)).text == "\ufeffa\r\nb"
    assert replace(commands.read_document(str(path)), text="").path == str(path)
