"""The reference worker as a port: requests out, words of the model back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kernelwright.errors import WorkerError
from kernelwright.model import Call, Case, Counterexample, Finding, Graph, Hardware, Inputs, Json, Target
from kernelwright.ports import Agreed, CaseFiles, Disagreed, NotApplicable
from kernelwright.sandbox.codec import decode, encode
from kernelwright.sandbox.process import WorkerProcess
from kernelwright.source.inputs import parse_literal, to_wire


class ReferenceProcess:
    """Implements ports.ReferenceWorker over one process of the user's interpreter."""

    def __init__(self, interpreter: str, root: Path, log_folder: Path) -> None:
        self._worker = WorkerProcess(interpreter, "reference", root, log_folder / "reference.log")

    async def start(self) -> None:
        """Import torch ahead of the first request."""
        await self._worker.start()

    async def load(self, target: Target, inputs: Inputs) -> Inputs:
        literal = [] if inputs.origin == "file" else to_wire(parse_literal(inputs.spec))
        result = await self._worker.request(
            "load",
            path=target.document.path,
            text=target.document.text,
            qualname=target.qualname,
            root=str(self._worker.root),
            inputs={"origin": inputs.origin, "spec": inputs.spec, "literal": literal},
        )
        calls = tuple(decode(call, Call) for call in result["calls"])
        return Inputs(inputs.origin, inputs.spec, inputs.where, calls)

    async def trace(self) -> tuple[Graph, ...]:
        result = await self._worker.request("trace")
        return tuple(decode(graph, Graph) for graph in result["graphs"])

    async def make(self, cases: Sequence[Case], folder: Path) -> tuple[CaseFiles | NotApplicable, ...]:
        if not cases:
            return ()
        result = await self._worker.request("make", folder=str(folder), cases=[encode(case) for case in cases])
        return tuple(_made(case, item) for case, item in zip(cases, _whole(result["made"], cases), strict=True))

    async def judge(self, runs: Sequence[CaseFiles]) -> tuple[Agreed | Disagreed | NotApplicable, ...]:
        if not runs:
            return ()
        asked = [{"case": encode(run.case), "folder": str(run.folder)} for run in runs]
        result = await self._worker.request("judge", cases=asked)
        return tuple(_judged(run.case, item) for run, item in zip(runs, _whole(result["judged"], runs), strict=True))

    async def hardware(self) -> Hardware:
        return decode(await self._worker.request("hardware"), Hardware)

    async def close(self) -> None:
        await self._worker.close()

    def kill(self) -> None:
        """Kill it at once."""
        self._worker.kill()


def _whole(items: list[Json], asked: Sequence[object]) -> list[Json]:
    if len(items) != len(asked):
        raise WorkerError(f"the reference worker answered {len(items)} of {len(asked)} cases")
    return items


def _made(case: Case, item: Json) -> CaseFiles | NotApplicable:
    if "not_applicable" in item:
        folder = Path(item["folder"]) if item.get("folder") else None
        return NotApplicable(case, str(item["not_applicable"]), item.get("exception"), folder)
    return CaseFiles(case, Path(item["folder"]))


def _judged(case: Case, item: Json) -> Agreed | Disagreed | NotApplicable:
    if "agreed" in item:
        return Agreed(float(item["agreed"]["error"]), float(item["agreed"]["limit"]))
    if "disagreed" in item:
        found = item["disagreed"]
        return Disagreed(decode(found["finding"], Finding), decode(found["counterexample"], Counterexample))
    return NotApplicable(case, str(item.get("not_applicable")), item.get("exception"))
