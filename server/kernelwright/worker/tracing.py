"""A call traced on fake tensors with symbolic sizes: what it computes, or why it cannot be a kernel.

Nothing of the user's is run on real data here. Fake tensors are contiguous whatever the example's layout is, so that the
graph says what is computed and not how it lies in memory; a tensor of which the function needs more is marked.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.fx.traceback as fx_traceback
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    GuardOnDataDependentSymNode,
    ShapeEnv,
    StatelessSymbolicContext,
)
from torch.overrides import TorchFunctionMode

from kernelwright.worker import decompositions
from kernelwright.worker.classify import words
from kernelwright.worker.inputs import LiveCall, plain
from kernelwright.worker.loading import describe, innermost_line
from kernelwright.worker.scalars import Scalars
from kernelwright.worker.standins import Shadow
from kernelwright.worker.wire import Json

VIEWS = words(
    "transpose permute unsqueeze squeeze __getitem__ chunk split expand expand_as t T mT view view_as detach narrow select "
    "unbind swapaxes movedim data __get__ unflatten diagonal unfold"
)
"""Functions whose result lies where their first argument does."""
LAYOUT = words("view view_as stride is_contiguous as_strided data_ptr storage_offset view_as_complex")
"""Functions whose outcome depends on strides."""
RANDOM = words(
    "rand rand_like randn randn_like randint randint_like bernoulli bernoulli_ native_dropout normal normal_ uniform "
    "uniform_ multinomial randperm dropout exponential_"
)


_SIZE_MACHINERY = ("symbolic_shapes.py", "sym_node.py", "recording.py", "__init__.py", "_stats.py")


class SizeQuestions(ShapeEnv):
    """A ShapeEnv that knows which of its guards the user's own code asked for, and not torch for its own purposes."""

    by_user: set[str]

    def evaluate_expr(self, *args: Any, **kwargs: Any) -> Any:
        before = len(self.guards)
        result = super().evaluate_expr(*args, **kwargs)
        if len(self.guards) > before and asked_by_user():
            self.by_user.update(str(guard.expr) for guard in self.guards[before:])
        return result


def asked_by_user() -> bool:
    """Whether the first caller that is not the machinery of symbolic sizes lies outside of torch."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        name = frame.f_code.co_filename
        if name != __file__ and f"{os.sep}torch{os.sep}" in name and not name.endswith(_SIZE_MACHINERY):
            return False
        if name != __file__ and f"{os.sep}torch{os.sep}" not in name and not name.startswith("<"):
            return True
        frame = frame.f_back
    return False


class Refused(Exception):
    """The function does something that no kernel can: the reason, the op and the line."""

    def __init__(self, reason: str, op: str | None = None, line: int | None = None) -> None:
        super().__init__(reason)
        self.reason, self.op, self.line = reason, op, line


@dataclass
class Trace:
    """A finished trace of one call, still in torch's own terms."""

    module: torch.fx.GraphModule
    shape_env: SizeQuestions
    scalars: Scalars
    shadow: Shadow
    inputs: list[Input]
    output: Json
    mutated: list[int]
    """The inputs that the function writes into; their new values are the last results of the graph."""


@dataclass
class Input:
    """A tensor of the call: where it is, the example, and what stands for it."""

    path: str
    example: torch.Tensor
    fake: FakeTensor
    needs_contiguous: bool = False


