"""`python -m kernelwright.worker.dump FILE::QUALNAME [--inputs PATH:FUNC|LITERAL] [--dtype D]`: calls and graphs as JSON.

For people who work on providers: what the reference worker would say, without its protocol.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
from pathlib import Path

from kernelwright.worker.reference import Reference
from kernelwright.worker.wire import Json

_SHORT = {"bf16": "bfloat16", "f16": "float16", "f32": "float32", "i32": "int32", "i64": "int64"}


def describe_inputs(spec: str) -> Json:
    """The `inputs` of a load request."""
    tensors = re.findall(r"([\w.]+)\s*:\s*(\w+)\[([\d, ]*)\]", spec)
    if not tensors and "=" not in spec:
        return {"origin": "file", "spec": spec}
    literal: list[Json] = [
        {
            "name": name,
            "tensor": {"dtype": _SHORT.get(dtype, dtype), "shape": [int(n) for n in dims.split(",") if n.strip()]},
        }
        for name, dtype, dims in tensors
    ]
    for name, value in re.findall(r"([\w.]+)\s*=\s*([^,\]]+)", spec):
        literal.append({"name": name, "value": ast.literal_eval(value.strip())})
    return {"origin": "literal", "spec": spec, "literal": literal}


def main() -> int:
    """Print {"calls": [...], "graphs": [...]}."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", help="FILE::QUALNAME")
    parser.add_argument("--inputs", help="PATH:FUNC or x: bfloat16[8, 64], eps=1e-6; left out: make_inputs of FILE")
    parser.add_argument("--dtype", help="the dtype that FUNC is called with")
    options = parser.parse_args()
    path_text, _, qualname = options.target.partition("::")
    path = Path(path_text).resolve()
    spec = options.inputs or f"{path}:make_inputs"
    reference = Reference()
    loaded = reference.load(
        {
            "path": str(path),
            "text": path.read_text(encoding="utf-8"),
            "qualname": qualname,
            "inputs": describe_inputs(spec),
            "root": str(path.parent),
            "dtype": options.dtype,
        },
        lambda event: None,
    )
    graphs = reference.trace({}, lambda event: None)["graphs"]
    print(json.dumps({"calls": loaded["calls"], "graphs": graphs}, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
