"""argv → serve | generate | verify | profile | analyse | doctor | bench; nothing else."""

import sys


def main() -> int:
    """The `kernelwright` command. Returns the exit status."""
    if sys.argv[1:2] == ["serve"]:
        from kernelwright.lsp.server import serve

        return serve()
    from kernelwright.cli.main import run

    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
