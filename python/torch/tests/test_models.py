"""Models that patch() does not know, with Kiln's attention by transformers' AttentionInterface and the references in the kernels' place."""
from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from small_models import TOKENS, Launched, model_of, with_kiln  # noqa: E402

KINDS = {
    "Gemma2": ({"attn_logit_softcapping": 2.0, "query_pre_attn_scalar": 8, "sliding_window": 4}, "_softcap"),
    "GptOss": ({"sliding_window": 4, "num_local_experts": 4, "num_experts_per_tok": 2}, "_sinks"),
    "Mistral": ({"sliding_window": 4}, ""),
}


@pytest.fixture(params=KINDS)
def of_kind(request):
    """A model in eager mode, the same one with Kiln's attention, and what the names of its ops end with."""
    more, extra = KINDS[request.param]
    model = model_of(request.param, **more)
    return model, with_kiln(model), extra


def masks_of(model):
    """One a layer, as in names of ops."""
    windows = getattr(model.config, "layer_types", None) or ["sliding_attention"] * 2
    assert len(windows) == 2
    return ["_window" if each == "sliding_attention" else "_causal" for each in windows]


def test_a_model_computes_the_same_and_has_the_same_gradients(of_kind):
    model, ours, extra = of_kind
    with Launched() as launched:
        logits = ours(TOKENS).logits
    assert launched.names == [f"attention_dense{each}{extra}" for each in masks_of(model)]
    expected = model(TOKENS).logits
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)
    for each in (logits, expected):
        each.square().mean().backward()
    for (name, wanted), found in zip(model.named_parameters(), ours.parameters()):
        if wanted.grad is not None:
            torch.testing.assert_close(found.grad, wanted.grad, rtol=1e-3, atol=1e-4, msg=lambda text: f"{name}: {text}")
    sinks = [each for name, each in ours.named_parameters() if name.endswith("sinks")]
    assert len(sinks) == (2 if extra == "_sinks" else 0) and all(each.grad.abs().min() > 0 for each in sinks)


def test_steps_and_padding_are_right_too(of_kind):
    model, ours, extra = of_kind
    whole, mask = torch.ones_like(TOKENS), torch.ones_like(TOKENS)
    mask[0, :4] = 0
    with torch.no_grad(), Launched() as launched:
        written = [each.generate(TOKENS, attention_mask=whole, max_new_tokens=6, do_sample=False, pad_token_id=0) for each in (model, ours)]
        assert torch.equal(*written)
        assert launched.names[2:4] == 2 * [f"attention_decode_contiguous{extra}"]
        written = [each.generate(TOKENS, attention_mask=mask, max_new_tokens=6, do_sample=False, pad_token_id=0) for each in (model, ours)]
        assert torch.equal(*written)
        positions = (mask.cumsum(1) - 1).clamp(0)
        found, expected = (each(TOKENS, attention_mask=mask, position_ids=positions).logits[mask.bool()] for each in (ours, model))
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
