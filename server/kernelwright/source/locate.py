"""Finds the functions of a document that a kernel could replace. Reads text only: nothing is imported or run."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from kernelwright.errors import TargetNotFound
from kernelwright.model import Document, Parameter, ParameterKind, Span, Target
from kernelwright.source.blocks import DECORATOR, find_blocks
from kernelwright.source.syntax import Text, parse

Def: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef

# Methods that tensors have and the built-in types of Python lack.
_TENSOR_METHODS = frozenset(
    re.findall(
        r"\w+",
        """
        abs acos add_ addcmul addmm all amax amin any argmax argmin argsort asin atan bfloat16 bmm chunk clamp
        clamp_max clamp_min clone contiguous cos cosh cpu cuda cummax cumprod cumsum detach diff dim div div_ double
        einsum elu eq erf exp expand expand_as expm1 flatten flip float floor fmod gather ge gelu gt half index_add
        index_select int isfinite isinf isnan item kthvalue le lerp log10 log1p log2 log_softmax logsumexp long lt
        masked_fill masked_fill_ masked_select matmul maximum mean median minimum mm mul mul_ narrow ne neg new_empty
        new_full new_ones new_zeros norm numel outer permute pow prod quantile reciprocal relu repeat_interleave
        requires_grad_ reshape roll round rsqrt scatter scatter_ scatter_add sigmoid sign sin softmax softplus sqrt
        square squeeze std sub sub_ sum swapaxes tanh tile topk transpose tril triu type_as unbind unflatten unfold
        unsqueeze var view view_as where zero_
        """,
    )
)
_TENSOR_WORDS = frozenset({"Tensor", "Float", "BFloat16", "Float16", "Float32", "Int", "Shaped", "Num"})
_WORD = re.compile(r"[^\W\d]\w*")
_PROPERTIES = frozenset({"property", "cached_property", "setter", "getter", "deleter"})


@dataclass(frozen=True)
class Found:
    """A function of the tree with its name, the class right around it, and its outermost statement."""

    node: Def
    qualname: str
    owner: ast.ClassDef | None
    nested: bool
    outermost: ast.stmt


@dataclass(frozen=True)
class Imports:
    """What names mean by the document's imports, wherever they stand: names of torch's and of Triton's."""

    torch: frozenset[str]
    triton: frozenset[str]
    anything: bool


def find_targets(document: Document) -> tuple[Target, ...]:
    """The functions and methods that use torch, in the order of the text."""
    module = Module(Text(document.text))
    return tuple(
        module.target(document, found)
        for found in module.functions
        if module.why_not(found) is None and module.uses_torch(found)
    )


def find_target(document: Document, qualname: str) -> Target:
    """The function of this name, whether or not it visibly uses torch. `outer.inner` finds `outer.<locals>.inner`.

    Raises:
        TargetNotFound: there is none, or it is of a kind that no kernel can replace.
    """
    module = Module(Text(document.text))
    found = locate(module, qualname)
    return module.target(document, found)


def target_at(document: Document, line: int) -> Target | None:
    """The innermost function that uses torch around a 0-based line."""
    around = [target for target in find_targets(document) if target.span.start_line <= line <= target.span.end_line]
    return max(around, key=lambda target: target.span.start_line, default=None)


def locate(module: Module, qualname: str) -> Found:
    """The last usable function of this name, as Python itself would have it.

    Raises:
        TargetNotFound: see `find_target`.
    """
    wanted = _plain(qualname)
    matching = [found for found in module.functions if _plain(found.qualname) == wanted]
    usable = [found for found in matching if module.why_not(found) is None]
    if usable:
        return usable[-1]
    if matching:
        raise TargetNotFound(f"{qualname} cannot be replaced by a kernel: it is {module.why_not(matching[-1])}")
    names = list(dict.fromkeys(found.qualname for found in module.functions if module.why_not(found) is None))
    ending = [name for name in names if _plain(name).endswith(f".{wanted.rpartition('.')[2]}")]
    close = list(dict.fromkeys([*ending, *difflib.get_close_matches(qualname, names)]))[:5]
    hint = f"; did you mean {' or '.join(close)}?" if close else ""
    raise TargetNotFound(f"there is no function {qualname} in the document{hint}")


def _plain(qualname: str) -> str:
    return qualname.replace(".<locals>.", ".")


