"""Attention of many queries, dense or packed, with gradients; over a cache, without."""
from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function

from ._ops import shipped_names
from .autograd import applied, needs_gradient, refuse_gradient
from .functions import autocast

_OPS = {name: getattr(torch.ops.kiln, name).default for name in shipped_names if name.startswith("attention_")}

def _op(layout: str, mask: str, softcap: float | None, sinks: Tensor | None, ending: str = "") -> Any:
    extra = "_sinks" if sinks is not None else "_softcap" if softcap is not None else ""
    return _OPS[f"attention_{layout}{mask}{extra}{ending}"]


def _mask(causal: bool, window: Any) -> str:
    return "_window" if window is not None else "_causal" if causal else ""


def _sinks(function: str, softcap: float | None, sinks: Tensor | None) -> Tensor | None:
    """Sinks as ops take them, once both values are checked."""
    if softcap is None and sinks is None:
        return None
    if isinstance(softcap, Tensor):
        raise ValueError(f"kiln.torch.{function}: softcap is a tensor, expected a number, since it has no gradient; use softcap.item()")
    if softcap is not None and softcap <= 0:
        raise ValueError(f"kiln.torch.{function}: softcap is {softcap}, expected a number above 0, or None for no soft cap")
    if sinks is not None and not isinstance(sinks, Tensor):
        raise ValueError(f"kiln.torch.{function}: sinks is a {type(sinks).__name__}, expected a tensor of one number a head")
    if softcap is not None and sinks is not None:
        raise ValueError(f"kiln.torch.{function}: both softcap and sinks are given, expected one of them; kiln.torch.op() makes an op that has both")
    return None if sinks is None else sinks.float()


def _without_gradient(function: str, *tensors: Tensor | None) -> None:
    if needs_gradient(*tensors):
        raise RuntimeError(f"kiln.torch.{function}: a tensor requires a gradient, and this function has none; call it under torch.no_grad(), or detach the "
                           "tensors")


def _left(function: str, window: int | tuple[int | None, int] | None) -> int | None:
    """How many keys before its own a query sees; None: all."""
    left, right = window if isinstance(window, (tuple, list)) else (window, 0)
    if right != 0:
        raise ValueError(f"kiln.torch.{function}: the window is ({left}, {right}), expected (left, 0): no query sees keys after its own")
    return left


class _Form(NamedTuple):
    """What is computed, beside tensors."""

    causal: bool
    window: tuple[int | None, ...] | None  # left and right; over a cache left alone
    softcap: float | None
    scale: float | None

    def values(self) -> tuple[Any, ...]:
        return self.scale, *(() if self.softcap is None else (self.softcap,)), *(self.window or ())


def _run(q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, offsets: tuple[Tensor, ...], form: _Form, longest: Any) -> tuple[Tensor, Tensor]:
    run = _op("packed" if offsets else "dense", _mask(form.causal, form.window), form.softcap, sinks)
    return run(q, k, v, *(() if sinks is None else (sinks,)), *offsets, *form.values(), *((longest,) if offsets else ()))


@applied
class _Attention(Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, query_offsets: Any, key_offsets: Any, form: _Form,
                longest: Any) -> tuple[Tensor, Tensor]:
        offsets = () if query_offsets is None else (query_offsets, key_offsets)
        out, lse = _run(q, k, v, sinks, offsets, form, longest)
        ctx.save_for_backward(q, k, v, out, lse, *(() if sinks is None else (sinks,)), *offsets)
        ctx.form, ctx.has_sinks = form, sinks is not None
        ctx.mark_non_differentiable(lse)
        return out, lse

    @staticmethod
    def backward(ctx: Any, dout: Tensor, _: Any) -> tuple[Any, ...]:
        q, k, v, out, lse, *more = ctx.saved_tensors
        sinks, form = more[0] if ctx.has_sinks else None, ctx.form
        layout = "packed" if len(more) > ctx.has_sinks else "dense"
        ending = "_backward_deterministic" if torch.are_deterministic_algorithms_enabled() else "_backward"
        found = _op(layout, _mask(form.causal, form.window), form.softcap, sinks, ending)(q, k, v, out, lse, dout, *more, *form.values())
        return *found, *(() if ctx.has_sinks else (None,)), None, None, None, None


def attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, window: int | tuple[int | None, int] | None = None, scale: float | None = None,
              softcap: float | None = None, sinks: Tensor | None = None, query_offsets: Tensor | None = None, key_offsets: Tensor | None = None,
              longest_query: int | None = None, return_lse: bool = False) -> Any:
    """softmax(scale * q k^T) v, head by head; scale is 1 / sqrt(head_dim) unless given.

    q is [batch, queries, heads, head_dim], k [batch, keys, key_heads, head_dim], v [batch, keys, key_heads, value_dim]; heads may share keys.
    Packed: with offsets, i32 [batch + 1], tensors are [tokens, heads, dim], and sequence i has rows offsets[i] to offsets[i + 1]. Rows past the last
    offset are undefined. key_offsets are query_offsets unless given; longest_query, at least that of any sequence, saves work.

    causal: the last query sees all keys, the one before all but one. window: (left, right) keys beside that diagonal, or left
    alone; a left of None is all. causal changes nothing beside a window.
    softcap: scores are softcap * tanh(score / softcap), as in Gemma 2. sinks: [heads], a score a head that takes weight and has no value, as in gpt-oss.
    It counts in the log-sum-exp, and has a gradient. ValueError where both are given.
    return_lse: (out, log-sum-exp of each row, f32 [batch, heads, queries]), the second without gradient.

    The backward gives the same bits each time where torch.use_deterministic_algorithms() is on, also by warn_only.
    """
    if scale is not None:
        refuse_gradient("attention", scale=scale)
    q, k, v = autocast(q, k, v)
    window = (window, 0) if isinstance(window, int) else window
    sinks, form = _sinks("attention", softcap, sinks), _Form(causal, window, softcap, scale)
    if query_offsets is None and key_offsets is not None:
        raise ValueError("kiln.torch.attention: key_offsets are given without query_offsets, expected both for packed sequences, or none")
    offsets = () if query_offsets is None else (query_offsets, query_offsets if key_offsets is None else key_offsets)
    if needs_gradient(q, k, v, sinks):
        out, lse = _Attention(q, k, v, sinks, *(offsets or (None, None)), form, longest_query)
    else:
        out, lse = _run(q, k, v, sinks, offsets, form, longest_query)
    return (out, lse) if return_lse else out


def attention_paged(q: Tensor, k: Tensor, v: Tensor, query_offsets: Tensor, key_lengths: Tensor, block_table: Tensor, *, causal: bool = True,
                    window: int | tuple[int | None, int] | None = None, scale: float | None = None, softcap: float | None = None,
                    sinks: Tensor | None = None, keys: int | None = None, longest_query: int | None = None, k_scale: Tensor | None = None,
                    v_scale: Tensor | None = None, return_lse: bool = False) -> Any:
    """Attention of packed queries over a cache in pages: prompts in chunks, and prompts after a cached prefix. No gradient: RuntimeError if one is required.

    q is [tokens, heads, head_dim]; rows query_offsets[i] to query_offsets[i + 1] are the last tokens of sequence i. The result is [tokens, heads,
    value_dim]. Rows past the last offset are undefined. k is the pool [pages, page_size, key_heads, head_dim], v [pages, page_size, key_heads,
    value_dim]. The keys of all queries are in the pools before the call. Pages of a multiple of 16 keys in the type of q are fastest.

    query_offsets is i32 [batch + 1]. key_lengths, i32 [batch], counts a sequence's keys with those of its queries. Row i of block_table, i32
    [batch, ceil(keys / page_size)], has the pages of sequence i in order. `keys` is the most that a sequence may have, block_table.shape[1] * page_size
    unless given. longest_query is at least the queries of any sequence: rows past it may be left undefined.

    causal: the last query sees all keys, the one before all but one. window: how many keys a query sees before that diagonal, or (left, 0); a left of
    None is all. A window is causal, and one with another right raises ValueError. A query that sees no key gives 0. softcap, sinks: as in attention().
    return_lse: (out, log-sum-exp of each row, f32 [heads, tokens]), which is -inf if the row sees no key and there are no sinks.

    k and v may be float8_e4m3fn beside q of another type, with k_scale and v_scale as in attention_decode().

    Sizes, types and strides of pools that do not fit raise RuntimeError. Offsets, lengths and the table are in device memory: no launch waits for them,
    kernels clamp them, and kiln.check() names offsets and lengths out of bounds.
    """
    left, sinks = _left("attention_paged", window), _sinks("attention_paged", softcap, sinks)
    _without_gradient("attention_paged", q, k, v, sinks, scale if isinstance(scale, Tensor) else None)
    keys = block_table.shape[1] * k.shape[1] if keys is None else keys
    tensors, ending = _over_cache("attention_paged", q, k, v, k_scale, v_scale)
    given = (query_offsets, key_lengths, block_table, *(() if sinks is None else (sinks,)), keys)
    values = _Form(causal, None if left is None else (left,), softcap, scale).values()
    out, lse = _op("paged", _mask(causal or window is not None, left), softcap, sinks, ending)(*tensors, *given, *values, longest_query)
    return (out, lse) if return_lse else out


