"""A document's text as a module, and the target in it. Runs the user's module level; never its `__main__` part."""

from __future__ import annotations

import ast
import asyncio
import inspect
import linecache
import re
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from kernelwright.worker.wire import BadInputs, TargetNotFound

Kind = Literal["function", "method", "staticmethod", "classmethod"]
_MAGIC = re.compile(r"^([ \t]*)(?:[%!].*|[\w.]+\?{1,2})[ \t]*$", re.MULTILINE)


@dataclass
class Loaded:
    """A document that was executed. `tree` is its syntax with the line numbers of `text`."""

    path: Path
    text: str
    module: types.ModuleType
    tree: ast.Module


@dataclass
class TargetFunction:
    """The target as a plain Python function. `call` gives it `self` or the class first where it takes one.

    `function` is None for a nested function: it exists only while its outer function runs.
    """

    loaded: Loaded
    qualname: str
    kind: Kind
    function: Callable[..., Any] | None
    owner_class: type | None = None
    is_async: bool = False
    owner_is_instance: bool = False

    def call(self, owner: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the function itself; a coroutine is run to its end."""
        assert self.function is not None
        result = self.function(*self.first(owner), *args, **kwargs)
        return asyncio.run(result) if inspect.iscoroutine(result) else result

    def first(self, owner: Any) -> tuple[Any, ...]:
        """What stands before the caller's own arguments."""
        if self.kind == "method":
            return (owner,)
        return (self.owner_class,) if self.kind == "classmethod" else ()


def load(path: Path, text: str, root: Path | None = None) -> Loaded:
    """Execute `text` as the module that `path` holds, whatever the disk says.

    Raises:
        BadInputs: it does not parse, or its module level raises; the message holds the exception and its line.
    """
    source = text.replace("\r\n", "\n")
    tree = _parse(source, path)
    name, package, folder = _module_name(path)
    for entry in (root, folder):
        if entry is not None and str(entry) not in sys.path:
            sys.path.insert(0, str(entry))
    module = types.ModuleType(name)
    module.__file__ = str(path)
    module.__package__ = package
    sys.modules[name] = module
    remember_source(str(path), source)
    try:
        exec(compile(tree, str(path), "exec", dont_inherit=True), module.__dict__)
    except (Exception, SystemExit) as error:
        sys.modules.pop(name, None)
        raise BadInputs(f"{path.name} cannot be imported: {describe(error, str(path))}") from error
    return Loaded(path, source, module, tree)


def remember_source(path: str, source: str) -> None:
    """Let `inspect.getsource` and TorchScript see this text, also when the file on disk is another."""
    linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)


def _parse(source: str, path: Path) -> ast.Module:
    try:
        return ast.parse(source, str(path))
    except SyntaxError as error:
        without_magics = _MAGIC.sub(r"\1pass", source)
        try:
            return ast.parse(without_magics, str(path))
        except SyntaxError:
            raise BadInputs(f"{path.name} does not parse: line {error.lineno}: {error.msg}") from None


def _module_name(path: Path) -> tuple[str, str, Path]:
    """The module's name, its package and the folder that must be importable."""
    parts, folder = [path.stem], path.parent
    while (folder / "__init__.py").is_file() and folder.name.isidentifier():
        parts.insert(0, folder.name)
        folder = folder.parent
    package = ".".join(parts[:-1])
    if package:
        return ".".join(parts), package, folder
    name = path.stem
    known = sys.modules.get(name)
    if name in sys.stdlib_module_names or (known is not None and getattr(known, "__file__", None) != str(path)):
        name = f"{name}_document"  # a file called math.py must not become everybody's math
    return name, "", folder


def describe(error: BaseException, path: str) -> str:
    """ "ValueError: text (line 12)": the innermost line of `path` that the exception passed through."""
    line = innermost_line(error, path)
    where = f" (line {line})" if line else ""
    return f"{type(error).__name__}: {error}{where}"


def innermost_line(error: BaseException, path: str) -> int | None:
    """The 1-based line of the innermost frame in `path`, or None."""
    line, step = None, error.__traceback__
    while step is not None:
        if step.tb_frame.f_code.co_filename == path:
            line = step.tb_lineno
        step = step.tb_next
    return line


