"""What a function uses from its own file: imports, constants, helpers, members of its class. Reads text only. Pure."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kernelwright.model import Target
from kernelwright.source.syntax import Text, parse

_OURS = "_kernelwright_"


@dataclass(frozen=True)
class Piece:
    """One definition: the name it goes by in notes, its text, where it stands, and the class around it."""

    name: str
    text: str
    line: int
    owner: str | None = None


@dataclass(frozen=True)
class Context:
    """The pieces, nearest first: what the function names itself before what its helpers name."""

    pieces: tuple[Piece, ...]

    def text(self) -> str:
        """The pieces in the order of the file, members under their class's head."""
        lines: list[str] = []
        owner: str | None = None
        for piece in sorted(self.pieces, key=lambda piece: piece.line):
            if lines and "\n" in piece.text:
                lines.append("")
            if piece.owner is not None and piece.owner != owner:
                lines.append(f"{piece.owner}:")
            owner = piece.owner
            lines.append(textwrap.indent(piece.text, "    ") if owner else piece.text)
        return "\n".join(lines)


@dataclass(frozen=True)
class _Definition:
    node: ast.stmt
    owner: str | None = None


def find_context(target: Target) -> Context:
    """Everything of the document that the target's text names, transitively; also while the file has syntax errors."""
    text = Text(target.document.text)
    known = _known(parse(text), target)
    pieces: dict[int, Piece] = {}
    queue = [*_names(target.source)]
    if target.kind == "method":
        queue += ["self.__init__"]  # says what the attributes are
    for name in queue:  # grows while it is walked: breadth first, so nearest first
        found = known.get(name)
        if found is None or id(found.node) in pieces or _is_target(found.node, target):
            continue
        piece = Piece(name, _segment(text, found.node), found.node.lineno, found.owner)
        pieces[id(found.node)] = piece
        if not isinstance(found.node, ast.Import | ast.ImportFrom):
            queue += _names(piece.text)
    return Context(tuple(pieces.values()))


def _known(tree: ast.Module, target: Target) -> dict[str, _Definition]:
    """Name → definition: the module's, those of each function around the target, and "self.NAME" for its class's."""
    known = {name: _Definition(node) for node in _flat(tree.body) for name in _defined(node)}
    body: Sequence[ast.stmt] = tree.body
    for part in target.qualname.split(".")[:-1]:
        around = next((node for node in _flat(body) if getattr(node, "name", None) == part), None)
        if isinstance(around, ast.ClassDef):
            known.pop(part, None)  # the members that are used come one by one
            head = f"class {part}" + (f"({', '.join(map(ast.unparse, around.bases))})" if around.bases else "")
            members = {name: _Definition(node, head) for node in around.body for name in _defined(node)}
            known |= {f"{word}.{name}": member for name, member in members.items() for word in ("self", "cls", part)}
        elif isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef):
            known.pop(part, None)
            known |= {name: _Definition(node) for node in _flat(around.body) for name in _defined(node)}
        body = around.body if isinstance(around, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) else body
    return {name: found for name, found in known.items() if not name.startswith(_OURS)}


def _flat(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements, also those under an `if` or a `try` (imports that may fail, say)."""
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try):
            handlers = [handler.body for handler in node.handlers] if isinstance(node, ast.Try) else []
            for inner in (node.body, node.orelse, *handlers):
                yield from _flat(inner)


def _defined(node: ast.stmt) -> list[str]:
    """The names that a statement gives a meaning."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Assign(targets=targets):
            return [leaf.id for target in targets for leaf in ast.walk(target) if isinstance(leaf, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
            return [(alias.asname or alias.name).split(".")[0] for alias in aliases]
    return []


def _names(source: str) -> list[str]:
    """The names that a text reads, "self.NAME" and "Class.NAME" too, in order and once each."""
    # A method's text starts indented, its later lines relative to that: an `if` above it makes it a module.
    tree = parse(Text(source if source[:1].strip() else f"if True:\n{source}"))
    names: dict[str, None] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            names[node.id] = None
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            names[f"{node.value.id}.{node.attr}"] = None
    return list(names)


def _is_target(node: ast.stmt, target: Target) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.lineno - 1 == target.def_line


def _segment(text: Text, node: ast.stmt) -> str:
    """A statement's text with its decorators, moved to the left margin."""
    first = min([node.lineno, *(item.lineno for item in getattr(node, "decorator_list", []))]) - 1
    last = node.end_lineno or node.lineno
    lines = [text.bare(number) for number in range(first, last)]
    return textwrap.dedent("\n".join(lines)).rstrip()
