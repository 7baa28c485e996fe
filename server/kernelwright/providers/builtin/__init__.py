"""The built-in generator: needs no model and no key. Graph → values → kernels → text; see `provider`."""

from kernelwright.providers.builtin.provider import BuiltinProvider

__all__ = ["BuiltinProvider"]
