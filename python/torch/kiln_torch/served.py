"""Parts of a model that serves: query, key and value are one product, and so are gate, up and SwiGLU.

The joined weights are the parameters' memory: those of query, key and value lie one after another, and the rows of gate and up alternate. Each call asks
whether that is so still, and whether a module has got hooks or an adapter; then the products are separate. Gradients of inputs take these too.
"""
from __future__ import annotations

import weakref
from typing import Any, NamedTuple

import torch
from torch import Tensor, is_grad_enabled, nn
from torch.compiler import is_compiling
from torch.utils.weak import WeakTensorKeyDictionary

from . import functions
from .functions import linear, rotary
from .parts import SILU, Attention, Mlp, is_bare

_kiln = torch.ops.kiln
_holders = WeakTensorKeyDictionary()  # by parameter: a weak reference to the part whose joined weight it lies in


class _Place(NamedTuple):
    """Where a parameter lies, and as what: another view of its memory has the same address. The device is the address's."""

    name: str  # of the projection
    kind: str  # "weight" or "bias"
    parameter: Tensor
    address: int
    shape: torch.Size
    strides: tuple[int, ...]
    dtype: torch.dtype


def _is_at(place: _Place, found: Tensor | None) -> bool:
    """Whether `found` is this part of the joined weight. Compiled code has no addresses, and asks for the same parameter."""
    _, _, parameter, address, shape, strides, dtype = place
    if is_compiling():
        return found is parameter and found.shape == shape and found.stride() == strides and found.dtype == dtype
    try:
        return found is not None and found.data_ptr() == address and found.shape == shape and found.stride() == strides and found.dtype == dtype
    except RuntimeError:  # of a transform of torch.func, which gives such tensors no memory of their own
        return False


