"""Tasks of the built-in generator's tests, from the graphs in `tests/fixtures`."""

import ast
import json
from pathlib import Path

from kernelwright.model import (
    Document,
    Fixed,
    Graph,
    Hardware,
    Inputs,
    Json,
    Node,
    Parameter,
    Placeholder,
    Refusal,
    Scalar,
    Span,
    Target,
    Task,
)

FIXTURES = Path(__file__).parents[1] / "fixtures"
FUNCTIONS = FIXTURES / "functions.py"
NAMES = sorted(path.stem for path in (FIXTURES / "graphs").glob("*.json"))
REFUSED = ("matmul_bias", "positive_part")
GENERATED = [name for name in NAMES if name not in REFUSED]


def graph(fields: Json) -> Graph:
    """A graph from the tracer's JSON."""
    refusal = fields["refusal"]
    return Graph(
        calls=tuple(fields["calls"]),
        placeholders=tuple(Placeholder(**{**item, "shape": tuple(item["shape"])}) for item in fields["placeholders"]),
        nodes=tuple(map(node, fields["nodes"])),
        output=fields["output"],
        symbols=fields["symbols"],
        scalars=tuple(Scalar(**item) for item in fields["scalars"]),
        fixed=tuple(Fixed(**item) for item in fields["fixed"]),
        guards=tuple(fields["guards"]),
        refusal=Refusal(**refusal) if refusal else None,
    )


def node(fields: Json) -> Node:
    shape, results = fields["shape"], fields["results"]
    return Node(
        **{
            **fields,
            "args": tuple(fields["args"]),
            "shape": None if shape is None else tuple(shape),
            "results": tuple((tuple(dims), dtype) for dims, dtype in results),
        }
    )


def target(name: str) -> Target:
    text = FUNCTIONS.read_text()
    tree = next(item for item in ast.parse(text).body if isinstance(item, ast.FunctionDef) and item.name == name)
    defaults = [None] * (len(tree.args.args) - len(tree.args.defaults)) + list(tree.args.defaults)
    parameters = tuple(
        Parameter(argument.arg, default=ast.unparse(default) if default else None)
        for argument, default in zip(tree.args.args, defaults, strict=True)
    )
    source = "\n".join(text.splitlines()[tree.lineno - 1 : tree.end_lineno])
    document = Document(f"file://{FUNCTIONS}", str(FUNCTIONS), text)
    return Target(document, name, source, Span(tree.lineno - 1, 0, tree.end_lineno, 0), tree.lineno - 1, parameters)


def task(name: str) -> Task:
    fields = json.loads((FIXTURES / "graphs" / f"{name}.json").read_text())
    hardware = Hardware(None, ("sm_90",), "2.13.0", "3.7.1", "3.11")
    return Task(target(name), Inputs("file", "functions.py:inputs"), tuple(map(graph, fields)), hardware)
