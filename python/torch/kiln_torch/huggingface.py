"""Kiln's attention for Hugging Face's AttentionInterface, and its masks for AttentionMaskInterface."""
from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .attention import attention, attention_decode, attention_paged
from .autograd import needs_gradient

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
_UNTOLD = {  # layers, and what they do not say of their mask
    "BigBirdPegasusDecoderAttention": "whether its mask is causal",  # is_causal is False there, under causal masks too
    "PhimoeAttention": "its sliding window",
}
_CHUNKED = "chunked_overlay.<locals>.inner_mask"
_PACKED = "packed_sequence_mask_function.<locals>.inner_mask"
_NUMBERS = torch.int16  # the type of a mask that numbers sequences; no mask that tells padding has it
_WRITTEN = torch.int32  # the type of a mask that tells which keys of a cache are written, as _written() makes it
_FIRST = torch.uint8  # the type of a mask of padding that has the first keys of a static cache alone
_STEP = 16  # the most queries of a sequence that attention_decode takes


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


_seen: tuple[Any, tuple[int, int], dict[str, Any]] = (lambda: None, (0, 0), {})  # the positions that all layers of a forward have, and their sequences


def _sequences_of_layer(positions: Tensor, batch: int) -> dict[str, Any]:
    global _seen
    if positions.is_inference():  # which have no version
        return sequences_of(positions, batch)
    of, at, found = _seen
    if of() is not positions or at != (positions._version, batch):
        found = sequences_of(positions, batch)
        _seen = weakref.ref(positions), (positions._version, batch), found
    return found


def _is_static(key: Tensor) -> bool:
    return hasattr(key, "_dynamo_static_input_type")  # which StaticCache gives its buffers


def huggingface_attention(module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None, dropout: float = 0.0,
                          scaling: float | None = None, sliding_window: int | None = None, is_causal: bool | None = None,
                          **others: Any) -> tuple[Tensor, None]:
    """An attention function for transformers' AttentionInterface; kiln.torch.patch() registers it as "kiln".

    Packed sequences come by cu_seq_lens_q, as flash_attention_2's do, or by position_ids that restart, for which the host waits at each forward of more
    than one token. A prompt with padding is packed on the way, for which it waits too. One query of each sequence, as in a step of generation,
    goes to attention_decode, which skips padding by key_indices. A static cache needs an attention mask, which tells its length. Dropout is refused,
    and so are layers of types that may have keys beside those of tokens.
    """
    if (attention_mask is None or _are_numbers(attention_mask)) and not torch.compiler.is_compiling():
        if key.shape[2] == query.shape[2] > 1 and others.get("cu_seq_lens_q") is None and others.get("position_ids") is not None:
            others.update(_sequences_of_layer(others["position_ids"], query.shape[0]))
            others["seq_idx"] = None  # which says no more than the positions
        if key.shape[2] != query.shape[2] and _is_static(key) and not _has_masks_of_kiln(module):
            raise ValueError("kiln attention: nothing tells how many keys of a static cache are written; register kiln.torch.huggingface_mask as docs/torch.md "
                             "shows, or use a DynamicCache")
    config, untold = getattr(module, "config", None), _UNTOLD.get(type(module).__name__)
    if untold is not None and ("window" not in untold or getattr(config, "sliding_window", None)):
        raise ValueError(f"kiln attention: {type(module).__name__} does not say {untold}; use another attn_implementation")
    kinds, at = getattr(config, "layer_types", None), getattr(module, "layer_idx", None)
    if kinds is not None and at is not None and at < len(kinds) and kinds[at] not in _LAYERS:
        raise ValueError(f"kiln attention: layer {at} is of the type {kinds[at]}, expected one of {', '.join(_LAYERS)}; use another attn_implementation")
    return attend(module, query, key, value, attention_mask, dropout, scaling, sliding_window, is_causal, **others)


def _has_masks_of_kiln(module: Any) -> bool:
    """Whether no mask means that all keys count, those of a static cache too."""
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

    named = getattr(getattr(module, "config", None), "_attn_implementation", None)
    return named in ALL_MASK_ATTENTION_FUNCTIONS and ALL_MASK_ATTENTION_FUNCTIONS[named] is huggingface_mask