class Served(nn.Module):
    _kiln_joined: Tensor | None = None
    _kiln_bias: Tensor | None = None
    _kiln_places: tuple[_Place, ...] = ()
    _kiln_names: tuple[str, ...] = ()

    def _kiln_join(self, weights: list[Tensor]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The joined weight, and the parts of it that are the given ones."""
        raise NotImplementedError

    def _kiln_one_product(self, x: Tensor) -> bool:
        if self._kiln_joined is None:
            return False
        modules = self._modules
        if is_grad_enabled():
            for place in self._kiln_places:
                found = modules[place.name]._parameters.get(place.kind, place.parameter)
                if found is not None and found.requires_grad and _is_at(place, found):
                    raise RuntimeError(f"the {place.kind} of {place.name} requires a gradient in a model patched for inference; call "
                                       "kiln.torch.patch(model) to train it")
            if x.requires_grad:
                return False
        for name in self._kiln_names:
            if not is_bare(modules[name]):
                return False
        for place in self._kiln_places:
            if not _is_at(place, modules[place.name]._parameters.get(place.kind)):
                return False
        return True

    def _kiln_is_shared(self) -> bool:
        return self._kiln_joined is not None and all(_is_at(each, self._modules[each.name]._parameters.get(each.kind)) for each in self._kiln_places)

    def _kiln_share(self) -> None:
        """Joins the weights, unless they are joined. Where they cannot be, products are separate."""
        if self._kiln_is_shared():
            return
        self._kiln_forget()
        projections = [self._modules[name] for name in self._kiln_names]
        weights, biases = ([each._parameters.get(kind) for each in projections] for kind in ("weight", "bias"))
        has_biases = any(each is not None for each in biases)
        if has_biases and isinstance(self, Mlp):
            return
        found = weights + biases if has_biases else weights
        if any(type(each) is not nn.Parameter for each in found) or len({(each.dtype, each.device) for each in found}) > 1:
            return
        if len({id(each) for each in found}) < len(found):  # a weight of two projections has one place in memory
            return
        if any(each in _holders and _holders[each]() not in (None, self) for each in found):  # nor can it lie in the joined weights of two parts
            return
        with torch.no_grad():
            joined, parts = self._kiln_join(weights)
            bias = torch.cat(biases) if has_biases else None
            for parameter, part in zip(found, (*parts, *(bias.split([len(each) for each in biases]) if has_biases else ()))):
                parameter.data = part
        kinds = ("weight", "bias") if has_biases else ("weight",)
        self._kiln_places = tuple(_Place(name, kind, each, each.data_ptr(), each.shape, each.stride(), each.dtype)
                                  for (kind, name), each in zip([(kind, name) for kind in kinds for name in self._kiln_names], found))
        self._kiln_joined, self._kiln_bias = joined, bias
        for each in found:
            _holders[each] = weakref.ref(self)

    def _kiln_forget(self) -> None:
        for each in self._kiln_places:
            _holders.pop(each.parameter, None)
        for name in ("_kiln_joined", "_kiln_bias", "_kiln_places"):
            self.__dict__.pop(name, None)

    def _kiln_part(self) -> None:
        """Gives each weight memory of its own again."""
        for place in self._kiln_places:
            for each in (place.parameter, self._modules[place.name]._parameters.get(place.kind)):  # an adapter or pruning keeps the parameter elsewhere
                if each is not None and each.data_ptr() == place.address:
                    each.data = each.data.clone(memory_format=torch.contiguous_format)
        self._kiln_forget()

    def _apply(self, *given: Any, **named: Any) -> Any:
        super()._apply(*given, **named)
        self._kiln_share()
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {name: each for name, each in self.__dict__.items() if name not in ("_kiln_joined", "_kiln_bias", "_kiln_places")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._kiln_share()

    def state_dict(self, *given: Any, **named: Any) -> Any:
        """Copies of the joined weights, dense and with memory of their own, as files want them: safetensors refuses rows of gate and up as they lie. Writes
        to the copies are lost."""
        state = super().state_dict(*given, **named)
        if not named.get("keep_vars", False):
            prefix, joined = named.get("prefix", given[1] if len(given) > 1 else ""), {each.address for each in self._kiln_places}
            for key, each in state.items():
                if key.startswith(prefix) and type(each) in (Tensor, nn.Parameter) and each.data_ptr() in joined:
                    state[key] = each.clone(memory_format=torch.contiguous_format)
        return state


def share_after_load(module: Served, _: Any) -> None:
    """A hook for load_state_dict, which replaces parameters if assign=True."""
    module._kiln_share()


class ServedMlp(Served, Mlp):
    _kiln_names = ("gate_proj", "up_proj")

    def _kiln_join(self, weights: list[Tensor]) -> tuple[Tensor, tuple[Tensor, ...]]:
        both = torch.stack(weights, 1)
        return both.flatten(0, 1), both.unbind(1)

    def _kiln_gated(self, x: Tensor) -> Tensor:
        if is_bare(self.act_fn, SILU) and self._kiln_one_product(x):
            return linear(x, self._kiln_joined, activation="swiglu")
        return super()._kiln_gated(x)


class ServedAttention(Served, Attention):
    _kiln_names = ("q_proj", "k_proj", "v_proj")

    def _kiln_join(self, weights: list[Tensor]) -> tuple[Tensor, tuple[Tensor, ...]]:
        joined = torch.cat(weights)
        return joined, joined.split([each.shape[0] for each in weights])

    def _kiln_project(self, x: Tensor, tables: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, ...]:
        if not self._kiln_one_product(x):
            return super()._kiln_project(x, tables)
        x, joined, bias = functions.autocast(x, self._kiln_joined, self._kiln_bias)
        heads = _kiln.linear.default(x, joined, bias).unflatten(-1, (-1, self.head_dim))
        q, k = (each.shape[0] // self.head_dim for each in self._kiln_places[:2])
        turned = rotary(heads[..., : q + k, :], *tables)  # in one launch
        return turned[..., :q, :], turned[..., q:, :], heads[..., q + k :, :]
