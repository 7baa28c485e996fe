"""A finished trace as model.Graph: nodes in JSON, sizes and guards as expressions over s0, s1, …"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import sympy
import torch
from torch.utils._sympy.printers import PythonPrinter

from kernelwright.worker import wire
from kernelwright.worker.classify import classify, count_bytes, count_flops, evaluate
from kernelwright.worker.relations import Relations, relate
from kernelwright.worker.tracing import RANDOM, Refused, Trace
from kernelwright.worker.wire import Json

aten = torch.ops.aten
_IDENTITIES = frozenset(
    (
        "aten.clone",
        "aten.alias",
        "aten.detach",
        "aten.lift_fresh",
        "aten.lift_fresh_copy",
        "aten.contiguous",
        "aten.lift",
    )
)
_COPIES = frozenset(("aten.clone", "aten._to_copy", "aten.lift_fresh_copy"))
_LARGEST_CONSTANT = 64


class _Printer(PythonPrinter):
    """Python that the server's own evaluator understands: no `math.`, no `torch.`."""

    def _print_ToFloat(self, expr: Any) -> str:
        return f"({self._print(expr.args[0])})"

    def _helper_sqrt(self, expr: Any) -> str:
        return f"({self._print(expr)}) ** 0.5"

    def _print_Mod(self, expr: Any) -> str:
        return f"({self._print(expr.args[0])}) % ({self._print(expr.args[1])})"

    _print_PythonMod = _print_Mod


