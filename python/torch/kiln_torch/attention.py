"""Attention of many queries, dense or packed, with gradients; over a cache, without; and for Hugging Face's AttentionInterface."""
from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function

from ._ops import shipped_names
from .autograd import applied, needs_gradient
from .functions import autocast

_OPS = {name: getattr(torch.ops.kiln, name).default for name in shipped_names if name.startswith("attention_")}

_KNOWN = frozenset((  # arguments of transformers' attention that attend() reads, and those that change no result of it
    "cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k", "position_ids", "softcap", "s_aux", "seq_idx",
    "use_cache", "cache_position", "return_dict", "output_attentions", "output_hidden_states", "output_router_logits",
    "token_type_ids", "mm_token_type_ids", "moe_mm_token_type_ids", "num_items_in_batch", "shift_labels", "ignore_index",
    "deterministic"))  # the forward pass always is; the backward pass is where torch asks for it

_MASKS = frozenset((  # transformers' mask functions that attend() computes by its arguments
    "causal_mask_function", "bidirectional_mask_function", "sliding_window_overlay.<locals>.inner_mask",
    "sliding_window_bidirectional_overlay.<locals>.inner_mask", "packed_sequence_mask_function.<locals>.inner_mask",
    "and_masks.<locals>.and_mask", "remap_positions_for_packed_sequence.<locals>.inner_mask"))
_LAYERS = ("full_attention", "sliding_attention", "chunked_attention", "attention", "hybrid", "hybrid_sliding")  # of a model; others may have keys beside those of tokens
_CHUNKED = "chunked_overlay.<locals>.inner_mask"
_PACKED = "packed_sequence_mask_function.<locals>.inner_mask"
_NUMBERS = torch.int16  # the type of a mask that numbers sequences; no mask that tells padding has it


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
    _without_gradient("attention_paged", q, k, v, sinks)
    keys = block_table.shape[1] * k.shape[1] if keys is None else keys
    tensors, ending = _over_cache("attention_paged", q, k, v, k_scale, v_scale)
    given = (query_offsets, key_lengths, block_table, *(() if sinks is None else (sinks,)), keys)
    values = _Form(causal, None if left is None else (left,), softcap, scale).values()
    out, lse = _op("paged", _mask(causal or window is not None, left), softcap, sinks, ending)(*tensors, *given, *values, longest_query)
    return (out, lse) if return_lse else out


def attention_decode(q: Tensor, k: Tensor, v: Tensor, key_lengths: Tensor, *, window: int | tuple[int | None, int] | None = None,
                     scale: float | None = None, softcap: float | None = None, sinks: Tensor | None = None, block_table: Tensor | None = None,
                     keys: int | None = None, k_scale: Tensor | None = None, v_scale: Tensor | None = None) -> Tensor:
    """Attention of the last queries of each sequence over its cache. No gradient: RuntimeError if one is required.

    q is [batch, queries, heads, head_dim] of 16 queries at most, k and v [batch, keys, key_heads, dim], key_lengths i32 [batch]. With a block_table, i32
    [batch, pages of a sequence], k and v are pools [pages, page_size, key_heads, dim]; `keys` is then the most that a sequence may have.
    The mask is causal. window, softcap, sinks: as in attention_paged().

    k and v may be float8_e4m3fn beside q of another type. They then stand for k_scale * k and v_scale * v: f32 [key_heads], or one number in device
    memory for all heads; 1 unless given. Nobody checks that they are above 0: all keys have one weight where k_scale is 0, negative or NaN.
    """
    left, sinks = _left("attention_decode", window), _sinks("attention_decode", softcap, sinks)
    _without_gradient("attention_decode", q, k, v, sinks)
    tensors, ending = _over_cache("attention_decode", q, k, v, k_scale, v_scale)
    table = () if block_table is None else (block_table,)
    most = () if block_table is None else (block_table.shape[1] * k.shape[1] if keys is None else keys,)
    given = (key_lengths, *table, *(() if sinks is None else (sinks,)), *most)
    values = _Form(True, None if left is None else (left,), softcap, scale).values()
    run = _op("decode_paged" if table else "decode_contiguous", "" if left is None else "_window", softcap, sinks, ending)
    return run(*tensors, *given, *values)[0]


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
    return scale.expand(k.shape[2]).contiguous()


