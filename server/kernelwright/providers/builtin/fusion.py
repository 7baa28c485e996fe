"""Fusion: outputs and collectives are put into as few kernels as their index spaces allow.

A kernel runs over rows x places: every program owns some rows. Whether a value may be computed in a kernel is proposed
(by shape) and then verified (by index arithmetic): each collective that it reads must be that of its own row. What
cannot be verified is passed through scratch memory to a later kernel, which is always right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from kernelwright.providers.builtin.ir import (
    Buffer,
    Collective,
    Expr,
    Unsupported,
    Value,
    children,
    walk,
)
from kernelwright.providers.builtin.lowering import Context, arithmetic
from kernelwright.providers.builtin.ops_views import regroup
from kernelwright.providers.builtin.sizes import (
    ONE,
    ZERO,
    Index,
    Opaque,
    Size,
    atoms_of,
    nonnegative,
    product,
    ravel,
    size,
    substitute,
    unravel,
)

Place = tuple[Size, ...]
SPREAD = 8
"""A dimension of at most this fixed extent beside the rows is stored element by element."""
HIERARCHICAL = {"sum": "sum", "prod": "prod", "max": "max", "min": "min", "any": "any", "all": "all"}


@dataclass(frozen=True, eq=False)
class Member:
    """A collective in a kernel, with its source at the kernel's place. `limit`: it covers only places below that."""

    collective: Collective
    source: Expr
    row: Place
    index: Place
    limit: Size | None = None


@dataclass(frozen=True, eq=False)
class Store:
    """An element to write: to `buffer` at `index`, where the conditions hold."""

    buffer: Buffer
    index: Place
    value: Expr
    conditions: tuple[Expr, ...] = ()


@dataclass(frozen=True, eq=False)
class Body:
    """A kernel as the emission takes it."""

    kernel: Kernel
    members: list[Member]
    stores: list[Store]


@dataclass
class Kernel:
    """`rows` and `places` are extents; `shape` and `index` say how the anchor's index follows from row and place."""

    rows: tuple[Size, ...]
    places: tuple[Size, ...]
    shape: tuple[Size, ...]
    anchor: Callable[[Place, Place], Place]
    collectives: list[Collective] = field(default_factory=list)
    outputs: list[tuple[Buffer, Value]] = field(default_factory=list)
    name: str = ""

    @property
    def row(self) -> Place:
        return tuple(
            ZERO if extent == ONE else size(Index(f"row_{axis}", extent)) for axis, extent in enumerate(self.rows)
        )

    @property
    def place(self) -> Place:
        return tuple(
            ZERO if extent == ONE else size(Index(f"col_{axis}", extent)) for axis, extent in enumerate(self.places)
        )

    @property
    def index(self) -> Place:
        return self.anchor(self.row, self.place)


class NotHere(Exception):
    """A value cannot be computed in the kernel at hand."""


def move(index: Place, shape: tuple[Size, ...], target: tuple[Size, ...]) -> Place:
    """The row-major reshape of an index from `shape` to `target`, which hold the same number of elements."""
    moved: list[Size] = []
    for new, old in regroup(shape, target):
        if len(new) == len(old) == 1:
            moved.append(index[new[0]])
            continue
        position = ravel(tuple(index[axis] for axis in new), tuple(shape[axis] for axis in new))
        moved += unravel(position, tuple(target[axis] for axis in old))
    return tuple(moved)


