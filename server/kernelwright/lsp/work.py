"""The two long requests, as the custom requests and the plain commands both run them.

Nothing here awaits the client: cancelling such a wait breaks the connection (pygls issue 621).
"""

from __future__ import annotations

import logging

from kernelwright.errors import (
    BadInputs,
    EnvironmentProblem,
    InputsNeeded,
    KernelwrightError,
    StaleProposal,
    TargetNotFound,
)
from kernelwright.history import evidence_record, to_json
from kernelwright.lsp.convert import counterexample_text, evidence_table, times_text
from kernelwright.lsp.documents import Snapshot
from kernelwright.lsp.progress import Progress
from kernelwright.lsp.proposals import Proposal
from kernelwright.lsp.protocol import GenerateResult, ProposalInfo, RecheckResult
from kernelwright.lsp.session import KernelwrightServer
from kernelwright.model import Declined, Failed, Kept, Outcome, Passed, Proposed, Refuted

logger = logging.getLogger(__name__)

Token = int | str | None
INTERNAL = "an internal fault; the server's log has the details"


async def generate(
    server: KernelwrightServer, uri: str, qualname: str, inputs: str | None, instruction: str, token: Token
) -> GenerateResult:
    """Generate and check a kernel for a target, and keep what came of it.

    Raises:
        asyncio.CancelledError: the workers are gone and the progress has ended.
    """
    with Progress(server.progress, token, f"Triton kernel for {qualname}") as progress:
        try:
            await server.wait_configured()
            async with server.jobs.turn((uri, qualname), token, lambda: progress.say("Waiting for another kernel")):
                snapshot = require(server, uri)
                server.refusals.clear(uri, qualname)
                async with server.cores.lease(snapshot.core) as core:
                    outcome = await core.generate(
                        snapshot.document, qualname, inputs=inputs, instruction=instruction, report=progress
                    )
            server.problem = ""
            result = settle(server, uri, qualname, outcome)
        except InputsNeeded as needed:
            result = GenerateResult("inputsNeeded", str(needed), qualname, suggestion=needed.suggestion)
        except BadInputs as bad:
            result = GenerateResult("invalidInputs", str(bad), qualname, problem=str(bad))
        except StaleProposal as stale:
            result = GenerateResult("stale", str(stale), qualname)
        except KernelwrightError as error:
            note_problem(server, error)
            result = GenerateResult("error", str(error), qualname)
        except Exception:
            logger.exception("generating %s", qualname)
            result = GenerateResult("error", f"{qualname}: {INTERNAL}", qualname)
        progress.result = result.message
    return result


async def recheck(server: KernelwrightServer, uri: str, qualname: str, token: Token) -> RecheckResult:
    """Check the accepted kernel in the file against the function as it is now.

    Raises:
        asyncio.CancelledError: the workers are gone and the progress has ended.
    """
    with Progress(server.progress, token, f"Checking the kernel of {qualname}") as progress:
        try:
            await server.wait_configured()
            async with server.jobs.turn((uri, qualname), token, lambda: progress.say("Waiting for another kernel")):
                snapshot = require(server, uri)
                async with server.cores.lease(snapshot.core) as core:
                    verdict = await core.recheck(snapshot.document, qualname, report=progress)
            if isinstance(verdict, Passed):
                result = RecheckResult("passed", f"{qualname}: passed {passed_text(verdict)}")
            else:
                result = RecheckResult("refuted", f"{qualname}: {refuted_text(verdict)}")
        except KernelwrightError as error:
            note_problem(server, error)
            result = RecheckResult("error", str(error))
        except Exception:
            logger.exception("checking %s", qualname)
            result = RecheckResult("error", f"{qualname}: {INTERNAL}")
        progress.result = result.message
    return result


def note_problem(server: KernelwrightServer, error: KernelwrightError) -> None:
    """Keep what is wrong with the environment for the status item: it will stop the next job too."""
    if isinstance(error, EnvironmentProblem):
        server.problem = str(error)


