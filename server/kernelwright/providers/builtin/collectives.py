"""Writing collectives: reductions, scans and top-k over a block in registers, or over a loop of blocks."""

from __future__ import annotations

import re

from kernelwright.providers.builtin.fusion import Member
from kernelwright.providers.builtin.ir import (
    FLOATS,
    WIDTH,
    Collective,
    Expr,
)
from kernelwright.providers.builtin.texts import (
    ATOM,
    TYPES,
    Text,
)
from kernelwright.providers.builtin.writer import FULL, PLAIN, Writer


class CollectiveWriter(Writer):
    """Adds the collectives."""

    def _result_name(self, collective: Collective) -> str:
        base = re.sub(r"_\d+$", "", collective.name)
        return self.names.rename(collective.name) or PLAIN.get(base, base)

    def _places_mask(self, member: Member) -> str:
        if member.limit is None:
            return "col_mask"
        return self.expression(self.builder.less(self.body.kernel.place[0], member.limit)).within(ATOM)

    def _neutral(self, member: Member) -> str:
        kind, dtype = member.collective.kind, member.source.dtype
        if kind in ("max", "min", "argmax", "argmin", "topk"):
            low = kind in ("max", "argmax", "topk")
            if dtype in FLOATS:
                return f'float("{"-" if low else ""}inf")'
            if dtype == "bool":
                return "0" if low else "1"
            bits = WIDTH[dtype]
            if dtype == "uint8":
                return "0" if low else "255"
            return str(-(2 ** (bits - 1)) if low else 2 ** (bits - 1) - 1)
        zero = {"sum": 0, "prod": 1, "any": 0, "all": 1, "cumsum": 0, "cumprod": 1}[kind]
        return f"{zero}.0" if dtype in FLOATS else str(zero)

    def _filled(self, member: Member) -> str:
        """The source with the neutral element where the row has ended."""
        neutral = self._neutral(member)
        words = self.expression(member.source)
        if member.source.dtype == "bool":
            words = Text(f"{words.within(ATOM)}.to(tl.int32)")
        if neutral == "0.0" and self._ends_in_zeros(member.source):
            return words.words
        return f"tl.where({self._places_mask(member)}, {words.words}, {neutral})"

    def _ends_in_zeros(self, expression: Expr) -> bool:
        """Whether the value is 0 beyond the end of the row, by masked loads."""
        if expression.kind == "load":
            return self.level(expression) == FULL and not self._ragged(expression)
        if expression.kind in ("square", "neg", "abs") or (expression.kind == "cast" and expression.dtype in FLOATS):
            return self._ends_in_zeros(expression.arguments[0])
        return expression.kind in ("mul", "add", "sub") and all(map(self._ends_in_zeros, expression.arguments))

    def _axis(self) -> str:
        return "axis=1, keep_dims=True" if self.has_rows else "axis=0"

    def _collect(self, member: Member) -> None:
        """A collective over a row held in registers."""
        collective = member.collective
        if collective.kind == "topk":
            self._top(member)
        elif collective.scans:
            self._scan(member, None)
        elif collective.kind in ("argmax", "argmin"):
            self._argument(member)
        else:
            self._finish(member, self._filled(member))

    def _finish(self, member: Member, block: str) -> None:
        """Reduce a block to one value a row."""
        collective = member.collective
        name = self.fresh(self._result_name(collective))
        words = self._reduced(collective.kind, block, member.source.dtype)
        self._write(f"{name} = {words}")
        self._results[(collective.order, 0)] = Text(name)

    def _reduced(self, kind: str, block: str, dtype: str) -> str:
        axis = self._axis()
        if kind == "sum":
            return f"tl.sum({block}, {axis})"
        if kind in ("any", "all"):
            return f"tl.{'max' if kind == 'any' else 'min'}({block}, {axis}) != 0"
        if kind in ("max", "min") and dtype not in FLOATS:
            words = f"tl.{kind}({block}, {axis})"
            return f"{words} != 0" if dtype == "bool" else words
        helper = {"max": "_maximum", "min": "_minimum", "prod": "_product"}[kind]
        self.helpers.add(helper)
        return f"tl.reduce({block}, {self._combining(helper)})"

    def _combining(self, helper: str) -> str:
        """The axis and the combine function of a `tl.reduce`."""
        return f"1, {helper}, keep_dims=True" if self.has_rows else f"0, {helper}"

    def _argument(self, member: Member) -> None:
        kind = member.collective.kind
        helper = "_first_largest" if kind == "argmax" else "_first_smallest"
        self.helpers.add(helper)
        name = self.fresh(self._result_name(member.collective))
        pair = f"({self._filled(member)}, {self._places(member)})"
        self._write(f"_, {name} = tl.reduce({pair}, {self._combining(helper)})")
        self._results[(member.collective.order, 0)] = Text(name)

    def _places(self, member: Member) -> str:
        """The place of each element, in the shape of the tile."""
        if not self.has_rows:
            return "col"
        return "tl.broadcast_to(col, (ROWS, COLS))"

    def _top(self, member: Member) -> None:
        """The k largest by k passes: each finds the largest that is left, the first of equal ones."""
        self.helpers.add("_first_largest")
        count = member.collective.count
        base = self._result_name(member.collective)
        left, places = self.fresh(f"{base}_left"), self.fresh(f"{base}_places")
        self._write(f"{left} = {self._filled(member)}")
        self._write(f"{places} = {self._places(member)}")
        for rank in range(count):
            value, place = self.fresh(f"{base}_value_{rank}"), self.fresh(f"{base}_place_{rank}")
            self._write(f"{value}, {place} = tl.reduce(({left}, {places}), {self._combining('_first_largest')})")
            self._results[(member.collective.order, 2 * rank)] = Text(value)
            self._results[(member.collective.order, 2 * rank + 1)] = Text(place)
            if rank < count - 1:
                taken = f"{places} == {place}"
                self._write(f"{left} = tl.where({taken}, {self._neutral(member)}, {left})")
                # A taken element must also lose to real ones that are as small as its filling.
                self._write(f"{places} = tl.where({taken}, 9223372036854775807, {places})")

    def _scan(self, member: Member, carry: str | None) -> None:
        collective = member.collective
        block = self.fresh(f"{self._result_name(collective)}_block")
        name = self.fresh(self._result_name(collective))
        axis = 1 if self.has_rows else 0
        filled = self._filled(member)
        if carry is None:
            self._write(f"{name} = {self._scanned(collective.kind, filled, axis)}")
        else:
            self._write(f"{block} = {filled}")
            sign = "+" if collective.kind == "cumsum" else "*"
            self._write(f"{name} = {carry} {sign} {self._scanned(collective.kind, block, axis)}")
            whole = "sum" if collective.kind == "cumsum" else "prod"
            self._write(f"{carry} {sign}= {self._reduced(whole, block, member.source.dtype)}")
        self._results[(collective.order, 0)] = Text(name)

    def _scanned(self, kind: str, block: str, axis: int) -> str:
        if kind == "cumsum":
            return f"tl.cumsum({block}, axis={axis})"
        self.helpers.add("_product")
        return f"tl.associative_scan({block}, {axis}, _product)"

    # --- collectives in a loop: begin, accumulate, end

    def _tile(self) -> str:
        return "(ROWS, COLS)" if self.has_rows else "(COLS,)"

    def _begin(self, member: Member) -> list[str]:
        kind, dtype = member.collective.kind, member.source.dtype
        base = self._result_name(member.collective)
        stored = "tl.int32" if dtype == "bool" else TYPES["float32" if dtype in FLOATS else dtype]
        names = [self.fresh(f"{base}_block")]
        self._write(f"{names[0]} = tl.full({self._tile()}, {self._neutral(member)}, {stored})")
        if kind.startswith("arg"):
            names.append(self.fresh(f"{base}_places"))
            self._write(f"{names[1]} = tl.full({self._tile()}, 9223372036854775807, tl.int64)")
        return names

    def _accumulate(self, member: Member, names: list[str]) -> None:
        kind, dtype = member.collective.kind, member.source.dtype
        filled = self._filled(member)
        floating = dtype in FLOATS
        if kind.startswith("arg"):
            helper = "_first_largest" if kind == "argmax" else "_first_smallest"
            self.helpers.add(helper)
            arguments = f"{names[0]}, {names[1]}, {filled}, {self._places(member)}"
            self._write(f"{names[0]}, {names[1]} = {helper}({arguments})")
        elif kind == "sum":
            self._write(f"{names[0]} += {filled}")
        elif kind == "prod":
            self._write(f"{names[0]} *= {filled}")
        else:
            call = "maximum" if kind in ("max", "any") else "minimum"
            exact = ", propagate_nan=tl.PropagateNan.ALL" if floating else ""
            self._write(f"{names[0]} = tl.{call}({names[0]}, {filled}{exact})")

    def _end(self, member: Member, names: list[str]) -> None:
        kind = member.collective.kind
        if not kind.startswith("arg"):
            self._finish(member, names[0])
            return
        helper = "_first_largest" if kind == "argmax" else "_first_smallest"
        name = self.fresh(self._result_name(member.collective))
        pair = f"({names[0]}, {names[1]})"
        self._write(f"_, {name} = tl.reduce({pair}, {self._combining(helper)})")
        self._results[(member.collective.order, 0)] = Text(name)

    def _begin_scan(self, member: Member) -> str:
        dtype = TYPES["float32" if member.source.dtype in FLOATS else member.source.dtype]
        name = self.fresh(f"{self._result_name(member.collective)}_carry")
        if self.has_rows:
            self._write(f"{name} = tl.full((ROWS, 1), {self._neutral(member)}, {dtype})")
        else:
            self._write(f"{name} = tl.full((), {self._neutral(member)}, {dtype})")
        return name
