"""The other side: everything that runs in the user's interpreter. Imports nothing of ours outside this package.

Start: `python -X utf8 -c "<bootstrap>" ROLE READ_FD WRITE_FD`, the bootstrap putting the folder that holds `kernelwright`
on `sys.path` for the import of `kernelwright.worker.main` and taking it (and the current folder) off again afterwards.
ROLE is `reference`, `candidate` (a zygote under TRITON_INTERPRET=1, or on CUDA without it) or `compile` (a zygote without
the interpreter, whose driver is a stub that compiles for a named architecture).

Messages are one JSON object a line on the two private descriptors:
    request  {"id": 7, "op": "trace", ...}
    reply    {"id": 7, "ok": true, "result": {...}} | {"id": 7, "ok": false, "error": {"type": "BadInputs", "message": "..."}}
    event    {"id": 7, "event": {...}}                       any number, before the reply
A worker's fd 0 is /dev/null, its 1 and 2 go to a log file. It exits at end of input and when its parent dies.
`error.type` names a class of kernelwright.errors, or is "Internal" with a traceback in `message`.

reference
    load    {path, text, qualname, inputs: {origin, spec, literal}, root}   → {calls: [Call]}
            `literal` is the parsed form of a literal spec: [{"name": "x", "tensor": {"dtype", "shape"}} | {"name", "value"}]
    trace   {}                                                              → {graphs: [Graph]}
    make    {folder, cases: [Case]}      → {made: [{"folder": ...} | {"not_applicable": reason, "exception": name}]}
    judge   {cases: [{"case": Case, "folder": ...}]}
            → {judged: [{"agreed": {error, limit}} | {"disagreed": {finding, counterexample}} | {"not_applicable": ...}]}
    hardware {}                                                             → Hardware
candidate, compile
    api     {}                                                              → {version, modules: {module: [names]}}
    run     {source, entry, folders: [...], limit_s, sanitize}
            → {runs: [{"seconds", "findings": [Finding]} | {"crashed": Finding}]}
    compile {source, entry, folders, architectures, limit_s}                → {findings: [Finding]}
Call, Graph, Case, Finding, Counterexample and Hardware are the dataclasses of kernelwright.model as JSON objects.

A case folder holds `call.json` and one `NAME.bin` a storage:
    {"args": [tree], "kwargs": {name: tree}, "self": tree | null, "method": "function|method|staticmethod|classmethod",
     "is_async": false}
    tree: {"tensor": {"storage": "in0.bin", "dtype", "shape", "strides", "offset", "parameter": bool, "requires_grad"}}
          | {"list": [tree]} | {"tuple": [tree]} | {"dict": {key: tree}} | {"object": {attribute: tree}} | {"value": json}
          | {"dtype": "int8"} | {"device": "cpu"} | {"float": "inf" | "-inf" | "nan"}
The candidate maps each input storage shared, so a write to an input shows in the file itself; the reference worker keeps
its own copy and compares. The candidate's process writes `outputs.json` = {"nonce": ..., "output": tree} with storages
`outN.bin`; a tensor that is an argument itself is written out like any other.
"""
