"""Which commands a target offers now: what the lenses and the code actions both show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lsprotocol import types as lsp

from kernelwright.lsp.documents import Snapshot
from kernelwright.lsp.proposals import Proposal
from kernelwright.lsp.session import KernelwrightServer
from kernelwright.model import Target
from kernelwright.source.edit import AcceptedKernel

Action = Literal["generate", "review", "accept", "reject", "recheck", "remove"]


@dataclass(frozen=True)
class State:
    """What there is for a target: at most one of a pending proposal and an accepted kernel is acted on."""

    target: Target
    pending: Proposal | None
    kernel: AcceptedKernel | None

    @property
    def stale(self) -> bool:
        """Whether the accepted kernel was checked against another text of the function."""
        return self.kernel is not None and self.kernel.source_hash != self.target.source_hash

    @property
    def unused(self) -> bool:
        """Whether calls no longer reach the accepted kernel, because its decorator was taken off."""
        return self.kernel is not None and self.kernel.decorator_line is None


def state_of(server: KernelwrightServer, snapshot: Snapshot, target: Target) -> State:
    """Look a target's state up."""
    return State(target, server.proposals.pending_for(target), snapshot.kernel(target.qualname))


def actions_for(state: State) -> tuple[Action, ...]:
    """The actions that make sense, the main one first."""
    if state.pending:
        return ("review", "accept", "reject")
    return ("recheck", "remove") if state.kernel else ("generate",)


def command(server: KernelwrightServer, action: Action, title: str, state: State) -> lsp.Command | None:
    """The command behind an action: the client's own where it has them, else ours, which know no Review."""
    uri, qualname = state.target.document.uri, state.target.qualname
    if server.options.client_commands:
        more = [state.pending.id] if state.pending and action in ("review", "accept", "reject") else []
        return lsp.Command(title, f"kernelwright.{action}", arguments=[uri, qualname, *more])
    if action == "review":
        return None
    arguments = [state.pending.id] if state.pending and action in ("accept", "reject") else [uri, qualname]
    return lsp.Command(title, f"kernelwright.server.{action}", arguments=arguments)
