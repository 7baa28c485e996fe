"""One feature of the protocol a module, each with `register(server)`. Handlers look up, call and convert."""
