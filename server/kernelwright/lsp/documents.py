"""The open documents as the core sees them, looked at once a version."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pygls.uris import to_fs_path, uri_scheme, urlparse
from pygls.workspace import Workspace

from kernelwright.lsp.convert import Positions
from kernelwright.lsp.core import Core
from kernelwright.lsp.cores import Cores
from kernelwright.lsp.endpoint import split_lines
from kernelwright.model import Document, Target
from kernelwright.source.edit import AcceptedKernel


@dataclass(frozen=True)
class Snapshot:
    """A document at one version, with what its text alone says."""

    document: Document
    root: Path
    core: Core
    positions: Positions
    targets: tuple[Target, ...]
    accepted: tuple[AcceptedKernel, ...]

    def target(self, qualname: str) -> Target | None:
        """The target of this name. Of two definitions the later one counts, as in Python."""
        found = [target for target in self.targets if target.qualname == qualname]
        return found[-1] if found else None

    def target_at(self, line: int) -> Target | None:
        """The innermost target around a 0-based line."""
        around = [target for target in self.targets if target.span.start_line <= line <= last_line(target)]
        return max(around, key=lambda target: target.span.start_line, default=None)

    def kernel(self, qualname: str) -> AcceptedKernel | None:
        """The accepted kernel of a target."""
        return next((kernel for kernel in self.accepted if kernel.qualname == qualname), None)


def last_line(target: Target) -> int:
    """The last line with text of the target's: a span that ends at column 0 ends on the line before."""
    return target.span.end_line - (1 if target.span.end_column == 0 else 0)


class Documents:
    """Looks documents up by URI."""

    def __init__(self, cores: Cores) -> None:
        self._cores = cores
        self._cache: dict[str, Snapshot] = {}

    def snapshot(self, workspace: Workspace, uri: str) -> Snapshot | None:
        """The document now; None for one that is no Python, cannot be read, or has no core to look at it."""
        text_document = workspace.get_text_document(uri)
        if text_document.language_id not in (None, "python"):
            return None
        root = root_of(uri, folders(workspace))
        core = self._cores.get(root)
        if core is None:
            return None
        cached = self._cache.get(uri)
        if cached and cached.document.version == text_document.version is not None and cached.core is core:
            return cached
        try:
            text = text_document.source
        except (OSError, UnicodeDecodeError):
            return None
        document = Document(uri, str(path_of(uri) or root / unsaved_name(uri)), text, text_document.version)
        snapshot = Snapshot(
            document,
            root,
            core,
            Positions(workspace.position_codec, split_lines(text)),
            core.targets(document),
            core.accepted(document),
        )
        if document.version is not None:
            self._cache[uri] = snapshot
        return snapshot

    def forget(self, uri: str) -> None:
        """The document was closed: its versions start anew when it is opened again."""
        self._cache.pop(uri, None)


def folders(workspace: Workspace) -> tuple[Path, ...]:
    """The workspace's folders, or its single root where the client knows no folders."""
    uris: Iterable[str] = [folder.uri for folder in workspace.folders.values()]
    paths = [Path(path) for path in map(to_fs_path, uris) if path]
    if not paths and workspace.root_path:
        paths = [Path(workspace.root_path)]
    return tuple(paths)


def path_of(uri: str) -> Path | None:
    """The file of a document: a notebook's cell lies in the notebook's; an untitled document has none."""
    if uri_scheme(uri) == "file":
        path = to_fs_path(uri)
        return Path(path) if path else None
    if uri_scheme(uri) == "vscode-notebook-cell":
        return Path(urlparse(uri)[2])
    return None


def unsaved_name(uri: str) -> str:
    """A file name for a document that has no file, so that it has a place of its own in its root."""
    return uri.rpartition("/")[2].rpartition(":")[2] or "untitled"


def root_of(uri: str, roots: tuple[Path, ...]) -> Path:
    """The innermost folder that holds the document, else the folder it lies in, else the first folder there is."""
    path = path_of(uri)
    if path is None:
        return roots[0] if roots else Path.cwd()
    around = [root for root in roots if path.is_relative_to(root)]
    return max(around, key=lambda root: len(root.parts), default=path.parent)
