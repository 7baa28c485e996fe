"""The loop against the shipped fakes: every outcome, what the history keeps, what is reported."""

import asyncio
from dataclasses import dataclass, field, replace

import pytest
from samples import GRAPH, HARDWARE, INPUTS, TARGET

from kernelwright.errors import ProviderError
from kernelwright.model import (
    Candidate,
    CandidatePassed,
    CandidateRefuted,
    Case,
    CaseResult,
    Declined,
    Domain,
    Failed,
    Finding,
    Finished,
    Passed,
    Proposed,
    Refusal,
    Refuted,
    Traced,
)
from kernelwright.pipeline import Pipeline
from kernelwright.settings import BudgetSettings
from kernelwright.verify.scripted import ScriptedVerifier

DOMAIN = Domain("cuda", ())
WRONG = Finding("K201", "wrong")


def passes(candidate):
    return Passed(candidate, DOMAIN, (CaseResult(Case(0), 1e-7, 1e-6),))


def fails(candidate):
    return Refuted(candidate, WRONG)


@dataclass
class Drafts:
    """A provider that answers from a list; an exception in it is raised."""

    answers: list
    name: str = "drafts"
    tried: list = field(default_factory=list)

    async def draft(self, task, tried, report):
        self.tried.append(tried)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@dataclass
class Loaded:
    """A reference worker that has traced already."""

    graphs: tuple = (GRAPH,)

    async def load(self, target, inputs):
        return inputs

    async def trace(self):
        return self.graphs

    async def hardware(self):
        return HARDWARE


@dataclass
class Memory:
    attempts: list = field(default_factory=list)
    outcomes: list = field(default_factory=list)

    def record_attempt(self, run, task, verdict):
        self.attempts.append(verdict)

    def record_outcome(self, run, outcome):
        self.outcomes.append(outcome)


def make(answers, verdicts, *, graphs=(GRAPH,), rounds=3, finding=None):
    async def static(candidate, task):
        return finding

    provider, history = Drafts(list(answers)), Memory()
    verifier = ScriptedVerifier(verdicts)
    pipeline = Pipeline(
        provider,
        Loaded(graphs),
        verifier,
        history,
        lambda target, passed: f"# guarded\n{passed.candidate.source}",
        BudgetSettings(rounds=rounds),
        static,
    )
    return pipeline, provider, history


def candidates(*sources):
    return [Candidate(source, "drafts", entry="scale") for source in sources]


async def go(pipeline):
    events = []
    return await pipeline.run(TARGET, INPUTS, "", events.append), events


async def test_first_draft_passes():
    pipeline, _, history = make(candidates("a"), [passes])
    outcome, events = await go(pipeline)
    assert isinstance(outcome, Proposed)
    assert outcome.source == "# guarded\na"
    assert (outcome.evidence.cases, outcome.evidence.max_error, outcome.evidence.rounds) == (1, 1e-7, 1)
    assert outcome.evidence.source_hash == TARGET.source_hash
    assert history.outcomes == [outcome]
    assert [type(event) for event in events if not isinstance(event, Traced)][-2:] == [CandidatePassed, Finished]


async def test_a_refuted_draft_is_told_to_the_provider():
    pipeline, provider, history = make(candidates("a", "b"), [fails, passes])
    outcome, events = await go(pipeline)
    assert isinstance(outcome, Proposed)
    assert outcome.evidence.rounds == 2
    assert [[attempt.finding for attempt in tried] for tried in provider.tried] == [[], [WRONG]]
    assert len(history.attempts) == 2
    assert sum(isinstance(event, CandidateRefuted) for event in events) == 1


async def test_the_budget_in_rounds_ends_it():
    pipeline, _, history = make(candidates("a", "b", "c", "d"), [fails] * 4, rounds=3)
    outcome, _ = await go(pipeline)
    assert isinstance(outcome, Failed)
    assert (outcome.attempts, outcome.last.candidate.source) == (3, "c")
    assert len(history.attempts) == 3


async def test_the_same_draft_again_ends_it():
    pipeline, provider, _ = make(candidates("a", "a", "b"), [fails] * 3)
    outcome, _ = await go(pipeline)
    assert isinstance(outcome, Failed)
    assert len(provider.answers) == 1


async def test_static_findings_never_reach_the_verifier():
    finding = Finding("K101", "does not parse", 1)
    pipeline, _, _ = make(candidates("a"), [], rounds=1, finding=finding)
    outcome, _ = await go(pipeline)
    assert isinstance(outcome, Failed)
    assert outcome.last.finding == finding


async def test_a_provider_that_cannot_declines():
    refusal = Refusal("aten.sort is not covered", "aten.sort", 5)
    pipeline, _, history = make([refusal], [])
    outcome, _ = await go(pipeline)
    assert outcome == Declined(TARGET, refusal, "drafts")
    assert history.outcomes == [outcome]


@pytest.mark.parametrize("graphs", [(), (replace(GRAPH, refusal=Refusal("data-dependent", "aten.nonzero", 5)),)])
async def test_what_cannot_be_traced_is_declined_before_any_provider(graphs):
    pipeline, provider, _ = make([], [], graphs=graphs)
    outcome, _ = await go(pipeline)
    assert isinstance(outcome, Declined)
    assert provider.tried == []


async def test_a_provider_failing_at_once_is_raised():
    pipeline, _, _ = make([ProviderError("no key")], [])
    with pytest.raises(ProviderError, match="no key"):
        await go(pipeline)


async def test_a_provider_failing_later_keeps_the_attempt():
    pipeline, _, history = make([*candidates("a"), ProviderError("overloaded")], [fails])
    outcome, _ = await go(pipeline)
    assert isinstance(outcome, Failed)
    assert len(history.attempts) == 1


async def test_cancelling_keeps_finished_attempts():
    started = asyncio.Event()

    class Hanging(Drafts):
        async def draft(self, task, tried, report):
            if tried:
                started.set()
                await asyncio.Event().wait()
            return await super().draft(task, tried, report)

    pipeline, _, history = make([], [fails])
    pipeline = replace(pipeline, provider=Hanging(candidates("a", "b")))
    running = asyncio.create_task(go(pipeline))
    await started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert len(history.attempts) == 1
