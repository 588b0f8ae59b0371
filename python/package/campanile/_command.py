"""The `campanile` command."""

import sys

from . import _native


def main() -> int:
    """Carry out the command line of this process, as the command that cargo builds does."""
    return _native.main(sys.argv)
