"""What is written into the user's file, and taking it out again. Pure: text in, text out."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Literal

from kernelwright.errors import StaleProposal, UsageError
from kernelwright.model import Document, Evidence, Span, Target
from kernelwright.source.blocks import Block, end_marker, find_blocks, start_marker
from kernelwright.source.header import header
from kernelwright.source.kernelblock import BlockText, scripted, write_block
from kernelwright.source.layout import indent_unit
from kernelwright.source.locate import Found, Module, find_target, locate
from kernelwright.source.names import UserNames
from kernelwright.source.paths import slug
from kernelwright.source.syntax import Text

_CELL = re.compile(r"#\s*(?:%%|In\[|<codecell>)|#!|# (?:>>>|<<<) kernelwright: |#.*coding[:=]")


@dataclass(frozen=True)
class TextChange:
    """Replace what the span holds by `text`."""

    span: Span
    text: str


@dataclass(frozen=True)
class Edit:
    """A change of one document: the new text, the least changes that make it, a unified diff; perhaps a second file."""

    path: str
    before: str
    text: str
    changes: tuple[TextChange, ...]
    diff: str
    sibling: tuple[str, str] | None = None
    """(path, text) of a file to write beside the document."""

    def apply(self, text: str) -> str:
        """The edited text.

        Raises:
            StaleProposal: `text` is not what the edit was made for.
        """
        if text != self.before:
            raise StaleProposal("the file changed since this edit was made: make it again")
        return self.text


@dataclass(frozen=True)
class AcceptedKernel:
    """A kernel of ours in a document. `decorator_line` is 0-based, None where someone removed the decorator."""

    qualname: str
    evidence_id: str
    source_hash: str
    span: Span
    decorator_line: int | None


def propose(
    target: Target,
    module_source: str,
    evidence: Evidence,
    *,
    placement: Literal["inline", "sibling"] = "inline",
    warn: bool = True,
) -> Edit:
    """The edit that puts an assembled module (`module.assemble`) above a target and sends its calls there.

    A block of the same target is replaced. The function's own lines stay as they are.

    Raises:
        TargetNotFound: the target is not in its document.
        UsageError: it cannot be wrapped.
    """
    before = target.document.text
    base = _without(before, [block for block in find_blocks(Text(before)) if block.qualname == target.qualname])
    text = Text(base)
    document = Document(target.document.uri, target.document.path, base, target.document.version)
    module = Module(text)
    found = locate(module, target.qualname)
    now = module.target(document, found)
    line = _block_line(text, found)
    sibling = None
    if placement == "sibling":
        block, sibling = _sibling(now, module_source, evidence, indent_unit(text), warn)
    else:
        block = write_block(now, module_source, evidence, UserNames(text), line, indent_unit(text), warn)
    after = _insert(text, line, block, *_decorator_place(text, now, found))
    return _edit(target.document.path, before, after, sibling)


def accepted(document: Document) -> tuple[AcceptedKernel, ...]:
    """The kernels of ours in a document, in order."""
    text = Text(document.text)
    return tuple(
        AcceptedKernel(block.qualname, block.evidence_id, block.source_hash, block.span, _decorator_line(text, block))
        for block in find_blocks(text)
    )


def restore(document: Document, qualname: str) -> Edit:
    """The edit that takes a target's block and decorator out again, and leaves what was there before. A sibling file stays.

    Raises:
        UsageError: the document holds no kernel of ours for it.
    """
    blocks = [block for block in find_blocks(Text(document.text)) if block.qualname == qualname]
    if not blocks:
        raise UsageError(f"there is no kernel for {qualname} in the document")
    return _edit(document.path, document.text, _without(document.text, blocks), None)


# --- putting in ------------------------------------------------------------------------------------------------------


def _block_line(text: Text, found: Found) -> int:
    """The line above which the block goes: the outermost statement with its decorators and the comments that touch it."""
    node = found.outermost
    decorators = getattr(node, "decorator_list", [])
    line: int = min([node.lineno, *(decorator.lineno for decorator in decorators)]) - 1
    while decorators and line > 0 and not text.bare(line).lstrip("\ufeff").startswith("@"):
        line -= 1
    while line > 0 and text.bare(line - 1).startswith("#") and not _CELL.match(text.bare(line - 1)):
        line -= 1
    return line


def _decorator_place(text: Text, target: Target, found: Found) -> tuple[int, str]:
    """The line above which the decorator goes, and its indentation."""
    line = target.def_line
    if scripted(target):
        # torch.jit.script reads the function's source: it must get the function itself.
        line = next(
            node.lineno - 1
            for node, name in zip(found.node.decorator_list, map(text.segment, found.node.decorator_list), strict=True)
            if name.startswith("torch.jit.script")
        )
    bare = text.bare(line).removeprefix("\ufeff")
    return line, bare[: len(bare) - len(bare.lstrip())]


def _insert(text: Text, line: int, block: BlockText, at: int, indent: str) -> str:
    """The text with the block and two blank lines above `line`, and the decorator above line `at`."""
    end = text.line_end
    lines = list(text.lines)
    mark = "\ufeff" if lines[0].startswith("\ufeff") else ""
    lines[0] = lines[0].removeprefix("\ufeff")
    added = [part + end for part in (*block.lines, "", "")]
    return mark + "".join([*lines[:line], *added, *lines[line:at], f"{indent}@{block.decorator}{end}", *lines[at:]])


def _sibling(
    target: Target, module_source: str, evidence: Evidence, unit: str, warn: bool
) -> tuple[BlockText, tuple[str, str]]:
    """A block that imports the decorator from a file beside the document, and that file."""
    path = PurePath(target.document.path)
    name = f"{re.sub(r'[^0-9A-Za-z_]', '_', path.stem)}_{slug(target.qualname)}_triton"
    name = name if not name[0].isdigit() else f"_{name}"
    inside = write_block(target, module_source, evidence, UserNames(Text("")), 0, unit, warn)
    own = f'"""The Triton kernel of {path.name}: {target.qualname}. Written by Kernelwright; the evidence is below."""'
    lines = [
        start_marker(target.qualname, evidence.id, evidence.source_hash),
        *header(target.qualname, evidence),
        "if __package__:",
        f"{unit}from .{name} import {inside.decorator}",
        "else:",
        f"{unit}from {name} import {inside.decorator}",
        end_marker(target.qualname),
    ]
    file = (str(path.with_name(f"{name}.py")), "\n".join([own, "", *inside.lines]) + "\n")
    return BlockText(tuple(lines), inside.decorator), file


# --- taking out ------------------------------------------------------------------------------------------------------


def _decorator_line(text: Text, block: Block) -> int | None:
    """Where the block's decorator is used."""
    use = re.compile(rf"[ \t\f]*@{re.escape(block.decorator)}[ \t]*\Z") if block.decorator else None
    if use is None:
        return None
    return next((number for number in range(len(text.lines)) if use.match(text.bare(number))), None)


