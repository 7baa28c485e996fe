"""The checked domain as code: `_why_not(same parameters)` gives one reason why a call is outside it, or None.

The code allocates nothing on the device and launches nothing: a few microseconds on CPython for a small function.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from kernelwright.model import Dim, Domain, Fixed, Json, Scalar, Target, TensorDomain, Variant
from kernelwright.source.paths import (
    Names,
    access,
    can_divide_by_zero,
    expression,
    forwarded,
    portable_signature,
)

FLOATING = ("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")
DIFFERENTIABLE = (*FLOATING, "complex64", "complex128")

_HELPERS = {
    "overlaps": '''
def {name}(tensor):
    """Whether two indices of the tensor may name one element."""
    extent = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape)):
        if size > 1:
            if stride < extent:
                return True
            extent = stride * (size - 1) + extent
    return False
''',
    "is_dense": '''
def {name}(tensor):
    """Whether the tensor fills its memory without gaps, in whatever order of dimensions."""
    extent = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape)):
        if size > 1:
            if stride != extent:
                return False
            extent *= size
    return True
''',
}


def render_guard(
    target: Target, domain: Domain, kernel_name: str, *, prefix: str = "", any_device: bool = False, extra: str = ""
) -> str:
    """Module-level code that defines `{prefix}_why_not` and, unless the target itself is called so, `supports`.

    `kernel_name` is an expression for the jitted function, which tells whether Triton's interpreter runs it. With
    `any_device` the launcher switches to the tensors' device itself; else they must be on the current one. `extra` is
    the name of a further `supports` of the candidate's own.
    """
    writer = _Writer(target, prefix, any_device)
    body = writer.body(domain)
    if extra:
        reason = f"{target.name}'s kernel declines this call itself"
        body += [f"if not {extra}({forwarded(target.parameters)}):", f"    return {quote(reason)}"]
    lines = [f"{prefix}_interpreted = not isinstance({kernel_name}, triton.JITFunction)"]
    for helper in sorted(writer.helpers):
        lines += ["", *_HELPERS[helper].format(name=f"{prefix}_{helper}").rstrip("\n").split("\n")]
    lines += ["", *writer.functions]
    lines += _function(
        f"{prefix}_why_not", target, "One reason why the kernel does not cover this call, or None.", body
    )
    if target.name != "supports":
        lines += ["", "", f"def supports({portable_signature(target)}):"]
        lines += ['    """Whether the kernel covers this call: only what was checked."""']
        lines += [f"    return {prefix}_why_not({forwarded(target.parameters)}) is None"]
    return "\n".join(lines) + "\n"


def _function(name: str, target: Target, doc: str, body: Sequence[str]) -> list[str]:
    head = ["", f"def {name}({portable_signature(target)}):", f'    """{doc}"""']
    return [*head, *(f"    {line}" if line else "" for line in body), "    return None"]


class _Writer:
    """Collects the code of one guard."""

    def __init__(self, target: Target, prefix: str, any_device: bool) -> None:
        self.target = target
        self.prefix = prefix
        self.any_device = any_device
        self.helpers: set[str] = set()
        self.functions: list[str] = []

    def body(self, domain: Domain) -> list[str]:
        """The statements of `_why_not`, without its last `return None`."""
        lines = [
            "if torch.compiler.is_compiling() or torch.jit.is_tracing():",
            '    return "the call is being compiled or traced"',
            "if torch._C._functorch.peek_interpreter_stack() is not None or torch.autograd.forward_ad._current_level >= 0:",
            '    return "the call is inside a torch.func transform or forward-mode differentiation"',
        ]
        variants = domain.variants
        if not variants:
            return [*lines, 'return "no kind of call was checked"']
        if len(variants) == 1:
            return lines + _VariantWriter(self, variants[0], domain.gradients).lines()
        names = []
        for number, variant in enumerate(variants, 1):
            names.append(f"{self.prefix}_why_not_{number}")
            body = _VariantWriter(self, variant, domain.gradients).lines()
            self.functions += [*_function(names[-1], self.target, _title(variant), body), ""]
        local = Names(parameter.name for parameter in self.target.parameters)
        reasons, check, reason = local.fresh("reasons"), local.fresh("check"), local.fresh("reason")
        return [
            *lines,
            f"{reasons} = []",
            f"for {check} in ({', '.join(names)}):",
            f"    {reason} = {check}({forwarded(self.target.parameters)})",
            f"    if {reason} is None:",
            "        break",
            f"    {reasons}.append({reason})",
            "else:",
            '    return " / ".join(dict.fromkeys(' + f"{reasons}))",
        ]


def _title(variant: Variant) -> str:
    """A docstring for one variant: what sets it apart."""
    fixed = ", ".join(f"{fixed.path}={shown(fixed.value)}" for fixed in variant.fixed)
    return f"Why a call does not fit {fixed or 'this kind of call'}.".replace("\\", "\\\\").replace('"', "'")


class _VariantWriter:
    """Writes the conditions of one variant, cheapest and most telling first."""

    def __init__(self, writer: _Writer, variant: Variant, gradients: bool) -> None:
        self.writer = writer
        self.variant = variant
        self.gradients = gradients
        self.names = Names(parameter.name for parameter in writer.target.parameters)
        self.local: dict[str, str] = {}
        self.symbols: dict[str, str] = {}
        self.shown: dict[str, str] = {}

    def lines(self) -> list[str]:
        unreachable = self._unreachable()
        if unreachable:
            return [f"return {quote(f'{unreachable} is not an argument of the call')}"]
        parts: list[Iterable[str]] = [self._fetch(), self._scalars()]
        if self.variant.tensors:
            parts += [
                self._kinds(),
                self._fixed(),
                self._dtypes(),
                self._shapes(),
                self._guards(),
                self._layouts(),
                self._modes(),
            ]
        else:
            parts += [self._fixed(), self._guards()]
        return [line for part in parts for line in part]

    # --- finding the arguments

    def _all_paths(self) -> list[str]:
        parts: list[TensorDomain | Scalar | Fixed] = [*self.variant.fixed, *self.variant.scalars, *self.variant.tensors]
        return list(dict.fromkeys(part.path for part in parts))

    def _unreachable(self) -> str | None:
        return next((path for path in self._all_paths() if access(path, self.writer.target) is None), None)

    def _fetch(self) -> Iterator[str]:
        """Bind what lies behind attributes and indices to local names; a missing one is a reason."""
        deep = []
        for path in self._all_paths():
            found = access(path, self.writer.target) or path
            if found.isidentifier():
                self.local[path] = found
            else:
                self.local[path] = self.names.fresh(found)
                deep.append(f"    {self.local[path]} = {found}")
        if deep:
            roots = " or ".join(
                dict.fromkeys(path.split(".")[0].split("[")[0] for path in self._all_paths() if not path.isidentifier())
            )
            yield from ("try:", *deep, "except (AttributeError, IndexError, KeyError, TypeError):")
            yield f"    return {quote(f'{roots} lacks what it had when the kernel was checked')}"

    # --- arguments that are no tensors

    def _fixed(self) -> Iterator[str]:
        for fixed in self.variant.fixed:
            test = _differs(self.local[fixed.path], fixed.value)
            if self.variant.tensors and shown(fixed.value).startswith("device("):
                # Checked with the tensors' own device, wherever that was.
                test = f"torch.device({self.local[fixed.path]}) != {self.local[self.variant.tensors[0].path]}.device"
            yield from (f"if {test}:", f"    return {quote(f'{fixed.path} is not {shown(fixed.value)}')}")

    def _scalars(self) -> Iterator[str]:
        # A Python int in a float's place promotes integer tensors differently, floating ones not.
        floating = all(dtype in DIFFERENTIABLE for tensor in self.variant.tensors for dtype in tensor.dtypes)
        for scalar in self.variant.scalars:
            name = self.local[scalar.path]
            test = f"type({name}) is not {scalar.type}"
            if scalar.type == "float" and floating:
                test += f" and type({name}) is not int"
            yield from (f"if {test}:", f"    return {quote(f'{scalar.path} is not a plain Python {scalar.type}')}")
            self.symbols[scalar.name] = name

    # --- tensors

    def _kinds(self) -> Iterator[str]:
        """Plain strided tensors, on one device that the kernel runs on."""
        first = self.variant.tensors[0]
        for tensor in self.variant.tensors:
            name = self.local[tensor.path]
            yield f"if type({name}) is not torch.Tensor and type({name}) is not torch.nn.Parameter:"
            yield f"    return {quote(f'{tensor.path} is not a plain tensor')}"
            conjugated = f" or {name}.is_conj()" if any("complex" in dtype for dtype in tensor.dtypes) else ""
            yield f"if {name}.layout is not torch.strided or {name}.is_neg(){conjugated}:"
            yield f"    return {quote(f'{tensor.path} is sparse, or negated or conjugated lazily')}"
        first_name, interpreted = self.local[first.path], f"{self.writer.prefix}_interpreted"
        device = self.names.fresh("device")
        yield f"{device} = {first_name}.device"
        yield f"if not {first_name}.is_cuda and not ({interpreted} and {first_name}.is_cpu):"
        yield f"    return {quote(f'{first.path} is not on a CUDA device')}"
        for tensor in self.variant.tensors[1:]:
            yield f"if {self.local[tensor.path]}.device != {device}:"
            yield f"    return {quote(f'{tensor.path} is on another device than {first.path}')}"
        if not self.writer.any_device:
            yield f"if {first_name}.is_cuda and {device}.index != torch.cuda.current_device():"
            yield f"    return {quote(f'{first.path} is not on the current CUDA device')}"

    def _dtypes(self) -> Iterator[str]:
        grouped = [tensor for tensor in self.variant.tensors if set(tensor.dtypes) <= set(FLOATING)]
        others = [tensor for tensor in self.variant.tensors if tensor not in grouped]
        if self.variant.same_dtype and grouped:
            common = [dtype for dtype in grouped[0].dtypes if all(dtype in tensor.dtypes for tensor in grouped)]
            yield from self._one_of(grouped[0], common)
            for tensor in grouped[1:]:
                yield f"if {self.local[tensor.path]}.dtype is not {self.local[grouped[0].path]}.dtype:"
                yield f"    return {quote(f'{tensor.path} has another dtype than {grouped[0].path}')}"
        else:
            others = list(self.variant.tensors)
        for tensor in others:
            yield from self._one_of(tensor, tensor.dtypes)
        lengths = {len(tensor.dtypes) for tensor in others if len(tensor.dtypes) > 1}
        listed = [tensor for tensor in grouped if len(tensor.dtypes) > 1]
        if not self.variant.same_dtype and len(listed) > 1 and len(lengths) == 1:
            rows = zip(*(tensor.dtypes for tensor in listed), strict=True)
            table = ", ".join("(" + ", ".join(f"torch.{dtype}" for dtype in row) + ")" for row in rows)
            yield f"if ({', '.join(f'{self.local[tensor.path]}.dtype' for tensor in listed)}) not in ({table},):"
            yield f"    return {quote(f'{_list(tensor.path for tensor in listed)}: this mixture of dtypes was not checked')}"

    def _one_of(self, tensor: TensorDomain, dtypes: Sequence[str]) -> Iterator[str]:
        name = self.local[tensor.path]
        if len(dtypes) == 1:
            yield f"if {name}.dtype is not torch.{dtypes[0]}:"
        else:
            yield f"if {name}.dtype not in ({', '.join(f'torch.{dtype}' for dtype in dtypes)}):"
        yield f"    return {quote(f'{tensor.path} is not {_list(dtypes)}')}"

    def _shapes(self) -> Iterator[str]:
        """Ranks first; then a symbol is bound where it stands alone for the first time, and all else is compared."""
        compared: list[tuple[TensorDomain, int, str, Dim]] = []
        for tensor in self.variant.tensors:
            name = self.local[tensor.path]
            yield f"if {name}.dim() != {len(tensor.shape)}:"
            yield f"    return {quote(f'{tensor.path} is not {len(tensor.shape)}-dimensional')}"
            bound = []
            for index, dim in enumerate(tensor.shape):
                if isinstance(dim, str) and dim.isidentifier() and dim not in self.symbols:
                    bound.append(self.names.fresh(dim))
                    self.symbols[dim] = bound[-1]
                    self.shown[dim] = f"{tensor.path}.shape[{index}]"
                else:
                    bound.append(self.names.fresh(f"{tensor.path}_{index}"))
                    compared.append((tensor, index, bound[-1], dim))
            if bound:
                yield f"{', '.join(bound) if len(bound) > 1 else f'({bound[0]},)'} = {name}.shape"
        for tensor, index, size, dim in compared:
            reason = f"{tensor.path}.shape[{index}] is not {dim}"
            yield from self._condition(dim, f"{size} != {{}}", reason)

    def _guards(self) -> Iterator[str]:
        for symbol, least in self.variant.min_size.items():
            if symbol in self.symbols:
                reason = self._told(f"{symbol} is less than {least}: smaller than was checked")
                yield from (f"if {self.symbols[symbol]} < {least}:", f"    return {quote(reason)}")
        for symbol, most in self.variant.max_size.items():
            if symbol in self.symbols:
                reason = self._told(f"{symbol} is more than {most}: larger than was checked")
                yield from (f"if {self.symbols[symbol]} > {most}:", f"    return {quote(reason)}")
        for guard in self.variant.guards:
            yield from self._condition(guard, "not ({})", f"the kernel was checked for {guard} only")

    def _condition(self, text: Dim, test: str, reason: str) -> Iterator[str]:
        """Return `reason` where `test`, filled with the expression, holds."""
        reason = self._told(reason)
        try:
            condition = test.format(expression(text, self.symbols))
        except (ValueError, SyntaxError):
            yield f"return {quote(reason + ', which cannot be told from a call')}"
            return
        lines = [f"if {condition}:", f"    return {quote(reason)}"]
        if can_divide_by_zero(text):
            lines = [
                "try:",
                *(f"    {line}" for line in lines),
                "except ArithmeticError:",
                f"    return {quote(reason)}",
            ]
        yield from lines

    def _told(self, reason: str) -> str:
        """The reason with symbols said as people see them: `x.shape[0]`."""
        return re.sub(r"(?<![\w.])[^\W\d]\w*", lambda word: self.shown.get(word[0], word[0]), reason)

    def _layouts(self) -> Iterator[str]:
        for tensor in self.variant.tensors:
            name = self.local[tensor.path]
            if tensor.layout == "contiguous":
                yield from (
                    f"if not {name}.is_contiguous():",
                    f"    return {quote(f'{tensor.path} is not contiguous')}",
                )
            elif tensor.layout == "dense":
                self.writer.helpers.add("is_dense")
                yield f"if not {self.writer.prefix}_is_dense({name}):"
                yield f"    return {quote(f'{tensor.path} has gaps or overlaps in memory')}"
            if tensor.mutated:
                yield from self._written(tensor)

    def _written(self, tensor: TensorDomain) -> Iterator[str]:
        """A tensor that is written to must overlap neither itself nor another argument."""
        name = self.local[tensor.path]
        self.writer.helpers.add("overlaps")
        yield f"if {self.writer.prefix}_overlaps({name}):"
        yield f"    return {quote(f'{tensor.path} is written to, and its elements overlap in memory')}"
        for other in self.variant.tensors:
            if other.path != tensor.path and not (other.mutated and other.path < tensor.path):
                storage = "untyped_storage().data_ptr()"
                yield f"if {name}.{storage} == {self.local[other.path]}.{storage} != 0:"
                yield f"    return {quote(f'{tensor.path} is written to, and shares memory with {other.path}')}"

    def _modes(self) -> Iterator[str]:
        """Gradients, autocast, the default dtype: what changes a function's meaning from outside."""
        kinds = [tensor for tensor in self.variant.tensors if any(dtype in DIFFERENTIABLE for dtype in tensor.dtypes)]
        if not self.gradients and kinds:
            needs = " or ".join(f"{self.local[tensor.path]}.requires_grad" for tensor in kinds)
            yield f"if ({needs}) and torch.is_grad_enabled():"
            yield '    return "gradients are needed, and the kernel has no backward"'
        first = self.local[self.variant.tensors[0].path]
        yield f"if torch.is_autocast_enabled({first}.device.type):"
        yield '    return "autocast is on"'
        yield "if torch.get_default_dtype() is not torch.float32:"
        yield '    return "the default dtype is not float32"'