def huggingface_mask(*, mask_function: Callable[..., Any] | None = None, use_vmap: bool = False, **named: Any) -> Tensor | None:
    """The mask function for transformers' AttentionMaskInterface that belongs to huggingface_attention(): the padding, or None without any. Where
    positions separate sequences it gives their numbers, since not every layer hands the positions to its attention. Of a static cache, and for a step
    with padding, it gives the keys that count, in a form that huggingface_attention() alone reads.

    Masks are causal, none and sliding windows, each also of packed sequences. Raises ValueError for another one, such as chunks that end before the
    keys do, or blocks that see themselves whole. While torch.compile traces, only functions that a model gives (`use_vmap`) are noticed.
    """
    from transformers.masking_utils import flash_attention_mask

    unknown, functions, size = "a function of the model" if use_vmap else None, [], named.get("local_size")
    is_one_chunk = named["kv_length"] + named.get("kv_offset", 0) <= (size or 0)
    if torch.compiler.is_compiling() and size is not None and size == getattr(named.get("config"), "attention_chunk_size", None) and not is_one_chunk:
        unknown = "of chunks"
    if mask_function is not None and not use_vmap and not torch.compiler.is_compiling():
        functions = _functions_of(mask_function)
        unknown = next((each for each, _ in functions if each not in _MASKS and not (each == _CHUNKED and is_one_chunk)), None)
    if unknown is not None:
        raise ValueError(f"kiln attention: the model's mask is {unknown}, expected causal, none or a sliding window; use another attn_implementation")
    mask, numbers = flash_attention_mask(**named), next((each for name, held in functions if name == _PACKED for each in held), None)
    if mask is None and numbers is not None:
        return numbers.to(_NUMBERS)
    is_causal = "allow_is_causal_skip" in named and "allow_is_bidirectional_skip" not in named  # by which transformers' own masks are told apart
    return _written(mask, named) if is_causal else mask


def _written(mask: Tensor | None, named: dict[str, Any]) -> Tensor | None:
    """The mask under which attend() goes over a cache without waiting for it: i32 [batch, 2 or 2 + keys, 1, prompt]; else `mask`, which tells padding.

    [:, 0] counts the keys of each sequence, and so does [:, 1]. A step that may have padding goes on with [:, 2:], the places of the keys that count, in order. `prompt` is
    the number of keys where the host knows it and nothing is padding, else 1. Masks of four dimensions are handed on by transformers as they are.
    """
    queries, keys, before, first = named["q_length"], named["kv_length"], named.get("q_offset", 0), named.get("kv_offset", 0)
    seen, given, window, compiles = before + queries, named.get("attention_mask"), named.get("local_size"), torch.compiler.is_compiling()
    is_counted = isinstance(before, Tensor)  # as a static cache does, on its device
    if not is_counted and given is not None and not min(seen - first, keys) <= given.shape[1] <= seen:  # a mask that this gave may come again
        raise _not_of(seen, given)
    is_static = is_counted or seen - first != keys
    if is_static and mask is None and given is not None:  # the last key of the cache: its step is as the others
        mask = given[:, -keys:]
    is_odd = mask is not None and (mask.dim() != 2 or mask.shape[0] != named["batch_size"])  # for attend() to refuse
    if is_odd or (not is_static and (mask is None or not before)):
        return mask
    device = named["device"]
    written = ((seen if is_counted else torch.full((), seen, device=device)) - first).clamp(max=keys)
    if mask is not None:
        are_written, are_tokens = torch.arange(keys, device=device) < written, torch.nn.functional.pad(mask, (0, keys - mask.shape[1]))
        if queries == 1 and not torch.is_grad_enabled() and (window is None or keys <= window):
            return _places(are_tokens & are_written)
        if not is_static:
            return mask
        if is_counted and compiles:
            raise ValueError("kiln attention: an attention mask over a static cache is compiled for steps of one token alone, without gradients and in a window "
                             "that holds the cache; do not compile prompts, or leave the mask out if nothing is padding")
        if torch.is_grad_enabled() or compiles or (are_written & ~are_tokens).any():
            if is_counted and given is not None and given.shape[1] < written:
                raise _not_of(int(seen), given)
            return (mask[:, : int(written)] if is_counted else mask).to(_FIRST)
    host_knows = queries > _STEP and not (is_counted and compiles)
    return written.to(_WRITTEN).expand(named["batch_size"], 2, 1, min(int(seen) - first, keys) if host_knows else 1)


