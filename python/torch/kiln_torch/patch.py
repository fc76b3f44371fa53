"""Hugging Face's Llama and Qwen models on Kiln's ops: the classes of their modules are changed for ones that compute the same.

Weights stay what they are, with the same names and shapes. Those of query, key and value lie one after another from then on, and the rows of gate
and up alternate, so that one product has them all. A module that is moved to another device or type does so again.
"""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function

from . import functions
from .attention import huggingface_attention
from .functions import applied, linear, rms_norm, rotary, swiglu

_kiln = torch.ops.kiln
FAMILIES = ("Llama", "Qwen2", "Qwen3")


@applied
class _Joined(Function):
    """A product with several weights that lie one after another in `joined`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, joined: Tensor, bias: Tensor | None, *weights: Tensor) -> Tensor:
        ctx.save_for_backward(x, joined)
        ctx.rows = [each.shape[0] for each in weights]
        return _kiln.linear.default(x, joined, bias)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, joined = ctx.saved_tensors
        dbias = dy.sum(dim=tuple(range(dy.dim() - 1))) if ctx.needs_input_grad[2] else None
        dx = _kiln.matmul_nn.default(dy, joined) if ctx.needs_input_grad[0] else None
        return dx, None, dbias, *_kiln.matmul_tn.default(dy, x).split(ctx.rows)


class _Shares(nn.Module):
    """A module with projections that share memory."""

    def _kiln_share(self) -> None:
        raise NotImplementedError

    def _apply(self, *given: Any, **named: Any) -> Any:
        super()._apply(*given, **named)
        self._kiln_share()
        return self

    def _kiln_check(self, joined: Tensor, weight: Tensor) -> None:
        if not torch.compiler.is_compiling() and joined.data_ptr() != weight.data_ptr():
            raise RuntimeError("weights of a patched model were replaced, not changed in place; call kiln.torch.patch(model) again")


class _RmsNorm(nn.Module):
    def forward(self, hidden_states: Tensor, residual: Tensor | None = None) -> Any:
        return rms_norm(hidden_states, self.weight, self.variance_epsilon, residual)


class _Rotary(nn.Module):
    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Tables of f32 with half of the columns, and for each token its row."""
        cos, sin = super().forward(x.new_empty(0, dtype=torch.float32), position_ids)
        batch, tokens, dim = cos.shape
        rows = torch.arange(batch * tokens, dtype=torch.int32, device=x.device).view(batch, tokens).expand(x.shape[0], tokens)
        return (*(each[..., : dim // 2].reshape(batch * tokens, dim // 2) for each in (cos, sin)), rows.contiguous())


class _Mlp(_Shares):
    def _kiln_share(self) -> None:
        with torch.no_grad():
            joined = torch.stack((self.gate_proj.weight, self.up_proj.weight), 1)
            self.gate_proj.weight.data, self.up_proj.weight.data = joined.unbind(1)
            self._kiln_joined = joined.flatten(0, 1)

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        gate, up = self.gate_proj, self.up_proj
        if functions.needs_gradient(x, gate.weight) or gate.bias is not None:
            y = swiglu(linear(x, gate.weight, gate.bias), linear(x, up.weight, up.bias))
        else:
            self._kiln_check(self._kiln_joined, gate.weight)
            y = linear(x, self._kiln_joined, activation="swiglu")
        return linear(y, self.down_proj.weight, self.down_proj.bias, residual=residual)


class _Attention(_Shares):
    def _kiln_projections(self) -> tuple[nn.Linear, ...]:
        return self.q_proj, self.k_proj, self.v_proj

    def _kiln_share(self) -> None:
        with torch.no_grad():
            projections = self._kiln_projections()
            rows = [each.weight.shape[0] for each in projections]
            self._kiln_joined = torch.cat([each.weight for each in projections])
            for each, part in zip(projections, self._kiln_joined.split(rows)):
                each.weight.data = part

    def _kiln_project(self, x: Tensor, tables: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, ...]:
        """Query and key, turned, and value: [batch, tokens, heads, dim]."""
        projections = self._kiln_projections()
        if hasattr(self, "q_norm"):  # heads are normalised, for which they lie densely
            q, k, v = (linear(x, each.weight, each.bias).unflatten(-1, (-1, self.head_dim)) for each in projections)
            return rotary(self.q_norm(q), *tables), rotary(self.k_norm(k), *tables), v
        weights = [each.weight for each in projections]
        rows = [each.shape[0] for each in weights]
        self._kiln_check(self._kiln_joined, weights[0])
        bias = None if projections[0].bias is None else torch.cat([each.bias for each in projections])
        x, joined, bias = functions.autocast(x, self._kiln_joined, bias)
        if functions.needs_gradient(x, bias, *weights):
            q, k, v = (each.unflatten(-1, (-1, self.head_dim)) for each in _Joined(x, joined, bias, *weights).split(rows, -1))
            return rotary(q, *tables), rotary(k, *tables), v
        heads = _kiln.linear.default(x, joined, bias).unflatten(-1, (-1, self.head_dim))
        q, k, v = (each // self.head_dim for each in rows)
        turned = rotary(heads[..., : q + k, :], *tables)  # in one launch
        return turned[..., :q, :], turned[..., q:, :], heads[..., q + k :, :]

    def forward(self, hidden_states: Tensor, position_embeddings: tuple[Tensor, Tensor, Tensor], attention_mask: Tensor | None = None,
                past_key_values: Any = None, **others: Any) -> tuple[Tensor, Any]:
        from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

        q, k, v = (each.transpose(1, 2) for each in self._kiln_project(hidden_states, position_embeddings))
        if past_key_values is not None:
            if getattr(past_key_values, "is_compileable", False):
                raise ValueError("a patched model has a static cache, whose length its attention is not told; use a DynamicCache")
            k, v = past_key_values.update(k, v, self.layer_idx)
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, huggingface_attention)
        dropout = self.attention_dropout if self.training else 0.0
        out, weights = attend(self, q, k, v, attention_mask, dropout=dropout, scaling=self.scaling,
                              sliding_window=getattr(self, "sliding_window", None), **others)
        return linear(out.flatten(-2), self.o_proj.weight, self.o_proj.bias), weights


class _DecoderLayer(nn.Module):
    def forward(self, hidden_states: Tensor, **others: Any) -> Tensor:
        y, _ = self.self_attn(hidden_states=self.input_layernorm(hidden_states), **others)
        y, residual = self.post_attention_layernorm(y, hidden_states)
        return self.mlp(y, residual)


_PARTS = {"RMSNorm": _RmsNorm, "RotaryEmbedding": _Rotary, "MLP": _Mlp, "Attention": _Attention, "DecoderLayer": _DecoderLayer}
_classes: dict[type, type] = {}


def _is_plain(module: nn.Module) -> bool:
    """Not one of quantised or otherwise replaced projections, nor of another activation."""
    projections = [each for name, each in module.named_children() if name.endswith("_proj")]
    is_silu = not hasattr(module, "act_fn") or isinstance(module.act_fn, nn.SiLU) or type(module.act_fn).__name__ == "SiLUActivation"
    return is_silu and all(type(each) is nn.Linear for each in projections)


def _register() -> None:
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, flash_attention_mask

    AttentionInterface.register("kiln", huggingface_attention)
    AttentionMaskInterface.register("kiln", flash_attention_mask)


def patch(model: nn.Module) -> nn.Module:
    """Has a Hugging Face model of the Llama, Qwen2 or Qwen3 family compute by Kiln, and returns it.

    Norms (with the residual), rotary embeddings, projections (query, key and value in one product), SwiGLU within the product where no gradient is
    wanted, and attention, as attn_implementation "kiln". The head and the embedding stay torch's. Call it before torch.compile, and on the device
    where the model is used or before it goes there.

    Several sequences in one row need cu_seq_lens_q, cu_seq_lens_k and max_length_q, as flash_attention_2's do; position_ids alone do not part them.
    Batches with padding are packed on the way, for which the host waits.
    """
    _register()
    changed = [module for module in model.modules() if _change(module)]
    if not changed:
        raise ValueError(f"kiln.torch.patch: {type(model).__name__} has no part of the families {', '.join(FAMILIES)}")
    if hasattr(model, "set_attn_implementation"):
        model.set_attn_implementation("kiln")
    for module in changed:
        if isinstance(module, _Shares):
            module._kiln_share()
    return model


def _change(module: nn.Module) -> bool:
    own = type(module)
    if own in _classes.values():
        return True
    name = next((own.__name__.removeprefix(family) for family in FAMILIES if own.__name__.startswith(family)), "")
    if name not in _PARTS:
        return False
    if not _is_plain(module):
        raise ValueError(f"kiln.torch.patch: {own.__name__} has projections or an activation of another kind than its family's; patch only plain models")
    if own not in _classes:
        _classes[own] = type(f"Kiln{own.__name__}", (_PARTS[name], own), {})
    module.__class__ = _classes[own]
    return True
