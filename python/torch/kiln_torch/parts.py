"""The parts of Hugging Face's Llama and Qwen models, computed by Kiln's ops: classes that take the place of transformers' own.

A part calls its projections as torch would, so that hooks, adapters, pruning, parametrizations and sharding stay what they are. Where a module has none
of these (`is_bare`), its product takes the residual with it.
"""
from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.nn.modules.module import _has_any_global_hook as has_global_hook

from .huggingface import attend
from .functions import linear, rms_norm, rotary, swiglu

_PLAIN = {nn.Parameter, Tensor, FakeTensor, FunctionalTensor}
BARE: set[type] = set()  # classes that patch() gives to modules
SILU: set[type] = {nn.SiLU}  # and transformers' own, once patch() knows it


def is_bare(module: nn.Module, classes: set[type] = BARE) -> bool:
    """Whether a call is its class's forward and no more: it has no hooks, no forward of its own, and no class that came over it since."""
    own = module.__dict__
    if own["_forward_hooks"] or own["_forward_pre_hooks"] or own["_backward_hooks"] or own["_backward_pre_hooks"]:
        return False
    return type(module) in classes and "forward" not in own and not has_global_hook()


def _product_type(x: Tensor) -> torch.dtype:
    return torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") and x.dtype != torch.float64 else x.dtype


class KilnLinear(nn.Linear):
    """Weights of classes beside torch's own, such as quantised and distributed ones, are left to torch."""

    def forward(self, input: Tensor, residual: Tensor | None = None) -> Tensor:
        weight = self.weight
        if type(weight) in _PLAIN:
            return linear(input, weight, self.bias, residual=residual)
        y = super().forward(input)
        return y if residual is None else residual + y


BARE.add(KilnLinear)


class RmsNorm(nn.Module):
    def forward(self, hidden_states: Tensor, residual: Tensor | None = None) -> Any:
        return rms_norm(hidden_states, self.weight, self.variance_epsilon, residual)


class Rotary(nn.Module):
    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return _tables(*super().forward(x.new_empty(0, dtype=torch.float32), position_ids), x.shape[0])


def _tables(cos: Tensor, sin: Tensor, batch: int) -> tuple[Tensor, Tensor, Tensor]:
    """Of f32 with half of the columns, and for each token its row."""
    rows, tokens, dim = cos.shape
    halves = (each[..., : dim // 2].reshape(rows * tokens, dim // 2).float() for each in (cos, sin))
    positions = torch.arange(rows * tokens, dtype=torch.int32, device=cos.device).view(rows, tokens).expand(batch, tokens)
    return (*halves, positions.contiguous())


class Mlp(nn.Module):
    def _kiln_gated(self, x: Tensor) -> Tensor:
        gate, up = self.gate_proj(x), self.up_proj(x)
        return swiglu(gate, up) if is_bare(self.act_fn, SILU) else self.act_fn(gate) * up

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        y, down = self._kiln_gated(x), self.down_proj
        if residual is None:
            return down(y)
        if residual.dtype == _product_type(y) and is_bare(down):
            return down.forward(y, residual)
        return residual + down(y)


class Attention(nn.Module):
    _kiln_attend = staticmethod(attend)
    _kiln_cache = "past_key_values"  # what this release of transformers calls the cache

    def _kiln_project(self, x: Tensor, tables: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, ...]:
        """Query and key, turned, and value: [batch, tokens, heads, dim]."""
        q, k, v = (each(x).unflatten(-1, (-1, self.head_dim)) for each in (self.q_proj, self.k_proj, self.v_proj))
        if hasattr(self, "q_norm"):
            q, k = self.q_norm(q), self.k_norm(k)
        return rotary(q, *tables), rotary(k, *tables), v

    def forward(self, hidden_states: Tensor, position_embeddings: tuple[Tensor, ...], attention_mask: Tensor | None = None,
                past_key_values: Any = None, **others: Any) -> tuple[Tensor, Any]:
        cache, named_for_cache = past_key_values, {}
        if self._kiln_cache == "cache":  # of releases from 5.24 on, in which a cache may change the arguments of attention
            given = others.pop("cache", None)
            cache, named_for_cache = given if cache is None else cache, {"kwargs": others}
        if len(position_embeddings) == 2:  # of a rotary embedding that was not patched
            position_embeddings = _tables(*position_embeddings, hidden_states.shape[0])
        q, k, v = (each.transpose(1, 2) for each in self._kiln_project(hidden_states, position_embeddings))
        if cache is not None:
            k, v = cache.update(k, v, self.layer_idx, **named_for_cache)
        named = self.config._attn_implementation
        out, weights = (self._kiln_attend if named == "kiln" else self._kiln_other(named))(
            self, q, k, v, attention_mask, dropout=self.attention_dropout if self.training else 0.0, scaling=self.scaling,
            sliding_window=getattr(self, "sliding_window", None), **others)
        return self.o_proj(out.flatten(-2)), weights

    def _kiln_other(self, named: str) -> Any:
        from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

        return ALL_ATTENTION_FUNCTIONS.get_interface(named, sys.modules[self._kiln_own.__module__].eager_attention_forward)


def _by_name(names: tuple[str, ...], given: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
    """Arguments by the names that the release of transformers has. TypeError as Python's own, for one too many and for one given twice."""
    if len(given) > len(names):
        raise TypeError(f"forward() takes {1 + len(names)} positional arguments at most, and {1 + len(given)} were given")
    by_position = dict(zip(names, given))
    for name in by_position:
        if name in named:
            raise TypeError(f"forward() got multiple values for argument '{name}'")
    return {**by_position, **named}


class DecoderLayer(nn.Module):
    _kiln_positional: tuple[str, ...] = ()  # names of the arguments after hidden_states, in the order of this release of transformers

    def forward(self, hidden_states: Tensor, *given: Any, **others: Any) -> Tensor:
        if given:
            others = _by_name(self._kiln_positional, given, others)
        y, _ = self.self_attn(hidden_states=self.input_layernorm(hidden_states), **others)
        norm, mlp = self.post_attention_layernorm, self.mlp
        if y.dtype == hidden_states.dtype and is_bare(norm):
            y, residual = norm.forward(y, hidden_states)
        else:
            residual = hidden_states + y
            y = norm(residual)
        return mlp.forward(y, residual) if is_bare(mlp) else residual + mlp(y)
