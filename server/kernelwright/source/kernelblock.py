"""The text of the block that carries an accepted kernel: imports, kernels, guard and dispatch decorator. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass

from kernelwright.errors import UsageError
from kernelwright.model import Domain, Evidence, Target
from kernelwright.source.blocks import DECORATOR, end_marker, start_marker
from kernelwright.source.header import header
from kernelwright.source.layout import indented, ranges
from kernelwright.source.module import GUARD_END, GUARD_START, kernels
from kernelwright.source.names import UserNames, imported
from kernelwright.source.paths import Names, access, forwarded, signature, slug
from kernelwright.source.rename import module_names, rename
from kernelwright.source.syntax import Text

_GUARD_NAME = re.compile(r"_(why_not\w*|interpreted|overlaps|is_dense)\Z")
_CONSTEXPR = ("constexpr", "triton.language.constexpr")
_STANDARD = ("functools", "math", "warnings")


@dataclass(frozen=True)
class BlockText:
    """The block's lines without line ends, and the name of the decorator that it defines."""

    lines: tuple[str, ...]
    decorator: str


@dataclass(frozen=True)
class _Import:
    """One name that the block needs: what it means, as what it is imported, and the statement's form."""

    name: str
    origin: str
    local: str
    level: str

    def statement(self) -> str:
        package, _, last = self.origin.rpartition(".")
        if self.level == "from":
            return f"from {package} import {last}" + (f" as {self.local}" if self.local != last else "")
        return f"import {self.origin}" + (f" as {self.local}" if self.local != self.origin else "")


def write_block(
    target: Target, module_source: str, evidence: Evidence, user: UserNames, line: int, unit: str, warn: bool
) -> BlockText:
    """The block for a target, to stand above a 0-based line of the document whose names are `user`.

    Raises:
        UsageError: the target cannot be wrapped.
    """
    module = _Module(module_source, target)
    imports = _imports(module, user, line, warn)
    taken = Names(user.words | {parameter.name for parameter in target.parameters})
    stem = slug(target.qualname)
    decorator = taken.fresh(f"{DECORATOR}{stem}")
    names = {
        name: _new_name(name, target, stem, taken, user.words)
        for name in sorted(module.defined, key=lambda name: (name != target.name, name))
    }
    names |= {each.name: each.local for each in imports}
    body = rename(module.body, names)
    for each in imports:
        if each.origin == "triton.language" and each.local != "tl" and user.means(*_CONSTEXPR, line):
            # Triton's interpreter knows a constexpr by the text of its annotation: `tl.constexpr` or `constexpr`.
            body = re.sub(rf"(:\s*){each.local}\.constexpr\b", r"\1constexpr", body)
            imports = [*imports, _Import(*_CONSTEXPR, "constexpr", "from")]
    inner = indented(body.strip("\n"), unit, 1, ranges(kernels(ast.parse(body))))
    alias = {each.name: each.local for each in imports}
    dispatch = _Dispatch(target, evidence.domain, names, alias, decorator, unit, warn, module.entry_is_async)
    lines = [
        start_marker(target.qualname, evidence.id, evidence.source_hash),
        *header(target.qualname, evidence),
        *_import_lines(imports, user, line, unit),
        "",
        f"if {alias['triton']} is not None:",
        "",
        *inner,
        "",
        "",
        *dispatch.lines(taken.fresh(f"_{stem}_warned")),
        end_marker(target.qualname),
    ]
    return BlockText(tuple(lines), decorator)