@dataclass
class Plan:
    """Kernels in the order of their launches, and what passes between them."""

    context: Context
    kernels: list[Kernel] = field(default_factory=list)
    home: dict[int, int] = field(default_factory=dict)
    """Collective (by order) → kernel."""
    scratch: dict[tuple[int, int], Buffer] = field(default_factory=dict)
    scratch_names: list[str] = field(default_factory=list)
    replaced: dict[int, Value] = field(default_factory=dict)
    """Collective (by order) → the value that stands for its only result."""

    # --- what a kernel computes

    def resolve(self, expression: Expr, kernel: Kernel, position: int, rows: dict[int, Place]) -> Expr:
        """The expression with results of other kernels as loads from scratch.

        Raises:
            NotHere: it reads a collective of this kernel elsewhere than in its own row, or one of a later kernel.
        """
        build = self.context.builder

        def result(found: Expr) -> Expr | None:
            collective, component, index = found.detail
            if collective.order in self.replaced:
                return self.resolve(self.replaced[collective.order].at(index), kernel, position, rows)
            if collective.order in rows:
                if index != rows[collective.order]:
                    raise NotHere
                return None
            home = self.home.get(collective.order)
            if home is None or home >= position:
                raise NotHere
            return build.load(self.spill(collective, component, found.dtype), index)

        return rewrite(expression, self.context, result)

    def spill(self, collective: Collective, component: int, dtype: str) -> Buffer:
        """Scratch for a collective's results; `finish` has its own kernel write it."""
        key = (collective.order, component)
        if key not in self.scratch:
            shape = collective.source.shape if collective.scans else collective.outer
            self.scratch[key] = self.buffer(collective.name, dtype, shape)
        return self.scratch[key]

    def buffer(self, name: str, dtype: str, shape: tuple[Size, ...]) -> Buffer:
        """Scratch memory with a name of its own."""
        self.scratch_names.append(name)
        count = self.scratch_names.count(name)
        return Buffer(f"{name}_scratch" if count == 1 else f"{name}_{count}_scratch", dtype, shape)

    def finish(self) -> list[Body]:
        """What each kernel computes, with the scratch that later kernels read written by earlier ones."""
        bodies: list[Body] = []
        writers = {id(buffer): key for key, buffer in self.scratch.items()}
        for position in reversed(range(len(self.kernels))):
            kernel = self.kernels[position]
            body = Body(kernel, self.members(kernel, position), self.stores(kernel, position))
            bodies.insert(0, body)
            roots = tuple(member.source for member in body.members) + tuple(store.value for store in body.stores)
            for load in walk(roots, self.context.builder):
                key = writers.pop(id(load.detail[0]), None) if load.kind == "load" else None
                if key is not None:
                    collective = self.context.collectives[key[0]]
                    value = self.context.gather_results(collective, key[1], load.dtype)
                    self.kernels[self.home[key[0]]].outputs.append((load.detail[0], value))
        return bodies

    def members(self, kernel: Kernel, position: int) -> list[Member]:
        """The kernel's collectives at its place.

        Raises:
            NotHere: one of them does not fit.
        """
        members: list[Member] = []
        rows: dict[int, Place] = {}
        for collective in kernel.collectives:
            index, limit = self._source_index(collective, kernel)
            row = tuple(step for axis, step in enumerate(index) if axis not in collective.dims)
            source = self._under(collective.source, index, kernel, limit)
            source = self.resolve(source, kernel, position, rows)
            rows[collective.order] = index if collective.scans else row
            members.append(Member(collective, source, row, index, limit))
        return members

    def _under(self, value: Value, index: Place, kernel: Kernel, limit: Size | None) -> Expr:
        if limit is None:
            return value.at(index)
        with self.context.builder.under(self.context.builder.less(kernel.place[0], limit)):
            return value.at(index)

    def _source_index(self, collective: Collective, kernel: Kernel) -> tuple[Place, Size | None]:
        """The collective's source index at the kernel's place, if its rows are the kernel's rows."""
        if product(collective.outer) != product(kernel.rows):
            raise NotHere
        row = move(kernel.row, kernel.rows, collective.outer)
        if product(collective.inner) == product(kernel.places):
            if collective.source.shape == kernel.shape:
                index = kernel.index
            else:
                index = move(kernel.index, kernel.shape, collective.source.shape)
            if row == tuple(step for axis, step in enumerate(index) if axis not in collective.dims):
                return index, None
            place = move(kernel.place, kernel.places, collective.inner)
            if not collective.scans or collective.inner == kernel.places:
                return collective.source_index(row, place), None
            raise NotHere
        if len(collective.inner) == len(kernel.places) == 1 and nonnegative(kernel.places[0] - collective.inner[0]):
            return collective.source_index(row, kernel.place), collective.inner[0]
        raise NotHere

    def stores(self, kernel: Kernel, position: int) -> list[Store]:
        rows = self._rows(kernel, position)
        made: list[Store] = []
        for buffer, value in kernel.outputs:
            made += self._place(kernel, position, rows, buffer, value)
        return made

    def _rows(self, kernel: Kernel, position: int) -> dict[int, Place]:
        return {
            member.collective.order: member.index if member.collective.scans else member.row
            for member in self.members(kernel, position)
        }

    def _place(
        self, kernel: Kernel, position: int, rows: dict[int, Place], buffer: Buffer, value: Value
    ) -> list[Store]:
        """Stores that write `value` in this kernel.

        Raises:
            NotHere: no placement of its shape in the kernel reads only its own row's collectives.
        """
        for candidate in placements(kernel, value.shape):
            try:
                return [self._store(kernel, position, rows, buffer, value, *spot) for spot in candidate]
            except NotHere:
                continue
        raise NotHere

    def _store(
        self,
        kernel: Kernel,
        position: int,
        rows: dict[int, Place],
        buffer: Buffer,
        value: Value,
        index: Place,
        limit: Size | None,
    ) -> Store:
        build = self.context.builder
        conditions = () if limit is None else (build.less(kernel.place[0], limit),)
        source = self._under(value, index, kernel, limit)
        return Store(buffer, index, self.resolve(source, kernel, position, rows), conditions)

    # --- putting things into kernels

    def add_collective(self, collective: Collective) -> None:
        """Into the latest kernel that can take it; through what its kernel can prepare; else into a kernel of its own."""
        for position in reversed(range(len(self.kernels))):
            for wider in (False, True):
                trial = self._joined(self.kernels[position], collective, wider)
                if trial and self._works(trial, position):
                    self._settle(trial, position, collective)
                    return
        if self._reduce_in_steps(collective) or self._prepare_source(collective):
            return
        kernel = Kernel(
            collective.outer,
            collective.inner,
            collective.source.shape,
            collective.source_index,
            [collective],
            name=collective.name,
        )
        self.kernels.append(kernel)
        self.home[collective.order] = len(self.kernels) - 1
        self.members(kernel, len(self.kernels) - 1)

    def _settle(self, trial: Kernel, position: int, collective: Collective) -> None:
        """The collective is at home in the kernel, unless another there computes just the same."""
        *others, mine = self.members(trial, position)
        for other in others:
            same = (other.source, other.limit, other.collective.kind) == (mine.source, mine.limit, collective.kind)
            if same and collective.count == other.collective.count == 1:
                dtype = "int64" if collective.kind.startswith("arg") else collective.source.dtype
                self.replaced[collective.order] = self.context.gather_results(other.collective, 0, dtype)
                return
        self.kernels[position] = trial
        self.home[collective.order] = position

    def _joined(self, kernel: Kernel, collective: Collective, wider: bool) -> Kernel | None:
        if not kernel.collectives:
            return None
        grown = replace(kernel, collectives=[*kernel.collectives, collective], outputs=list(kernel.outputs))
        if wider and not widen(grown, collective.outer, collective.inner, collective.source_index):
            return None
        return grown

    def _works(self, kernel: Kernel, position: int) -> bool:
        try:
            self.members(kernel, position)
            self.stores(kernel, position)
        except NotHere:
            return False
        return True

    def _reduce_in_steps(self, collective: Collective) -> bool:
        """A reduction over rows and places of a kernel: first over the places there, then over its rows."""
        if collective.kind not in HIERARCHICAL:
            return False
        for position in sorted(self._read(collective), reverse=True):
            kernel = self.kernels[position]
            source = collective.source
            if source.shape != kernel.shape or not kernel.collectives:
                continue
            lead = kernel.collectives[0]
            if not set(lead.dims) < set(collective.dims) or lead.scans:
                continue
            first = self._another(collective, collective.kind, source, lead.dims)
            trial = self._joined(kernel, first, wider=False)
            if trial is None or not self._works(trial, position):
                continue
            self.kernels[position], self.home[first.order] = trial, position
            left = [axis for axis in range(len(source.shape)) if axis not in lead.dims]
            dims = tuple(left.index(axis) for axis in collective.dims if axis not in lead.dims)
            partial = self.context.gather_results(first, 0, source.dtype)
            second = self._another(collective, HIERARCHICAL[collective.kind], partial, dims)
            self.replaced[collective.order] = self.context.gather_results(second, 0, source.dtype)
            self.add_collective(second)
            return True
        return False

    def _prepare_source(self, collective: Collective) -> bool:
        """The source is one value a row of an earlier kernel: that kernel stores it."""
        source = collective.source
        for position in sorted(self._read(collective), reverse=True):
            kernel = self.kernels[position]
            if product(source.shape) != product(kernel.rows) or not kernel.collectives:
                continue
            buffer = self.buffer(source.name or collective.name, arithmetic(source.dtype), source.shape)
            trial = replace(kernel, outputs=[*kernel.outputs, (buffer, source)])
            if not self._works(trial, position):
                continue
            self.kernels[position] = trial
            again = self._another(collective, collective.kind, self.context.of_buffer(buffer), collective.dims)
            if collective.count > 1 or collective.scans:
                raise Unsupported(f"{collective.kind} of a reduction's results", None, collective.line)
            dtype = "int64" if collective.kind.startswith("arg") else source.dtype
            self.replaced[collective.order] = self.context.gather_results(again, 0, dtype)
            self.add_collective(again)
            return True
        return False

    def _another(self, like: Collective, kind: str, source: Value, dims: tuple[int, ...]) -> Collective:
        made = Collective(kind, source, dims, like.name, len(self.context.collectives), like.count, like.line)
        self.context.collectives.append(made)
        return made

    def _read(self, collective: Collective) -> set[int]:
        return {self.home[order] for order in self.reads(collective.source) if order in self.home}

    def reads(self, value: Value) -> set[int]:
        """The collectives (by order) that a value reads, replacements followed."""
        index = tuple(ZERO if e == ONE else size(Index(f"any_{axis}", e)) for axis, e in enumerate(value.shape))
        found: set[int] = set()
        for expression in walk((value.at(index),), self.context.builder):
            if expression.kind == "result":
                order = expression.detail[0].order
                if order in self.replaced:
                    found |= self.reads(self.replaced[order])
                else:
                    found.add(order)
        return found

    def add_output(self, buffer: Buffer, value: Value) -> None:
        """Into the latest kernel that can write it, else into a pointwise kernel over its own shape."""
        homes = {self.home[order] for order in self.reads(value)}
        for position in reversed(range(max(homes, default=0), len(self.kernels))):
            kernel = self.kernels[position]
            if not homes and kernel.collectives and not self._shares_loads(kernel, position, value):
                continue
            for trial in self._with_output(kernel, buffer, value):
                if self._works(trial, position):
                    self.kernels[position] = trial
                    return
        self.kernels.append(pointwise(buffer, value))
        self.stores(self.kernels[-1], len(self.kernels) - 1)

    def _with_output(self, kernel: Kernel, buffer: Buffer, value: Value) -> Iterator[Kernel]:
        """The kernel with the output as it is, then with its rows made as long as the output's."""
        trial = replace(kernel, outputs=[*kernel.outputs, (buffer, value)])
        yield trial
        if kernel.collectives and value.shape:
            wide = replace(trial)
            if widen(wide, value.shape[:-1], value.shape[-1:], lambda row, place: (*row, *place)):
                yield wide

    def _shares_loads(self, kernel: Kernel, position: int, value: Value) -> bool:
        """Whether the value reads what the kernel reads anyway, at the same places."""
        if value.shape != kernel.shape:
            return False
        build = self.context.builder
        mine = walk((value.at(kernel.index),), build)
        theirs = {e.number for member in self.members(kernel, position) for e in walk((member.source,), build)}
        return any(e.kind == "load" and e.number in theirs for e in mine)


