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
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from kernelwright.providers.builtin.fusion import Body, Member, Store
from kernelwright.providers.builtin.ir import (
    FLOATS,
    WIDTH,
    Buffer,
    Builder,
    Collective,
    Expr,
    children,
    own_indices,
    walk,
)
from kernelwright.providers.builtin.sizes import (
    ONE,
    ZERO,
    Atom,
    Index,
    Opaque,
    Size,
    Symbol,
    atoms_of,
    indices,
    product,
    ravel,
    size,
)
from kernelwright.providers.builtin.sizes import text as size_text
from kernelwright.providers.builtin.texts import (
    ATOM,
    PRODUCT,
    REPEATING,
    SUM,
    TYPES,
    WHOLE,
    Text,
    constant,
    fold,
    render,
)

Schedule = Literal["held", "looped", "partial", "final", "flat"]
UNIFORM, ROW, FULL = 0, 1, 2
PLAIN = {
    "where": "chosen",
    "mul": "scaled",
    "add": "shifted",
    "sub": "gap",
    "div": "ratio",
    "cast": "rounded",
    "pow": "power",
    "sum": "total",
    "less": "before",
}
"""What an unnamed intermediate is called, where its op's own name reads badly or shadows a Python name."""
INLINE = 44
"""The longest expression that stays inside another one when it is used once."""


@dataclass(frozen=True)
class Names:
    """What the texts are called: a symbol's run-time argument, a run-time number's argument, the main dtype or None."""

    symbol: Callable[[Symbol], str]
    scalar: Callable[[str], str]
    rename: Callable[[str], str]
    main: str | None
    contiguous: Callable[[Buffer], bool]