class _Module:
    """The assembled module cut up: its imports, and the rest without docstring, markers and `supports`."""

    def __init__(self, source: str, target: Target) -> None:
        tree, text = ast.parse(source), Text(source)
        dropped: set[int] = set()
        self.imports: list[tuple[str, str, str]] = []
        for index, node in enumerate(tree.body):
            docstring = index == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
            ours = isinstance(node, ast.FunctionDef) and node.name == "supports" != target.name
            if isinstance(node, ast.Import | ast.ImportFrom):
                level = "from" if isinstance(node, ast.ImportFrom) else "import"
                self.imports += [(name, origin, level) for name, origin in imported(node)]
            if docstring or ours or isinstance(node, ast.Import | ast.ImportFrom):
                dropped.update(range(node.lineno - 1, node.end_lineno or node.lineno))
        dropped.update(number for number in range(len(text.lines)) if text.bare(number) in (GUARD_START, GUARD_END))
        inside = {line for node in tree.body for line in range(_first(node), node.end_lineno or node.lineno)}
        kept: list[str] = []
        for number in range(len(text.lines)):
            bare = text.bare(number)
            # One blank line between functions, since they stand one level in.
            if number not in dropped and (bare.strip() or number in inside or (kept and kept[-1].strip())):
                kept.append(bare)
        self.body = "\n".join(kept).strip("\n") + "\n"
        rest = ast.parse(self.body)
        self.defined = module_names(rest)
        self.used = {node.id for node in ast.walk(rest) if isinstance(node, ast.Name)}
        entry = next((node for node in rest.body if getattr(node, "name", None) == target.name), None)
        self.entry_is_async = isinstance(entry, ast.AsyncFunctionDef)
        if entry is None:
            raise UsageError(f"the kernel's module does not define {target.name}")


def _first(node: ast.stmt) -> int:
    """The 0-based line of a statement, its decorators included."""
    first: int = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", ()))])
    return first - 1


def _new_name(name: str, target: Target, stem: str, taken: Names, words: frozenset[str]) -> str:
    """What a module-level name of the candidate is called in the user's file."""
    if name == target.name:
        return taken.fresh(f"_{stem}_triton")
    guard = _GUARD_NAME.search(name)
    if guard and name.startswith(("_", "guard")):
        return taken.fresh(f"_{stem}_{guard[1]}")
    if name not in words and name.startswith("_"):
        return taken.fresh(name)
    return taken.fresh(f"_{name.strip('_')}" if f"_{name}" not in words else f"_{stem}_{name.strip('_')}")


def _imports(module: _Module, user: UserNames, line: int, warn: bool) -> list[_Import]:
    """What the block needs, each under its own name where that is free or means the same in the user's file."""
    wanted = [
        (name, origin, level) for name, origin, level in module.imports if name in module.used or name == "triton"
    ]
    present = {name for name, _, _ in wanted}
    needed = ("functools", "triton", "torch", *(("warnings",) if warn else ()))
    wanted += [(name, name, "import") for name in needed if name not in present]
    result = []
    for name, origin, level in dict.fromkeys(wanted):
        local = name if user.means(name, origin, line) else f"_kernelwright_{name}"
        result.append(_Import(name, origin, local, level))
    return result


def _import_lines(imports: Iterable[_Import], user: UserNames, line: int, unit: str) -> list[str]:
    """Plain imports of what is always there, and one attempt at what a machine may lack."""
    plain, optional = [], []
    for each in sorted(imports, key=lambda each: (each.origin.split(".")[0] not in _STANDARD, each.origin, each.local)):
        if each.origin.split(".")[0] == "triton":
            optional.append(each)
        elif each.local != each.name or not user.imported_before(each.name, line):
            plain.append(each.statement())
    triton = next(each.local for each in optional if each.origin == "triton")
    attempt = [
        "try:",
        *(f"{unit}{each.statement()}" for each in optional),
        "except ImportError:",
        f"{unit}{triton} = None",
    ]
    return [*plain, *([""] if plain else []), *attempt]


