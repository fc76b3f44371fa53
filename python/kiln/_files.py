"""Files that come with the package, and files that it writes."""
from __future__ import annotations

import os

from . import _kiln

# Beside what was built: after `pip install -e` this source lies elsewhere. The command looks there too.
_SHARE = os.path.join(os.path.dirname(os.path.abspath(_kiln.__file__)), "share", "kiln")


def shipped_records() -> list[str]:
    """Paths of the tuning records that come with this package, a file for each kind of GPU: h100.kiln and h200.kiln. They hold no machine code.

    A service passes them to configure(bases=...), after its own files. A record serves its own kind of GPU, and is a fallback for others like it."""
    return [os.path.join(_SHARE, name) for name in sorted(os.listdir(_SHARE)) if name.endswith(".kiln")]


def or_shipped(name: str) -> str:
    """`name` as it stands; or, where it is a bare name and no such file is here, the shipped records of that name, if there are any."""
    shipped = os.path.join(_SHARE, name)
    return shipped if name and not os.path.dirname(name) and not os.path.exists(name) and os.path.isfile(shipped) else name


def replace(path: str, text: str) -> None:
    """By a file beside it, so that a reader finds the file before or this one, whole. A device or a pipe is written to, and so is what a link points to."""
    if os.path.exists(path) and not os.path.isfile(path):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return
    path = os.path.realpath(path)
    beside = f"{path}.{os.getpid()}.{os.urandom(4).hex()}"
    try:
        with open(beside, "x", encoding="utf-8") as file:
            file.write(text)
        os.replace(beside, path)
    except OSError as error:
        if os.path.exists(beside):
            os.unlink(beside)
        raise OSError(error.errno, error.strerror, path) from None
