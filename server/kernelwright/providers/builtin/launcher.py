"""Launchers: the Python that allocates outputs, chooses blocks from the sizes, and launches the kernels."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from kernelwright.model import Graph, Json, Target
from kernelwright.providers.builtin import naming, ops_pointwise
from kernelwright.providers.builtin.emission import Emitter
from kernelwright.providers.builtin.fusion import Body, Store, fuse
from kernelwright.providers.builtin.ir import FLOATS, Buffer, Unsupported, Value, walk
from kernelwright.providers.builtin.lowering import find, lower
from kernelwright.providers.builtin.ops_complex import COMPLEX
from kernelwright.providers.builtin.sizes import (
    ONE,
    ZERO,
    Atom,
    Index,
    Size,
    Symbol,
    indices,
    product,
    size,
    symbols,
)
from kernelwright.providers.builtin.sizes import text as size_text
from kernelwright.providers.builtin.texts import fold
from kernelwright.providers.builtin.writer import Names, Schedule

HELD = 16384
"""The longest row that is held in registers: 16 warps with 32 elements a thread."""
HELD_ACROSS = 256
"""The same where the rows lie side by side in memory, so that at least 32 of them share a program."""
HELD_ONLY = 65536
"""The longest row of a kernel that cannot loop over its row."""


@dataclass
class Module:
    """What one variant adds to the module: kernels by name, helper functions, and the launcher's lines."""

    kernels: dict[str, list[str]] = field(default_factory=dict)
    helpers: set[str] = field(default_factory=set)
    lines: list[str] = field(default_factory=list)
    guards: list[str] = field(default_factory=list)