def attention_decode(q: Tensor, k: Tensor, v: Tensor, key_lengths: Tensor, *, window: int | tuple[int | None, int] | None = None,
                     scale: float | None = None, softcap: float | None = None, sinks: Tensor | None = None, block_table: Tensor | None = None,
                     keys: int | None = None, key_indices: Tensor | None = None, k_scale: Tensor | None = None,
                     v_scale: Tensor | None = None) -> Tensor:
    """Attention of the last queries of each sequence over its cache. No gradient: RuntimeError if one is required.

    q is [batch, queries, heads, head_dim] of 16 queries at most, k and v [batch, keys, key_heads, dim], key_lengths i32 [batch]. With a block_table, i32
    [batch, pages of a sequence], k and v are pools [pages, page_size, key_heads, dim]; `keys` is then the most that a sequence may have.
    With key_indices, i32 [batch, keys], k and v are [batch, rows, key_heads, dim], and key j of sequence i is k[i, key_indices[i, j]], its value likewise:
    keys among padding, or the few that a sparse attention selects. All key heads share them. key_lengths counts a row's indices; those past it are not
    read. An index outside of the cache counts as its nearer end. Causality and windows go by the place in key_indices: the last indices are the queries' own
    tokens. Raises ValueError for indices that do not fit, and if a block_table is given too, or `keys` without one.
    The mask is causal. window, softcap, sinks: as in attention_paged().

    k and v may be float8_e4m3fn beside q of another type. They then stand for k_scale * k and v_scale * v: f32 [key_heads], or one number in device
    memory for all heads; 1 unless given. Nobody checks that they are above 0: all keys have one weight where k_scale is 0, negative or NaN.
    """
    left, sinks = _left("attention_decode", window), _sinks("attention_decode", softcap, sinks)
    _without_gradient("attention_decode", q, k, v, sinks, scale if isinstance(scale, Tensor) else None)
    tensors, ending = _over_cache("attention_decode", q, k, v, k_scale, v_scale)
    if key_indices is not None:
        _check_indices(key_indices, block_table, q, k)
    if keys is not None and block_table is None:
        raise ValueError("kiln.torch.attention_decode: keys is given without a block_table, expected both; without pages the tensors' sizes tell it")
    layout = "paged" if block_table is not None else "contiguous" if key_indices is None else "indexed"
    table = () if layout == "contiguous" else (block_table if key_indices is None else key_indices,)
    most = () if block_table is None else (block_table.shape[1] * k.shape[1] if keys is None else keys,)
    given = (key_lengths, *table, *(() if sinks is None else (sinks,)), *most)
    values = _Form(True, None if left is None else (left,), softcap, scale).values()
    run = _op(f"decode_{layout}", "" if left is None else "_window", softcap, sinks, ending)
    return run(*tensors, *given, *values)[0]


def _check_indices(indices: Any, table: Tensor | None, q: Tensor, k: Tensor) -> None:
    if table is not None:
        raise ValueError("kiln.torch.attention_decode: both block_table and key_indices are given, expected one of them: pages of a pool, or rows of each cache")
    if not isinstance(indices, Tensor) or indices.dim() != 2 or indices.dtype != torch.int32 or indices.device != k.device or indices.shape[0] != q.shape[0]:
        found = f"{indices.dtype} {list(indices.shape)} on {indices.device}" if isinstance(indices, Tensor) else f"a {type(indices).__name__}"
        raise ValueError(f"kiln.torch.attention_decode: key_indices is {found}, expected torch.int32 [{q.shape[0]}, keys] on {k.device}")


def _over_cache(function: str, q: Tensor, k: Tensor, v: Tensor, k_scale: Tensor | None, v_scale: Tensor | None) -> tuple[tuple[Tensor, ...], str]:
    """q, k and v as ops over a cache take them, with scales of e4m3, and what the op's name ends with."""
    if k.dtype != v.dtype:
        raise ValueError(f"kiln.torch.{function}: k has {k.dtype} and v has {v.dtype}, expected one type")
    if k.dtype == torch.float8_e4m3fn:
        return (*autocast(q), k, v, _of_heads(function, "k_scale", k_scale, k), _of_heads(function, "v_scale", v_scale, k)), "_e4m3"
    if k.dtype.itemsize == 1:
        raise ValueError(f"kiln.torch.{function}: k and v have {k.dtype}, expected float8_e4m3fn or the type of q")
    if k_scale is not None or v_scale is not None:
        raise ValueError(f"kiln.torch.{function}: k_scale and v_scale are of keys and values in float8_e4m3fn; k has {k.dtype}")
    return autocast(q, k, v), ""


def _of_heads(function: str, name: str, scale: Tensor | None, k: Tensor) -> Tensor:
    if scale is None:
        return torch.ones(k.shape[2], dtype=torch.float32, device=k.device)
    if not isinstance(scale, Tensor) or scale.dim() > 1 or scale.numel() not in (1, k.shape[2]):
        found = list(scale.shape) if isinstance(scale, Tensor) else f"a {type(scale).__name__}"
        raise ValueError(f"kiln.torch.{function}: {name} is {found}, expected a tensor of f32, [{k.shape[2]}] or of one number")
    refuse_gradient(function, **{name: scale})
    return scale.expand(k.shape[2]).contiguous()
