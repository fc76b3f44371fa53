"""Hugging Face's Llama and Qwen models on Kiln's ops: the classes of their modules are changed for ones that compute the same."""
from __future__ import annotations

import functools
import importlib
import inspect
import sys
import threading
from collections.abc import Iterator
from typing import Any

from torch import nn
from torch.compiler import is_compiling

from . import parts, served
from .huggingface import huggingface_attention, huggingface_mask, sequences_of

FAMILIES = ("Llama", "Qwen2", "Qwen3")
_PARTS = {"RMSNorm": parts.RmsNorm, "RotaryEmbedding": parts.Rotary, "MLP": parts.Mlp, "Attention": parts.Attention, "DecoderLayer": parts.DecoderLayer}
_TAKEN = {  # the arguments that the parts read; another one would be lost
    "RMSNorm": {"hidden_states"},
    "RotaryEmbedding": {"x", "position_ids"},
    "MLP": {"x"},
    "Attention": {"hidden_states", "position_embeddings", "attention_mask", "cache_position"},
    "DecoderLayer": {"hidden_states", "attention_mask", "position_ids", "use_cache", "position_embeddings", "cache_position"},
}
_CACHE = ("past_key_values", "cache")  # older releases of transformers call it by the first name, newer ones by the second
_SERVED = {"MLP": served.ServedMlp, "Attention": served.ServedAttention}


_making = threading.RLock()  # held while classes are made, so that two threads get the same ones


def _classes() -> dict[type, tuple[type, type] | ValueError]:
    """For transformers' own classes of parts, those of a patched model and of one that serves, or why the family has none. A model that is loaded whole
    asks for them too."""
    found: dict[type, tuple[type, type] | ValueError] = {}
    with _making:
        _register()
        for family in FAMILIES:
            try:
                found |= _classes_of(family)
            except ValueError as error:
                found |= dict.fromkeys(_own_parts(family).values(), error)
    return found


@functools.cache
def _register() -> None:
    from transformers import AttentionInterface
    from transformers.activations import ACT2FN
    from transformers.masking_utils import AttentionMaskInterface

    AttentionInterface.register("kiln", huggingface_attention)
    AttentionMaskInterface.register("kiln", huggingface_mask)  # without it padding would count as tokens
    parts.SILU.add(type(ACT2FN["silu"]))


def _module_of(family: str) -> Any:
    return importlib.import_module(f"transformers.models.{family.lower()}.modeling_{family.lower()}")


def _own_parts(family: str) -> dict[str, type]:
    return {part: getattr(_module_of(family), family + part) for part in _PARTS}


@functools.cache
def _classes_of(family: str) -> dict[type, tuple[type, type]]:
    """Raises ValueError for a release that Kiln does not know, and where a class was replaced. Neither is kept."""
    found, own_parts = {}, _own_parts(family)
    for part, own in own_parts.items():
        if own.__module__ != _module_of(family).__name__:
            raise ValueError(f"kiln.torch.patch: transformers' {family}{part} was replaced by {own.__module__}.{own.__qualname__}; undo what replaced it")
    caches = {part: _cache_of(own, part) for part, own in own_parts.items()}
    for part, replaced in _PARTS.items():
        own, cache = own_parts[part], caches[part]
        patched = _class("Kiln", replaced, own, cache)
        joins = part in _SERVED and not (family == "Qwen3" and part == "Attention")  # heads are normalised, for which they lie densely
        found[own] = patched, _class("KilnServed", _SERVED[part], own, cache) if joins else patched
    return found


@functools.cache
def _bases() -> tuple[type, ...]:
    """The families' models without a head. Services derive classes of their own from them."""
    return tuple(getattr(_module_of(each), f"{each}Model") for each in FAMILIES)


def _cache_of(own: type, part: str) -> str:
    """What this release of transformers calls the cache of keys and values. Raises ValueError if `own` takes what no part of Kiln reads."""
    found = [name for name, each in inspect.signature(own.forward).parameters.items() if each.kind is not each.VAR_KEYWORD and name != "self"]
    caches = [name for name in found if name in _CACHE]
    unknown = [name for name in found if name not in _TAKEN[part] and name not in _CACHE]
    if unknown or (part == "Attention" and len(caches) != 1):
        from transformers import __version__

        what = f"takes {unknown[0]}, which Kiln does not read" if unknown else f"takes no cache that is called {' or '.join(_CACHE)}"
        where = f"transformers {__version__}" + ("" if own.forward.__module__.startswith("transformers.") else f", replaced by {own.forward.__module__},")
        raise ValueError(f"kiln.torch.patch: {own.__name__}.forward of {where} {what}; use a release of transformers that docs/torch.md "
                         "names as tested, or do not patch the model")
    return caches[0] if caches else ""