class Generation:
    """One variant of the target as kernels and a launcher."""

    def __init__(self, target: Target, graph: Graph, main: str | None) -> None:
        self.target, self.graph = target, graph
        self.main = main
        self.module = Module()
        self.user_names = naming.user_names(target, graph)
        self.taken: set[str] = {p.name for p in target.parameters}
        self.tensors: dict[str, str] = {}
        for placeholder in graph.placeholders:
            name = placeholder.path
            if not name.isidentifier():
                name = naming.identifier(placeholder.path, self.taken)
                self.taken.add(name)
            self.tensors[placeholder.node] = name
        self.context = lower(graph, self.tensors)
        self.symbol_places = self._symbol_places()
        self._scalars: dict[str, str] = {}
        self.strided: dict[str, str] = {}
        """Output → the tensor whose layout it takes."""
        self.stored: list[Buffer] = []

    def _symbol_places(self) -> dict[str, tuple[str, str, int]]:
        """Symbol → (argument's name in kernels, tensor, axis), from the first dim that is just this symbol."""
        places: dict[str, tuple[str, str, int]] = {}
        for buffer in self.context.buffers.values():
            for axis, extent in enumerate(buffer.shape):
                for symbol in symbols(extent):
                    if extent == size(symbol) or _whole(extent, symbol):
                        places.setdefault(symbol.name, (f"{buffer.name}_size_{axis}", buffer.name, axis))
        return places

    # --- names for the emission

    def symbol(self, symbol: Symbol) -> str:
        if symbol.name not in self.symbol_places:
            raise Unsupported(f"a size ({symbol.name}) that no argument shows by itself")
        return self.symbol_places[symbol.name][0]

    def host(self, value: Size) -> str:
        """A size as the launcher computes it."""

        def name(atom: Atom) -> str:
            if not isinstance(atom, Symbol) or atom.name not in self.symbol_places:
                raise Unsupported("a size that the launcher cannot know")
            _, tensor, axis = self.symbol_places[atom.name]
            return f"{tensor}.shape[{axis}]"

        return size_text(value, name)

    def scalar(self, words: str) -> str:
        """The kernel argument for a run-time number: the scalar's own name, or one that says what was made of it."""
        if words not in self._scalars:
            names = [node.id for node in ast.walk(ast.parse(words, mode="eval")) if isinstance(node, ast.Name)]
            by_name = {scalar.name: scalar.path for scalar in self.graph.scalars}
            parts = [naming.identifier(by_name[name], set()) for name in dict.fromkeys(names) if name in by_name]
            made = "_".join(parts)
            if not words.isidentifier():
                forms = {rf"1(\.0)? - {names[0]}": f"one_minus_{made}", rf"-{names[0]}": f"minus_{made}"}
                made = next((name for form, name in forms.items() if re.fullmatch(form, words)), f"{made}_term")
            self._scalars[words] = naming.identifier(made, set(self._scalars.values()))
        return self._scalars[words]

    def host_scalar(self, words: str) -> str:
        """A run-time number as the launcher computes it, in Python's double precision."""
        by_name = {scalar.name: scalar.path for scalar in self.graph.scalars}
        generation = self

        class Paths(ast.NodeTransformer):
            def visit_Name(self, node: ast.Name) -> ast.AST:
                words = by_name.get(node.id)
                if words is None and node.id not in ("max", "min", "abs", "math"):
                    words = generation.host(generation.context.reader.read(node.id))
                return node if words is None else ast.parse(words, mode="eval").body

        return ast.unparse(Paths().visit(ast.parse(words, mode="eval")))

    def rename(self, node: str) -> str:
        name = self.user_names.get(node, "")
        return name if name not in naming.RESERVED else ""

    def contiguous(self, buffer: Buffer) -> bool:
        return buffer.path is None and buffer.name not in self.strided

    # --- the variant

    def run(self) -> Module:
        outputs = self._outputs()
        filled = [(buffer, value) for buffer, value in outputs if ZERO not in buffer.shape]
        bodies = fuse(self.context, filled).finish()
        self._check_updates(bodies)
        self._prologue()
        scratch = [
            buffer
            for body in bodies
            for store in body.stores
            for buffer in (store.buffer,)
            if buffer.path is None and not any(buffer is known for known, _ in outputs)
        ]
        self._allocate(
            [buffer for buffer, _ in outputs if buffer.path is None] + list({b.name: b for b in scratch}.values())
        )
        launches: list[str] = []
        for position, body in enumerate(bodies):
            launches += self._launch(body, position, len(bodies))
        device = self._device()
        self.module.lines.append(f"    with torch.cuda.device_of({device}):")
        self.module.lines += launches
        returned = self._returned(self.graph.output)
        if returned != "None":
            self.module.lines.append(f"    return {returned}")
        return self.module

    def _outputs(self) -> list[tuple[Buffer, Value]]:
        names = naming.output_names(self.target, self.graph.output)
        outputs: list[tuple[Buffer, Value]] = []
        self.output_of: dict[str, str] = {}
        for node, name in names.items():
            value = self.context.values[node]
            if not isinstance(value, Value) or value.dtype == COMPLEX:
                raise Unsupported("an output that is complex or several tensors")
            free = name
            if free in self.taken:
                free = naming.identifier(f"{free}_out", self.taken)
            self.taken.add(free)
            self.output_of[node] = free
            outputs.append((Buffer(free, value.dtype, value.shape), value))
            like = self._layout_source(node)
            if like is not None and len(value.shape) > 1:
                self.strided[free] = like
        for placeholder in self.graph.placeholders:
            if placeholder.mutated_by is not None:
                value = self.context.values[placeholder.mutated_by]
                assert isinstance(value, Value)
                outputs.append((self.context.buffers[placeholder.node], value))
        if not outputs:
            raise Unsupported("no tensor is computed: every output is an argument or a plain value")
        return outputs

    def _layout_source(self, node: str) -> str | None:
        """The argument whose strides eager's pointwise ops hand on to this node."""
        nodes = {n.name: n for n in self.graph.nodes}
        placeholders = {p.node: p for p in self.graph.placeholders}
        shape = nodes[node].shape if node in nodes else None
        while node in nodes:
            lowering = find(nodes[node].op)
            if getattr(lowering, "__module__", "") != ops_pointwise.__name__ or nodes[node].shape != shape:
                return None
            sources = [a["node"] for a in nodes[node].args if isinstance(a, dict) and "node" in a]
            same = [s for s in sources if (nodes.get(s) or placeholders.get(s)).shape == shape]  # type: ignore[union-attr]
            if not same:
                return None
            node = same[0]
        return self.tensors.get(node)

    def _check_updates(self, bodies: list[Body]) -> None:
        """An argument that is written may only be read where it is written, in the same kernel."""
        for body in bodies:
            for store in body.stores:
                if store.buffer.path is None:
                    continue
                for other in bodies:
                    roots = tuple(m.source for m in other.members) + tuple(s.value for s in other.stores)
                    for load in walk(roots, self.context.builder):
                        if load.kind != "load" or load.detail[0].name != store.buffer.name:
                            continue
                        if other is not body or load.detail[1] != store.index:
                            raise Unsupported(f"an update of {store.buffer.path} that reads other elements of it")

    def _prologue(self) -> None:
        for node, name in self.tensors.items():
            placeholder = next(p for p in self.graph.placeholders if p.node == node)
            if placeholder.dtype == COMPLEX:
                self.module.lines.append(f"    {name} = torch.view_as_real({placeholder.path})")
            elif name != placeholder.path:
                self.module.lines.append(f"    {name} = {placeholder.path}")

    def _device(self) -> str:
        first = next(iter(self.context.buffers.values()), None)
        if first is None:
            raise Unsupported("no tensor argument says which device to run on")
        return first.name

    def _dtype(self, dtype: str) -> str:
        holder = next((b.name for b in self.context.buffers.values() if b.dtype == dtype), None)
        return f"{holder}.dtype" if dtype == self.main and holder else f"torch.{dtype}"

    def _allocate(self, buffers: list[Buffer]) -> None:
        device = self._device()
        for buffer in buffers:
            scratch = buffer.name.endswith("_scratch")
            dtype = f"torch.{buffer.dtype}" if scratch else self._dtype(buffer.dtype)
            if buffer.name in self.strided:
                like = self.strided[buffer.name]
                same = f"{like}.dtype" == dtype
                words = f"torch.empty_like({like})" if same else f"torch.empty_like({like}, dtype={dtype})"
            else:
                words = f"torch.empty({self._shape(buffer.shape)}, dtype={dtype}, device={device}.device)"
            self.module.lines += fold(f"    {buffer.name} = {words}")

    def _shape(self, shape: tuple[Size, ...]) -> str:
        for buffer in self.context.buffers.values():
            if buffer.shape == shape and shape:
                return f"{buffer.name}.shape"
        items = [self.host(extent) for extent in shape]
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"

    def _returned(self, tree: Json) -> str:
        if "node" in tree:
            return self.output_of[tree["node"]]
        if "placeholder" in tree:
            return str(tree["placeholder"])
        if "tuple" in tree:
            items = [self._returned(item) for item in tree["tuple"]]
            return f"({items[0]},)" if len(items) == 1 else ", ".join(items) if items else "()"
        if "list" in tree:
            return "[" + ", ".join(self._returned(item) for item in tree["list"]) + "]"
        if "dict" in tree:
            return "{" + ", ".join(f"{key!r}: {self._returned(item)}" for key, item in tree["dict"].items()) + "}"
        return repr(tree.get("value"))

    # --- kernels and their launches

    def emit(self, body: Body, schedule: Schedule) -> Emitter:
        names = Names(self.symbol, self.scalar, self.rename, self.main, self.contiguous)
        emitter = Emitter(body, self.context.builder, names, schedule)
        emitter.run()
        self.module.helpers |= emitter.helpers
        return emitter

    def _launch(self, body: Body, position: int, count: int) -> list[str]:
        kernel = body.kernel
        base = f"_{self.target.name}" + (f"_{position + 1}" if count > 1 else "")
        many = product(kernel.places).constant is None
        if not body.members:
            return Launch(self, body, base).flat()
        self._demand(body)
        loops = all(member.collective.kind != "topk" for member in body.members)
        if many and product(kernel.places) != ONE:
            # A place is counted in 32 bits, with room for the last block to run over the end.
            self.module.guards.append(_guard(product(kernel.places), 2**31 - 2**16))
        if not loops:
            if many:
                self.module.guards.append(_guard(product(kernel.places), HELD_ONLY + 1))
            return Launch(self, body, base).held()
        simple = all(not m.collective.scans and not m.collective.kind.startswith("arg") for m in body.members)
        from_source = all(
            not any(e.kind == "result" for e in walk((m.source,), self.context.builder)) for m in body.members
        )
        single = product(kernel.rows) == ONE
        if single and many and simple and from_source and not any(_reads_places(store) for store in body.stores):
            return Launch(self, body, base).split()
        return Launch(self, body, base).rows(many)

    def _demand(self, body: Body) -> None:
        """Eager raises for the largest of no elements, and for more of the largest than there are."""
        for member in body.members:
            collective, count = member.collective, product(member.collective.inner)
            if collective.kind in ("max", "min", "argmax", "argmin", "topk") and count.constant is None:
                self.module.guards.append(f"{_symbolic(count)} >= {collective.count}")


