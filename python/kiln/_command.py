"""The command `kiln`, which lies in this package with its worker beside it."""
import os
import sys

from . import _kiln


def main() -> None:
    # Beside what was built: after `pip install -e` this source lies elsewhere.
    program = os.path.join(os.path.dirname(os.path.abspath(_kiln.__file__)), "kiln")
    try:
        os.execv(program, [program, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"the command of the package kiln-kernels at {program} could not be run: {error.strerror}; reinstall kiln-kernels")
