"""K104: the entry and `supports` take what the target takes. K112: the entry is there."""

from __future__ import annotations

import ast

from kernelwright.checks.reading import entry_name, finding, read
from kernelwright.model import Candidate, Finding, Parameter, Target, Task
from kernelwright.ports import TritonApi
from kernelwright.source.paths import portable_default, signature


def signatures(candidate: Candidate, task: Task, api: TritonApi) -> Finding | None:
    """Names, order and kinds of the parameters, and defaults where their text means the same in the module."""
    reading, target, entry = read(candidate.source), task.target, entry_name(candidate, task)
    wanted = f"def {entry}({signature(target.parameters)})"
    node = reading.functions.get(entry)
    if node is None:
        kernel = " (the kernel itself cannot be the entry)" if entry in reading.kernels else ""
        return finding("K112", f"the module does not define the function {entry}{kernel}: write {wanted}")
    if isinstance(node, ast.AsyncFunctionDef) and not target.is_async:
        return finding("K104", f"{entry} is async and the target is not: write {wanted}", node)
    if node.decorator_list:
        return finding("K104", f"{entry} is decorated: write a plain {wanted}", node)
    problem = _differs(node, target)
    if problem:
        return finding("K104", f"{entry} {problem}: write {wanted}", node)
    supports = reading.functions.get("supports")
    if supports is not None and entry != "supports":
        problem = _names_differ(supports, target)
        if problem:
            wanted = f"def supports({signature(target.parameters)})"
            return finding("K104", f"supports {problem}: write {wanted}", supports)
    return None


def _names_differ(node: ast.FunctionDef | ast.AsyncFunctionDef, target: Target) -> str | None:
    theirs, ours = _kinds(node), [(parameter.name, _loose(parameter)) for parameter in target.parameters]
    return None if theirs == ours else f"takes ({ast.unparse(node.args)}), not what the target takes"


def _differs(node: ast.FunctionDef | ast.AsyncFunctionDef, target: Target) -> str | None:
    problem = _names_differ(node, target)
    if problem:
        return problem
    defaults = _defaults(node)
    for parameter in target.parameters:
        theirs = defaults.get(parameter.name)
        if (theirs is None) != (parameter.default is None):
            has = "has no default" if theirs is None else "has a default"
            return f"gives {parameter.name} another default than the target: it {has}"
        if theirs is None or parameter.default is None or not portable_default(parameter.default):
            continue
        if not _same(theirs, parameter.default):
            return f"gives {parameter.name} the default {ast.unparse(theirs)}, not {parameter.default}"
    return None


def _same(theirs: ast.expr, text: str) -> bool:
    wanted = ast.parse(text.strip(), mode="eval").body
    if ast.dump(theirs) == ast.dump(wanted):
        return True
    try:
        value, expected = ast.literal_eval(theirs), ast.literal_eval(wanted)
    except (ValueError, TypeError):
        return False
    return type(value) is type(expected) and value == expected


def _kinds(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[tuple[str, str]]:
    arguments = node.args
    found = [(argument.arg, "positional") for argument in (*arguments.posonlyargs, *arguments.args)]
    found += [(arguments.vararg.arg, "var_positional")] if arguments.vararg else []
    found += [(argument.arg, "keyword_only") for argument in arguments.kwonlyargs]
    return found + ([(arguments.kwarg.arg, "var_keyword")] if arguments.kwarg else [])


def _loose(parameter: Parameter) -> str:
    """The kind; a candidate need not forbid a positional-only parameter's name."""
    return "positional" if parameter.kind.startswith("positional") else parameter.kind


def _defaults(node: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, ast.expr]:
    arguments = node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    found = dict(
        zip(
            [argument.arg for argument in positional[len(positional) - len(arguments.defaults) :]],
            arguments.defaults,
            strict=True,
        )
    )
    pairs = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return found | {argument.arg: default for argument, default in pairs if default is not None}