@dataclass
class Expressions:
    """Sympy expressions over torch's symbols as text over ours."""

    trace: Trace
    names: dict[Any, Any] = field(default_factory=dict)
    examples: dict[str, int] = field(default_factory=dict)
    relations: Relations = field(default_factory=Relations)
    printer: _Printer = field(default_factory=_Printer)
    _texts: dict[Any, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        sizes = self._symbols()
        env = self.trace.shape_env
        asked = [(env.replace(guard.expr), str(guard.expr) in env.by_user) for guard in env.guards]
        known = [pair for pair in asked if getattr(pair[0], "free_symbols", set()) <= sizes.keys()]
        self.relations = relate(known, list(sizes), self._holds)
        for symbol, example in sizes.items():
            if symbol not in self.relations.define:
                name = f"s{len(self.names)}"
                self.names[symbol] = sympy.Symbol(name, integer=True, positive=True)
                self.examples[name] = example

    def _symbols(self) -> dict[Any, int]:
        """The symbols that are a size of an argument by themselves, with the example's size."""
        found: dict[Any, int] = {}
        for item in self.trace.inputs:
            for size, example in zip(item.fake.shape, item.example.shape, strict=True):
                symbol = self._replaced(size)
                if isinstance(symbol, sympy.Symbol):
                    found.setdefault(symbol, int(example))
        return found

    def of(self, value: Any) -> int | float | str:
        """A number, or the text of an expression."""
        if isinstance(value, (bool, int, float)):
            return value
        resolved = self.relations.apply(self._replaced(value))
        if resolved.is_Integer:
            return int(resolved)
        if resolved.is_Float or resolved.is_Rational:
            return float(resolved)
        return self.text(resolved)

    def text(self, expression: Any) -> str:
        """An expression over the symbols that are left.

        Raises:
            Refused: it holds another symbol.
        """
        if expression.free_symbols - self.names.keys():
            raise Refused(f"a size depends on values that are not known beforehand ({expression})")
        return self._print(expression.xreplace(self.names))

    def _print(self, expression: Any) -> str:
        text = self.printer.doprint(expression).replace("math.trunc", "floor").replace("math.", "")
        return ast.unparse(ast.parse(text, mode="eval"))

    def _holds(self, condition: Any, sizes: Mapping[Any, int]) -> bool:
        if condition in (sympy.true, True):
            return True
        try:
            return bool(evaluate(self._printed(condition), {str(symbol): size for symbol, size in sizes.items()}))
        except (ZeroDivisionError, NameError):
            return False

    def _printed(self, condition: Any) -> str:
        if condition not in self._texts:
            self._texts[condition] = self._print(condition)
        return self._texts[condition]

    def _replaced(self, value: Any) -> Any:
        expression = value.node.expr if hasattr(value, "node") else sympy.sympify(value)
        return self.trace.shape_env.replace(expression)

    def guards(self) -> list[str]:
        """What must hold of the sizes."""
        return [self.text(guard) for guard in self.relations.guards if guard.free_symbols]


def build_graph(trace: Trace, call: int) -> Json:
    """The trace as model.Graph.

    Raises:
        Refused: the graph holds what no kernel can do (random numbers, large constants).
    """
    return _Builder(trace).build(call)


class _Builder:
    """One conversion."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.expressions = Expressions(trace)
        self.nodes: list[Json] = []
        self.reference: dict[str, Json] = {}
        """fx node → what stands for its value: {"node": name}."""
        self.mutated: dict[int, str] = {}
        self.input_of: dict[str, int] = {}
        self.used: set[int] = set()

    def build(self, call: int) -> Json:
        fx = self.trace.module.graph
        names = self._name_placeholders(fx)
        returned: Any = ()
        for node in fx.nodes:
            if node.op == "output":
                returned = node.args[0]
            elif node.op != "placeholder":
                self._node(node)
        count = len(returned) - len(self.trace.mutated)
        outputs = [self._output_reference(node) for node in returned[:count]]
        for number, node in zip(self.trace.mutated, returned[count:], strict=True):
            self.mutated[number] = self._output_reference(node, copied=True)["node"]
        self._drop_dead(outputs)
        placeholders = self._placeholders(names)
        guards = self.expressions.guards() + list(self.trace.scalars.guards)
        graph = {
            "calls": [call],
            "placeholders": placeholders,
            "nodes": self.nodes,
            "output": _fill(self.trace.output, outputs),
            "symbols": {},
            "scalars": self._scalars(guards),
            "fixed": self._fixed(),
            "guards": guards,
            "refusal": None,
        }
        graph["symbols"] = self._used_symbols(graph)
        graph["kind"] = classify(graph)
        graph["bytes_moved"] = count_bytes(graph)
        graph["flops"] = count_flops(graph)
        return graph

    # Placeholders

    def _name_placeholders(self, fx: Any) -> list[str]:
        taken = {node.name for node in fx.nodes if node.op != "placeholder"} | set(self.expressions.examples)
        names: list[str] = []
        holders = [node for node in fx.nodes if node.op == "placeholder"]
        for number, (node, item) in enumerate(zip(holders, self.trace.inputs, strict=True)):
            short = item.path.replace("]", "").replace("[", ".").replace("'", "").rsplit(".", 1)[-1]
            name = short if short.isidentifier() else f"input{number}"
            while name in taken:
                name += "_in"
            taken.add(name)
            names.append(name)
            self.reference[node.name] = {"node": name}
            self.input_of[node.name] = number
        return names

    def _placeholders(self, names: list[str]) -> list[Json]:
        text = repr(self.nodes) + repr(self.trace.output)
        found: list[Json] = []
        defined: set[str] = set()
        for number, (name, item) in enumerate(zip(names, self.trace.inputs, strict=True)):
            shape = [self.expressions.of(size) for size in item.fake.shape]
            used = number in self.used or number in self.mutated or repr(item.path) in text
            new = {size for size in shape if isinstance(size, str)} - defined
            if not (used or not item.path.startswith("self") or new):
                continue
            defined |= new
            found.append(
                {
                    "node": name,
                    "path": item.path,
                    "dtype": wire.dtype_name(item.example.dtype),
                    "shape": shape,
                    "contiguous": item.example.is_contiguous(),
                    "needs_contiguous": item.needs_contiguous,
                    "mutated_by": self.mutated.get(number),
                }
            )
        return found

    def _used_symbols(self, graph: Json) -> dict[str, int]:
        sizes = {size for item in graph["placeholders"] for size in item["shape"] if isinstance(size, str)}
        return {name: value for name, value in self.expressions.examples.items() if name in sizes}

    # Nodes

    def _node(self, node: Any) -> None:
        value = node.meta.get("val")
        if node.op == "get_attr":
            self._constant(node)
            return
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool, bool, int, float)):
            return
        target = "getitem" if node.target is operator.getitem else str(node.target)
        short = target.rsplit(".", 1)[0]
        self._refuse_impossible(node, short)
        if value is None:
            return  # an assertion
        args, kwargs = [self._value(item) for item in node.args], {k: self._value(v) for k, v in node.kwargs.items()}
        if target == "prims.convert_element_type.default":
            target, args, kwargs = "aten._to_copy.default", args[:1], {"dtype": args[1]}
        if self._is_identity(short, node):
            self.reference[node.name] = args[0]
            return
        self.reference[node.name] = {"node": node.name}
        self.nodes.append(
            {
                "name": node.name,
                "op": target,
                "args": args,
                "kwargs": kwargs,
                **self._result(value),
                "line": _line(node),
            }
        )

    def _is_identity(self, short: str, node: Any) -> bool:
        if short in _IDENTITIES:
            return True
        if short == "aten._to_copy" or short == "aten.view" or short == "aten.expand":
            source, made = node.args[0].meta["val"], node.meta["val"]
            same_shape = len(source.shape) == len(made.shape) and [
                self.expressions.of(size) for size in source.shape
            ] == [self.expressions.of(size) for size in made.shape]
            return source.dtype == made.dtype and same_shape
        return False

    def _refuse_impossible(self, node: Any, short: str) -> None:
        name = short.rsplit(".", 1)[-1]
        if name in RANDOM:
            raise Refused("it draws random numbers, which a kernel could not repeat", str(node.target), _line(node))

    def _added(self, name: str, op: str, args: list[Json], kwargs: Json, value: Any, line: int | None) -> Json:
        self.nodes.append({"name": name, "op": op, "args": args, "kwargs": kwargs, **self._result(value), "line": line})
        return {"node": name}

    def _constant(self, node: Any) -> None:
        """A small tensor that the function builds from numbers, as `full` nodes."""
        value = getattr(self.trace.module, node.target)
        if not isinstance(value, torch.Tensor) or value.numel() > _LARGEST_CONSTANT or value.numel() == 0:
            raise Refused("it builds a large constant tensor", "aten.lift_fresh_copy", _line(node))
        value = _real(value)
        dtype, line = {"dtype": wire.dtype_name(value.dtype)}, _line(node)
        shape = [] if value.dim() == 0 else [1]
        parts = []
        for position, number in enumerate(value.flatten().tolist()):
            single = torch.empty(shape, dtype=value.dtype)
            name = node.name if value.numel() == 1 and value.dim() < 2 else f"{node.name}_{position}"
            parts.append(
                self._added(
                    name.lstrip("_"), "aten.full.default", [shape, self._value(number)], {"dtype": dtype}, single, line
                )
            )
        reference = parts[0]
        if value.numel() > 1:
            flat = value.flatten()
            reference = self._added(f"{node.name}_all".lstrip("_"), "aten.cat.default", [parts], {}, flat, line)
        if value.dim() > 1:
            reference = self._added(
                f"{node.name}_view".lstrip("_"), "aten.view.default", [reference, list(value.shape)], {}, value, line
            )
        self.reference[node.name] = reference

    def _result(self, value: Any) -> Json:
        if isinstance(value, (tuple, list)):
            results = [
                [self._shape(item), wire.dtype_name(item.dtype)] for item in value if isinstance(item, torch.Tensor)
            ]
            return {"shape": None, "dtype": None, "results": results}
        return {"shape": self._shape(value), "dtype": wire.dtype_name(value.dtype), "results": []}

    def _shape(self, value: Any) -> list[Json]:
        return [self.expressions.of(size) for size in value.shape]

    def _value(self, value: Any) -> Json:
        """An argument of a node."""
        if isinstance(value, torch.fx.Node):
            held = value.meta.get("val")
            if isinstance(held, (torch.SymInt, torch.SymFloat, torch.SymBool, bool, int, float)):
                return self._number(held)
            if value.name in self.input_of:
                self.used.add(self.input_of[value.name])
            return self.reference[value.name]
        if isinstance(value, (list, tuple)):
            return [self._value(item) for item in value]
        if value is None or isinstance(value, (bool, str)):
            return value
        if isinstance(value, (int, float, torch.SymInt, torch.SymFloat, torch.SymBool)):
            return self._number(value)
        if isinstance(value, torch.dtype):
            return {"dtype": wire.dtype_name(value)}
        if isinstance(value, torch.device):
            return {"device": str(value)}
        if isinstance(value, torch.memory_format):
            return {"memory_format": str(value).removeprefix("torch.")}
        if isinstance(value, torch.layout):
            return {"layout": str(value).removeprefix("torch.")}
        if isinstance(value, complex):
            if value.imag:
                raise Refused("it computes with complex constants")
            return self._number(value.real)
        return {"repr": repr(value)}

    def _number(self, value: Any) -> Json:
        found = self.expressions.of(value)
        if isinstance(found, float):
            explained = self.trace.scalars.explain(found)
            if explained is not None:
                return {"expr": explained}
            if not math.isfinite(found):
                return wire.encode_float(found)
        return {"expr": found} if isinstance(found, str) else found

    # Outputs and what is left over

    def _output_reference(self, node: Any, copied: bool = False) -> Json:
        """The node that is returned; a copy of an input stays a copy."""
        reference = self._value(node)
        names = {item["name"] for item in self.nodes}
        if reference["node"] in names:
            return reference
        if copied or (node.op != "placeholder" and str(node.target).rsplit(".", 1)[0] in _COPIES):
            return self._added(
                f"{reference['node']}_copy", "aten.clone.default", [reference], {}, node.meta["val"], _line(node)
            )
        return reference

    def _drop_dead(self, outputs: list[Json]) -> None:
        wanted = {output["node"] for output in outputs} | set(self.mutated.values())
        alive: list[Json] = []
        for node in reversed(self.nodes):
            if node["name"] in wanted:
                wanted |= references([node["args"], node["kwargs"]])
                alive.append(node)
        self.nodes[:] = reversed(alive)
        by_name = {self.reference[name]["node"]: number for name, number in self.input_of.items()}
        self.used = {number for name, number in by_name.items() if name in wanted}

    def _scalars(self, guards: list[str]) -> list[Json]:
        texts = expressions_in(self.nodes) + guards
        read = {node.id for text in texts for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
        scalars = self.trace.scalars
        return [
            {"name": name, "path": path, "type": "float", "example": scalars.examples[path]}
            for path, name in scalars.names.items()
            if name in read
        ]

    def _fixed(self) -> list[Json]:
        return [{"path": path, "value": value} for path, value in sorted(self.trace.shadow.fixed.items())]


def _real(value: torch.Tensor) -> torch.Tensor:
    """The values behind a constant, which may be a fake tensor that remembers them."""
    constant = getattr(value, "constant", None)
    return constant if isinstance(constant, torch.Tensor) else value


def _line(node: Any) -> int | None:
    text = node.stack_trace
    return int(text) if text and text.isdigit() else None


def references(value: Json) -> set[str]:
    """The names of all nodes that JSON arguments refer to."""
    if isinstance(value, dict):
        if set(value) == {"node"}:
            return {value["node"]}
        return set().union(*(references(item) for item in value.values())) if value else set()
    if isinstance(value, (list, tuple)):
        return set().union(*(references(item) for item in value)) if value else set()
    return set()


def expressions_in(value: Json) -> list[str]:
    """The texts of all {"expr": ...} in JSON."""
    if isinstance(value, dict):
        if set(value) == {"expr"}:
            return [value["expr"]]
        return [text for item in value.values() for text in expressions_in(item)]
    if isinstance(value, (list, tuple)):
        return [text for item in value for text in expressions_in(item)]
    return []


def _fill(tree: Json, outputs: list[Json]) -> Json:
    """The output tree with nodes in place of positions."""
    ((kind, item),) = tree.items()
    if kind == "output":
        return outputs[item]
    if kind in ("tuple", "list"):
        return {kind: [_fill(part, outputs) for part in item]}
    if kind == "dict":
        return {kind: {name: _fill(part, outputs) for name, part in item.items()}}
    return tree