def sequences_of(positions: Tensor, batch: int) -> dict[str, Any]:
    """What flash_attention_2 calls them, where `positions`, i64 [batch or 1, tokens], do not go up by one within a row; else nothing. They may also be
    numbers of sequences, which change within a row.

    The host waits for the positions, so nothing is found while torch.compile traces or a CUDA graph is captured.
    """
    if positions.dim() != 2 or positions.shape[1] < 2 or torch.compiler.is_compiling() or (positions.is_cuda and torch.cuda.is_current_stream_capturing()):
        return {}
    begins = positions.cpu().diff(dim=1) != (0 if positions.dtype == _NUMBERS else 1)
    if not begins.any():
        return {}
    begins = torch.nn.functional.pad(begins, (1, 0), value=True).expand(batch, -1).flatten()
    offsets = torch.nn.functional.pad(begins.nonzero().flatten(), (0, 1), value=len(begins)).to(torch.int32)
    longest, offsets = int(offsets.diff().max()), offsets.to(positions.device)
    return {"cu_seq_lens_q": offsets, "cu_seq_lens_k": offsets, "max_length_q": longest, "max_length_k": longest}


_seen: tuple[Any, int, dict[str, Any]] = (lambda: None, 0, {})  # the positions that all layers of a forward have, and their sequences


def _sequences_of_layer(positions: Tensor, batch: int) -> dict[str, Any]:
    global _seen
    if positions.is_inference():  # which have no version
        return sequences_of(positions, batch)
    of, version, found = _seen
    if of() is not positions or version != positions._version:
        found = sequences_of(positions, batch)
        _seen = weakref.ref(positions), positions._version, found
    return found


def _is_static(key: Tensor) -> bool:
    return hasattr(key, "_dynamo_static_input_type")  # which StaticCache gives its buffers


def huggingface_attention(module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, dropout: float = 0.0,
                          scaling: float | None = None, sliding_window: int | None = None, is_causal: bool | None = None,
                          **others: Any) -> tuple[Tensor, None]:
    """An attention function for transformers' AttentionInterface; kiln.torch.patch() registers it as "kiln".

    Packed sequences come by cu_seq_lens_q, as flash_attention_2's do, or by position_ids that restart, for which the host waits at each forward of more
    than one token. A batch with padding is packed on the way, for which it waits too. One query of each sequence without padding, as in a step of
    generation, goes to attention_decode. A static cache needs an attention mask, which tells its length. Dropout is refused,
    and so are layers of types that may have keys beside those of tokens.
    """
    if (attention_mask is None or _are_numbers(attention_mask)) and not torch.compiler.is_compiling():
        if key.shape[2] == query.shape[2] > 1 and others.get("cu_seq_lens_q") is None and others.get("position_ids") is not None:
            others.update(_sequences_of_layer(others["position_ids"], query.shape[0]))
            others["seq_idx"] = None  # which says no more than the positions
        if key.shape[2] != query.shape[2] and _is_static(key):
            raise ValueError("kiln attention: nothing tells how many keys of a static cache are written; give an attention mask, or, with generate(), use a "
                             "DynamicCache")
    kinds, at = getattr(getattr(module, "config", None), "layer_types", None), getattr(module, "layer_idx", None)
    if kinds is not None and at is not None and at < len(kinds) and kinds[at] not in _LAYERS:
        raise ValueError(f"kiln attention: layer {at} is of the type {kinds[at]}, expected one of {', '.join(_LAYERS)}; use another attn_implementation")
    return attend(module, query, key, value, attention_mask, dropout, scaling, sliding_window, is_causal, **others)