def find(loaded: Loaded, qualname: str) -> TargetFunction:
    """The target of that qualified name, decorators taken off.

    Raises:
        TargetNotFound: no such function.
    """
    node, outer = _find_node(loaded.tree, qualname)
    is_async = isinstance(node, ast.AsyncFunctionDef)
    if any(isinstance(step, (ast.FunctionDef, ast.AsyncFunctionDef)) for step in outer):
        return TargetFunction(loaded, qualname, "function", None, is_async=is_async)
    value: Any = loaded.module
    owner_class = None
    for part in qualname.split("."):
        owner_class = value if isinstance(value, type) else None
        try:
            value = inspect.getattr_static(value, part)
        except AttributeError:
            raise TargetNotFound(f"{loaded.path.name} defines no {qualname} when it is imported") from None
    kind: Kind = "function" if owner_class is None else "method"
    if isinstance(value, (staticmethod, classmethod)):
        kind = "staticmethod" if isinstance(value, staticmethod) else "classmethod"
        value = value.__func__
    if isinstance(value, property):
        value = value.fget
    return TargetFunction(loaded, qualname, kind, plain_function(value, loaded, qualname), owner_class, is_async)


def _find_node(tree: ast.Module, qualname: str) -> tuple[ast.FunctionDef | ast.AsyncFunctionDef, list[ast.AST]]:
    """The definition (the last one of that name) and what it lies in."""
    outer: list[ast.AST] = []
    here: ast.AST = tree
    for part in (part for part in qualname.split(".") if part != "<locals>"):
        found = [node for node in _definitions(here) if node.name == part]
        if not found:
            raise TargetNotFound(f"there is no function {qualname} in the document")
        outer.append(here)
        here = found[-1]
    if isinstance(here, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return here, outer
    raise TargetNotFound(f"{qualname} is not a function")


def _definitions(node: ast.AST) -> list[Any]:
    """The classes and functions directly in a scope, also inside of `if`, `try` and `with`."""
    found: list[Any] = []
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.append(child)
        elif not isinstance(child, (ast.expr, ast.Lambda)):
            found.extend(_definitions(child))
    return found


def plain_function(value: Any, loaded: Loaded, qualname: str) -> Callable[..., Any]:
    """The Python function below decorators, torch.compile and TorchScript.

    Raises:
        TargetNotFound: nothing callable is below them.
    """
    import torch

    for _ in range(32):
        if isinstance(value, torch.jit.ScriptFunction):
            return _without_script(loaded, qualname)
        inner = getattr(value, "_torchdynamo_orig_callable", None) or getattr(value, "__wrapped__", None)
        if inner is None:
            break
        value = inner
    if not callable(value):
        raise TargetNotFound(f"{qualname} is a {type(value).__name__}, not a function")
    return value


def _without_script(loaded: Loaded, qualname: str) -> Callable[..., Any]:
    """The `def` executed again without its TorchScript decorator, over the module's own globals."""
    node, _ = _find_node(loaded.tree, qualname)
    decorators = [item for item in node.decorator_list if "jit" not in ast.unparse(item)]
    fields = {name: getattr(node, name) for name in node._fields}
    plain = ast.copy_location(type(node)(**{**fields, "decorator_list": decorators}), node)
    names: dict[str, Any] = {}
    exec(compile(ast.Module([plain], []), str(loaded.path), "exec"), loaded.module.__dict__, names)
    return names[node.name]


def with_live_function(target: TargetFunction, fn: Any) -> tuple[TargetFunction, Any]:
    """The target taken from a live callable (a closure, a bound method), and the object it is bound to, if any.

    Raises:
        BadInputs: the callable is another function.
    """
    owner = getattr(fn, "__self__", None)
    function = plain_function(getattr(fn, "__func__", fn), target.loaded, target.qualname)
    name = target.qualname.rsplit(".", 1)[-1]
    if getattr(function, "__name__", name) != name:
        raise BadInputs(f"`fn` is {getattr(function, '__qualname__', function)!r}, not {target.qualname}")
    kind: Kind = "method" if owner is not None and not isinstance(owner, type) else target.kind
    live = TargetFunction(
        target.loaded, target.qualname, kind, function, target.owner_class, inspect.iscoroutinefunction(function)
    )
    return live, owner