@dataclass
class Launch:
    """The launches of one kernel body."""

    generation: Generation
    body: Body
    base: str

    def flat(self) -> list[str]:
        emitter = self._kernel("flat", self.base + "_kernel")
        kernel = self.body.kernel
        n_rows, n_cols = self._host(product(kernel.rows)), self._host(product(kernel.places))
        lines: list[str] = []
        if not emitter.has_rows and not emitter.has_cols:
            return lines + self._call(emitter, self.base + "_kernel", "(1,)", {})
        if not emitter.has_rows:
            lines.append(f"n_cols = {n_cols}")
            blocks = {"COLS": "1024"}
            return self._indent(lines) + self._call(
                emitter, self.base + "_kernel", "(triton.cdiv(n_cols, 1024),)", blocks
            )
        lines += [f"n_rows = {n_rows}", f"n_cols = {n_cols}"]
        lines += self._flatten(emitter)
        lines += [
            "cols = min(triton.next_power_of_2(max(n_cols, 1)), 1024)",
            "rows = 1024 // cols",
            "grid = (triton.cdiv(n_rows, rows) * triton.cdiv(n_cols, cols),)",
        ]
        blocks = {"ROWS": "rows", "COLS": "cols"}
        return self._indent(lines) + self._call(emitter, self.base + "_kernel", "grid", blocks)

    def _flatten(self, emitter: Emitter) -> list[str]:
        """Contiguous tensors of one shape are one long row, whatever their rank."""
        kernel = self.body.kernel
        index, build = kernel.index, self.generation.context.builder
        for part in walk(tuple(store.value for store in self.body.stores), build):
            if part.kind in ("size", "less") or (part.kind == "load" and (part.detail[1] != index or part.detail[2])):
                if part.kind == "load" and not part.detail[1]:
                    continue
                return []
        if any(store.index != index or store.conditions for store in self.body.stores):
            return []
        if any(not extent.terms or extent.constant is not None for extent in kernel.rows + kernel.places):
            return []
        names = [buffer.name for buffer in emitter.buffers.values() if buffer.shape]
        strided = [name for name in names if not self.generation.contiguous(emitter.buffers[name])]
        if not strided:
            return []
        test = " and ".join([f"{name}.is_contiguous()" for name in strided])
        if len(strided) > 2:
            test = f"all(t.is_contiguous() for t in ({', '.join(strided)}))"
        return [
            f"if {test} and n_cols > 1:  # one long row",
            f"    n_rows, n_cols = 1, {strided[0]}.numel()",
        ]

    def rows(self, many: bool) -> list[str]:
        """Held in registers where the row fits, else a loop over it."""
        held = self._kernel("held", self.base + "_kernel")
        looped = self._kernel("looped", self.base + "_long_kernel") if many else None
        grid = "(triton.cdiv(n_rows, rows),)" if held.has_rows else "(1,)"
        warps = "max(1, min(16, rows * cols // 512))" if held.has_rows else "max(1, min(16, cols // 512))"
        blocks = {"ROWS": "rows", "COLS": "cols"} if held.has_rows else {"COLS": "cols"}
        lines, short = self._counts(held), ["cols = triton.next_power_of_2(max(n_cols, 1))"]
        least = 32 if self._across() else 1
        count = product(self.body.kernel.places).constant
        if held.has_rows:
            short += [f"rows = max({least}, 1024 // cols)"]
        if count is not None:
            cols = 1 << max(count - 1, 0).bit_length()
            lines.pop()
            short = [f"rows, cols = {max(least, 1024 // cols)}, {cols}"] if held.has_rows else [f"cols = {cols}"]
        if looped is None:
            return self._indent(lines + short) + self._call(held, self.base + "_kernel", grid, blocks, warps)
        long = [f"rows, cols = {'64, 64' if self._across() else '1, 2048'}"] if held.has_rows else ["cols = 4096"]
        if self._arguments(held) == self._arguments(looped):
            short.insert(0, f"kernel = {self.base}_kernel")
            long.insert(0, f"kernel = {self.base}_long_kernel")
            call = self._call(held, "kernel", grid, blocks, warps)
            return self._indent([*lines, *self._choice(short, long)]) + call
        calls = [
            self._call(emitter, emitter_name, grid, blocks, warps)
            for emitter, emitter_name in ((held, self.base + "_kernel"), (looped, self.base + "_long_kernel"))
        ]
        short += [line[8:] for line in calls[0]]
        long += [line[8:] for line in calls[1]]
        return self._indent([*lines, *self._choice(short, long)])

    def _across(self) -> bool:
        """Whether neighbours in memory are most likely the rows, not the places of one row: a reduction of leading dims."""
        last = self.body.kernel.index[-1:]
        return bool(last) and any(index.name.startswith("row") for index in indices(last[0]))

    def _choice(self, short: list[str], long: list[str]) -> list[str]:
        indent = "    "
        limit = HELD_ACROSS if self._across() else HELD
        test = f"if n_cols <= {limit}:  # the row fits in registers"
        return [test, *(indent + line for line in short), "else:", *(indent + line for line in long)]

    def _counts(self, emitter: Emitter) -> list[str]:
        kernel = self.body.kernel
        lines = [f"n_rows = {self._host(product(kernel.rows))}"] if emitter.has_rows else []
        return [*lines, f"n_cols = {self._host(product(kernel.places))}"]

    def held(self) -> list[str]:
        return self.rows(many=False)

    def split(self) -> list[str]:
        """One long row: partial results of up to 1024 programs, then one program that combines them."""
        generation = self.generation
        partial = self._kernel("partial", self.base + "_partial_kernel")
        final = self._kernel("final", self.base + "_kernel")
        lines = [
            f"n_cols = {self._host(product(self.body.kernel.places))}",
            "n_parts = max(1, min(1024, triton.cdiv(n_cols, 8192)))",
        ]
        for member in self.body.members:
            name = partial._partial_name(member)
            dtype = "int32" if member.source.dtype == "bool" else member.source.dtype
            dtype = "float32" if dtype in FLOATS else dtype
            lines.append(f"{name} = torch.empty(n_parts, dtype=torch.{dtype}, device={generation._device()}.device)")
        calls = self._call(partial, self.base + "_partial_kernel", "(n_parts,)", {"COLS": "2048"}, "8")
        calls += self._call(final, self.base + "_kernel", "(1,)", {"PARTS": "triton.next_power_of_2(n_parts)"})
        return self._indent(lines) + calls

    # --- text

    def _host(self, extent: Size) -> str:
        return self.generation.host(extent)

    def _indent(self, lines: list[str]) -> list[str]:
        return [part for line in lines for part in fold("        " + line)]

    def _kernel(self, schedule: Schedule, name: str) -> Emitter:
        emitter = self.generation.emit(self.body, schedule)
        parameters = [name for name, _ in self._arguments(emitter)]
        used = "\n".join(emitter.lines)
        blocks = [f"{block}: tl.constexpr" for block in ("ROWS", "COLS", "PARTS") if _word(block, used)]
        head = fold(f"def {name}({', '.join(parameters + blocks)}):")
        self.generation.module.kernels[name] = ["@triton.jit", *head, *emitter.lines]
        return emitter

    def _arguments(self, emitter: Emitter) -> list[tuple[str, str]]:
        """(parameter, what the launcher passes), for all names that the text uses."""
        generation, used = self.generation, "\n".join(emitter.lines)
        found: list[tuple[str, str]] = []
        found += [(f"{name}_ptr", name) for name in emitter.buffers if _word(f"{name}_ptr", used)]
        for member in emitter.partials:
            name = emitter._partial_name(member)
            found.append((f"{name}_ptr", name))
        for name, buffer in emitter.buffers.items():
            for axis in range(len(buffer.shape)):
                if _word(f"{name}_stride_{axis}", used):
                    found.append((f"{name}_stride_{axis}", f"{name}.stride({axis})"))
        if _word("n_rows", used):
            found.append(("n_rows", "n_rows"))
        if _word("n_cols", used):
            found.append(("n_cols", "n_cols" if emitter.schedule != "flat" or emitter.has_cols else "1"))
        if _word("n_parts", used):
            found.append(("n_parts", "n_parts"))
        for name, symbol in emitter.symbols.items():
            if _word(name, used):
                found.append((name, generation.host(size(symbol))))
        for words, name in emitter.scalars.items():
            if _word(name, used):
                found.append((name, generation.host_scalar(words)))
        return found

    def _call(
        self, emitter: Emitter, name: str, grid: str, blocks: Mapping[str, str], warps: str | None = None
    ) -> list[str]:
        used = "\n".join(emitter.lines)
        arguments = [passed for _, passed in self._arguments(emitter)]
        arguments += [f"{block}={words}" for block, words in blocks.items() if _word(block, used)]
        if warps:
            arguments.append(f"num_warps={warps}")
        return fold(f"        {name}[{grid}]({', '.join(arguments)})")


def _word(name: str, words: str) -> bool:
    return re.search(rf"\b{re.escape(name)}\b", words) is not None


def _whole(extent: Size, symbol: Symbol) -> bool:
    """Whether the extent is the symbol written by its quotient (a divisibility guard)."""
    return size_text(extent, lambda atom: atom.name if isinstance(atom, Symbol | Index) else "?") == symbol.name


def _symbolic(extent: Size) -> str:
    """The size in the graph's own symbols, as guards are written."""
    return size_text(extent, lambda atom: atom.name if isinstance(atom, Symbol) else "?")


def _guard(extent: Size, limit: int) -> str:
    return f"{_symbolic(extent)} < {limit}"


def _reads_places(store: Store) -> bool:
    return any(index.name.startswith("col") for part in store.index for index in indices(part))
