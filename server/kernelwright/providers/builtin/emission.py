"""Emission: a kernel's body as the text of one `@triton.jit` function, under one of four schedules.

held     a whole row in registers, several short rows a program
looped   rows of any length, a block of places at a time, one pass over the row for each level of dependent reductions
partial  one long row shared by many programs: each writes its partial results, `final` combines them
flat     pointwise: a tile of rows x places a program

In the text, `row` and `col` are blocks that broadcast: row is (ROWS, 1), col is (1, COLS); where there is only one row,
col is one-dimensional and a reduction gives a scalar.
"""

from __future__ import annotations

import re

from kernelwright.providers.builtin.collectives import CollectiveWriter
from kernelwright.providers.builtin.fusion import Member, Store
from kernelwright.providers.builtin.ir import (
    Collective,
    Expr,
    walk,
)
from kernelwright.providers.builtin.sizes import (
    ONE,
    Size,
    indices,
    product,
)
from kernelwright.providers.builtin.texts import (
    fold,
)
from kernelwright.providers.builtin.writer import FULL


class Emitter(CollectiveWriter):
    """Writes one kernel under its schedule."""

    def phase(self, expression: Expr) -> int:
        """How many passes over the row must be over before this can be computed."""
        passed = 0
        for part in walk((expression,), self.builder):
            if part.kind == "result":
                passed = max(passed, self.phase_of(part.detail[0]) + (not part.detail[0].scans))
        return passed

    def phase_of(self, collective: Collective) -> int:
        member = next(m for m in self.body.members if m.collective is collective)
        return self.phase(member.source)

    # --- the whole text

    def run(self) -> None:
        getattr(self, f"_{self.schedule}")()
        if self._dtype_from:
            words = f"    dtype = {self._dtype_from}_ptr.dtype.element_ty"
            self.lines.insert(0, f"{words}  # eager rounds to it where the casts stand")
        self.lines[:0] = fold(f'    """{self._summary()}"""')

    def _summary(self) -> str:
        """One line on the schedule."""
        passes = sum(line.lstrip().startswith("for start in") for line in self.lines)
        looped = f"{passes} pass{'es' if passes > 1 else ''} over the row, COLS places at a time"
        owner = "A program owns ROWS rows" if self.has_rows else "One program does it all"
        return {
            "held": f"{owner} and holds {'them' if self.has_rows else 'the row'} in registers.",
            "looped": f"{owner}: {looped}.",
            "partial": "Every program reduces its share of the elements to one partial result.",
            "final": "One program combines the partial results.",
            "flat": "A program computes a tile of the output."
            if self.has_cols or self.has_rows
            else "One program computes the one element.",
        }[self.schedule]

    def _flat(self) -> None:
        for store in self.body.stores:
            self._store(store)
        self._head(self._tile_head(), 0)

    def _held(self) -> None:
        for member in self.body.members:
            self._collect(member)
        for store in self.body.stores:
            self._store(store)
        self._head(self._tile_head(), 0)

    def _looped(self) -> None:
        members, stores = self.body.members, self.body.stores
        inside = [store for store in stores if self._is_full(store)]
        mutated = {store.buffer.name for store in stores if store.buffer.path is not None}
        last = max([self.phase(e) for e in self._roots()] + [0])
        phases = {
            id(store): last if mutated else max(self.phase(part) for part in (store.value, *store.conditions))
            for store in inside
        }
        for phase in range(last + 1):
            due = [m for m in members if self.phase(m.source) == phase and not m.collective.scans]
            written = [store for store in inside if phases[id(store)] == phase]
            if due or written:
                self._pass(due, written)
        for store in stores:
            if not self._is_full(store):
                self._store(store)
        self._head(self._row_head(), 0)

    def _is_full(self, store: Store) -> bool:
        return any(index.name.startswith("col") for part in store.index for index in indices(part)) or (
            self.level(store.value) == FULL
        )

    def _pass(self, due: list[Member], written: list[Store], first: str = "0", step: str = "COLS") -> None:
        """One loop over the row: accumulate what is due, write what is ready."""
        roots = [member.source for member in due] + [store.value for store in written]
        roots += [condition for store in written for condition in store.conditions]
        scans = [
            m
            for m in self.body.members
            if m.collective.scans and any(self._needs(root, m.collective) for root in roots)
        ]
        self._hoist(tuple(roots + [scan.source for scan in scans]))
        accumulators = [(member, self._begin(member)) for member in due]
        carries = {id(scan): self._begin_scan(scan) for scan in scans}
        before, kept, taken = self.lines, dict(self._known), set(self._taken)
        self.lines, self._indent = [], self._indent + 1
        for scan in scans:
            self._scan(scan, carries[id(scan)])
        for member, names in accumulators:
            self._accumulate(member, names)
        for store in written:
            self._store(store)
        self._head(self._col_head("start + "), 0)
        inside, self.lines = self.lines, before
        self._indent -= 1
        self._known, self._taken = kept, taken
        self._write(f"for start in range({first}, {self._extent()}, {step}):")
        self.lines += inside
        for scan in scans:
            self._results.pop((scan.collective.order, 0), None)
        for member, names in accumulators:
            self._end(member, names)

    def _needs(self, root: Expr, collective: Collective) -> bool:
        """Whether a scan's results enter `root`, directly or through another scan."""
        for part in walk((root,), self.builder):
            if part.kind == "result" and part.detail[0] is collective:
                return True
            if part.kind == "result" and part.detail[0].scans:
                member = next(m for m in self.body.members if m.collective is part.detail[0])
                if self._needs(member.source, collective):
                    return True
        return False

    def _hoist(self, roots: tuple[Expr, ...]) -> None:
        """What does not change along the row is computed before the loop over it."""
        for part in walk(roots, self.builder):
            if self.level(part) < FULL:
                continue
            for child in self._children(part):
                if self.level(child) < FULL:
                    self._named(child)

    def _partial(self) -> None:
        """A share of the one row, in steps of the whole grid: the same sums whatever order programs run in."""
        self._taken.add("pid")
        self._pass(self.body.members, [], "pid * COLS", "tl.num_programs(0) * COLS")
        for member in self.body.members:
            name = self._partial_name(member)
            result = self._results[(member.collective.order, 0)].words
            self._write(f"tl.store({name}_ptr + pid, {result})")
        self._head([("pid", "tl.program_id(0)")], 0)

    def _final(self) -> None:
        """Combine the partial results of all programs, then what follows from them."""
        for member in self.body.members:
            name = self._partial_name(member)
            other = self._neutral(member)
            loaded = f"tl.load({name}_ptr + part, mask=part < n_parts, other={other})"
            variable = self.fresh(f"{self._result_name(member.collective)}_parts")
            self._write(f"{variable} = {loaded}")
            self._finish(member, variable)
        for store in self.body.stores:
            self._store(store)
        self._head([("part", "tl.arange(0, PARTS)")], 0)

    def _partial_name(self, member: Member) -> str:
        if member not in self.partials:
            self.partials.append(member)
        position = self.body.members.index(member)
        return "partial" if len(self.body.members) == 1 else f"partial_{position}"

    # --- heads: definitions of indices and masks, only those that are used

    def _tile_head(self) -> list[tuple[str, str]]:
        if not self.has_cols and not self.has_rows:
            return []
        if self.schedule == "held":
            return self._row_head() + self._col_head("")
        rows = "(pid // tl.cdiv({0}, COLS)).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]"
        if not self.has_rows:
            return self._col_head("tl.program_id(0).to(tl.int64) * COLS + ")
        extent = self._extent()
        head = [("pid", "tl.program_id(0)"), ("row", rows.format(extent))]
        return head + self._row_head()[1:] + self._col_head(f"(pid % tl.cdiv({extent}, COLS)).to(tl.int64) * COLS + ")

    def _row_head(self) -> list[tuple[str, str]]:
        if not self.has_rows:
            return []
        head = [("row", "tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]")]
        return [*head, *self._parts("row", self.body.kernel.rows, ""), ("row_mask", f"row < {self._count_rows()}")]

    def _col_head(self, start: str) -> list[tuple[str, str]]:
        if not self.has_cols:
            return []
        block = "tl.arange(0, COLS)[None, :]" if self.has_rows else "tl.arange(0, COLS)"
        places = [extent for extent in self.body.kernel.places if extent != ONE]
        single = len(places) <= 1
        whole = f"({start}{block}).to(tl.int64)" if start else f"{block}.to(tl.int64)"
        if "int64" in start or not single:
            whole = f"{start}{block}"
        head = [("col", whole), *self._parts("col", self.body.kernel.places, ".to(tl.int64)")]
        head.append(("col_mask", f"col < {self._extent()}"))
        return [*head, ("mask", "row_mask & col_mask")] if self.has_rows else head

    def _parts(self, name: str, extents: tuple[Size, ...], cast: str) -> list[tuple[str, str]]:
        """`row_0` and so on from the flat `row`."""
        many = [axis for axis, extent in enumerate(extents) if extent != ONE]
        if len(many) < 2:
            return []
        made = []
        for axis in many:
            inner = product(extents[axis + 1 :])
            words = name if inner == ONE else f"{name} // {self._grouped(inner)}"
            if axis != many[0]:
                words = f"{words} % {self._grouped(extents[axis])}"
            made.append((f"{name}_{axis}", f"({words}){cast}" if cast else words))
        return made

    def _head(self, definitions: list[tuple[str, str]], at: int) -> None:
        """Put those definitions in front that the lines use."""
        used = "\n".join(self.lines)
        chosen: list[str] = []
        for name, words in reversed(definitions):
            if re.search(rf"\b{name}\b(?!=)", used):
                line = "    " * self._indent + f"{name} = {words}"
                chosen.insert(0, line)
                used = line + "\n" + used
        self.lines[at:at] = [part for line in chosen for part in fold(line)]