@dataclass
class Emitter:
    """Writes one kernel. `helpers` collects the combine functions that it needs."""

    body: Body
    builder: Builder
    names: Names
    schedule: Schedule
    helpers: set[str] = field(default_factory=set)
    lines: list[str] = field(default_factory=list)
    buffers: dict[str, Buffer] = field(default_factory=dict)
    symbols: dict[str, Symbol] = field(default_factory=dict)
    scalars: dict[str, str] = field(default_factory=dict)
    partials: list[Member] = field(default_factory=list)
    _indent: int = 1
    _known: dict[int, Text] = field(default_factory=dict)
    _results: dict[tuple[int, int], Text] = field(default_factory=dict)
    _taken: set[str] = field(default_factory=set)
    _kinds: dict[int, frozenset[str]] = field(default_factory=dict)
    _dtype_from: str = ""

    def __post_init__(self) -> None:
        kernel = self.body.kernel
        self.has_rows = product(kernel.rows) != ONE
        self.has_cols = product(kernel.places) != ONE or bool(kernel.collectives)
        roots = self._roots()
        self._uses: Counter[int] = Counter()
        for expression in walk(roots, self.builder):
            for argument in expression.arguments:
                self._uses[argument.number] += 1
        for root in roots:
            self._uses[root.number] += 1
        loads = [e.detail[0] for e in walk(roots, self.builder) if e.kind == "load"]
        for buffer in [*loads, *(store.buffer for store in self.body.stores)]:
            self.buffers.setdefault(buffer.name, buffer)
        self._taken |= {"row", "col", "mask", "row_mask", "col_mask", "start", "pid", "dtype", "part"}

    def _roots(self) -> tuple[Expr, ...]:
        return tuple(m.source for m in self.body.members) + tuple(
            part for store in self.body.stores for part in (store.value, *store.conditions)
        )

    # --- levels and phases

    def kinds(self, expression: Expr) -> frozenset[str]:
        """What an element depends on: "row", "col" (the place in the row), both or neither."""
        if expression.number not in self._kinds:
            for part in walk((expression,), self.builder):
                found = {"col" if index.name.startswith("col") else "row" for index in own_indices(part)}
                if part.kind == "result":
                    found |= {"row"} if self.has_rows else set()
                    found |= {"col"} if part.detail[0].scans else set()
                for child in self._children(part):
                    found |= self._kinds[child.number]
                self._kinds[part.number] = frozenset(found)
        return self._kinds[expression.number]

    def level(self, expression: Expr) -> int:
        kinds = self.kinds(expression)
        return FULL if "col" in kinds else ROW if kinds else UNIFORM

    def _children(self, expression: Expr) -> tuple[Expr, ...]:
        return children(expression, self.builder)

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

    def _grouped(self, extent: Size) -> str:
        return self._size(extent).within(ATOM)

    def _extent(self) -> str:
        count = product(self.body.kernel.places)
        return str(count.constant) if count.constant is not None else "n_cols"

    def _count_rows(self) -> str:
        count = product(self.body.kernel.rows)
        return str(count.constant) if count.constant is not None else "n_rows"

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

    # --- expressions

    def expression(self, expression: Expr) -> Text:
        if expression.number in self._known:
            return self._known[expression.number]
        made = self._text(expression)
        long = len(made.words) > INLINE
        shared = self._uses[expression.number] > 1 and made.binds < ATOM
        shared |= self._uses[expression.number] > 1 and "(" in made.words
        named = bool(self.names.rename(expression.name) and expression.name) and made.binds < ATOM
        if expression.kind == "load" or (expression.kind != "scalar" and (shared or long or named)):
            return self._assign(expression, made)
        self._known[expression.number] = made
        return made

    def _assign(self, expression: Expr, made: Text) -> Text:
        if re.fullmatch(r"[\w.]+", made.words):
            self._known[expression.number] = made
            return made
        variable = self.fresh(self._variable(expression))
        self._write(f"{variable} = {made.words}")
        self._known[expression.number] = Text(variable)
        return self._known[expression.number]

    def _named(self, expression: Expr) -> Text:
        """The expression's text, in a variable unless it is a word already."""
        return self._assign(expression, self.expression(expression))

    def _variable(self, expression: Expr) -> str:
        renamed = self.names.rename(expression.name) if expression.name else ""
        if renamed:
            return renamed
        if expression.kind == "cast" and expression.arguments[0].kind not in ("load", "constant"):
            return self._variable(expression.arguments[0])
        base = re.sub(r"_\d+$", "", expression.name) or expression.kind
        return PLAIN.get(base, base)

    def fresh(self, base: str) -> str:
        base = base.strip("_") or "value"
        name, number = base, 2
        while name in self._taken:
            name, number = f"{base}_{number}", number + 1
        self._taken.add(name)
        return name

    def _text(self, expression: Expr) -> Text:
        match expression.kind:
            case "load":
                return self._load(expression)
            case "constant":
                return (
                    constant(*expression.detail)
                    if expression.dtype != "bool"
                    else constant("bool", expression.detail[1])
                )
            case "scalar":
                self.scalars.setdefault(expression.detail, self.names.scalar(expression.detail))
                return Text(self.scalars[expression.detail])
            case "size":
                return self._size(expression.detail)
            case "less":
                left, right = map(self._size, expression.detail)
                return Text(f"{left.within(SUM)} < {right.within(SUM)}", 4)
            case "result":
                return self._results[(expression.detail[0].order, expression.detail[1])]
            case "cast":
                return self._cast(expression)
        kind = expression.kind
        parts = list(expression.arguments)
        if (
            kind in ("round", "floor", "ceil", "trunc")
            and parts[0].kind == "div"
            and parts[0].number not in self._known
        ):
            parts[0] = self.builder.make("div_exact", parts[0].arguments, parts[0].dtype, name=parts[0].name)
        form = f"{kind}_whole" if kind in WHOLE and expression.dtype not in FLOATS else kind
        texts = [self._named(part) if form in REPEATING else self.expression(part) for part in parts]
        if all(part.kind == "constant" for part in parts):
            # Python would compute with these itself, and stop at 0.0 / 0.0.
            texts[0] = Text(f"tl.full((), {texts[0].words}, {TYPES[parts[0].dtype]})")
        return render(kind, texts, expression.dtype)

    def _cast(self, expression: Expr) -> Text:
        source, dtype = expression.arguments[0], expression.dtype
        words = self.expression(source)
        plain = source.kind in ("constant", "scalar") or (source.kind == "size" and self.level(source) == UNIFORM)
        if dtype == "bool":
            return Text(f"{words.within(SUM)} != 0", 4)
        if dtype not in FLOATS:
            if plain:
                return words
            return Text(f"{words.within(ATOM)}.to({TYPES[dtype]})")
        if plain and dtype == "float32":
            return words
        if plain:
            words = Text(f"tl.full((), {words.words}, tl.float32)")
        elif source.dtype not in FLOATS:
            words = Text(f"{words.within(ATOM)}.to(tl.float32)")
        if dtype == "float32":
            return words
        return Text(f"{words.within(ATOM)}.to({self._type(dtype)}).to(tl.float32)")

    def _type(self, dtype: str) -> str:
        if dtype != self.names.main:
            return TYPES[dtype]
        holder = next(
            (b.name for b in self.buffers.values() if b.dtype == dtype and not b.name.endswith("_scratch")), None
        )
        if holder is None:
            return TYPES[dtype]
        self._dtype_from = holder
        return "dtype"

    # --- sizes, loads, stores

    def _atom(self, atom: Atom) -> str:
        kernel = self.body.kernel
        if isinstance(atom, Opaque):
            return self.expression(self.builder.value_of(atom)).within(ATOM)
        if isinstance(atom, Index):
            name, _, axis = atom.name.partition("_")
            extents = kernel.rows if name == "row" else kernel.places
            return atom.name if axis and sum(extent != ONE for extent in extents) > 1 else name
        assert isinstance(atom, Symbol)
        if product(kernel.rows) == size(atom):
            return "n_rows"
        if product(kernel.places) == size(atom):
            return "n_cols"
        name = self.names.symbol(atom)
        self.symbols[name] = atom
        return name

    def _size(self, value: Size) -> Text:
        words = size_text(value, self._atom)
        binds = ATOM if re.fullmatch(r"\w+", words) else SUM if re.search(r" [+-] |^-", words) else PRODUCT
        if words.startswith("(") and words.endswith(")") and words.count("(") == 1:
            binds = ATOM
        return Text(words, binds)

    def _pointer(self, buffer: Buffer, index: tuple[Size, ...]) -> str:
        kernel = self.body.kernel
        if self.names.contiguous(buffer):
            position = ravel(index, buffer.shape)
            if (
                position == ravel(kernel.row + kernel.place, kernel.rows + kernel.places)
                and self.has_rows
                and self.has_cols
            ):
                offsets = ["row" if self._extent() == "1" else f"row * {self._extent()}", "col"]
                offsets = offsets if product(kernel.places) != ONE else ["row"]
            elif position == ravel(kernel.row, kernel.rows) and self.has_rows:
                offsets = ["row"]
            elif position == ravel(kernel.place, kernel.places) and self.has_cols and position != ZERO:
                offsets = ["col"]
            else:
                offsets = [] if position == ZERO else [self._size(position).words]
        else:
            offsets = [
                f"{self._size(step).within(PRODUCT)} * {buffer.name}_stride_{axis}"
                for axis, step in enumerate(index)
                if step != ZERO
            ]
        return " + ".join([f"{buffer.name}_ptr", *offsets])

    def _mask(self, kinds: frozenset[str], conditions: tuple[Expr, ...]) -> str:
        """The tile's masks for an address of these kinds, and the conditions.

        A condition on something that the address does not depend on says only whether the value is used: it goes.
        """
        tests: list[str] = []
        if self.schedule != "final":
            tests = ["mask"] if len(kinds) == 2 else [f"{kind}_mask" for kind in sorted(kinds)]
        tests += [self.expression(c).within(ATOM) for c in conditions if self.kinds(c) <= kinds]
        return " & ".join(dict.fromkeys(tests))

    def _load(self, expression: Expr) -> Text:
        buffer, index, conditions = expression.detail
        kinds = {"col" if atom.name.startswith("col") else "row" for atom in own_indices(expression)}
        for part in index:
            for atom in atoms_of(part):
                if isinstance(atom, Opaque):
                    kinds |= self.kinds(self.builder.value_of(atom))
        mask = self._mask(frozenset(kinds), conditions)
        pointer = self._pointer(buffer, index)
        other = "0.0" if buffer.dtype in FLOATS else "0"
        words = f"tl.load({pointer}, mask={mask}, other={other})" if mask else f"tl.load({pointer})"
        wide = buffer.dtype in FLOATS and (buffer.dtype != "float32" or self.names.main == "float32")
        if buffer.name.endswith("_scratch"):
            wide = False
        return Text(f"{words}.to(tl.float32)" if wide else words)

    def _ragged(self, expression: Expr) -> bool:
        """Whether the address is itself a value, so that it may lie inside the tensor beyond the end of the row."""
        return any(isinstance(atom, Opaque) for part in expression.detail[1] for atom in atoms_of(part))

    def _store(self, store: Store) -> None:
        value = store.value
        if value.kind == "cast" and value.dtype == store.buffer.dtype and value.arguments[0].dtype in FLOATS:
            value = value.arguments[0] if WIDTH[value.dtype] <= WIDTH[value.arguments[0].dtype] else value
        words = self.expression(value).words
        pointer = self._pointer(store.buffer, store.index)
        kinds = frozenset(index.name.split("_")[0] for part in store.index for index in indices(part))
        mask = self._mask(kinds, store.conditions)
        self._write(f"tl.store({pointer}, {words}, mask={mask})" if mask else f"tl.store({pointer}, {words})")

    def _write(self, words: str) -> None:
        self.lines += fold("    " * self._indent + words)

    # --- collectives

    def _result_name(self, collective: Collective) -> str:
        base = re.sub(r"_\d+$", "", collective.name)
        return self.names.rename(collective.name) or PLAIN.get(base, base)

    def _places_mask(self, member: Member) -> str:
        if member.limit is None:
            return "col_mask"
        return self.expression(self.builder.less(self.body.kernel.place[0], member.limit)).within(ATOM)

    def _neutral(self, member: Member) -> str:
        kind, dtype = member.collective.kind, member.source.dtype
        if kind in ("max", "min", "argmax", "argmin", "topk"):
            low = kind in ("max", "argmax", "topk")
            if dtype in FLOATS:
                return f'float("{"-" if low else ""}inf")'
            if dtype == "bool":
                return "0" if low else "1"
            bits = WIDTH[dtype]
            if dtype == "uint8":
                return "0" if low else "255"
            return str(-(2 ** (bits - 1)) if low else 2 ** (bits - 1) - 1)
        zero = {"sum": 0, "prod": 1, "any": 0, "all": 1, "cumsum": 0, "cumprod": 1}[kind]
        return f"{zero}.0" if dtype in FLOATS else str(zero)

    def _filled(self, member: Member) -> str:
        """The source with the neutral element where the row has ended."""
        neutral = self._neutral(member)
        words = self.expression(member.source)
        if member.source.dtype == "bool":
            words = Text(f"{words.within(ATOM)}.to(tl.int32)")
        if neutral == "0.0" and self._ends_in_zeros(member.source):
            return words.words
        return f"tl.where({self._places_mask(member)}, {words.words}, {neutral})"

    def _ends_in_zeros(self, expression: Expr) -> bool:
        """Whether the value is 0 beyond the end of the row, by masked loads."""
        if expression.kind == "load":
            return self.level(expression) == FULL and not self._ragged(expression)
        if expression.kind in ("square", "neg", "abs") or (expression.kind == "cast" and expression.dtype in FLOATS):
            return self._ends_in_zeros(expression.arguments[0])
        return expression.kind in ("mul", "add", "sub") and all(map(self._ends_in_zeros, expression.arguments))

    def _axis(self) -> str:
        return "axis=1, keep_dims=True" if self.has_rows else "axis=0"

    def _collect(self, member: Member) -> None:
        """A collective over a row held in registers."""
        collective = member.collective
        if collective.kind == "topk":
            self._top(member)
        elif collective.scans:
            self._scan(member, None)
        elif collective.kind in ("argmax", "argmin"):
            self._argument(member)
        else:
            self._finish(member, self._filled(member))

    def _finish(self, member: Member, block: str) -> None:
        """Reduce a block to one value a row."""
        collective = member.collective
        name = self.fresh(self._result_name(collective))
        words = self._reduced(collective.kind, block, member.source.dtype)
        self._write(f"{name} = {words}")
        self._results[(collective.order, 0)] = Text(name)

    def _reduced(self, kind: str, block: str, dtype: str) -> str:
        axis = self._axis()
        if kind == "sum":
            return f"tl.sum({block}, {axis})"
        if kind in ("any", "all"):
            return f"tl.{'max' if kind == 'any' else 'min'}({block}, {axis}) != 0"
        if kind in ("max", "min") and dtype not in FLOATS:
            words = f"tl.{kind}({block}, {axis})"
            return f"{words} != 0" if dtype == "bool" else words
        helper = {"max": "_maximum", "min": "_minimum", "prod": "_product"}[kind]
        self.helpers.add(helper)
        return f"tl.reduce({block}, {axis.replace('axis=1', '1').replace('axis=0', '0')}, {helper})".replace(
            "1, keep_dims=True, " + helper, f"1, {helper}, keep_dims=True"
        )

    def _argument(self, member: Member) -> None:
        kind = member.collective.kind
        helper = "_first_largest" if kind == "argmax" else "_first_smallest"
        self.helpers.add(helper)
        name = self.fresh(self._result_name(member.collective))
        pair = f"({self._filled(member)}, {self._places(member)})"
        keep = ", keep_dims=True" if self.has_rows else ""
        self._write(f"_, {name} = tl.reduce({pair}, {1 if self.has_rows else 0}, {helper}{keep})")
        self._results[(member.collective.order, 0)] = Text(name)

    def _places(self, member: Member) -> str:
        """The place of each element, in the shape of the tile."""
        if not self.has_rows:
            return "col"
        return "tl.broadcast_to(col, (ROWS, COLS))"

    def _top(self, member: Member) -> None:
        """The k largest by k passes: each finds the largest that is left, the first of equal ones."""
        self.helpers.add("_first_largest")
        count = member.collective.count
        base = self._result_name(member.collective)
        left, places = self.fresh(f"{base}_left"), self.fresh(f"{base}_places")
        self._write(f"{left} = {self._filled(member)}")
        self._write(f"{places} = {self._places(member)}")
        keep = ", keep_dims=True" if self.has_rows else ""
        axis = 1 if self.has_rows else 0
        for rank in range(count):
            value, place = self.fresh(f"{base}_value_{rank}"), self.fresh(f"{base}_place_{rank}")
            self._write(f"{value}, {place} = tl.reduce(({left}, {places}), {axis}, _first_largest{keep})")
            self._results[(member.collective.order, 2 * rank)] = Text(value)
            self._results[(member.collective.order, 2 * rank + 1)] = Text(place)
            if rank < count - 1:
                taken = f"{places} == {place}"
                self._write(f"{left} = tl.where({taken}, {self._neutral(member)}, {left})")
                # A taken element must also lose to real ones that are as small as its filling.
                self._write(f"{places} = tl.where({taken}, 9223372036854775807, {places})")

    def _scan(self, member: Member, carry: str | None) -> None:
        collective = member.collective
        block = self.fresh(f"{self._result_name(collective)}_block")
        name = self.fresh(self._result_name(collective))
        axis = 1 if self.has_rows else 0
        filled = self._filled(member)
        if carry is None:
            self._write(f"{name} = {self._scanned(collective.kind, filled, axis)}")
        else:
            self._write(f"{block} = {filled}")
            sign = "+" if collective.kind == "cumsum" else "*"
            self._write(f"{name} = {carry} {sign} {self._scanned(collective.kind, block, axis)}")
            whole = "sum" if collective.kind == "cumsum" else "prod"
            self._write(f"{carry} {sign}= {self._reduced(whole, block, member.source.dtype)}")
        self._results[(collective.order, 0)] = Text(name)

    def _scanned(self, kind: str, block: str, axis: int) -> str:
        if kind == "cumsum":
            return f"tl.cumsum({block}, axis={axis})"
        self.helpers.add("_product")
        return f"tl.associative_scan({block}, {axis}, _product)"

    # --- collectives in a loop: begin, accumulate, end

    def _tile(self) -> str:
        return "(ROWS, COLS)" if self.has_rows else "(COLS,)"

    def _begin(self, member: Member) -> list[str]:
        kind, dtype = member.collective.kind, member.source.dtype
        base = self._result_name(member.collective)
        stored = "tl.int32" if dtype == "bool" else TYPES["float32" if dtype in FLOATS else dtype]
        names = [self.fresh(f"{base}_block")]
        self._write(f"{names[0]} = tl.full({self._tile()}, {self._neutral(member)}, {stored})")
        if kind.startswith("arg"):
            names.append(self.fresh(f"{base}_places"))
            self._write(f"{names[1]} = tl.full({self._tile()}, 9223372036854775807, tl.int64)")
        return names

    def _accumulate(self, member: Member, names: list[str]) -> None:
        kind, dtype = member.collective.kind, member.source.dtype
        filled = self._filled(member)
        floating = dtype in FLOATS
        if kind.startswith("arg"):
            helper = "_first_largest" if kind == "argmax" else "_first_smallest"
            self.helpers.add(helper)
            arguments = f"{names[0]}, {names[1]}, {filled}, {self._places(member)}"
            self._write(f"{names[0]}, {names[1]} = {helper}({arguments})")
        elif kind == "sum":
            self._write(f"{names[0]} += {filled}")
        elif kind == "prod":
            self._write(f"{names[0]} *= {filled}")
        else:
            call = "maximum" if kind in ("max", "any") else "minimum"
            exact = ", propagate_nan=tl.PropagateNan.ALL" if floating else ""
            self._write(f"{names[0]} = tl.{call}({names[0]}, {filled}{exact})")

    def _end(self, member: Member, names: list[str]) -> None:
        kind = member.collective.kind
        if not kind.startswith("arg"):
            self._finish(member, names[0])
            return
        helper = "_first_largest" if kind == "argmax" else "_first_smallest"
        name = self.fresh(self._result_name(member.collective))
        keep = ", keep_dims=True" if self.has_rows else ""
        pair = f"({names[0]}, {names[1]})"
        self._write(f"_, {name} = tl.reduce({pair}, {1 if self.has_rows else 0}, {helper}{keep})")
        self._results[(member.collective.order, 0)] = Text(name)

    def _begin_scan(self, member: Member) -> str:
        dtype = TYPES["float32" if member.source.dtype in FLOATS else member.source.dtype]
        name = self.fresh(f"{self._result_name(member.collective)}_carry")
        if self.has_rows:
            self._write(f"{name} = tl.full((ROWS, 1), {self._neutral(member)}, {dtype})")
        else:
            self._write(f"{name} = tl.full((), {self._neutral(member)}, {dtype})")
        return name