def widen(
    kernel: Kernel, outer: tuple[Size, ...], inner: tuple[Size, ...], index: Callable[[Place, Place], Place]
) -> bool:
    """Make the kernel's rows as long as `inner`, which may be longer; what is shorter then covers a part of them."""
    rows = kernel.rows
    if len(inner) != 1 or len(kernel.places) != 1 or product(outer) != product(rows):
        return False
    if not nonnegative(inner[0] - kernel.places[0]):
        return False
    kernel.places = inner
    kernel.shape = index(outer, inner)
    kernel.anchor = lambda row, place: index(move(row, rows, outer), place)
    return True


def pointwise(buffer: Buffer, value: Value) -> Kernel:
    """A kernel over the value's own shape, its last dim of more than one element along the places."""
    shape = value.shape
    last = max((axis for axis, extent in enumerate(shape) if extent != ONE), default=len(shape) - 1)
    ones = (ZERO,) * (len(shape) - 1 - last)

    def anchor(row: Place, place: Place) -> Place:
        return (*row, *place, *ones)

    places = shape[last : last + 1] if shape else ()
    return Kernel(shape[: max(last, 0)], places, shape, anchor, outputs=[(buffer, value)], name=value.name)


def placements(kernel: Kernel, shape: tuple[Size, ...]) -> Iterator[list[tuple[Place, Size | None]]]:
    """Ways to write a value of `shape` in the kernel: index and limit of each store."""
    count = product(shape)
    if count == product(kernel.rows) * product(kernel.places):
        index = kernel.index if shape == kernel.shape else move(kernel.index, kernel.shape, shape)
        yield [(index, None)]
        turned = tuple(
            kernel.shape[axis] - 1 - step if len(kernel.places) == 1 and step == kernel.place[0] != ZERO else step
            for axis, step in enumerate(kernel.index)
        )
        yield [(turned if shape == kernel.shape else move(turned, kernel.shape, shape), None)]
    if not kernel.collectives:
        return
    if count == product(kernel.rows):
        yield [(move(kernel.row, kernel.rows, shape), None)]
    for axis, extent in enumerate(shape):
        others = shape[:axis] + shape[axis + 1 :]
        if len(kernel.places) == 1 and product(others) == product(kernel.rows):
            row = move(kernel.row, kernel.rows, others)
            if nonnegative(kernel.places[0] - extent):
                yield [((*row[:axis], kernel.place[0], *row[axis:]), extent)]
        if extent.constant and 1 < extent.constant <= SPREAD and product(others) == product(kernel.rows):
            row = move(kernel.row, kernel.rows, others)
            yield [((*row[:axis], size(step), *row[axis:]), None) for step in range(extent.constant)]


