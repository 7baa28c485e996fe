"""K102: the candidate imports torch, triton and math only, so that it stands alone in the user's file."""

from __future__ import annotations

import ast

from kernelwright.checks.reading import finding, read
from kernelwright.model import Candidate, Finding, Task
from kernelwright.ports import TritonApi

ALLOWED = ("torch", "triton", "math")


def imports(candidate: Candidate, task: Task, api: TritonApi) -> Finding | None:
    """Every import, wherever it stands."""
    for node in ast.walk(read(candidate.source).tree):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            continue
        foreign = [module for module in modules if module.split(".")[0] not in ALLOWED]
        if foreign or (isinstance(node, ast.ImportFrom) and node.level):
            name = foreign[0] if foreign and foreign[0] else ast.unparse(node)
            return finding("K102", f"imports {name}: only torch, triton and math may be imported; drop it", node)
        if any(alias.name == "*" for alias in node.names):
            return finding("K102", f"{ast.unparse(node)} hides where names come from: import the module itself", node)
    return None