def _has_own_forward(own: type, part: type) -> bool:
    """Whether `own` computes as transformers defines it: no other function was put in the place of what `part` replaces."""
    module = own.__module__
    decorators = ("transformers.", "torch.") if issubclass(part, parts.Rotary) else ("transformers.",)  # Kiln's rotary part calls the decorated forward
    if not _is_of(own.forward, module, f"{own.__qualname__}.forward", decorators):
        return False
    turn = getattr(sys.modules[module], "apply_rotary_pos_emb", None) if issubclass(part, parts.Attention) else None
    return not inspect.isfunction(turn) or _is_of(turn, module, "apply_rotary_pos_emb", decorators)


def _is_of(function: Any, module: str, name: str, decorators: tuple[str, ...]) -> bool:
    """functools.wraps copies names; the globals are always those of the module in which a function was written."""
    where = getattr(function, "__globals__", {}).get("__name__", "")
    if hasattr(function, "__wrapped__"):
        return where.startswith(decorators) and _is_of(function.__wrapped__, module, name, decorators)
    return where == module and function.__qualname__ == name


def _class(prefix: str, part: type, own: type, cache: str) -> type:
    """Its __name__ stays that of its own class, by which FSDP and device maps find layers; pickle finds it by __qualname__ in this module."""
    name = prefix + own.__name__
    names = [each for each, of in inspect.signature(own.forward).parameters.items() if of.kind is of.POSITIONAL_OR_KEYWORD]
    made = type(own.__name__, (part, own),
                {"__module__": __name__, "__qualname__": name, "_kiln_own": own, "_kiln_cache": cache, "_kiln_positional": tuple(names[2:]),
                 "_get_name": lambda self: name})
    globals()[name] = made
    parts.BARE.add(made)
    return made


def __getattr__(name: str) -> Any:
    if name.startswith("Kiln"):
        _classes()
        if name in globals():
            return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def patch(model: nn.Module, *, inference: bool = False) -> nn.Module:
    """Has a Hugging Face model of the Llama, Qwen2 or Qwen3 family compute by Kiln, and returns it.

    Norms (with the residual), rotary embeddings, projections, SwiGLU and attention, as attn_implementation "kiln", are Kiln's; the embedding, the head
    and the loss stay torch's. The classes of modules change, and the weights stay what they are: what works with them, or puts modules in the place of
    projections, works as before. Call it before torch.compile and before fully_shard.

    inference: for a model that serves. No parameter of it requires a gradient any more. Query, key and value become one product, except in Qwen3, and
    gate, up and SwiGLU one, for which their weights share memory. Hooks, adapters and replaced weights make the products separate, until the next such
    call. Under torch.compile that is seen for another Parameter, and not for another `data` of the same.

    Where position_ids are given and restart, each restart begins a sequence; the host waits for them, and does not ask while torch.compile traces or a
    CUDA graph is captured. Batches with padding are packed on the way, for which the host waits too. Attention takes bf16 and f16, so models in f32 need
    autocast.

    Raises ValueError for a model that has none of these parts, or has them changed, such as by another `forward` of their class; the model is then as
    before.
    """
    changes = [*_changes(model, inference)]
    if not changes:
        raise ValueError(f"kiln.torch.patch: {type(model).__name__} has no part of the families {', '.join(FAMILIES)}")
    _set_attention(model, [module for module, to in changes if issubclass(to, parts.Attention)])
    within = {id(each) for base in model.modules() if isinstance(base, _bases()) for each in base.modules()}
    for module, to in changes:
        if issubclass(to, parts.Attention):
            module.__dict__.pop("_kiln_attend", None)
            if id(module) not in within:  # no hook names it sequences
                module._kiln_attend = huggingface_attention
        if isinstance(module, served.Served) and not issubclass(to, served.Served):
            _remove(module._load_state_dict_post_hooks, served.share_after_load)
            module._kiln_part()
        module.__class__ = to
    if inference:
        model.requires_grad_(False)
    for module, to in changes:
        if issubclass(to, served.Served):
            if served.share_after_load not in module._load_state_dict_post_hooks.values():
                module.register_load_state_dict_post_hook(served.share_after_load)
            module._kiln_share()
    return model


def unpatch(model: nn.Module) -> nn.Module:
    """Gives a model the classes, the attention and weights with memory of their own that it had before patch(). requires_grad stays as it is."""
    for module in model.modules():
        if isinstance(module, (parts.KilnLinear, *_PARTS.values())) and type(module) not in parts.BARE:
            raise _refused(module, "was changed after patch; undo parametrizations and the like first", "unpatch")
    for module in model.modules():
        _remove(module._load_state_dict_post_hooks, served.share_after_load)
        for each in [key for key, hook in module._forward_pre_hooks.items() if hook is _name_sequences]:
            del module._forward_pre_hooks[each], module._forward_pre_hooks_with_kwargs[each]
        if isinstance(module, served.Served):
            module._kiln_part()
        if type(module) in parts.BARE:
            module.__class__ = getattr(type(module), "_kiln_own", nn.Linear)
        module.__dict__.pop("_kiln_attend", None)
        if "_kiln_attention_before" in module.__dict__:
            module.config._attn_implementation = module.__dict__.pop("_kiln_attention_before")
    return model