def _not_of(seen: int, given: Tensor) -> ValueError:
    return ValueError(f"kiln attention: the attention mask is {list(given.shape)} for {seen} tokens, expected a column for each token of the cache and each "
                      "new one")


def _places(are_keys: Tensor) -> Tensor:
    """Where the keys of each sequence lie, for _written(). No value of them is waited for."""
    places, counts = torch.arange(are_keys.shape[1], device=are_keys.device).expand_as(are_keys), are_keys.sum(1, keepdim=True)
    to = torch.where(are_keys, are_keys.cumsum(1) + 1, 1)  # the others go to column 1, which a count then overwrites
    made = torch.zeros(are_keys.shape[0], are_keys.shape[1] + 2, dtype=torch.int64, device=are_keys.device).scatter_(1, to, places)
    made[:, :2] = counts
    return made.to(_WRITTEN)[:, :, None, None]


def _functions_of(function: Any) -> list[tuple[str, list[Any]]]:
    """Names of a mask function and of those that it is made of, each with what it holds."""
    held = [each.cell_contents for each in getattr(function, "__closure__", None) or ()]
    within = [each for cell in held for each in (cell if isinstance(cell, (tuple, list)) else (cell,)) if callable(each) and not isinstance(each, Tensor)]
    return [(getattr(function, "__qualname__", type(function).__name__), held), *(each for one in within for each in _functions_of(one))]


def _are_numbers(mask: Any) -> bool:
    return isinstance(mask, Tensor) and mask.dtype == _NUMBERS and mask.dim() == 2


def _tells_written(mask: Any, queries: int) -> bool:
    """Whether _written() made it. A mask of one head or each, which is none of these, has a column for each key, and a row for each of many queries."""
    if not isinstance(mask, Tensor) or mask.dtype != _WRITTEN or mask.dim() != 4 or mask.shape[1] < 2 or mask.shape[2] != 1:
        return False
    return mask.shape[3] == 1 or (mask.shape[1] == 2 and queries > _STEP)


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
    is_of_first = isinstance(attention_mask, Tensor) and attention_mask.dtype == _FIRST
    cut = torch.compiler.is_compiling() or not sliding_window or is_of_first or _is_static(key)  # whether the mask may be of the first keys alone
    query, key, value = (each.transpose(1, 2) for each in (query, key, value))
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    window = (sliding_window - 1, 0 if causal else sliding_window - 1) if sliding_window else None
    extra = {"scale": scaling, "softcap": others.get("softcap"), "sinks": others.get("s_aux")}
    named: dict[str, Any] = {"causal": causal, "window": window, **extra}
    if _tells_written(attention_mask, query.shape[1]):
        return _cached(query, key, value, attention_mask, named), None
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


def _cached(query: Tensor, key: Tensor, value: Tensor, written: Tensor, named: dict[str, Any]) -> Tensor:
    """Over the keys of a cache that `written` tells, as _written() makes it."""
    told = written.shape[1] - 2
    if 0 < told < key.shape[1]:  # a cache that records its past gives more keys than its window has
        key, value = key[:, -told:], value[:, -told:]
    (batch, queries), keys, lengths = query.shape[:2], key.shape[1], written[:, 0, 0, 0].contiguous()
    if written.shape[3] > 1:
        return attention(query, key[:, : written.shape[3]], value[:, : written.shape[3]], **named)
    if needs_gradient(query, key, value, named["sinks"]):
        raise ValueError("kiln attention: without an attention mask a static cache has no gradient; call the model under torch.no_grad()")
    window = named["window"] if named["window"] is not None and keys > named["window"][0] + 1 else None
    extra = {name: named[name] for name in ("scale", "softcap", "sinks")}
    if told == 0 and queries <= _STEP:
        return attention_decode(query, key, value, lengths, window=window, **extra)
    if told == 0:  # each sequence is a page
        offsets, pages = (torch.arange(batch + 1, dtype=torch.int32, device=key.device) * each for each in (queries, 1))
        out = attention_paged(query.flatten(0, 1), key, value, offsets, lengths, pages[:-1, None], window=window, longest_query=queries, **extra)
        return out.unflatten(0, (batch, queries))
    return attention_decode(query, key, value, lengths, key_indices=written[:, 2:, 0, 0], **extra)


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
