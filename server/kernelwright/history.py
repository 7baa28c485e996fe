"""What was tried and what came of it: an append-only SQLite database. The only importer of sqlite3.

Rows are only ever added, so that what a kernel's evidence id points at cannot change under it; triggers hold this. The
one exception is the size cap, which drops the oldest attempts, never evidence and never people's answers.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from kernelwright.errors import HistoryError
from kernelwright.model import Declined, Failed, Json, Kept, Outcome, Passed, Proposed, Task, Verdict
from kernelwright.source.describe import describe_domain

DEFAULT_CAP_BYTES = 256 * 2**20

# Each entry is one schema version and is never edited after its release: add the next one.
MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE candidates (id TEXT PRIMARY KEY, source TEXT NOT NULL);
    CREATE TABLE attempts (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        created TEXT NOT NULL, run TEXT NOT NULL, task TEXT NOT NULL,
        path TEXT NOT NULL, qualname TEXT NOT NULL, source_hash TEXT NOT NULL, inputs TEXT NOT NULL,
        provider TEXT NOT NULL, model TEXT NOT NULL,
        candidate TEXT NOT NULL REFERENCES candidates(id),
        code TEXT,
        verdict TEXT NOT NULL
    );
    CREATE INDEX attempts_by_run ON attempts(run);
    CREATE TABLE outcomes (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        created TEXT NOT NULL, run TEXT NOT NULL,
        path TEXT NOT NULL, qualname TEXT NOT NULL,
        kind TEXT NOT NULL, detail TEXT NOT NULL
    );
    CREATE TABLE evidence (id TEXT PRIMARY KEY, created TEXT NOT NULL, record TEXT NOT NULL);
    CREATE TABLE answers (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        created TEXT NOT NULL, path TEXT NOT NULL, qualname TEXT NOT NULL, spec TEXT NOT NULL
    );
    CREATE INDEX answers_by_target ON answers(path, qualname);
    CREATE TRIGGER attempts_are_final BEFORE UPDATE ON attempts BEGIN SELECT RAISE(ABORT, 'append-only'); END;
    CREATE TRIGGER outcomes_are_final BEFORE UPDATE ON outcomes BEGIN SELECT RAISE(ABORT, 'append-only'); END;
    CREATE TRIGGER evidence_is_final BEFORE UPDATE ON evidence BEGIN SELECT RAISE(ABORT, 'append-only'); END;
    CREATE TRIGGER evidence_is_kept BEFORE DELETE ON evidence BEGIN SELECT RAISE(ABORT, 'append-only'); END;
    CREATE TRIGGER answers_are_final BEFORE UPDATE ON answers BEGIN SELECT RAISE(ABORT, 'append-only'); END;
    """,
)


