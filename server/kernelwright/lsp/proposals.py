"""What the server remembers of finished requests: proposals to accept and refusals to show. No import of pygls.

Both belong to a target at one source hash. While the function's text is another, a proposal is stale and a refusal is
not shown; when the text comes back (an undo), so do they. Edits elsewhere in the file change nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from uuid import uuid4

from kernelwright.lsp.protocol import ProposalState
from kernelwright.model import Declined, Failed, Proposed, Target


@dataclass(frozen=True)
class Proposal:
    """A kernel that waits for a decision. `version` is the document's when it was proposed."""

    id: str
    uri: str
    qualname: str
    source_hash: str
    version: int | None
    outcome: Proposed
    state: ProposalState = "pending"


@dataclass(frozen=True)
class RefusalRecord:
    """Why there is no kernel. `start_line` is the 0-based line at which the target started then."""

    uri: str
    qualname: str
    source_hash: str
    start_line: int
    outcome: Failed | Declined


class Proposals:
    """At most one undecided proposal a target: a new one takes the place of the old."""

    def __init__(self) -> None:
        self._by_id: dict[str, Proposal] = {}

    def add(self, target: Target, outcome: Proposed) -> Proposal:
        """Keep a new proposal for a target."""
        document = target.document
        for old in tuple(self.open_in(document.uri)):
            if old.qualname == target.qualname:
                del self._by_id[old.id]
        proposal = Proposal(
            uuid4().hex[:12], document.uri, target.qualname, target.source_hash, document.version, outcome
        )
        self._by_id[proposal.id] = proposal
        return proposal

    def get(self, proposal_id: str) -> Proposal | None:
        """The proposal of this id, whatever its state."""
        return self._by_id.get(proposal_id)

    def pending_for(self, target: Target) -> Proposal | None:
        """The proposal that a person can accept for the target as it is now."""
        for proposal in self.open_in(target.document.uri):
            if proposal.qualname == target.qualname and proposal.source_hash == target.source_hash:
                return proposal
        return None

    def open_in(self, uri: str | None) -> Iterator[Proposal]:
        """The undecided proposals of a document, or of all: pending and stale."""
        for proposal in self._by_id.values():
            if uri in (None, proposal.uri) and proposal.state in ("pending", "stale"):
                yield proposal

    def decide(self, proposal: Proposal, state: ProposalState) -> Proposal:
        """Mark a proposal."""
        decided = replace(proposal, state=state)
        self._by_id[proposal.id] = decided
        return decided

    def refresh(self, uri: str, hashes: dict[str, str]) -> bool:
        """Mark proposals stale or pending by the functions' present source hashes; whether any changed."""
        changed = False
        for proposal in tuple(self.open_in(uri)):
            state: ProposalState = "pending" if hashes.get(proposal.qualname) == proposal.source_hash else "stale"
            if state != proposal.state:
                self.decide(proposal, state)
                changed = True
        return changed


class Refusals:
    """The last refusal of each target."""

    def __init__(self) -> None:
        self._by_target: dict[tuple[str, str], RefusalRecord] = {}

    def add(self, target: Target, outcome: Failed | Declined) -> None:
        """Keep why a target got no kernel."""
        uri = target.document.uri
        record = RefusalRecord(uri, target.qualname, target.source_hash, target.span.start_line, outcome)
        self._by_target[uri, target.qualname] = record

    def clear(self, uri: str, qualname: str) -> None:
        """Forget it: the target is being tried again, or was proposed a kernel."""
        self._by_target.pop((uri, qualname), None)

    def of(self, target: Target) -> RefusalRecord | None:
        """The refusal that still holds for the target as it is now."""
        record = self._by_target.get((target.document.uri, target.qualname))
        return record if record and record.source_hash == target.source_hash else None
