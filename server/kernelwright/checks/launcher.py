"""K106: the launcher computes nothing on tensors itself: it allocates, makes views, reads sizes and launches kernels.

A launcher that computes with torch would hide a wrong kernel, and cost launches that nobody sees.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernelwright.checks.reading import Reading, entry_name, finding, read
from kernelwright.model import Candidate, Finding, Task
from kernelwright.ports import TritonApi
from kernelwright.source.paths import access

ALLOCATIONS = frozenset({"empty", "empty_like", "empty_strided"})
FUNCTIONS = ALLOCATIONS | {
    "device", "Size", "finfo", "iinfo", "is_tensor", "is_grad_enabled", "is_inference_mode_enabled", "is_autocast_enabled",
    "get_default_dtype", "promote_types", "result_type", "can_cast", "broadcast_shapes", "as_strided", "no_grad",
    "view_as_real", "view_as_complex", "cuda.device", "cuda.device_of", "cuda.current_device", "cuda.current_stream",
    "cuda.get_device_properties", "cuda.get_device_capability", "cuda.is_available", "compiler.is_compiling",
    "jit.is_tracing", "_C._functorch.peek_interpreter_stack",
}  # fmt: skip
VIEWS = frozenset(
    {
        "view",
        "as_strided",
        "unsqueeze",
        "squeeze",
        "expand",
        "expand_as",
        "permute",
        "transpose",
        "t",
        "movedim",
        "swapaxes",
    }
    | {"narrow", "select", "detach", "view_as", "unflatten", "diagonal", "adjoint", "new_empty", "new_empty_strided"}
)
QUERIES = frozenset(
    {
        "size",
        "stride",
        "dim",
        "ndimension",
        "numel",
        "nelement",
        "element_size",
        "data_ptr",
        "storage_offset",
        "is_contiguous",
    }
    | {"is_floating_point", "is_complex", "is_neg", "is_conj", "get_device", "untyped_storage", "is_pinned"}
)
VIEW_ATTRIBUTES = frozenset({"T", "mT", "H", "mH", "data", "real", "imag"})
# What has to be said when a method is called on something that may or may not be a tensor.
COMPUTES = frozenset(
    """abs add add_ addmm all amax amin any argmax argmin bfloat16 bmm chunk clamp clone contiguous copy_ cos cpu cuda cumsum
    div div_ double einsum exp fill_ flatten float half item log log_softmax logsumexp masked_fill matmul max mean min mm mul
    mul_ neg norm pow prod relu repeat reshape rsqrt scatter_add sigmoid sin softmax sqrt std sub sub_ sum tanh to tolist var
    zero_ new_zeros new_ones new_full""".split()  # noqa: SIM905
)
BUILTINS = frozenset(
    {"abs", "max", "min", "sum", "round", "pow", "divmod", "float", "int", "bool", "list", "sorted", "any", "all"}
)


def launcher(candidate: Candidate, task: Task, api: TritonApi) -> Finding | None:
    """Every host function that the entry reaches, and `supports`."""
    reading = read(candidate.source)
    roots = [entry_name(candidate, task), "supports"]
    for function in {name: node for root in roots for name, node in reading.reachable(root).items()}.values():
        known = function.name in roots
        tensors = _Tensors(reading, function, _paths(task) if known else frozenset())
        for node in ast.walk(function):
            problem = tensors.problem(node)
            if problem:
                return finding("K106", f"{function.name} {problem}; do it in a kernel", node)
    return None


def _paths(task: Task) -> frozenset[str]:
    """The expressions for tensors in the entry, by the traced graphs."""
    paths = (access(tensor.path, task.target) for graph in task.graphs for tensor in graph.placeholders)
    return frozenset(path for path in paths if path)


class _Tensors:
    """What in one function is a tensor: its tensor arguments, what it allocates, and what is made of those."""

    def __init__(
        self, reading: Reading, function: ast.FunctionDef | ast.AsyncFunctionDef, paths: frozenset[str]
    ) -> None:
        self.reading = reading
        self.paths = paths
        self.names: set[str] = set()
        assignments = list(_assignments(function))
        while True:
            new = {name for name, value in assignments if name not in self.names and self.is_tensor(value)}
            if not new:
                break
            self.names |= new

    def is_tensor(self, node: ast.expr) -> bool:
        """Whether an expression is a tensor for all that the text says."""
        if isinstance(node, ast.Name):
            return node.id in self.names or node.id in self.paths
        if isinstance(node, ast.Attribute):
            return ast.unparse(node) in self.paths or (node.attr in VIEW_ATTRIBUTES and self.is_tensor(node.value))
        if isinstance(node, ast.Subscript):
            return ast.unparse(node) in self.paths
        if isinstance(node, ast.IfExp):
            return self.is_tensor(node.body) or self.is_tensor(node.orelse)
        if isinstance(node, ast.BoolOp):
            return any(map(self.is_tensor, node.values))
        if isinstance(node, ast.NamedExpr):
            return self.is_tensor(node.value)
        if isinstance(node, ast.Call):
            dotted = self.reading.dotted(node.func) or ""
            if dotted.removeprefix("torch.") in ALLOCATIONS | {"as_strided", "view_as_real", "view_as_complex"}:
                return True
            return (
                isinstance(node.func, ast.Attribute)
                and node.func.attr in VIEWS
                and self.reading.dotted(node.func) is None
            )
        return False

    def problem(self, node: ast.AST) -> str | None:
        """What the node computes on a tensor, if it does."""
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.BinOp) and (self.is_tensor(node.left) or self.is_tensor(node.right)):
            return f"computes {_short(node)} with torch"
        if isinstance(node, ast.UnaryOp) and self.is_tensor(node.operand):
            return f"computes {_short(node)} with torch"
        if isinstance(node, ast.AugAssign) and (self.is_tensor(node.target) or self.is_tensor(node.value)):
            return f"computes {_short(node)} with torch"
        if isinstance(node, ast.Compare):
            identity = all(isinstance(op, ast.Is | ast.IsNot | ast.In | ast.NotIn) for op in node.ops)
            touched = any(map(self.is_tensor, (node.left, *node.comparators)))
            return None if identity or not touched else f"compares {_short(node)} with torch"
        if isinstance(node, ast.Subscript) and self.is_tensor(node.value) and not self.is_tensor(node):
            return f"indexes {_short(node)}: pass the tensor and its strides"
        if isinstance(node, ast.For | ast.comprehension) and self.is_tensor(node.iter):
            return f"walks over {_short(node.iter)}"
        return None

    def _call(self, node: ast.Call) -> str | None:
        dotted = self.reading.dotted(node.func)
        if dotted is not None and dotted.split(".")[0] == "torch":
            allowed = dotted.removeprefix("torch.") in FUNCTIONS
            return None if allowed else f"calls {ast.unparse(node.func)}, which computes with torch"
        if dotted is not None:
            return None
        if isinstance(node.func, ast.Name):
            touched = node.func.id in BUILTINS and any(map(self.is_tensor, node.args))
            return f"calls {_short(node)}, which reads a tensor's values" if touched else None
        if not isinstance(node.func, ast.Attribute):
            return None
        method, on = node.func.attr, node.func.value
        if ast.unparse(node.func) in self.paths or method in VIEWS | QUERIES:
            return None
        if self.is_tensor(on) or (method in COMPUTES and not isinstance(on, ast.Constant)):
            return f"calls .{method}() on {_short(on)}, which computes with torch"
        root = on
        while isinstance(root, ast.Attribute):
            root = root.value
        if isinstance(root, ast.Name) and root.id in ("self", "cls"):
            return f"calls {_short(node.func)}, which runs the module's own code"
        return None


def _assignments(function: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """(name, value) of each plain assignment; a tuple of names takes a tuple of values one by one."""
    for node in ast.walk(function):
        if isinstance(node, ast.NamedExpr) and isinstance(node.target, ast.Name):
            yield node.target.id, node.value
        if isinstance(node, ast.withitem) and isinstance(node.optional_vars, ast.Name):
            yield node.optional_vars.id, node.context_expr
        for target in node.targets if isinstance(node, ast.Assign) else ():
            value = node.value  # type: ignore[attr-defined]
            if isinstance(target, ast.Name):
                yield target.id, value
            elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
                pairs = zip(target.elts, value.elts, strict=True)
                yield from ((part.id, each) for part, each in pairs if isinstance(part, ast.Name))


def _short(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
