"""kiln.torch.patch() on small models of Hugging Face, with the references in the kernels' place."""
from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import kiln.torch  # noqa: E402
import reference  # noqa: E402
from torch._dynamo.testing import CompileCounterWithBackend  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

KEEP = reference.install_on_cpu()
SIZES = dict(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
             max_position_embeddings=128, attn_implementation="eager", dtype=torch.float32)


def model_of(family):
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**{name: value for name, value in SIZES.items() if name not in ("attn_implementation", "dtype")})
    config._attn_implementation = "eager"
    model = getattr(transformers, f"{family}ForCausalLM")(config)
    with torch.no_grad():
        for name, each in model.named_parameters():
            if name.endswith("bias") or "norm" in name:
                each.normal_(1 if "norm" in name else 0, 0.2)
    return model


@pytest.fixture(params=["Llama", "Qwen2", "Qwen3"])
def pair(request):
    model = model_of(request.param).eval()
    return model, kiln.torch.patch(copy.deepcopy(model))


TOKENS = torch.randint(64, (2, 11), generator=torch.Generator().manual_seed(1))


def test_a_patched_model_computes_the_same(pair):
    model, patched = pair
    with torch.no_grad():
        torch.testing.assert_close(patched(TOKENS).logits, model(TOKENS).logits, rtol=1e-4, atol=1e-4)
    assert {each.__name__ for each in map(type, patched.modules())} >= {f"Kiln{type(model.model.layers[0]).__name__}"}


def test_it_has_the_same_gradients_and_weights(pair):
    model, patched = pair
    for each in pair:
        each(TOKENS, labels=TOKENS).loss.backward()
    for (name, one), (other, wanted) in zip(patched.named_parameters(), model.named_parameters()):
        assert name == other
        torch.testing.assert_close(one, wanted)
        torch.testing.assert_close(one.grad, wanted.grad, rtol=1e-4, atol=1e-5)


