"""The domain: claimed by nobody, made from what passed. Pure."""

from __future__ import annotations

from dataclasses import replace

from kernelwright.model import Case, Fixed, Graph, Task, TensorDomain, TensorSpec, Variant
from kernelwright.verify.plan import FLOATS


def from_graph(graph: Graph) -> Variant:
    """What a trace is valid for: the variant of a candidate that claims nothing itself."""
    floating = {tensor.dtype for tensor in graph.placeholders if tensor.dtype in FLOATS}
    uniform = len(floating) == 1
    tensors = tuple(
        TensorDomain(
            path=tensor.path,
            dtypes=FLOATS if uniform and tensor.dtype in FLOATS else (tensor.dtype,),
            shape=tensor.shape,
            layout="contiguous" if tensor.needs_contiguous else "any",
            mutated=tensor.mutated_by is not None,
        )
        for tensor in graph.placeholders
    )
    return Variant(tensors, graph.scalars, graph.fixed, graph.guards, same_dtype=uniform)


def matches(variant: Variant, graph: Graph) -> bool:
    """Whether the variant speaks of this graph: the same tensors with the same shapes, the same fixed arguments."""
    claimed = {tensor.path: tensor.shape for tensor in variant.tensors}
    traced = {tensor.path: tensor.shape for tensor in graph.placeholders}
    same_dtypes = all(
        tensor.dtype in claim.dtypes
        for tensor in graph.placeholders
        for claim in variant.tensors
        if claim.path == tensor.path
    )
    fixed = set(map(_key, graph.fixed)) <= set(map(_key, variant.fixed))
    return claimed == traced and same_dtypes and fixed


def _key(fixed: Fixed) -> str:
    return f"{fixed.path}={fixed.value!r}"


def pair(task: Task, claimed: tuple[Variant, ...]) -> tuple[tuple[Graph, Variant], ...]:
    """Each traced graph with the variant that covers it; graphs that nothing covers run the original body."""
    usable = [graph for graph in task.graphs if graph.refusal is None]
    if not claimed:
        return tuple((graph, from_graph(graph)) for graph in usable)
    pairs = []
    for graph in usable:
        variant = next((variant for variant in claimed if matches(variant, graph)), None)
        if variant:
            pairs.append((graph, variant))
    return tuple(pairs)


def narrow(variant: Variant, case: Case, user_dtype: str | None) -> tuple[Variant, str] | None:
    """The variant without the region that this failing case stands for, and that region in words.

    None when the case is the user's own kind of call, or when no describable region holds it: then the candidate is
    wrong, not limited.
    """
    if case.values != "user" and case.values != "normal":
        return None
    if case.scalars:
        stuck = [scalar for scalar in variant.scalars if scalar.path in case.scalars]
        kept = tuple(scalar for scalar in variant.scalars if scalar not in stuck)
        fixed = (*variant.fixed, *(Fixed(scalar.path, scalar.example) for scalar in stuck))
        words = ", ".join(f"{scalar.path} = {scalar.example:g}" for scalar in stuck)
        return (replace(variant, scalars=kept, fixed=fixed), f"{words} only") if stuck else None
    if case.layout not in ("user", "contiguous"):
        tensors = tuple(replace(tensor, layout="contiguous") for tensor in variant.tensors)
        return replace(variant, tensors=tensors), "contiguous tensors only"
    empty = [name for name, size in case.sizes.items() if size == 0]
    single = [name for name, size in case.sizes.items() if size == 1]
    for names, least in ((empty, 1), (single, 2)):
        if len(names) == 1 and variant.min_size.get(names[0], 0) < least:
            minimum = {**variant.min_size, names[0]: least}
            return replace(variant, min_size=minimum), f"{names[0]} at least {least}"
    if case.dtype is not None and case.dtype != user_dtype and not case.scalars:
        tensors = tuple(
            replace(tensor, dtypes=tuple(dtype for dtype in tensor.dtypes if dtype != case.dtype))
            for tensor in variant.tensors
        )
        if all(tensor.dtypes for tensor in tensors):
            return replace(variant, tensors=tensors), f"not {case.dtype}"
    return None


def excludes_a_call(variant: Variant, task: Task, calls: set[int]) -> bool:
    """Whether a narrowed variant leaves out one of the user's own calls, for its layout."""
    contiguous = {tensor.path for tensor in variant.tensors if tensor.layout == "contiguous"}
    return any(
        argument.path in contiguous and argument.tensor is not None and not is_contiguous(argument.tensor)
        for call in task.inputs.calls
        if call.index in calls
        for argument in call.arguments
    )


def is_contiguous(tensor: TensorSpec) -> bool:
    """Row-major without gaps; strides of dimensions of size 1 do not count."""
    expected = 1
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.strides or ()), strict=False):
        if size != 1 and stride != expected:
            return 0 in tensor.shape
        expected *= size
    return True