def rewrite(expression: Expr, context: Context, result: Callable[[Expr], Expr | None]) -> Expr:
    """The expression with each collective's result put through `result` (None: leave it), also inside indices."""
    build = context.builder
    done: dict[int, Expr] = {}

    def again(part: Size) -> Size:
        opaque = [atom for atom in atoms_of(part) if isinstance(atom, Opaque)]
        return substitute(part, {atom: build.opaque(done[atom.key], atom.extent or ONE) for atom in opaque})

    for part in walk((expression,), build):
        kept = result(part) if part.kind == "result" else None
        if kept is not None:
            done[part.number] = kept
            continue
        arguments = tuple(done[argument.number] for argument in part.arguments)
        detail = part.detail
        if any(done[child.number] is not child for child in children(part, build)):
            if part.kind == "load":
                conditions = tuple(done[condition.number] for condition in detail[2])
                detail = (detail[0], tuple(map(again, detail[1])), conditions)
            elif part.kind == "result":
                detail = (*detail[:2], tuple(map(again, detail[2])))
            elif part.kind == "size":
                detail = again(detail)
            elif part.kind == "less":
                detail = tuple(map(again, detail))
        done[part.number] = build.make(part.kind, arguments, part.dtype, detail, part.name)
    return done[expression.number]


def fuse(context: Context, outputs: list[tuple[Buffer, Value]]) -> Plan:
    """Kernels for all outputs, each collective that they read computed once."""
    plan = Plan(context)
    live: set[int] = set()
    wanted = [value for _, value in outputs]
    while wanted:
        for order in plan.reads(wanted.pop()):
            if order not in live:
                live.add(order)
                wanted.append(context.collectives[order].source)
    for collective in [c for c in context.collectives if c.order in live]:
        plan.add_collective(collective)
    for buffer, value in outputs:
        plan.add_output(buffer, value)
    return plan