class SqliteHistory:
    """`ports.History` in one file. Several processes may write to it at once (WAL).

    Args:
        path: the database; its folder is made. None keeps everything in memory, for as long as this object lives.
        cap_bytes: what the file may grow to before the oldest attempts are dropped.

    Raises:
        HistoryError: the file cannot be opened, is no database, or was written by a newer version.
    """

    def __init__(self, path: Path | None, cap_bytes: int = DEFAULT_CAP_BYTES) -> None:
        self._path = path
        self._cap = cap_bytes
        with self._errors():
            if path is not None:
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._db = sqlite3.connect(path or ":memory:", timeout=10, isolation_level=None)
            try:
                # Takes effect only while the file is still empty, which is what makes the cap able to shrink it.
                self._db.execute("PRAGMA auto_vacuum = INCREMENTAL")
                self._db.execute("PRAGMA journal_mode = WAL")
                self._db.execute("PRAGMA synchronous = NORMAL")
                self._migrate()
            except BaseException:
                self._db.close()
                raise

    def record_attempt(self, run: str, task: Task, verdict: Verdict) -> None:
        """Keep one candidate, with its source, and what the verifier said of it."""
        candidate = verdict.candidate
        code = None if isinstance(verdict, Passed) else verdict.finding.code
        target = task.target
        with self._transaction() as db:
            db.execute("INSERT OR IGNORE INTO candidates VALUES (?, ?)", (candidate.id, candidate.source))
            _insert(
                db,
                "attempts",
                created=_now(),
                run=run,
                task=task.key,
                path=target.document.path,
                qualname=target.qualname,
                source_hash=target.source_hash,
                inputs=task.inputs.spec,
                provider=candidate.provider,
                model=candidate.model,
                candidate=candidate.id,
                code=code,
                verdict=_dump(verdict, without=("candidate",)),
            )
        self._enforce_cap()

    def record_outcome(self, run: str, outcome: Outcome) -> None:
        """Keep how a run ended; a proposal's evidence goes in with it, under its id."""
        target = outcome.target if isinstance(outcome, Declined) else outcome.task.target
        with self._transaction() as db:
            _insert(
                db,
                "outcomes",
                created=_now(),
                run=run,
                path=target.document.path,
                qualname=target.qualname,
                kind=type(outcome).__name__.lower(),
                detail=_detail(outcome),
            )
            if isinstance(outcome, Proposed):
                record = json.dumps(evidence_record(outcome))
                db.execute("INSERT OR IGNORE INTO evidence VALUES (?, ?, ?)", (outcome.evidence.id, _now(), record))

    def evidence(self, evidence_id: str) -> Json | None:
        """What `evidence_record` made of the proposal with this evidence, or None."""
        row = self._one("SELECT record FROM evidence WHERE id = ?", evidence_id)
        return json.loads(row[0]) if row else None

    def attempts(self, run: str) -> tuple[Json, ...]:
        """One run's attempts, oldest first: candidate id, source, the finding's code (None: passed), verdict."""
        query = (
            "SELECT candidate, source, code, verdict FROM attempts JOIN candidates ON candidates.id = candidate "
            "WHERE run = ? ORDER BY attempts.id"
        )
        with self._errors():
            rows = self._db.execute(query, (run,)).fetchall()
        return tuple(
            {"candidate": candidate, "source": source, "code": code, "verdict": json.loads(verdict)}
            for candidate, source, code, verdict in rows
        )

    def remember_inputs(self, path: str, qualname: str, spec: str) -> None:
        """Keep what a person answered when asked for a function's inputs; the newest answer counts."""
        if self.remembered_inputs(path, qualname) == spec:
            return
        with self._transaction() as db:
            _insert(db, "answers", created=_now(), path=path, qualname=qualname, spec=spec)

    def remembered_inputs(self, path: str, qualname: str) -> str | None:
        """The newest answer for this function, or None."""
        query = "SELECT spec FROM answers WHERE path = ? AND qualname = ? ORDER BY id DESC LIMIT 1"
        row = self._one(query, path, qualname)
        return str(row[0]) if row else None

    def close(self) -> None:
        """Close the file. Harmless when repeated."""
        self._db.close()

    def _migrate(self) -> None:
        # BEGIN IMMEDIATE before the version is read: two processes that start at once must not both migrate.
        self._db.execute("BEGIN IMMEDIATE")
        try:
            version = int(self._db.execute("PRAGMA user_version").fetchone()[0])
            if version > len(MIGRATIONS):
                raise HistoryError(
                    f"{self._path} was written by a newer Kernelwright (schema {version}, this one knows "
                    f"{len(MIGRATIONS)}): update, or set KERNELWRIGHT_HOME to another folder"
                )
            for number, script in enumerate(MIGRATIONS[version:], start=version + 1):
                for statement in _statements(script):
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version = {number}")
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def _enforce_cap(self) -> None:
        with self._errors():
            while self._live_bytes() > self._cap:
                total = int(self._db.execute("SELECT count(*) FROM attempts").fetchone()[0])
                # The run that is going on keeps its last attempt whatever its size.
                drop = min(max(total // 4, 1), total - 1)
                if drop <= 0:
                    return
                with self._transaction() as db:
                    db.execute(
                        "DELETE FROM attempts WHERE id IN (SELECT id FROM attempts ORDER BY id LIMIT ?)", (drop,)
                    )
                    db.execute("DELETE FROM candidates WHERE id NOT IN (SELECT candidate FROM attempts)")
                self._db.execute("PRAGMA incremental_vacuum").fetchall()

    def _live_bytes(self) -> int:
        pages, free, size = (
            int(self._db.execute(f"PRAGMA {name}").fetchone()[0])
            for name in ("page_count", "freelist_count", "page_size")
        )
        return (pages - free) * size

    def _one(self, query: str, *parameters: str) -> tuple[Any, ...] | None:
        with self._errors():
            row: tuple[Any, ...] | None = self._db.execute(query, parameters).fetchone()
        return row

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._errors():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise HistoryError(
                f"the history {self._path} cannot be used ({error}): free space or rights, move the file away, "
                "or set KERNELWRIGHT_HOME to another folder"
            ) from error


def evidence_record(outcome: Proposed) -> Json:
    """`model.Evidence` as JSON, plus `source` (the candidate as written), `module` (as assembled), `domain_in_words`."""
    words = {"domain_in_words": describe_domain(outcome.evidence.domain)}
    return {**to_json(outcome.evidence), **words, "source": outcome.passed.candidate.source, "module": outcome.source}


def to_json(value: Any) -> Json:
    """A value of `model` as what `json.dumps` takes: dataclasses and mappings become objects, sequences arrays."""
    if is_dataclass(value) and not isinstance(value, type):
        return {entry.name: to_json(getattr(value, entry.name)) for entry in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_json(item) for item in value]
    return value if isinstance(value, str | int | float | bool | None) else repr(value)


def _detail(outcome: Outcome) -> str:
    if isinstance(outcome, Proposed):
        return json.dumps({"evidence": outcome.evidence.id, "measurement": _measured(outcome)})
    if isinstance(outcome, Kept):
        return json.dumps({"candidate": outcome.passed.candidate.id, "measurement": _measured(outcome)})
    if isinstance(outcome, Failed):
        return json.dumps({"attempts": outcome.attempts, "last": to_json(outcome.last.finding)})
    return json.dumps({"provider": outcome.provider, "refusal": to_json(outcome.refusal)})


def _measured(outcome: Proposed | Kept) -> Json:
    if outcome.measurement is None:
        return None
    measured = to_json(outcome.measurement)
    del measured["passed"]
    return measured


def _dump(value: Any, without: tuple[str, ...] = ()) -> str:
    record = to_json(value)
    return json.dumps({key: item for key, item in record.items() if key not in without})


def _insert(db: sqlite3.Connection, table: str, **columns: str | None) -> None:
    names, marks = ", ".join(columns), ", ".join("?" * len(columns))
    db.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(columns.values()))


def _statements(script: str) -> Iterator[str]:
    """The statements of a script, one by one: `executescript` would commit the transaction around them."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement) and statement.strip():
            yield statement
            statement = ""


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")
