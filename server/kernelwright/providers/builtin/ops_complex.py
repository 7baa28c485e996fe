"""Complex numbers as pairs: an element is an expression of kind "complex" with a real and an imaginary argument.

Triton has no complex type, so a pair never reaches the text: every use takes it apart. Tensors of the caller's are read
through `torch.view_as_real`.
"""

from __future__ import annotations

from kernelwright.model import Node
from kernelwright.providers.builtin.ir import Expr, Unsupported, Value
from kernelwright.providers.builtin.lowering import Context, broadcast, lowers
from kernelwright.providers.builtin.sizes import ONE, Size

COMPLEX = "complex64"


@lowers("aten.view_as_complex")
def view_as_complex(context: Context, node: Node) -> Value:
    return context.pairs(context.tensor(node.args[0]))


@lowers("aten.view_as_real")
def view_as_real(context: Context, node: Node) -> Value:
    source, build = context.tensor(node.args[0]), context.builder

    def at(index: tuple[Size, ...]) -> Expr:
        real, imaginary = source.at(index[:-1]).arguments
        which = index[-1].constant
        if which is not None:
            return imaginary if which else real
        return build.make("where", (build.less(index[-1], ONE), real, imaginary), "float32", name=node.name)

    return context.value(context.shape(node.shape or ()), "float32", at)


def multiply(context: Context, node: Node) -> Value:
    """(a + bi)(c + di), each product and sum rounded to float32 as eager does it."""
    left, right = (context.operand(argument) for argument in node.args[:2])
    if not (isinstance(left, Value) and isinstance(right, Value) and left.dtype == right.dtype == COMPLEX):
        raise Unsupported("a complex number times a real one")
    build = context.builder

    def at(index: tuple[Size, ...]) -> Expr:
        (a, b), (c, d) = (value.at(broadcast(index, value.shape)).arguments for value in (left, right))
        product = {key: build.make("mul", pair, "float32") for key, pair in _pairs(a, b, c, d).items()}
        real = build.make("sub", (product["ac"], product["bd"]), "float32")
        imaginary = build.make("add", (product["ad"], product["bc"]), "float32")
        return build.make("complex", (real, imaginary), COMPLEX)

    return context.value(context.shape(node.shape or ()), COMPLEX, at)


def _pairs(a: Expr, b: Expr, c: Expr, d: Expr) -> dict[str, tuple[Expr, Expr]]:
    return {"ac": (a, c), "bd": (b, d), "ad": (a, d), "bc": (b, c)}


@lowers("aten._conj", "aten.conj", "aten.conj_physical")
def conjugate(context: Context, node: Node) -> Value:
    source, build = context.tensor(node.args[0]), context.builder

    def at(index: tuple[Size, ...]) -> Expr:
        real, imaginary = source.at(index).arguments
        return build.make("complex", (real, build.make("neg", (imaginary,), "float32")), COMPLEX)

    return context.value(source.shape, COMPLEX, at)
