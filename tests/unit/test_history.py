"""The history: what goes in comes out, also after a restart; nothing changes afterwards; the file stays small."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from kernelwright.errors import HistoryError
from kernelwright.history import MIGRATIONS, SqliteHistory, to_json
from kernelwright.model import (
    Candidate,
    Case,
    CaseResult,
    Counterexample,
    Declined,
    Document,
    Domain,
    Evidence,
    Failed,
    Finding,
    Hardware,
    Inputs,
    Outcome,
    Passed,
    Proposed,
    Refusal,
    Refuted,
    Span,
    Target,
    Task,
)

SOURCE = "def scale(x):\n    return x * 2\n"
DOCUMENT = Document("file:///a.py", "/a.py", SOURCE)
TARGET = Target(DOCUMENT, "scale", SOURCE, Span(0, 0, 2, 0), 0, ())
TASK = Task(TARGET, Inputs("literal", "x: f32[8]"), (), Hardware(None, ("sm_90",), "2.13", "3.7", "3.11"))
CANDIDATE = Candidate("import triton\n", "builtin", entry="scale")
DOMAIN = Domain("cuda", ())
PASSED = Passed(CANDIDATE, DOMAIN, (CaseResult(Case(0), 1e-7, 1e-6),))
REFUTED = Refuted(CANDIDATE, Finding("K201", "wrong"), Counterexample(Case(0), (), got="nan", error=float("nan")), 3)
EVIDENCE = Evidence(
    "e1",
    "builtin",
    "",
    "2026-12-01",
    TASK.hardware,
    TARGET.source_hash,
    DOMAIN,
    1,
    1e-7,
    ("sm_90",),
    "literal: x: f32[8]",
)
PROPOSED = Proposed(TASK, PASSED, EVIDENCE, "# assembled\nimport triton\n")

OUTCOMES: list[Outcome] = [
    PROPOSED,
    Declined(TARGET, Refusal("sorts", "aten.sort", 3), "builtin"),
    Failed(TASK, REFUTED, 2),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "history.db"


def test_evidence_comes_back_with_both_texts_after_a_restart(path: Path) -> None:
    first = SqliteHistory(path)
    first.record_outcome("r", PROPOSED)
    first.close()
    second = SqliteHistory(path)
    texts = {"source": "import triton\n", "module": "# assembled\nimport triton\n"}
    expected = {**to_json(EVIDENCE), **texts, "domain_in_words": "nothing, CUDA, no gradients"}
    assert (second.evidence("e1"), second.evidence("other")) == (expected, None)


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda outcome: type(outcome).__name__)
def test_every_outcome_is_kept(path: Path, outcome: Outcome) -> None:
    SqliteHistory(path).record_outcome("r", outcome)
    with sqlite3.connect(path) as db:
        rows = db.execute("SELECT run, path, qualname, kind FROM outcomes").fetchall()
    assert rows == [("r", "/a.py", "scale", type(outcome).__name__.lower())]


def test_attempts_keep_the_candidate_and_the_finding(path: Path) -> None:
    history = SqliteHistory(path)
    history.record_attempt("r", TASK, REFUTED)
    history.record_attempt("r", TASK, PASSED)
    history.record_attempt("another", TASK, PASSED)
    kept = history.attempts("r")
    assert [(row["source"], row["code"]) for row in kept] == [("import triton\n", "K201"), ("import triton\n", None)]
    assert kept[0]["verdict"]["counterexample"]["got"] == "nan"


def test_the_newest_answer_counts_and_targets_do_not_mix(path: Path) -> None:
    history = SqliteHistory(path)
    for qualname, spec in [("f", "x: f32[1]"), ("f", "x: f32[2]"), ("g", "y: f32[3]"), ("f", "x: f32[2]")]:
        history.remember_inputs("/a.py", qualname, spec)
    found = [history.remembered_inputs(*key) for key in [("/a.py", "f"), ("/a.py", "g"), ("/b.py", "f")]]
    assert found == ["x: f32[2]", "y: f32[3]", None]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE evidence SET record = '{}'",
        "DELETE FROM evidence",
        "UPDATE attempts SET code = NULL",
        "UPDATE outcomes SET kind = 'proposed'",
        "UPDATE answers SET spec = ''",
    ],
)
def test_nothing_kept_can_be_rewritten(path: Path, statement: str) -> None:
    history = SqliteHistory(path)
    history.record_attempt("r", TASK, REFUTED)
    history.record_outcome("r", PROPOSED)
    history.remember_inputs("/a.py", "f", "x: f32[1]")
    with sqlite3.connect(path) as db, pytest.raises(sqlite3.IntegrityError, match="append-only"):
        db.execute(statement)


def test_the_cap_drops_the_oldest_attempts_and_never_evidence(path: Path) -> None:
    history = SqliteHistory(path, cap_bytes=300_000)
    history.record_outcome("r0", PROPOSED)
    history.remember_inputs("/a.py", "f", "x: f32[1]")
    for number in range(40):
        candidate = Candidate(f"# {number}\n" + "x" * 20_000, "builtin")
        history.record_attempt(f"r{number}", TASK, Refuted(candidate, Finding("K201", "wrong")))
    kept = [number for number in range(40) if history.attempts(f"r{number}")]
    assert kept and kept == list(range(kept[0], 40)) and kept[0] > 20
    assert history.evidence("e1") is not None and history.remembered_inputs("/a.py", "f") == "x: f32[1]"
    history.close()
    assert path.stat().st_size < 600_000


def test_two_processes_open_and_write_at_once(path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from kernelwright.history import SqliteHistory\n"
        "h = SqliteHistory(Path(sys.argv[1]))\n"
        "for n in range(50): h.remember_inputs('/a.py', sys.argv[2], f'x: f32[{n}]')\n"
    )
    processes = [subprocess.Popen([sys.executable, "-c", program, str(path), name]) for name in "fg"]
    assert [process.wait(timeout=60) for process in processes] == [0, 0]
    history = SqliteHistory(path)
    assert [history.remembered_inputs("/a.py", name) for name in "fg"] == ["x: f32[49]", "x: f32[49]"]


def spoil(path: Path, how: str) -> None:
    path.parent.mkdir(parents=True)
    if how == "not a database":
        path.write_bytes(b"hello " * 1000)
    elif how == "newer":
        with sqlite3.connect(path) as db:
            db.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    else:
        path.mkdir()


@pytest.mark.parametrize(
    ("how", "says"), [("not a database", "KERNELWRIGHT_HOME"), ("newer", "update"), ("a folder", "KERNELWRIGHT_HOME")]
)
def test_an_unusable_file_says_what_to_do(path: Path, how: str, says: str) -> None:
    spoil(path, how)
    with pytest.raises(HistoryError, match=says):
        SqliteHistory(path)


def test_memory_only() -> None:
    history = SqliteHistory(None)
    history.record_outcome("r", PROPOSED)
    history.close()
    history.close()
    with pytest.raises(HistoryError):
        history.evidence("e1")