class Module:
    """A document's functions and imports."""

    def __init__(self, text: Text) -> None:
        self.text = text
        self.tree = parse(text)
        generated = find_blocks(text)
        self._generated = [(block.span.start_line, block.span.end_line) for block in generated]
        self.functions = tuple(
            Found(node, name, owner, nested, outermost)
            for outermost in self.tree.body
            for node, name, owner, nested in _functions([outermost], "", None, False)
        )

    @property
    def imports(self) -> Imports:
        """Computed once, when first asked."""
        if not hasattr(self, "_imports"):
            self._imports = _imports(self.text.value)
        return self._imports

    def why_not(self, found: Found) -> str | None:
        """What kind of function this is, if it is one that no kernel can replace."""
        node = found.node
        if hasattr(node, "broken"):
            return "not finished: it has a syntax error"
        if any(start <= node.lineno - 1 < end for start, end in self._generated):
            return "part of a generated kernel"
        for decorator in node.decorator_list:
            name = _dotted(decorator)
            root, last = name.split(".")[0], name.split(".")[-1]
            if last in _PROPERTIES:
                return "a property"
            if last in ("overload", "abstractmethod"):
                return f"declared with @{last}"
            if root == "triton" or root in self.imports.triton:
                return "a Triton kernel already"
        body = self.text.lines[node.lineno - 1 : node.end_lineno]
        return "a generator" if any("yield" in line for line in body) and _yields(node) else None

    def uses_torch(self, found: Found) -> bool:
        """Whether the function visibly uses torch: a name of torch's, or tensor methods in a file that imports it."""
        node, imports = found.node, self.imports
        if not (imports.torch or imports.anything):
            return False
        if node.name.startswith("__") and node.name.endswith("__") and node.name != "__call__":
            return False
        if found.owner and node.name in ("forward", "__call__") and _is_torch_class(found.owner, imports.torch):
            return True
        words = imports.torch | _TENSOR_WORDS | _TENSOR_METHODS
        source = "".join(self.text.lines[_span(self.text, node).start_line : node.end_lineno])
        if words.isdisjoint(_WORD.findall(source)) and "@" not in source:
            return False
        parameters = {argument.arg for argument in _arguments(node)}
        return any(_is_torch(part, imports, parameters) for part in _parts(node))

    def target(self, document: Document, found: Found) -> Target:
        """The found function as a value."""
        node, text = found.node, self.text
        span = _span(text, node)
        source = "".join(text.lines[span.start_line : span.end_line + 1]).rstrip("\r\n").removeprefix("\ufeff")
        decorators = tuple(text.segment(decorator) for decorator in node.decorator_list)
        return Target(
            document=document,
            qualname=found.qualname,
            source=source,
            span=span,
            def_line=node.lineno - 1,
            parameters=tuple(_parameters(text, node.args)),
            kind=_kind(node, found.owner),
            is_async=isinstance(node, ast.AsyncFunctionDef),
            decorators=tuple(decorator for decorator in decorators if not decorator.startswith(DECORATOR)),
            nested=found.nested,
        )


def _functions(
    body: list[ast.stmt], prefix: str, owner: ast.ClassDef | None, nested: bool
) -> Iterator[tuple[Def, str, ast.ClassDef | None, bool]]:
    """Every function in the statements, with its qualified name as Python forms it."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node, prefix + node.name, owner, nested
            yield from _functions(node.body, f"{prefix}{node.name}.<locals>.", None, True)
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node.body, f"{prefix}{node.name}.", node, nested)
        elif (
            isinstance(
                node, ast.If | ast.For | ast.AsyncFor | ast.While | ast.With | ast.AsyncWith | ast.Try | ast.Match
            )
            or type(node).__name__ == "TryStar"
        ):
            yield from _functions(_inner(node), prefix, owner, nested)


def _inner(node: ast.stmt) -> list[ast.stmt]:
    """The statements of a compound statement, its branches one after the other."""
    parts = [part for name in ("body", "handlers", "orelse", "finalbody", "cases") for part in getattr(node, name, ())]
    return [
        statement
        for part in parts
        for statement in (part.body if isinstance(part, ast.ExceptHandler | ast.match_case) else [part])
    ]


def _span(text: Text, node: Def) -> Span:
    """From the first decorator's @ to the end of the body."""
    span = text.span(node)
    if not node.decorator_list:
        return span
    line = min(decorator.lineno for decorator in node.decorator_list) - 1
    while line > 0 and not text.lines[line].lstrip(" \t\f\ufeff").startswith("@"):
        line -= 1
    column = text.lines[line].find("@")
    return Span(line, max(column, 0), span.end_line, span.end_column)


def _kind(node: Def, owner: ast.ClassDef | None) -> Literal["function", "method", "staticmethod", "classmethod"]:
    if owner is None:
        return "function"
    names = {_dotted(decorator) for decorator in node.decorator_list}
    if "staticmethod" in names or node.name == "__new__":
        return "staticmethod"
    return "classmethod" if names & {"classmethod"} or node.name == "__init_subclass__" else "method"


