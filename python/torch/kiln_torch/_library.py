"""The ops as torch knows them: their library, and for each its schema, its kernel and its fake."""
from __future__ import annotations

import ctypes
import json
import os
import pathlib
import sys
from typing import Any

import torch

import kiln
from kiln import _kiln

from .fakes import fake_of
from .signature import Signature

HERE = pathlib.Path(__file__).resolve().parent


def _open() -> ctypes.CDLL:
    folders = map(pathlib.Path, sys.modules[__package__].__path__)  # two, where an editable install leaves the sources where they are
    own = next((each for each in (folder / "libkiln_torch.so" for folder in folders) if each.exists()), HERE / "libkiln_torch.so")
    path = os.environ.get("KILN_TORCH_LIBRARY") or str(own)
    torch.ops.load_library(path)
    library = ctypes.CDLL(path)
    for function in (library.kiln_torch_install, library.kiln_torch_define):
        function.restype = ctypes.c_char_p
    _told(library.kiln_torch_install(ctypes.c_void_p(_kiln.table)))
    return library


def _told(failure: bytes | None) -> None:
    if failure is not None:
        raise kiln.Error(failure.decode())


_opened: ctypes.CDLL | None = None


def define(signature: Signature, space: str, folder: str = "") -> Any:
    """The op of torch, such as torch.ops.kiln.rms_norm.default. The same name twice is an error of torch."""
    global _opened
    if _opened is None:
        _opened = _open()
    texts = (space, signature.name, signature.schema, signature.spec(folder))
    _told(_opened.kiln_torch_define(*(ctypes.c_char_p(each.encode()) for each in texts)))
    torch.library.register_fake(f"{space}::{signature.name}", fake_of(signature))
    changed = {at: each.name for at, each in enumerate(signature.arguments) if each.mutated}
    if changed:
        _count_versions(space, signature.name, changed)
    return getattr(getattr(torch.ops, space), signature.name).default


_counted: list[torch.library.Library] = []  # a Library takes its kernels with it


def _count_versions(space: str, name: str, changed: dict[int, str]) -> None:
    """Has torch know what the op writes to: a backward that saved it raises, as after torch's own in-place ops. The op has no gradient, so an argument
    that requires one is refused."""

    def run(keys: Any, *given: Any, **named: Any) -> Any:
        tensors = [(argument, each) for at, argument in changed.items() if (each := named.get(argument, given[at] if at < len(given) else None)) is not None]
        for argument, tensor in tensors:
            if tensor.requires_grad and torch.is_grad_enabled():
                raise RuntimeError(f"{space}::{name}: {argument} requires a gradient, and this op changes it without one; detach it, or call the op under "
                                   "torch.no_grad()")
        for _, tensor in tensors:
            torch.autograd.graph.increment_version(tensor)
        return made.redispatch(keys & torch._C._after_ADInplaceOrView_keyset, *given, **named)

    made = getattr(getattr(torch.ops, space), name).default
    _counted.append(library := torch.library.Library(space, "FRAGMENT"))
    library.impl(name, run, "ADInplaceOrView", with_keyset=True)


def shipped() -> dict[str, Signature]:
    return {each["name"]: Signature.of_json(each) for each in json.loads((HERE / "signatures.json").read_text())}
