"""Writing the elements of a kernel: expressions, loads and stores as lines, with variables where they help the reader."""

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
class Writer:
    """The lines of one kernel so far. `helpers` collects the combine functions that it needs."""

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

    # --- what an expression depends on

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

    def _grouped(self, extent: Size) -> str:
        return self._size(extent).within(ATOM)

    def _extent(self) -> str:
        count = product(self.body.kernel.places)
        return str(count.constant) if count.constant is not None else "n_cols"

    def _count_rows(self) -> str:
        count = product(self.body.kernel.rows)
        return str(count.constant) if count.constant is not None else "n_rows"

    # --- expressions

    def expression(self, expression: Expr) -> Text:
        if expression.number in self._known:
            return self._known[expression.number]
        made = self._text(expression)
        long = len(made.words) > INLINE
        shared = self._uses[expression.number] > 1 and made.binds < ATOM
        shared |= self._uses[expression.number] > 1 and "(" in made.words
        named = bool(self.names.rename(expression.name) and expression.name) and made.binds < ATOM
        plain = expression.kind in ("scalar", "constant")
        if expression.kind == "load" or (not plain and (shared or long or named)):
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
                f"{buffer.name}_stride_{axis}"
                if step == ONE
                else f"{self._size(step).within(PRODUCT)} * {buffer.name}_stride_{axis}"
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
