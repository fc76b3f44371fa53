"""What happens once, before the first engine is made."""
from __future__ import annotations

import atexit
import logging
import os
from collections.abc import Callable
from importlib.metadata import entry_points


def begin(end: Callable[[], None]) -> list[str]:
    """Has `end` called when the interpreter ends. Gives the tuned files of installed packages."""
    atexit.register(end)
    files: list[str] = []
    for each in sorted(entry_points(group="kiln.bases"), key=lambda found: (found.name, found.value)):
        try:
            files += _files_of(each.load())
        except Exception as error:  # of somebody else's package, without which launches still work
            logging.getLogger("kiln").warning("the entry point %s = %s of kiln.bases is passed over: %s", each.name, each.value, error)
    return files


def _files_of(given: object) -> list[str]:
    from . import _path

    if callable(given):
        given = given()
    if isinstance(given, (str, bytes, os.PathLike)):
        given = [given]
    return [_path("a tuned file", each) for each in given]  # type: ignore[attr-defined]
