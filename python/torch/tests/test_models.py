"""Models that patch() does not know, with Kiln's attention by transformers' AttentionInterface and the references in the kernels' place."""
from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import kiln.torch  # noqa: E402
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


@pytest.mark.parametrize("family", ["Persimmon", "Mistral"])
def test_positions_separate_sequences_whether_or_not_layers_hand_them_to_attention(family):
    """Persimmon's do not, so their mask says it."""
    model = model_of(family, sliding_window=None)
    ours, positions = with_kiln(model), torch.cat([torch.arange(each) for each in (5, 6, 11)])
    gradients = []
    for rows in (1, 2):
        found, expected = (each(TOKENS.view(1, 22).expand(rows, -1), position_ids=positions.expand(rows, -1), use_cache=False).logits for each in (ours, model))
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
        with torch.no_grad():
            alone = torch.cat([model(each[None]).logits for each in TOKENS.flatten().split([5, 6, 11])], 1)
        torch.testing.assert_close(found, alone.expand(rows, -1, -1), rtol=1e-4, atol=1e-4)
        gradients += [torch.autograd.grad(each.square().mean(), tuple(of.parameters())) for each, of in ((found, ours), (expected, model))]
    torch.testing.assert_close(gradients[::2], gradients[1::2], rtol=1e-3, atol=1e-4)


class Layer(torch.nn.Module):
    """What attention reads of a layer."""

    def __init__(self, kind="full_attention", is_causal=True):
        super().__init__()
        self.layer_idx, self.is_causal, self.config = 0, is_causal, transformers.PretrainedConfig()
        self.config.layer_types = [kind]


def test_layers_whose_keys_may_be_no_tokens_are_refused():
    given = [torch.randn(1, 2, 5, 8) for _ in range(3)]
    for kind in ("full_attention", "sliding_attention", "chunked_attention", "hybrid"):
        kiln.torch.huggingface_attention(Layer(kind), *given, None)
    with pytest.raises(ValueError, match="layer 0 is of the type compressed_sparse_attention, expected one of full_attention, .*use another"):
        kiln.torch.huggingface_attention(Layer("compressed_sparse_attention"), *given, None)


def test_layers_that_do_not_say_their_mask_are_refused():
    of_decoder = type("BigBirdPegasusDecoderAttention", (Layer,), {})
    with pytest.raises(ValueError, match="BigBirdPegasusDecoderAttention does not say whether its mask is causal; use another attn_implementation"):
        kiln.torch.huggingface_attention(of_decoder(is_causal=False), *(torch.randn(1, 2, 5, 8) for _ in range(3)), None)
    windowed = type("PhimoeAttention", (Layer,), {})()
    kiln.torch.huggingface_attention(windowed, *(torch.randn(1, 2, 5, 8) for _ in range(3)), None)
    windowed.config.sliding_window = 4
    with pytest.raises(ValueError, match="PhimoeAttention does not say its sliding window; use another attn_implementation"):
        kiln.torch.huggingface_attention(windowed, *(torch.randn(1, 2, 5, 8) for _ in range(3)), None)


@pytest.mark.parametrize("queries", [1, 4, 9, 12])
def test_padding_of_another_sequence_hides_its_keys_alone(queries):
    q, k, v = torch.randn(2, 4, queries, 8), torch.randn(2, 2, 9, 8), torch.randn(2, 2, 9, 8)
    for padding in (slice(6, 9), slice(0, 3), slice(3, 5)):
        mask = torch.ones(2, 9, dtype=torch.bool)
        mask[0, padding] = False
        found = kiln.torch.huggingface_attention(Layer(is_causal=False), q, k, v, mask)[0]
        for i in range(2):
            own = [each[i : i + 1].transpose(1, 2) for each in (q, k[:, :, mask[i]], v[:, :, mask[i]])]
            torch.testing.assert_close(found[i : i + 1], kiln.torch.attention(*own))


def test_numbers_of_sequences_are_refused_where_the_host_cannot_read_them(monkeypatch):
    """As in a layer that is compiled alone, behind a mask that was made in eager mode."""
    q, numbers = torch.zeros(1, 2, 4, 8), torch.tensor([[0, 0, 1, 1]], dtype=torch.int16)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    with pytest.raises(ValueError, match="are not separated while a layer is compiled .*; give cu_seq_lens_q"):
        kiln.torch.huggingface_attention(None, q, q, q, numbers)
