"""Kernelwright: checked and timed Triton kernels for PyTorch functions.

This package root stays empty on purpose: workers import `kernelwright.worker` in the user's interpreter, where none of
the server's libraries need exist.
"""

__version__ = "0.1.0"