def huggingface_mask(*, mask_function: Callable[..., Any] | None = None, use_vmap: bool = False, **named: Any) -> Tensor | None:
    """The mask function for transformers' AttentionMaskInterface that belongs to huggingface_attention(): the padding, or None without any. Where
    positions separate sequences it gives their numbers, since not every layer hands the positions to its attention.

    Masks are causal, none and sliding windows, each also of packed sequences. Raises ValueError for another one, such as chunks that end before the
    keys do, or blocks that see themselves whole. While torch.compile traces, only functions that a model gives (`use_vmap`) are noticed.
    """
    from transformers.masking_utils import flash_attention_mask

    unknown, functions = "a function of the model" if use_vmap else None, []
    if mask_function is not None and not use_vmap and not torch.compiler.is_compiling():
        functions = _functions_of(mask_function)
        is_one_chunk = named["kv_length"] + named.get("kv_offset", 0) <= (named.get("local_size") or 0)
        unknown = next((each for each, _ in functions if each not in _MASKS and not (each == _CHUNKED and is_one_chunk)), None)
    if unknown is not None:
        raise ValueError(f"kiln attention: the model's mask is {unknown}, expected causal, none or a sliding window; use another attn_implementation")
    mask, numbers = flash_attention_mask(**named), next((each for name, held in functions if name == _PACKED for each in held), None)
    return numbers.to(_NUMBERS) if mask is None and numbers is not None else mask


def _functions_of(function: Any) -> list[tuple[str, list[Any]]]:
    """Names of a mask function and of those that it is made of, each with what it holds."""
    held = [each.cell_contents for each in getattr(function, "__closure__", None) or ()]
    within = [each for cell in held for each in (cell if isinstance(cell, (tuple, list)) else (cell,)) if callable(each) and not isinstance(each, Tensor)]
    return [(getattr(function, "__qualname__", type(function).__name__), held), *(each for one in within for each in _functions_of(one))]


def _are_numbers(mask: Any) -> bool:
    return isinstance(mask, Tensor) and mask.dtype == _NUMBERS


def attend(module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, dropout: float = 0.0, scaling: float | None = None,
           sliding_window: int | None = None, is_causal: bool | None = None, **others: Any) -> tuple[Tensor, None]:
    """huggingface_attention() within a patched base model, which has looked at the positions."""
    if _are_numbers(attention_mask):
        if others.get("cu_seq_lens_q") is None:
            if torch.compiler.is_compiling() or (attention_mask.is_cuda and torch.cuda.is_current_stream_capturing()):
                raise ValueError("kiln attention: sequences that lie in one row are not separated while a layer is compiled or a CUDA graph is captured; give "
                                 "cu_seq_lens_q, cu_seq_lens_k, max_length_q and max_length_k")
            others.update(_sequences_of_layer(attention_mask, query.shape[0]))
        attention_mask = None
    for name, each in others.items():
        if each is not None and name not in _KNOWN:
            raise ValueError(f"kiln attention: the model gives the argument {name}, which Kiln does not know; leave it out, or use another attn_implementation")
    if others.get("seq_idx") is not None and others.get("cu_seq_lens_q") is None:
        raise ValueError("kiln attention: seq_idx alone does not separate sequences; give cu_seq_lens_q, cu_seq_lens_k and max_length_q too")
    if dropout:
        raise ValueError("kiln attention: dropout is not supported; set the config's attention_dropout to 0, or use another attn_implementation")
    if query.dtype == torch.float32 and query.is_cuda and not torch.is_autocast_enabled("cuda"):
        raise ValueError("kiln attention: the model computes in f32, expected bf16 or f16; use model.to(torch.bfloat16) or torch.autocast")
    cut = torch.compiler.is_compiling() or not sliding_window or _is_static(key)  # whether the mask may be of the first keys alone
    query, key, value = (each.transpose(1, 2) for each in (query, key, value))
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    window = (sliding_window - 1, 0 if causal else sliding_window - 1) if sliding_window else None
    extra = {"scale": scaling, "softcap": others.get("softcap"), "sinks": others.get("s_aux")}
    named: dict[str, Any] = {"causal": causal, "window": window, **extra}
    if attention_mask is not None:
        return _padded(query, key, value, attention_mask, named, cut), None
    offsets = others.get("cu_seq_lens_q")
    if offsets is None and query.shape[1] == 1 and not needs_gradient(query, key, value, extra["sinks"]):
        if named["window"] is not None:  # the last keys, which the one query sees all
            key, value = key[:, -sliding_window:], value[:, -sliding_window:]
        lengths = torch.full((key.shape[0],), key.shape[1], dtype=torch.int32, device=key.device)
        return attention_decode(query, key, value, lengths, **extra), None
    if offsets is None:
        return attention(query, key, value, **named), None
    packed = attention(*(each.flatten(0, 1) for each in (query, key, value)), query_offsets=offsets.to(torch.int32),
                       key_offsets=others["cu_seq_lens_k"].to(torch.int32), longest_query=others.get("max_length_q"), **named)
    return packed.unflatten(0, query.shape[:2]), None


