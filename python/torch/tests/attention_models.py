"""What gpu.py checks of Kiln's attention in models, over their caches too, beside the model's own in bf16 and f32: by transformers' AttentionInterface, and of Llama by patch()."""
from __future__ import annotations

import copy
import functools

import kiln.torch as kt
import torch
from errors import error_of

SIZES = dict(vocab_size=512, hidden_size=512, intermediate_size=256, num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=2, head_dim=64,
             max_position_embeddings=1024, sliding_window=24)
FAMILIES = {
    "Gemma2": {"attn_logit_softcapping": 5.0, "query_pre_attn_scalar": 64}, "GptOss": {"num_local_experts": 4, "num_experts_per_tok": 4}, "Mistral": {}, "Llama": {"sliding_window": None},
}


@functools.cache
def models_of(family: str):
    """With Kiln's attention, with the model's own, and with that in f32: in f64 transformers gives NaN to rows of padding in a window."""
    import transformers

    transformers.AttentionInterface.register("kiln", kt.huggingface_attention)
    transformers.masking_utils.AttentionMaskInterface.register("kiln", kt.huggingface_mask)
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**SIZES | FAMILIES[family])
    config._attn_implementation = "eager"
    plain = getattr(transformers, f"{family}ForCausalLM")(config).to("cuda", torch.bfloat16).eval()
    with torch.no_grad():
        for name, each in plain.named_parameters():
            if "q_proj" in name or "sinks" in name:
                each.normal_(0, 0.3)  # so that scores reach the soft cap, and sinks differ
    ours, wide = copy.deepcopy(plain), copy.deepcopy(plain).float()
    if family == "Llama":
        kt.patch(ours)
    else:
        ours.set_attn_implementation("kiln")
    return ours, plain, wide


def tokens_of(shape=(2, 70)):
    return torch.randint(1, 512, shape, device="cuda", generator=torch.Generator("cuda").manual_seed(1))


def checks(family: str):
    """Name, and a function that gives the errors of Kiln's and of the model's own in bf16."""
    for what in ("logits", "gradients", "padded", "steps", "static_steps", "static_padded_steps", "compiled_steps", "compiled_padded_steps"):
        yield f"{family}: {what}", functools.partial(errors, family, globals()[what])


def errors(family: str, what):
    ours, plain, wide = map(what, models_of(family))
    return [[error_of(one, wanted) for one, wanted in zip(found, wide, strict=True)] for found in (ours, plain)]


@torch.no_grad()
def logits(model):
    return [model(tokens_of()).logits]


def gradients(model):
    """Of all weights of attention."""
    model.zero_grad()
    model(tokens_of(), labels=tokens_of()).loss.backward()
    return [each.grad for name, each in model.named_parameters() if "self_attn" in name]


@torch.no_grad()
def padded(model):
    mask = torch.ones(2, 70, dtype=torch.long, device="cuda")
    mask[0, :20] = 0
    return [model(tokens_of(), attention_mask=mask, position_ids=(mask.cumsum(1) - 1).clamp(0)).logits[mask.bool()]]


@torch.no_grad()
def steps(model):
    """Of one token, over a cache that is longer than the window."""
    cache = model(tokens_of(), use_cache=True).past_key_values
    return [model(tokens_of((2, 1)), past_key_values=cache).logits for _ in range(3)]


@torch.no_grad()
def cached(model, compiles=False, has_padding=False):
    """Steps over a static cache after a prompt, as generate() calls the model: a chunk of 3 tokens, then one token each. Kiln's is compiled, its graphs those of CUDA."""
    import transformers

    tokens, mask = tokens_of((2, 78)), torch.ones(2, 78, dtype=torch.long, device="cuda")
    if has_padding:
        mask[0, :20] = 0
    cache = transformers.StaticCache(config=model.config, max_cache_len=90)
    torch._dynamo.reset()
    step = torch.compile(model, mode="reduce-overhead", fullgraph=True) if compiles and model.config._attn_implementation == "kiln" else model
    found = []
    for begin, end in ((0, 70), (70, 73), *((each, each + 1) for each in range(73, 78))):
        given = model.prepare_inputs_for_generation(tokens[:, :end], next_sequence_length=end - begin, past_key_values=cache, attention_mask=mask[:, :end],
                                                    position_ids=(mask[:, :end].cumsum(1) - 1).clamp(0), use_cache=True)
        logits = (step if begin >= 73 else model)(**given).logits
        found.append(logits[mask[:, begin:end].bool()].clone())
    return found


static_steps = cached
static_padded_steps = functools.partial(cached, has_padding=True)
compiled_steps = functools.partial(cached, compiles=True)
compiled_padded_steps = functools.partial(cached, compiles=True, has_padding=True)
