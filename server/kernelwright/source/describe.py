"""A domain in short words, for people. Pure."""

from __future__ import annotations

from kernelwright.model import Domain, Fixed, Scalar, TensorDomain, Variant
from kernelwright.source.guard import FLOATING, shown


def describe_domain(domain: Domain) -> str:
    """ "float32/bfloat16, x [s0, s1], weight [s1], any strides, CUDA, no gradients"; variants are parted by "or"."""
    parts = list(dict.fromkeys(describe_variant(variant) for variant in domain.variants)) or ["nothing"]
    ends = ["CUDA" if domain.device in ("cuda", "cpu") else domain.device]
    ends += [] if domain.gradients else ["no gradients"]
    return ", ".join([" or ".join(parts), *ends])


def describe_variant(variant: Variant) -> str:
    """One kind of call."""
    floating = [tensor for tensor in variant.tensors if set(tensor.dtypes) <= set(FLOATING)]
    shared = floating[0].dtypes if variant.same_dtype and floating else ()
    parts = ["/".join(shared)] if shared else []
    parts += [_tensor(tensor, shared if tensor in floating else ()) for tensor in variant.tensors]
    parts += [_strides(variant)] if variant.tensors else []
    parts += [f"{fixed.path}={shown(fixed.value)}" for fixed in variant.fixed if _telling(fixed)]
    parts += [_scalar(scalar) for scalar in variant.scalars]
    parts += [f"{name} ≥ {least}" for name, least in variant.min_size.items() if least > 0]
    parts += [f"{name} ≤ {most}" for name, most in variant.max_size.items()]
    parts += list(variant.guards)
    return ", ".join(parts)


def _tensor(tensor: TensorDomain, shared: tuple[str, ...]) -> str:
    dtypes = "" if shared else f"{'/'.join(tensor.dtypes)} "
    written = " (written to)" if tensor.mutated else ""
    return f"{dtypes}{tensor.path} [{', '.join(map(str, tensor.shape))}]{written}"


def _strides(variant: Variant) -> str:
    layouts = {tensor.layout for tensor in variant.tensors}
    if layouts == {"any"}:
        return "any strides"
    if layouts == {"contiguous"}:
        return "contiguous"
    return ", ".join(f"{tensor.path} {tensor.layout}" for tensor in variant.tensors if tensor.layout != "any")


def _telling(fixed: Fixed) -> bool:
    """A device tells nothing: the kernel runs on the tensors' own."""
    return not shown(fixed.value).startswith("device(")


def _scalar(scalar: Scalar) -> str:
    return f"any {scalar.path}"
