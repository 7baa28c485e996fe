"""The language server on standard input and output: the only importer of pygls. Never imports torch or the user's code.

A message comes in at `server`, a handler in `features/` looks things up (`documents`, `proposals`, `refusals`), calls the
core, and `convert` turns the answer into LSP's types. Long work is an async custom request, so that it can be cancelled.
"""