@dataclass
class _Tracer:
    """One attempt at tracing one call."""

    call: LiveCall
    symbolic: bool
    scalars: Scalars
    keep_strides: bool = False
    inputs: list[Input] = field(default_factory=list)
    origins: dict[int, int] = field(default_factory=dict)
    """id of a tensor object → the input in whose memory it lies."""

    def __post_init__(self) -> None:
        self.shape_env = SizeQuestions(
            duck_shape=False,
            specialize_zero_one=True,
            allow_scalar_outputs=False,
            allow_dynamic_output_shape_ops=False,
        )
        self.shape_env.by_user = set()
        self.fake_mode = FakeTensorMode(shape_env=self.shape_env if self.symbolic else None)
        self.by_identity: dict[int, int] = {}
        self.stand_ins: list[Any] = []
        self.output: Json = None
        self.mutated: list[int] = []
        self.keep: list[Any] = []

    # Stand-ins: during the building of the copies a tensor is an index holder; they are filled in when the graph runs.
    def tensor(self, path: str, value: torch.Tensor) -> Any:
        if id(value) not in self.by_identity:
            self.by_identity[id(value)] = len(self.inputs)
            self.inputs.append(Input(path, value, self._fake(value)))
        return self.stand_ins[self.by_identity[id(value)]] if self.stand_ins else self.inputs[-1].fake

    def scalar(self, path: str, value: float) -> Any:
        if self.scalars.pinned or not abs(value) < float("inf"):
            self.shadow.fixed[path] = plain(value)
            return value
        return self.scalars.wrap(path, value)

    def _fake(self, value: torch.Tensor) -> FakeTensor:
        if value.layout is not torch.strided or value.is_quantized:
            raise Refused("a sparse or quantised tensor")
        plain_value = value.detach() if self.keep_strides else torch.empty(value.shape, dtype=value.dtype)
        if not self.symbolic:
            return self.fake_mode.from_tensor(plain_value, static_shapes=True)
        dims = [DimDynamic.DYNAMIC] * value.dim()
        context = StatelessSymbolicContext(dynamic_sizes=dims)
        return self.fake_mode.from_tensor(plain_value, symbolic_context=context)

    def run(self) -> Trace:
        """Trace it.

        Raises:
            Refused: it cannot be a kernel.
        """
        self._build()  # finds the tensors; their order is that of the graph's inputs
        fakes = [item.fake for item in self.inputs]
        with (
            self.fake_mode,
            enable_python_dispatcher(),
            torch.no_grad(),
            fx_traceback.preserve_node_meta(),
            _Watch(self),
        ):
            module = make_fx(self._functional, decomposition_table=decompositions.table())(*fakes)
        rebound = self.shadow.assigned()
        if rebound:
            raise Refused(f"it assigns {rebound}, which a kernel cannot", None, None)
        return Trace(module, self.shape_env, self.scalars, self.shadow, self.inputs, self.output, self.mutated)

    def _build(self) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
        """`self`, positional and keyword arguments as copies."""
        self.shadow = Shadow(self.tensor, self.scalar)
        bound = {name: self.shadow.argument(name, value) for name, value in self.call.bound().items()}
        owner = self.call.owner
        if owner is not None and self.call.target.kind == "method":
            owner = self.shadow.object("self", owner)
        args, kwargs = _spread(self.call, bound)
        return owner, args, kwargs

    def _functional(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        """The call without its mutations, as torch.compile's own front end takes them away: results, then new values."""
        outside = torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.Functionalize))
        with outside, FunctionalTensorMode():
            wrapped = [FunctionalTensor.to_functional(tensor) for tensor in tensors]
            results = [_unwrap(output) for output in self._call(*wrapped)]
            after = [_unwrap(tensor) for tensor in wrapped]
        self.mutated = [number for number, tensor in enumerate(tensors) if after[number] is not tensor]
        return results + [after[number] for number in self.mutated]

    def _call(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        self.stand_ins = list(tensors)
        for number, tensor in enumerate(tensors):
            self.origins[id(tensor)] = number
        self.scalars.expressions.clear()
        self.scalars.names.clear()
        owner, args, kwargs = self._build()
        result = self.call.target.call(owner, args, kwargs)
        outputs: list[torch.Tensor] = []
        self.output = self._output(result, outputs)
        return outputs

    def _output(self, value: Any, outputs: list[torch.Tensor]) -> Json:
        if isinstance(value, torch.Tensor):
            for number, stand_in in enumerate(self.stand_ins):
                if value is stand_in:
                    return {"placeholder": self.inputs[number].path}
            outputs.append(value)
            return {"output": len(outputs) - 1}
        if isinstance(value, (tuple, list)):
            kind = "tuple" if isinstance(value, tuple) else "list"
            return {kind: [self._output(item, outputs) for item in value]}
        if isinstance(value, dict):
            return {"dict": {str(key): self._output(item, outputs) for key, item in value.items()}}
        if isinstance(value, (torch.SymInt, torch.SymFloat)):
            raise Refused("it returns a size, not only tensors")
        if value is None or isinstance(value, (bool, int, float, str)):
            return {"value": plain(value)}
        raise Refused(
            f"it returns a {type(value).__name__}: only tensors, numbers, tuples, lists and dicts can be checked"
        )


def _spread(call: LiveCall, bound: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Bound arguments as positional and keyword ones."""
    assert call.target.function is not None
    signature = inspect.signature(call.target.function)
    binding = inspect.BoundArguments(signature, {})
    first = call.target.first(None)
    parameters = list(signature.parameters)
    binding.arguments = {**dict.fromkeys(parameters[: len(first)]), **bound}
    return binding.args[len(first) :], binding.kwargs


class _Watch(TorchFunctionMode):
    """Sees every torch call of the user's code: notes its line, and what a kernel could not do."""

    def __init__(self, tracer: _Tracer) -> None:
        super().__init__()
        self.tracer = tracer
        self.path = str(tracer.call.target.loaded.path)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        line = self._line()
        if line is not None:
            fx_traceback.get_current_meta()["stack_trace"] = str(line)
        name = getattr(func, "__name__", str(func))
        for value in _tensors(args):
            if line is not None and not isinstance(value, (FakeTensor, FunctionalTensor)):
                self._refuse_outside(value, name, line)
        self._note_layout(name, func, args)
        result = func(*args, **(kwargs or {}))
        if name == "contiguous" and args and result is args[0] and id(result) in self.tracer.origins:
            return torch.ops.aten.alias.default(result)  # from here on it is dense, whatever the caller's tensor is
        self._follow(name, func, args, result)
        return result

    def _line(self) -> int | None:
        frame: Any = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename != self.path:
            frame = frame.f_back
        return frame.f_lineno if frame is not None else None

    def _refuse_outside(self, value: Any, name: str, line: int | None) -> None:
        function = self.tracer.call.target.function
        raise Refused(f"it reads {_name_outside(function, value)}, a tensor that is not an argument", name, line)

    def _note_layout(self, name: str, func: Any, args: Any) -> None:
        if name not in LAYOUT or not args or id(args[0]) not in self.tracer.origins:
            return
        if name == "is_contiguous" and not self._line():
            return
        self.tracer.inputs[self.tracer.origins[id(args[0])]].needs_contiguous = True

    def _follow(self, name: str, func: Any, args: Any, result: Any) -> None:
        origins = self.tracer.origins
        if name not in VIEWS or not args or id(args[0]) not in origins:
            return
        for value in _tensors((result,)):
            if id(value) not in origins:
                origins[id(value)] = origins[id(args[0])]
                self.tracer.keep.append(value)  # its id must not be given to another


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from _tensors(value)


def _unwrap(value: Any) -> torch.Tensor:
    """The value of a functional tensor, all writes to it done."""
    if not isinstance(value, FunctionalTensor):
        return value
    torch._sync(value)
    return torch._from_functional_tensor(value.elem)


def _name_outside(function: Any, wanted: Any) -> str:
    """What the function calls a tensor that it takes from its globals or its closure."""
    scopes: list[dict[str, Any]] = [getattr(function, "__globals__", {})]
    closure = getattr(function, "__closure__", None) or ()
    scopes.insert(0, dict(zip(function.__code__.co_freevars, (cell.cell_contents for cell in closure), strict=False)))
    for scope in scopes:
        for name, value in list(scope.items()):
            if value is wanted:
                return f"the global `{name}`"
            if isinstance(value, dict):
                for key, item in value.items():
                    if item is wanted:
                        return f"the global `{name}[{key!r}]`"
    return "a tensor from outside"


# --- Attempts --------------------------------------------------------------------------------------------------------


def trace(call: LiveCall, shift: int = 0, pinned: bool = False) -> Trace:
    """Trace a call: with symbolic sizes, or where that fails with the example's own.

    Raises:
        Refused: it cannot be a kernel.
    """
    attempts = ((True, False), (True, True), (False, False), (False, True))
    problem: Exception | None = None
    for symbolic, keep_strides in attempts:
        tracer = _Tracer(call, symbolic, Scalars(shift, pinned=pinned), keep_strides)
        with unchanged_globals(call) as changed:
            try:
                made = tracer.run()
            except Refused:
                raise
            except Exception as error:
                refused = data_dependent(error, call)
                if refused is not None:
                    raise refused from error
                problem = problem or error
                continue
        if changed:
            raise Refused(f"it changes the global `{changed[0]}`, which a kernel cannot")
        if keep_strides:
            for item in made.inputs:
                item.needs_contiguous = False
        if tracer.scalars.pinned and not pinned:
            return trace(call, shift, pinned=True)
        return made
    assert problem is not None
    path = str(call.target.loaded.path)
    raise Refused(f"it cannot be traced: {describe(problem, path)}", None, innermost_line(problem, path))


def data_dependent(error: BaseException, call: LiveCall) -> Refused | None:
    """The refusal for an error that means: the program looks at the values of a tensor."""
    line = innermost_line(error, str(call.target.loaded.path))
    step: BaseException | None = error
    while step is not None:
        if isinstance(step, DynamicOutputShapeException):
            return Refused("the size of a result depends on the values of a tensor", str(step.func), line)
        if isinstance(step, DataDependentOutputException):
            return Refused("it reads the value of a tensor in Python", str(step.func), line)
        if isinstance(step, GuardOnDataDependentSymNode) or "value out of a tracing tensor" in str(step):
            return Refused("it reads the value of a tensor in Python", "aten._local_scalar_dense", line)
        if "no numpy" in str(step).lower() or ".numpy() is not supported" in str(step):
            return Refused("it leaves torch for NumPy", "numpy", line)
        step = step.__cause__ or step.__context__
    return None


@contextlib.contextmanager
def unchanged_globals(call: LiveCall) -> Iterator[list[str]]:
    """Put back the globals that the function reads or writes; the list names those that it changed."""
    function: Any = call.target.function
    scope = getattr(function, "__globals__", {})
    names = [name for name in _global_names(function.__code__) if name in scope]
    before = {name: (scope[name], _contents(scope[name])) for name in names}
    known = set(scope)
    changed: list[str] = []
    try:
        yield changed
    finally:
        for name, (value, contents) in before.items():
            if scope.get(name) is not value or not _same(_contents(value), contents):
                changed.append(name)
                scope[name] = value
                _restore(value, contents)
        for name in set(scope) - known:
            changed.append(name)
            del scope[name]


def _global_names(code: Any) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if hasattr(constant, "co_names"):
            names |= _global_names(constant)
    return names


def _contents(value: Any) -> Any:
    return dict(value) if type(value) is dict else list(value) if type(value) is list else None


def _same(left: Any, right: Any) -> bool:
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(left[key] is right[key] for key in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(a is b for a, b in zip(left, right, strict=True))
    return True


def _restore(value: Any, contents: Any) -> None:
    if isinstance(value, dict) and contents is not None:
        value.clear()
        value.update(contents)
    elif isinstance(value, list) and contents is not None:
        value[:] = contents
