"""Renaming the module-level names of a piece of source text, its comments and layout kept. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from kernelwright.source.syntax import Text


def module_names(tree: ast.Module) -> frozenset[str]:
    """The names that a module's own statements bind, functions' bodies left out."""
    return frozenset(_bound(tree.body))


def rename(source: str, names: Mapping[str, str]) -> str:
    """The source with module-level names replaced wherever they are meant, locals of the same name left alone.

    Import statements are not looked at. Falls back to text without comments where positions do not add up.

    Raises:
        SyntaxError: the source does not parse.
    """
    if not names:
        return source
    text = Text(source)
    tree = ast.parse(source)
    places = {(node.lineno, node.col_offset, old) for node, old in _uses(tree, names, frozenset())}
    parts = []
    for line, column, old in places:
        start = text.offset(line - 1, text.column(line - 1, column))
        found = re.compile(rf"\b{re.escape(old)}\b").search(source, start)
        if found:
            parts.append((found.start(), found.end(), names[old]))
    renamed = source
    for begin, end, new in sorted(parts, reverse=True):
        renamed = renamed[:begin] + new + renamed[end:]
    wanted = ast.dump(_renamed(ast.parse(source), names))
    try:
        return renamed if ast.dump(ast.parse(renamed)) == wanted else ast.unparse(_renamed(tree, names)) + "\n"
    except SyntaxError:
        return ast.unparse(_renamed(tree, names)) + "\n"


def _renamed(tree: ast.Module, names: Mapping[str, str]) -> ast.Module:
    for node, old in list(_uses(tree, names, frozenset())):
        if isinstance(node, ast.Name):
            node.id = names[old]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            node.name = names[old]
    return tree


def _uses(node: ast.AST, names: Mapping[str, str], hidden: frozenset[str]) -> Iterator[tuple[ast.Name | ast.stmt, str]]:
    """Every node that means one of the module-level names, with that name."""
    if isinstance(node, ast.Name) and node.id in names and node.id not in hidden:
        yield node, node.id
    scopes = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    if isinstance(node, scopes) and node.name in names and node.name not in hidden:
        yield node, node.name
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        for child in ast.iter_child_nodes(node):
            yield from _uses(child, names, hidden)
        return
    # Decorators, defaults and annotations are read outside the function; the body sees its locals first.
    outside = [*getattr(node, "decorator_list", ()), *node.args.defaults, *filter(None, node.args.kw_defaults)]
    arguments = [argument for argument in ast.walk(node.args) if isinstance(argument, ast.arg)]
    outside += [argument.annotation for argument in arguments if argument.annotation]
    outside += (
        [node.returns] if isinstance(node, scopes) and not isinstance(node, ast.ClassDef) and node.returns else []
    )
    for part in outside:
        yield from _uses(part, names, hidden)
    body = [node.body] if isinstance(node, ast.Lambda) else node.body
    inside = hidden | {argument.arg for argument in arguments} | frozenset(_bound(body))
    for part in body:
        yield from _uses(part, names, inside)


def _bound(body: list[ast.stmt] | list[ast.expr]) -> Iterator[str]:
    """The names that statements bind in their own scope."""
    for part in body:
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield part.name
        elif isinstance(part, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name).split(".")[0] for alias in part.names)
        elif isinstance(part, ast.Lambda):
            continue
        else:
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store | ast.Del):
                yield part.id
            if isinstance(part, ast.ExceptHandler) and part.name:
                yield part.name
            yield from _bound(list(ast.iter_child_nodes(part)))  # type: ignore[arg-type]
