"""The extension, or why it cannot be imported; and what stays when the package is imported again."""
from __future__ import annotations

import os

try:
    from . import _kiln
except ImportError as error:
    if error.name != __package__:  # the extension is there; what it needs is not, and the sentence says what
        raise ImportError(f"the package kiln-kernels cannot load its extension: {error}", name="kiln._kiln", path=error.path) from None
    raise ImportError(
        f"kiln was imported from {os.path.dirname(__file__)}, which has no extension for this Python; install the package with pip,"
        " unpacked, and import it from outside of its sources", name="kiln._kiln") from None

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeVar

    Class = TypeVar("Class", bound=type)


def kept(made: Class) -> Class:
    """The first class of its name in this process: objects and `except` clauses from before a reload stay valid."""
    first: Class = _kiln.kept.setdefault(made.__name__, made)
    return first
