"""torch.ops.kiln: what is shipped, and what is defined on demand."""
from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable
from typing import Any

import torch

import kiln

from . import _library
from .signature import signature_of

_shipped = _library.shipped()
for _each in _shipped.values():
    _library.define(_each, "kiln")
_made: dict[tuple[Any, ...], Any] = {}


def ops() -> list[str]:
    """Schemas of the ops that are defined, in the namespace torch.ops.kiln."""
    return [each.schema for each in _shipped.values()] + [str(each._schema) for each in _made.values()]


def op(name: str, *, folder: str | os.PathLike[str] | None = None, torch_name: str | None = None, omit: Iterable[str] = (), lengths: Iterable[str] = (),
       values: Iterable[str] | None = None, **words: str) -> Any:
    """The op of torch for an op of Kiln with these choices, made of its manifest; the same arguments give the same op.

    words: choices, and types that no tensor shows, such as layout="nn" or out="f32". omit: optional tensors to do without. lengths: axes
    with a tensor of one i32 in device memory as their length, which the op reads when it runs. values: the run-time values that are arguments; all unless given.

    Its arguments and results are those of its `_schema`. It has no gradient: torch.library.register_autograd adds one. Reads the manifest, for which
    a GPU and its driver must be there.
    """
    key = (name, torch_name, None if folder is None else os.path.abspath(folder), tuple(sorted(words.items())), tuple(omit), tuple(lengths),
           None if values is None else tuple(values))
    if key not in _made:
        path, without, on_device = key[2], key[4], key[5]
        description = kiln.op(name, folder=folder).describe()
        space = "kiln" if folder is None else "kiln_user"
        known = torch_name or "_".join([name, *words.values(), *(f"{each}_on_device" for each in on_device)])
        if torch_name is None and (folder is not None or known in _shipped):
            known += "_" + hashlib.sha256(repr(key).encode()).hexdigest()[:8]
        try:
            signature = signature_of(description, known, words, omit=without, lengths=on_device, values=values)
        except ValueError as error:
            raise kiln.Error(str(error)) from None
        _made[key] = _library.define(signature, space, path or "")
    return _made[key]


def register(folder: str | os.PathLike[str], name: str, backward: Callable[..., Any] | None = None, setup_context: Callable[..., Any] | None = None,
             **words: Any) -> Any:
    """The op of torch for the user's op `name` in `folder`, from its manifest: schema, kernel and fake. It is torch.ops.kiln_user.NAME, and what
    this returns.

    backward, setup_context: its gradient, as torch.library.register_autograd takes them. words: as op() takes them.
    """
    made = op(name, folder=folder, torch_name=words.pop("torch_name", name), **words)
    if backward is not None:
        torch.library.register_autograd(made, backward, setup_context=setup_context)
    return made
