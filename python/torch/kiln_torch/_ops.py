"""torch.ops.kiln: what is shipped, and what is defined on demand."""
from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch

import kiln

from . import _library
from .signature import signature_of

_shipped = _library.shipped()
shipped_names = tuple(_shipped)
for _each in _shipped.values():
    _library.define(_each, "kiln")


class _Variant(NamedTuple):
    """What an op of torch is made of."""

    name: str
    folder: str | None
    words: tuple[tuple[str, str], ...]
    omit: tuple[str, ...]  # sorted
    lengths: tuple[str, ...]
    values: tuple[str, ...] | None

    def known_as(self) -> str:
        """A name that no other variant has, in any process."""
        parts = [self.name, *(f"{word}_{value}" for word, value in self.words), *(f"{each}_on_device" for each in self.lengths)]
        if self.omit:
            parts += ["without", *self.omit]
        if self.values is not None:
            parts += ["with", *(self.values or ("no_values",))]
        known = "_".join(parts)
        if self.folder is None and known not in _shipped:
            return known
        return f"{known}_{hashlib.sha256(repr(tuple(self)).encode()).hexdigest()[:8]}"


_making = threading.Lock()  # also held where gradients are registered
_made: dict[tuple[str, str], tuple[_Variant, Any]] = {}  # by namespace and name
_by_variant: dict[tuple[_Variant, str | None], Any] = {}
_gradients: dict[Any, tuple[Any, Any]] = {}


def ops() -> list[str]:
    """Schemas of the ops that are defined, in the namespace torch.ops.kiln."""
    return [each.schema for each in _shipped.values()] + [str(each._schema) for _, each in list(_made.values())]


def op(name: str, *, folder: str | os.PathLike[str] | None = None, torch_name: str | None = None, omit: Iterable[str] = (), lengths: Iterable[str] = (),
       values: Iterable[str] | None = None, **words: str) -> Any:
    """The op of torch for an op of Kiln with these choices, made of its manifest; the same arguments give the same op, also in two threads at once.
    Raises kiln.Error for a choice or a name that the op does not have.

    words: choices, and types that no tensor shows, such as layout="nn" or out="f32". omit: optional tensors to do without. lengths: axes
    with a tensor of one i32 in device memory as their length, which the op reads when it runs. values: the run-time values that are arguments; all unless given.

    Its arguments and results are those of its `_schema`. It has no gradient: torch.library.register_autograd adds one. Reads the manifest, for which
    a GPU and its driver must be there. torch_name: its name in torch.ops, which is made of the arguments unless given.
    """
    for argument, given in (("omit", omit), ("lengths", lengths), ("values", values)):
        if isinstance(given, str):
            raise kiln.Error(f"kiln.torch.op: {argument} is the string {given!r}, expected a tuple of names, such as ({given!r},)")
    variant = _Variant(name, None if folder is None else os.path.abspath(folder), tuple(sorted(words.items())), tuple(sorted(set(omit))), tuple(lengths),
                       None if values is None else tuple(values))
    found = _by_variant.get((variant, torch_name))
    if found is None:
        with _making:
            found = _by_variant[variant, torch_name] = _find_or_make(variant, torch_name)
    return found


def _find_or_make(variant: _Variant, torch_name: str | None) -> Any:
    space = "kiln" if variant.folder is None else "kiln_user"
    known = torch_name or variant.known_as()
    other, found = _made.get((space, known), (None, None))
    if other == variant:
        return found
    description = kiln.op(variant.name, folder=variant.folder).describe()
    try:
        signature = signature_of(description, known, dict(variant.words), omit=variant.omit, lengths=variant.lengths, values=variant.values)
    except ValueError as error:
        raise kiln.Error(str(error)) from None
    if other is not None or space == "kiln" and known in _shipped:
        raise kiln.Error(f"kiln.torch: torch.ops.{space}.{known} is {_told(other) if other else 'shipped'}, and {_told(variant)} is asked for under that "
                         "name; give another torch_name")
    made = _library.define(signature, space, variant.folder or "")
    _made[space, known] = variant, made
    return made


def _told(variant: _Variant) -> str:
    given = {**dict(variant.words), "omit": variant.omit or None, "lengths": variant.lengths or None, "values": variant.values, "folder": variant.folder}
    return f"{variant.name}({', '.join(f'{name}={value!r}' for name, value in given.items() if value is not None)})"


def register(folder: str | os.PathLike[str], name: str, backward: Callable[..., Any] | None = None, setup_context: Callable[..., Any] | None = None,
             **words: Any) -> Any:
    """The op of torch for the user's op `name` in `folder`, from its manifest: schema, kernel and fake. It is torch.ops.kiln_user.NAME, and what
    this returns.

    backward, setup_context: its gradient, as torch.library.register_autograd takes them, once. words: as op() takes them.
    """
    made = op(name, folder=folder, torch_name=words.pop("torch_name", name), **words)
    if backward is not None:
        with _making:
            if made not in _gradients:
                torch.library.register_autograd(made, backward, setup_context=setup_context)
                _gradients[made] = backward, setup_context
            elif _gradients[made] != (backward, setup_context):
                raise kiln.Error(f"kiln.torch.register: {made} has another backward already, which torch keeps as long as the process; give another torch_name")
    return made