# --- values ----------------------------------------------------------------------------------------------------------


def _differs(name: str, value: Json) -> str:
    """A test that `name` holds another value than `value`, or one of another type."""
    if value is None or isinstance(value, bool):
        return f"{name} is not {value}"
    if isinstance(value, dict) and set(value) == {"repr"}:
        text = str(value["repr"])
        if text.startswith("torch.") and text.removeprefix("torch.").isidentifier():
            return f"{name} is not {text}"
        return f"repr({name}) != {text!r}"
    if isinstance(value, dict) and set(value) == {"float"}:
        return f"type({name}) is not float or repr({name}) != {str(value['float'])!r}"
    if isinstance(value, float) and value != value:
        return f"type({name}) is not float or {name} == {name}"
    if isinstance(value, list):
        return f"not isinstance({name}, (list, tuple)) or list({name}) != {value!r}"
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return f"type({name}) is not float or {name} != float({str(value)!r})"
    return f"type({name}) is not {type(value).__name__} or {name} != {value!r}"


def quote(reason: str) -> str:
    """A string literal in double quotes where that needs no escapes."""
    return f'"{reason}"' if reason.isprintable() and not set(reason) & set('"\\') else repr(reason)


def shown(value: Json) -> str:
    if isinstance(value, dict) and len(value) == 1 and set(value) <= {"repr", "float"}:
        return str(next(iter(value.values())))
    return repr(value)


def _list(words: Iterable[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last