def test_it_steps_loads_and_moves_as_before(pair):
    model, patched = pair
    for each in pair:
        optimizer = torch.optim.AdamW(each.parameters(), lr=1e-2)
        each(TOKENS, labels=TOKENS).loss.backward()
        optimizer.step()
    with torch.no_grad():
        torch.testing.assert_close(patched(TOKENS).logits, model(TOKENS).logits, rtol=1e-3, atol=1e-3)
        other = model_of(type(model).__name__.removesuffix("ForCausalLM"))
        patched.load_state_dict(other.state_dict())
        torch.testing.assert_close(patched(TOKENS).logits, other(TOKENS).logits, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(patched.double()(TOKENS).logits, other.double()(TOKENS).logits, rtol=1e-4, atol=1e-4)
        patched.model.layers[0].mlp.gate_proj.weight.data = patched.model.layers[0].mlp.gate_proj.weight.data.clone()
        with pytest.raises(RuntimeError, match="were replaced, not changed in place; call kiln.torch.patch"):
            patched(TOKENS)
        torch.testing.assert_close(kiln.torch.patch(patched)(TOKENS).logits, other(TOKENS).logits, rtol=1e-4, atol=1e-4)


def test_padding_packing_and_caches(pair):
    model, patched = pair
    mask = torch.ones_like(TOKENS)
    mask[0, :4] = 0
    with torch.no_grad():
        padded, expected = (each(TOKENS, attention_mask=mask, position_ids=(mask.cumsum(1) - 1).clamp(0)).logits for each in (patched, model))
        torch.testing.assert_close(padded[mask.bool()], expected[mask.bool()], rtol=1e-4, atol=1e-4)
        offsets = torch.tensor([0, 11, 22], dtype=torch.int32)
        positions = torch.arange(11).repeat(2)[None]
        packed = patched(TOKENS.view(1, 22), position_ids=positions, cu_seq_lens_q=offsets, cu_seq_lens_k=offsets, max_length_q=11, max_length_k=11).logits
        torch.testing.assert_close(packed.view(2, 11, -1), model(TOKENS).logits, rtol=1e-4, atol=1e-4)
        written = [each.generate(TOKENS, max_new_tokens=4, do_sample=False) for each in pair]
        assert torch.equal(*written)


class Launched(TorchDispatchMode):
    """Names of Kiln's ops of attention, in order."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "kiln" and "attention" in func.__name__:
            self.names.append(func.__name__.removesuffix(".default"))
        return func(*args, **(kwargs or {}))


def test_a_step_of_one_token_decodes_over_the_cache(pair):
    model, patched = pair
    steps = [torch.randint(64, (2, 1), generator=torch.Generator().manual_seed(seed)) for seed in range(3)]
    with torch.no_grad(), Launched() as launched:
        caches = [each(TOKENS, use_cache=True).past_key_values for each in pair]
        for step in steps:
            found, expected = (each(step, past_key_values=cache).logits for each, cache in zip((patched, model), reversed(caches)))
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert launched.names == 2 * ["attention_dense_causal"] + 3 * 2 * ["attention_decode_contiguous"]


def test_a_step_with_padding_or_gradients_does_not(pair):
    model, patched = pair
    mask = torch.ones(2, 12, dtype=torch.long)
    mask[0, :4] = 0
    with torch.no_grad(), Launched() as launched:
        written = [each.generate(TOKENS, attention_mask=mask[:, :11], max_new_tokens=3, do_sample=False, pad_token_id=0) for each in pair]
        assert torch.equal(*written)
    assert launched.names and "attention_decode_contiguous" not in launched.names
    with Launched() as launched:
        patched(TOKENS[:, :1], labels=TOKENS[:, :1])
        patched(TOKENS[:, :1]).logits.sum().backward()
    assert launched.names and "attention_decode_contiguous" not in launched.names


def test_one_query_sees_a_window_of_its_cache():
    q, k, v = torch.randn(2, 4, 1, 8), torch.randn(2, 2, 9, 8), torch.randn(2, 2, 9, 8)
    for window in (1, 4, 9, 20):
        expected = kiln.torch.attention(*(each.transpose(1, 2) for each in (q, k, v)), causal=True, window=(window - 1, 0))
        found = kiln.torch.huggingface_attention(torch.nn.Module(), q, k, v, None, sliding_window=window)[0]
        torch.testing.assert_close(found, expected)


def test_what_attention_does_not_have_is_refused(pair):
    _, patched = pair
    with torch.no_grad(), pytest.raises(ValueError, match="static cache.*use a DynamicCache"):
        patched.generate(TOKENS, max_new_tokens=2, do_sample=False, cache_implementation="static")
    patched.train()
    for layer in patched.model.layers:
        layer.self_attn.attention_dropout = 0.1
    with pytest.raises(ValueError, match="dropout, softcap and sinks are not there; use another attn_implementation"):
        patched(TOKENS)


def test_one_graph_serves_all_lengths(pair):
    model, patched = pair
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(patched, backend=counter, fullgraph=True)
    with torch.no_grad():
        for length in (11, 8, 5, 10):
            tokens = TOKENS[:, :length].contiguous()
            torch._dynamo.mark_dynamic(tokens, 1)
            torch.testing.assert_close(compiled(tokens, use_cache=False).logits, model(tokens).logits, rtol=1e-4, atol=1e-4)
    assert counter.frame_count == 1
    torch._dynamo.reset()


def test_other_models_are_refused():
    with pytest.raises(ValueError, match="Linear has no part of the families Llama, Qwen2, Qwen3"):
        kiln.torch.patch(torch.nn.Linear(2, 2))
    model = model_of("Llama")
    model.model.layers[0].mlp.act_fn = torch.nn.GELU()
    with pytest.raises(ValueError, match="LlamaMLP has projections or an activation of another kind"):
        kiln.torch.patch(model)