class _Dispatch:
    """Writes the decorator that sends each call to the kernel or to the function's own body."""

    def __init__(
        self, target: Target, domain: Domain, names: dict[str, str], alias: dict[str, str], decorator: str, unit: str,
        warn: bool, awaits_kernel: bool,
    ) -> None:  # fmt: skip
        self.target, self.domain, self.names, self.alias = target, domain, names, alias
        self.decorator, self.unit, self.warn, self.awaits_kernel = decorator, unit, warn, awaits_kernel
        local = Names([*(parameter.name for parameter in target.parameters), *names.values(), *alias.values()])
        self.original, self.dispatch = local.fresh("original"), local.fresh("dispatch")
        self.reason, self.result = local.fresh("reason"), local.fresh("result")

    def lines(self, warned: str) -> list[str]:
        """The decorator's text; `warned` is the name of the set of reasons already told."""
        strange = {
            parameter.name: "None"
            for parameter in self.target.parameters
            if parameter.default is not None and not _literal(parameter.default)
        }
        if strange and scripted(self.target):
            raise UsageError(f"{self.target.qualname} is scripted, and a default of its is no literal: cannot wrap it")
        word = "async def" if self.target.is_async else "def"
        depth = self.unit
        body = [f"@{self.alias['functools']}.wraps({self.original})"]
        body += [f"{word} {self.dispatch}({signature(self.target.parameters, strange)}):"]
        body += [depth + line for line in self._body(warned)]
        if strange:
            body += ["", "# The defaults themselves, since their text may mean something else here."]
            body += [f"{self.dispatch}.{slot} = {self.original}.{slot}" for slot in ("__defaults__", "__kwdefaults__")]
        told = [f"{warned} = set()", "", ""] if self.warn else []
        return [
            *told,
            f"def {self.decorator}({self.original}):",
            f'{depth}"""Send a call to the kernel where that was checked, and any other to the function\'s own body."""',
            "",
            *(depth + line if line else "" for line in body),
            "",
            f"{depth}return {self.dispatch}",
        ]

    def _body(self, warned: str) -> list[str]:
        arguments = forwarded(self.target.parameters)
        wait = "await " if self.target.is_async else ""
        why_not = next(new for old, new in self.names.items() if old.endswith("_why_not"))
        kernel = f"{self.names[self.target.name]}({arguments})"
        kernel = f"await {kernel}" if self.awaits_kernel else kernel
        fallback = f"return {wait}{self.original}({arguments})"
        found = self._run(kernel)
        triton = self.alias["triton"]
        if not self.warn:
            test = f"if {triton} is not None and {why_not}({arguments}) is None:"
            return [test, *(self.unit + line for line in found), fallback]
        text = f'f"{self.target.qualname} runs without its Triton kernel: {{{self.reason}}}"'
        compiling = f"{self.alias['torch']}.compiler.is_compiling()"
        return [
            f'{self.reason} = "Triton is not installed" if {triton} is None else {why_not}({arguments})',
            f"if {self.reason} is None:",
            *(self.unit + line for line in found),
            f"if not {compiling} and {self.reason} not in {warned}:",
            f"{self.unit}{warned}.add({self.reason})",
            f"{self.unit}{self.alias['warnings']}.warn({text}, RuntimeWarning, stacklevel=2)",
            fallback,
        ]

    def _run(self, kernel: str) -> list[str]:
        """Run the kernel; tell autograd of what it wrote to, as PyTorch's own in-place operations do."""
        paths = {
            access(tensor.path, self.target): None
            for variant in self.domain.variants
            for tensor in variant.tensors
            if tensor.mutated
        }
        written = [path for path in paths if path]
        if not written:
            return [f"return {kernel}"]
        torch = self.alias["torch"]
        lines = [f"{self.result} = {kernel}"]
        for path in written:
            always = all(
                any(tensor.path == path and tensor.mutated for tensor in v.tensors) for v in self.domain.variants
            )
            bump = f"{torch}.autograd.graph.increment_version({path})"
            lines += [bump] if always else [f"if isinstance({path}, {torch}.Tensor):", f"{self.unit}{bump}"]
        return [*lines, f"return {self.result}"]


def scripted(target: Target) -> bool:
    """Whether torch.jit.script compiles the function: then only its result can be wrapped."""
    return any(re.match(r"torch\.jit\.script\b", decorator) for decorator in target.decorators)


def _literal(text: str) -> bool:
    """Whether a default's text is an immutable literal."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError):
        return False
    return not isinstance(value, list | dict | set)