def _padded(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, named: dict[str, Any], cut: bool) -> Tensor:
    """Of sequences with padding, which the mask, [batch, keys], tells from tokens. Under a causal mask or a window queries are the last of them, and those of
    padding give 0. Without either, as in attention to another sequence, all queries are tokens.

    Keys beyond the mask are those of a static cache that are not written yet. Without `cut` there may be none.
    """
    least = query.shape[1] if named["causal"] or named["window"] is not None else 0
    if not isinstance(mask, Tensor) or mask.dim() != 2 or mask.shape[0] != query.shape[0] or not least <= mask.shape[1] <= key.shape[1]:
        found = list(mask.shape) if isinstance(mask, Tensor) else f"a {type(mask).__name__}"
        raise ValueError(f"kiln attention: the attention mask is {found}, expected [{query.shape[0]}, {key.shape[1]}], which tells tokens from padding")
    if not cut and mask.shape[1] < key.shape[1]:  # a cache that records its past gives more keys than its window has
        raise ValueError(f"kiln attention: the attention mask is {list(mask.shape)} for a sliding window over {key.shape[1]} keys, expected a column for "
                         "each; use DynamicCache(config=model.config), which keeps only the window, or another attn_implementation")
    if mask.is_floating_point():  # 0 is padding for some, and adds nothing to a score for others
        raise ValueError(f"kiln attention: the attention mask has {mask.dtype}, expected torch.bool, which is true for tokens")
    keys = mask.bool()
    key, value = key[:, : keys.shape[1]], value[:, : keys.shape[1]]
    if named["window"] is not None:
        if keys.shape[1] <= named["window"][0] + 1:
            named["window"] = None  # which holds all keys
        elif (keys[:, 0] + (keys[:, 1:] & ~keys[:, :-1]).sum(1) > 1).any():
            raise ValueError("kiln attention: an attention mask has padding between tokens, over which a sliding window would reach too far; "
                             "pad only the ends, or use another attn_implementation")
    are_keys = named["causal"] or named["window"] is not None
    queries = keys[:, keys.shape[1] - query.shape[1] :] if are_keys else keys.new_ones(query.shape[:2])
    offsets = [torch.nn.functional.pad(each.sum(1).cumsum(0), (1, 0)).to(torch.int32) for each in (queries, keys)]
    packed = attention(query[queries], key[keys], value[keys], query_offsets=offsets[0], key_offsets=offsets[1], **named)
    return packed.new_zeros(*query.shape[:-1], value.shape[-1]).index_put((queries,), packed)