def _changes(model: nn.Module, inference: bool) -> Iterator[tuple[nn.Module, type]]:
    """What is to be changed to which class. Changes nothing."""
    classes = _classes()
    for module in model.modules():
        own = getattr(type(module), "_kiln_own", type(module))
        if isinstance(why := next((classes[each] for each in type(module).__mro__ if each in classes), None), ValueError):
            raise why
        if own not in classes:
            base = next((each for each in type(module).__mro__ if each in classes and issubclass(classes[each][0], (parts.Attention, parts.Rotary))), None)
            if base is not None:
                raise _refused(module, f"is a class of its own over {base.__name__}, as fully_shard and parametrizations make it; patch before them")
            continue
        if type(module) not in (own, *classes[own]):
            raise _refused(module, "was changed after patch; undo parametrizations and the like first")
        if not _has_own_forward(own, classes[own][0]):
            raise _refused(module, f"has another forward than transformers', or {own.__module__} another apply_rotary_pos_emb; undo what replaced it")
        if type(module) is own and "forward" in module.__dict__:
            raise _refused(module, "has a forward of its own, such as those of device maps over several devices; patch a model of one device")
        if type(module) is own and hasattr(module, "act_fn") and not (isinstance(module.act_fn, nn.SiLU) or type(module.act_fn).__name__ == "SiLUActivation"):
            raise _refused(module, f"has the activation {type(module.act_fn).__name__}, expected SiLU")
        for each in {nn.Linear, type(getattr(module, "act_fn", None))} & {nn.Linear, *parts.SILU}:
            if not _is_of(each.forward, each.__module__, f"{each.__qualname__}.forward", ()):
                raise _refused(module, f"has a part with another forward than that of {each.__module__}.{each.__qualname__}; undo what replaced it")
        to = classes[own][inference]
        for name, projection in module.named_children():
            if not name.endswith("_proj"):
                continue
            if inference and not _is_plain(projection):
                raise _refused(module, f"has hooks or an adapter at {name}, or is quantised there; merge or remove these, or patch without inference=True")
            for each in (projection, getattr(projection, "base_layer", None)):  # peft's adapters keep theirs there
                if type(each) is nn.Linear and "forward" not in each.__dict__:
                    yield each, parts.KilnLinear
        yield module, to


def _is_plain(projection: nn.Module) -> bool:
    if type(projection) is nn.Linear:
        return not (projection._forward_hooks or projection._forward_pre_hooks or projection._backward_hooks or projection._backward_pre_hooks
                    or "forward" in projection.__dict__) and type(projection._parameters.get("weight")) is nn.Parameter
    return parts.is_bare(projection) and type(projection._parameters.get("weight")) is nn.Parameter


def _refused(module: nn.Module, why: str, what: str = "patch") -> ValueError:
    return ValueError(f"kiln.torch.{what}: {type(module).__name__} {why}")


def _remove(hooks: dict[int, Any], hook: Any) -> None:
    for each in [key for key, found in hooks.items() if found is hook]:
        del hooks[each]


def _set_attention(model: nn.Module, layers: list[nn.Module]) -> None:
    from transformers import PreTrainedModel

    own = [each for each in model.modules() if isinstance(each, PreTrainedModel)]
    before = [(each, each.config._attn_implementation) for each in own]
    for each, named in before:
        if each.config._attn_implementation != "kiln":
            each.set_attn_implementation("kiln")
        if named != "kiln":
            each._kiln_attention_before = named
        if isinstance(each, _bases()) and _name_sequences not in each._forward_pre_hooks.values():
            each.register_forward_pre_hook(_name_sequences, with_kwargs=True)
    configs = {id(part): each.config for each in own for part in each.modules()}
    for each in layers:  # a copied layer has a copy of the configuration, which set_attn_implementation() does not reach
        config = configs.get(id(each))
        if type(config) is type(each.config):
            each.config = config


def _name_sequences(model: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """A hook of the base model: sequences that lie in one row are named to attention where positions that the caller gave restart."""
    if is_compiling():
        return None
    by_name = dict(zip(("input_ids", "attention_mask", "position_ids", "past_key_values", "inputs_embeds"), given)) | named if given else named
    positions, cache = by_name.get("position_ids"), next((each for each in map(by_name.get, _CACHE) if each is not None), None)
    if positions is None or by_name.get("cu_seq_lens_q") is not None or model.config._attn_implementation != "kiln":
        return None
    if cache is not None and (getattr(cache, "is_compileable", False) or cache.get_seq_length() > 0):
        return None
    tokens = next((each for each in map(by_name.get, ("input_ids", "inputs_embeds")) if each is not None), positions)
    found = sequences_of(positions, tokens.shape[0])
    if "seq_idx" in named:  # which says no more than the positions
        return given, {**named, "seq_idx": None, **found}
    return (given, {**named, **found}) if found else None