def _parameters(text: Text, arguments: ast.arguments) -> Iterator[Parameter]:
    """The parameters in the order of the signature."""
    positional = [*arguments.posonlyargs, *arguments.args]
    missing = len(positional) - len(arguments.defaults)
    for index, argument in enumerate(positional):
        default = arguments.defaults[index - missing] if index >= missing else None
        only = index < len(arguments.posonlyargs)
        yield _parameter(text, argument, "positional_only" if only else "positional_or_keyword", default)
    if arguments.vararg:
        yield _parameter(text, arguments.vararg, "var_positional", None)
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        yield _parameter(text, argument, "keyword_only", default)
    if arguments.kwarg:
        yield _parameter(text, arguments.kwarg, "var_keyword", None)


def _parameter(text: Text, argument: ast.arg, kind: ParameterKind, default: ast.expr | None) -> Parameter:
    annotation = text.segment(argument.annotation) if argument.annotation else None
    return Parameter(argument.arg, kind, text.segment(default) if default else None, annotation)


# --- does it use torch? ----------------------------------------------------------------------------------------------

_IMPORT = re.compile(r"^[ \t\f\ufeff]*(?:[^#'\"\n]*[:;][ \t]*)?(import|from)[ \t]+(.+)$", re.MULTILINE)
_FROM = re.compile(r"([\w.]+)[ \t]+import[ \t]+(.*)", re.DOTALL)


def _imports(text: str) -> Imports:
    """What import statements bind, read line by line so that a syntax error elsewhere does not matter."""
    bound: dict[str, set[str]] = {"torch": set(), "triton": set()}
    anything = False
    for match in _IMPORT.finditer(text):
        clause = match[2]
        if "(" in clause and ")" not in clause:
            clause += text[match.end() : text.find(")", match.end()) + 1]
        clause = re.sub(r"#[^\n]*|[()\\\r\n]", " ", clause)
        root, names, star = _import_names(match[1], clause)
        anything = anything or (star and root == "torch")
        for origin, name in names:
            if origin in bound:
                bound[origin].add(name)
    return Imports(frozenset(bound["torch"]), frozenset(bound["triton"]), anything)


def _import_names(word: str, clause: str) -> tuple[str, list[tuple[str, str]], bool]:
    """The root package of a from import, (root package, bound name) pairs, and whether it imports everything."""
    if word == "import":
        pairs = [part.split() for part in clause.split(",") if part.split()]
        return "", [(part[0].split(".")[0], part[-1].split(".")[0]) for part in pairs], False
    match = _FROM.match(clause)
    if not match:
        return "", [], False
    root = match[1].split(".")[0]
    names = [part.split()[-1] for part in match[2].split(",") if part.split()]
    return root, [(root, name) for name in names if name != "*"], "*" in names


def _parts(node: Def) -> Iterator[ast.AST]:
    """The function's decorators, annotations and body; breadth first, so that a use is found early."""
    for part in [node.args, *node.decorator_list, *([node.returns] if node.returns else []), *node.body]:
        yield from ast.walk(part)


def _is_torch(part: ast.AST, imports: Imports, parameters: set[str]) -> bool:
    if isinstance(part, ast.Name):
        return part.id in imports.torch or part.id in _TENSOR_WORDS
    if isinstance(part, ast.Constant):
        return isinstance(part.value, str) and part.value in ("Tensor", "torch.Tensor")
    if isinstance(part, ast.BinOp):
        return isinstance(part.op, ast.MatMult)
    if isinstance(part, ast.Call):
        called = part.func
        if isinstance(called, ast.Attribute):
            return called.attr in _TENSOR_METHODS and _root(called.value) in parameters
        return imports.anything and isinstance(called, ast.Name) and called.id in _TENSOR_METHODS
    return False


def _root(node: ast.expr) -> str:
    """The variable that an expression starts from, "" where it starts otherwise. A bare `self` is no tensor."""
    steps = 0
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call | ast.BinOp):
        steps += 1
        node = node.left if isinstance(node, ast.BinOp) else node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) and (steps or node.id not in ("self", "cls")) else ""


def _arguments(node: Def) -> Iterator[ast.arg]:
    """The parameters, of every kind."""
    arguments = node.args
    yield from (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    yield from (argument for argument in (arguments.vararg, arguments.kwarg) if argument)


def _is_torch_class(owner: ast.ClassDef, names: frozenset[str]) -> bool:
    bases = [_dotted(base) for base in owner.bases]
    return any(base.split(".")[0] in names or base.split(".")[-1].endswith("Module") for base in bases)


def _dotted(node: ast.expr) -> str:
    """`a.b.c` of a name, an attribute or a call of one; "" for anything else."""
    if isinstance(node, ast.Call):
        node = node.func
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def _yields(node: Def) -> bool:
    """Whether the function itself is a generator; functions inside it do not count."""
    pending: list[ast.AST] = list(node.body)
    while pending:
        part = pending.pop()
        if isinstance(part, ast.Yield | ast.YieldFrom):
            return True
        if not isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            pending.extend(ast.iter_child_nodes(part))
    return False