def _without(value: str, blocks: Sequence[Block]) -> str:
    """The text without the blocks, the two blank lines that came with each, and their decorators."""
    text = Text(value)
    dropped: set[int] = set()
    for block in blocks:
        dropped.update(range(block.span.start_line, block.span.end_line))
        blank = block.span.end_line
        while blank < min(block.span.end_line + 2, len(text.lines)) and not text.bare(blank).strip():
            dropped.add(blank)
            blank += 1
        line = _decorator_line(text, block)
        if line is not None:
            dropped.add(line)
    mark = "\ufeff" if 0 in dropped and value.startswith("\ufeff") else ""
    return mark + "".join(line for number, line in enumerate(text.lines) if number not in dropped)


# --- differences -----------------------------------------------------------------------------------------------------


def _edit(path: str, before: str, after: str, sibling: tuple[str, str] | None) -> Edit:
    old, new = Text(before), Text(after)
    diff = _diff(path, old.lines, new.lines) + (_diff(sibling[0], [], Text(sibling[1]).lines) if sibling else "")
    return Edit(path, before, after, _changes(old, new), diff, sibling)


def _changes(old: Text, new: Text) -> tuple[TextChange, ...]:
    """The least whole-line changes."""
    head = _shared(old.lines, new.lines)
    tail = _shared(old.lines[head:][::-1], new.lines[head:][::-1])
    left, right = old.lines[head : len(old.lines) - tail], new.lines[head : len(new.lines) - tail]
    matcher = difflib.SequenceMatcher(None, left, right, autojunk=False)
    return tuple(
        TextChange(Span(head + a, 0, head + b, 0), "".join(right[c:d]))
        for tag, a, b, c, d in matcher.get_opcodes()
        if tag != "equal"
    )


def _shared(left: Sequence[str], right: Sequence[str]) -> int:
    pairs = enumerate(zip(left, right, strict=False))
    return next((index for index, (one, other) in pairs if one != other), min(len(left), len(right)))


def _diff(path: str, old: Sequence[str], new: Sequence[str]) -> str:
    parts = []
    for line in difflib.unified_diff(list(old), list(new), path if old else "/dev/null", path):
        parts.append(line if line.endswith(("\n", "\r")) else f"{line}\n\\ No newline at end of file\n")
    return "".join(parts)


__all__ = ["AcceptedKernel", "Edit", "TextChange", "accepted", "find_target", "propose", "restore"]