def settle(server: KernelwrightServer, uri: str, qualname: str, outcome: Outcome) -> GenerateResult:
    """Keep a finished request's outcome and say it.

    Raises:
        StaleProposal: the function changed while its kernel was being checked.
    """
    target = outcome.target if isinstance(outcome, Declined) else outcome.task.target
    if isinstance(outcome, Proposed):
        snapshot = require(server, uri)
        now = snapshot.target(target.qualname)
        if now is None or now.source_hash != target.source_hash:
            raise StaleProposal(f"{qualname} changed while its kernel was being checked: generate again")
        snapshot.core.edit(outcome, snapshot.document)  # one that cannot be written is no proposal
        proposal = server.proposals.add(now, outcome)
        server.announce(uri)
        message = f"{qualname}: a kernel that passed {passed_text(outcome.passed)}"
        return GenerateResult("proposed", message, qualname, proposal=proposal_info(server, proposal))
    if isinstance(outcome, Kept):
        times = times_text(to_json(outcome.measurement))
        return GenerateResult("kept", f"{qualname}: keep torch.compile, no kernel was faster ({times})", qualname)
    server.refusals.add(target, outcome)
    server.redraw(uri)
    if isinstance(outcome, Declined):
        return GenerateResult("declined", f"{qualname}: {declined_text(outcome)}", qualname)
    return GenerateResult("failed", f"{qualname}: {failed_text(outcome)}", qualname)


def proposal_info(server: KernelwrightServer, proposal: Proposal) -> ProposalInfo:
    """A proposal as a diff of the document as it is now.

    Raises:
        StaleProposal: the function changed since.
    """
    snapshot = require(server, proposal.uri)
    document = snapshot.document
    edit = snapshot.core.edit(proposal.outcome, document)
    summary = proposal_summary(proposal)
    if edit.sibling:
        path, text = edit.sibling
        summary += f"\n\nThe kernel goes into `{path}`:\n\n```python\n{text}```"
    return ProposalInfo(
        id=proposal.id,
        uri=proposal.uri,
        qualname=proposal.qualname,
        title=f"Triton kernel for {proposal.qualname}",
        summary=summary,
        original_text=document.text,
        proposed_text=edit.text,
        version=document.version,
    )


def proposal_summary(proposal: Proposal) -> str:
    """What speaks for a proposal, in Markdown."""
    return f"**Triton kernel for `{proposal.qualname}`**\n\n{evidence_table(evidence_record(proposal.outcome))}"


def require(server: KernelwrightServer, uri: str) -> Snapshot:
    """The document as it is now.

    Raises:
        TargetNotFound: it is no Python file that can be read.
    """
    snapshot = server.snapshot(uri)
    if snapshot is None:
        raise TargetNotFound(f"{uri} is no Python document that can be read")
    return snapshot


def passed_text(passed: Passed) -> str:
    """212 cases, max error 1.2e-07"""
    return f"{len(passed.results)} cases, max error {passed.max_error:.3g}"


def refuted_text(refuted: Refuted) -> str:
    """A verdict against a kernel, with its counterexample, in one line."""
    shown = counterexample_text(to_json(refuted.counterexample)) if refuted.counterexample else ""
    return refuted.finding.message + (f" ({shown})" if shown else "")


def failed_text(failed: Failed) -> str:
    """Why every attempt failed."""
    attempts = f"{failed.attempts} attempts" if failed.attempts > 1 else "the attempt"
    return f"no kernel passed in {attempts}: {refuted_text(failed.last)}"


def declined_text(declined: Declined) -> str:
    """Why there can be no kernel."""
    refusal = declined.refusal
    where = f" (line {refusal.line})" if refusal.line else ""
    by = f" by {declined.provider}" if declined.provider else ""
    return f"no kernel{by}: {refusal.reason}{where}"
