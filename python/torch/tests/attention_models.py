"""What gpu.py checks of models that patch() does not know: Kiln's attention by transformers' AttentionInterface, beside the model's own in f32."""
from __future__ import annotations

import copy
import functools

import kiln.torch as kt
import torch

SIZES = dict(vocab_size=512, hidden_size=512, intermediate_size=256, num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=2, head_dim=64,
             max_position_embeddings=1024, sliding_window=24)
FAMILIES = {
    "Gemma2": {"attn_logit_softcapping": 5.0, "query_pre_attn_scalar": 64}, "GptOss": {"num_local_experts": 4, "num_experts_per_tok": 4}, "Mistral": {},
}


@functools.cache
def pair(family: str):
    """With Kiln's attention in bf16, and its own in f32: in f64 transformers gives NaN to rows of padding in a window."""
    import transformers

    transformers.AttentionInterface.register("kiln", kt.huggingface_attention)
    transformers.masking_utils.AttentionMaskInterface.register("kiln", kt.huggingface_mask)
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**SIZES, **FAMILIES[family])
    config._attn_implementation = "eager"
    plain = getattr(transformers, f"{family}ForCausalLM")(config).to("cuda", torch.bfloat16)
    with torch.no_grad():
        for name, each in plain.named_parameters():
            if "q_proj" in name or "sinks" in name:
                each.normal_(0, 0.3)  # so that scores reach the soft cap, and sinks differ
    wide = copy.deepcopy(plain).float().eval()
    plain.set_attn_implementation("kiln")
    return plain.eval(), wide


def tokens_of(shape=(2, 70)):
    return torch.randint(1, 512, shape, device="cuda", generator=torch.Generator("cuda").manual_seed(1))


def checks(family: str):
    """Name, and a function that gives what Kiln computed and what f32 did."""
    for what in (logits, gradients, padded, steps):
        yield f"{family}: {what.__name__}", functools.partial(what, family)


def logits(family: str):
    with torch.no_grad():
        ours, expected = (model(tokens_of()).logits for model in pair(family))
    return ours, expected.to(torch.bfloat16)


def gradients(family: str):
    """Of all weights of attention."""
    found = []
    for model in pair(family):
        model.zero_grad()
        model(tokens_of(), labels=tokens_of()).loss.backward()
        found.append([each.grad.to(torch.bfloat16) for name, each in model.named_parameters() if "self_attn" in name])
    return found


def padded(family: str):
    mask = torch.ones(2, 70, dtype=torch.long, device="cuda")
    mask[0, :20] = 0
    positions = (mask.cumsum(1) - 1).clamp(0)
    with torch.no_grad():
        ours, expected = (model(tokens_of(), attention_mask=mask, position_ids=positions).logits[mask.bool()] for model in pair(family))
    return ours, expected.to(torch.bfloat16)


def steps(family: str):
    """Of one token, over a cache that is longer than the window."""
    found = []
    with torch.no_grad():
        for model in pair(family):
            cache = model(tokens_of(), use_cache=True).past_key_values
            found.append([model(tokens_of((2, 1)), past_key_values=cache).logits.to(torch.bfloat16) for _ in range(3)])
    return found
