"""kiln.torch.patch() on small models of Hugging Face, with the references in the kernels' place."""
from __future__ import annotations

import copy
import inspect
import sys

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import kiln.torch  # noqa: E402
from small_models import FAMILIES, TOKENS, Launched, model_of, with_kiln  # noqa: E402
from torch._subclasses import FakeTensorMode  # noqa: E402
from torch._dynamo.testing import CompileCounterWithBackend  # noqa: E402


@pytest.fixture(params=FAMILIES)
def pair(request):
    model = model_of(request.param)
    return model, kiln.torch.patch(copy.deepcopy(model))


def test_a_patched_model_computes_the_same(pair):
    model, patched = pair
    with torch.no_grad():
        torch.testing.assert_close(patched(TOKENS).logits, model(TOKENS).logits, rtol=1e-4, atol=1e-4)
    layer = type(model.model.layers[0]).__name__
    assert patched.model.layers[0]._get_name() == f"Kiln{layer}" and type(patched.model.layers[0]).__name__ == layer  # by which FSDP finds layers


def test_it_has_the_same_gradients_and_weights(pair):
    model, patched = pair
    for each in pair:
        each(TOKENS, labels=TOKENS).loss.backward()
    for (name, one), (other, wanted) in zip(patched.named_parameters(), model.named_parameters()):
        assert name == other
        torch.testing.assert_close(one, wanted)
        torch.testing.assert_close(one.grad, wanted.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_gradient_checkpointing_gives_the_same(pair, use_reentrant):
    model, patched = (each.train() for each in pair)
    patched.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": use_reentrant})
    patched.enable_input_require_grads()  # without it a re-entrant checkpoint has no input with a gradient
    for each in pair:
        each(TOKENS, labels=TOKENS).loss.backward()
    for one, wanted in zip(patched.parameters(), model.parameters()):
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


def test_a_step_of_one_token_decodes_over_the_cache(pair):
    model, patched = pair
    steps = [torch.randint(64, (2, 1), generator=torch.Generator().manual_seed(seed)) for seed in range(3)]
    with torch.no_grad(), Launched() as launched:
        caches = [each(TOKENS, use_cache=True).past_key_values for each in pair]
        for step in steps:
            found, expected = (each(step, past_key_values=cache).logits for each, cache in zip((patched, model), reversed(caches)))
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert launched.names == 2 * ["attention_dense_causal"] + 3 * 2 * ["attention_decode_contiguous"]


def test_a_step_with_padding_or_gradients_calls_another_op(pair):
    model, patched = pair
    mask = torch.ones(2, 12, dtype=torch.long)
    mask[0, :4] = 0
    with torch.no_grad(), Launched() as launched:
        written = [each.generate(TOKENS, attention_mask=mask[:, :11], max_new_tokens=3, do_sample=False, pad_token_id=0) for each in pair]
        assert torch.equal(*written)
    assert launched.names == 2 * ["attention_packed_causal"] + 2 * 2 * ["attention_decode_indexed"]
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
    patched.train()
    for layer in patched.model.layers:
        layer.self_attn.attention_dropout = 0.1
    with pytest.raises(ValueError, match="dropout is not supported; set the config's attention_dropout to 0, or use another attn_implementation"):
        patched(TOKENS)


def attends(*shape, mask=None, **named):
    """kiln.torch's attention of one row, as transformers calls it, and query, key and value."""
    given = tuple(torch.randn(1, heads, tokens, 8) for heads, tokens in ((4, shape[0]), (2, shape[1]), (2, shape[1])))
    return kiln.torch.huggingface_attention(torch.nn.Module(), *given, mask, **named)[0], given


@pytest.mark.parametrize("named", ["position_bias", "sinks", "indices", "block_table", "cache", "past_key_values", "of_a_later_release"])
def test_an_argument_that_attention_does_not_know_is_refused(named):
    attends(5, 5, **{named: None}, use_cache=True, output_attentions=False, deterministic=False)
    with pytest.raises(ValueError, match=f"gives the argument {named}, which Kiln does not know; leave it out, or use another attn_implementation"):
        attends(5, 5, **{named: torch.ones(1)})


def test_a_mask_of_another_kind_is_refused():
    whole = torch.ones(1, 5, dtype=torch.bool)
    attends(5, 5, mask=whole)
    for mask, found in ((whole[None], r"\[1, 1, 5\]"), (whole[None, None], r"\[1, 1, 1, 5\]"), (whole.expand(2, 5), r"\[2, 5\]"), ("causal", "a str")):
        with pytest.raises(ValueError, match=f"attention mask is {found}, expected .1, 5., which tells tokens from padding"):
            attends(5, 5, mask=mask)
    with pytest.raises(ValueError, match="the attention mask has torch.float32, expected torch.bool, which is true for tokens"):
        attends(5, 5, mask=whole.float())
    with pytest.raises(ValueError, match=r"mask is \[1, 5\] for a sliding window over 8 keys, expected a column for each"):
        attends(3, 8, mask=whole, sliding_window=4)


def masked(create, tokens=9, **more):
    """Transformers' mask of a Llama-like model for Kiln's attention."""
    with_kiln(model_of("Llama"))
    config = transformers.LlamaConfig(sliding_window=4, attention_chunk_size=6)
    config._attn_implementation = "kiln"
    make = getattr(transformers.masking_utils, create)
    named = {"config": config, "inputs_embeds": torch.zeros(1, tokens, 8), "attention_mask": None, "past_key_values": None, "cache": None, "position_ids": None}
    return make(**{key: each for key, each in {**named, **more}.items() if key in inspect.signature(make).parameters})


def test_masks_that_attention_does_not_compute_are_refused():
    packed = {"position_ids": torch.tensor([[0, 1, 2, 0, 1, 2, 3, 4, 5]])}
    for create in ("create_causal_mask", "create_sliding_window_causal_mask", "create_bidirectional_mask", "create_bidirectional_sliding_window_mask"):
        assert masked(create) is None
        numbers = None if "bidirectional" in create else [[0, 0, 0, 1, 1, 1, 1, 1, 1]]
        assert masked(create, **packed) is None if numbers is None else masked(create, **packed).tolist() == numbers
    assert masked("create_chunked_causal_mask", tokens=6) is None
    for create in ("create_causal_mask", "create_sliding_window_causal_mask", "create_bidirectional_mask"):
        for named in ("or_mask_function", "and_mask_function"):
            with pytest.raises(ValueError, match="the model's mask is a function of the model, expected causal, none or a sliding window; use another"):
                masked(create, **{named: lambda batch, head, query, key: key >= 0})
    with pytest.raises(ValueError, match="the model's mask is chunked_overlay.*expected causal, none or a sliding window; use another attn_implementation"):
        masked("create_chunked_causal_mask")
    with pytest.raises(ValueError, match="the model's mask is or_masks"):
        masked("create_causal_mask", block_sequence_ids=torch.tensor([[-1, -1, 0, 0, 0, -1, -1, -1, -1]]))


def test_seq_idx_separates_by_cu_seq_lens_alone(pair):
    _, patched = pair
    tokens, positions, which = TOKENS.view(1, 22), torch.arange(11).repeat(2)[None], torch.arange(2, dtype=torch.int32).repeat_interleave(11)[None]
    with torch.no_grad():
        expected = patched(tokens, position_ids=positions).logits
        assert torch.equal(patched(tokens, position_ids=positions, seq_idx=which).logits, expected)
        with pytest.raises(ValueError, match="seq_idx alone does not separate sequences; give cu_seq_lens_q"):
            patched(tokens, seq_idx=which)


def test_a_window_reaches_both_ways_where_attention_is_not_causal():
    """As flash attention has it: so many keys before a query as after it."""
    for window in (1, 3, 20):
        found, given = attends(9, 9, sliding_window=window, is_causal=False)
        seen = (torch.arange(9)[:, None] - torch.arange(9)).abs() < window
        expected = torch.nn.functional.scaled_dot_product_attention(*given, attn_mask=seen, enable_gqa=True).transpose(1, 2)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
        mask = torch.ones(1, 9, dtype=torch.bool)
        torch.testing.assert_close(kiln.torch.huggingface_attention(torch.nn.Module(), *given, mask, sliding_window=window, is_causal=False)[0], expected,
                                   rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["past_key_values", "cache"])
def test_a_cache_has_the_name_of_its_release(pair, name):
    model, patched = pair
    if not hasattr(transformers.modeling_outputs.BaseModelOutputWithPast(), name):
        pytest.skip(f"this release of transformers knows no {name}")
    cache = transformers.DynamicCache(config=model.config)
    with torch.no_grad():
        for begin, end in ((0, 8), (8, 9), (9, 11)):
            found = patched(TOKENS[:, begin:end], **{name: cache}).logits
            torch.testing.assert_close(found, model(TOKENS[:, :end]).logits[:, begin:], rtol=1e-4, atol=1e-4)
    assert cache.get_seq_length() == 11


def test_a_release_whose_parts_take_more_is_refused(monkeypatch):
    model, own = model_of("Llama"), transformers.models.llama.modeling_llama.LlamaAttention
    patching = sys.modules["kiln_torch.patch"]

    def more(self, hidden_states, position_embeddings, attention_mask=None, cache=None, query_gate=None, **others):
        """As a later release may have it."""

    def another(self, hidden_states, position_embeddings, attention_mask=None, store=None, **others):
        """As a later release may have it."""

    def nothing(self, hidden_states, position_embeddings, attention_mask=None, **others):
        """As a later release may have it."""

    for forward, what in ((more, "takes query_gate, which"), (another, "takes store, which"), (nothing, "takes no cache that is called")):
        with monkeypatch.context() as patched, pytest.raises(ValueError, match=f"LlamaAttention.forward of transformers .* {what}.*use a release"):
            patched.setattr(own, "forward", forward)
            patching._classes_of.cache_clear()
            kiln.torch.patch(model_of("Qwen2"))  # another family's parts are as they were
            kiln.torch.patch(model)
    assert type(model.model.layers[0].self_attn) is own
    patching._classes_of.cache_clear()


def parted(model, lengths, batch=1, **named):
    """Logits of sequences of these lengths that lie in each row, by their positions alone."""
    tokens, positions = TOKENS.flatten()[: sum(lengths)].expand(batch, -1), torch.cat([torch.arange(each) for each in lengths])
    with torch.no_grad():
        return model(tokens, position_ids=positions.expand(named.pop("rows", batch), -1), **named).logits


def one_by_one(model, lengths, batch=1):
    with torch.no_grad():
        return torch.cat([model(each[None]).logits for each in TOKENS.flatten()[: sum(lengths)].split(lengths)], 1).expand(batch, -1, -1)


@pytest.mark.parametrize("lengths", [[11, 11], [5, 1, 1, 9], [1, 21], [22]])
def test_positions_that_restart_part_sequences(pair, lengths):
    model, patched = pair
    expected = one_by_one(model, lengths)
    for found in (parted(patched, lengths), parted(patched, lengths, use_cache=False), parted(patched, lengths, attention_mask=torch.ones(1, sum(lengths)))):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    for rows in (1, 2):
        torch.testing.assert_close(parted(patched, lengths, 2, rows=rows), one_by_one(model, lengths, 2), rtol=1e-4, atol=1e-4)
    positions = torch.cat([torch.arange(each) for each in lengths])[None]
    with torch.no_grad():  # given in order, to the base model
        found, expected = patched.model(TOKENS.flatten()[None, : sum(lengths)], None, positions)[0], patched.model(
            TOKENS.flatten()[None, : sum(lengths)], position_ids=positions)[0]
        assert torch.equal(found, expected)
        embedded = patched.model.embed_tokens(TOKENS.flatten()[None, : sum(lengths)])
        assert torch.equal(patched.model(None, None, positions, None, embedded)[0], expected)
        with pytest.raises(ValueError, match="exactly one of input_ids or inputs_embeds"):
            patched.model(position_ids=positions)


def test_they_do_in_a_base_model_of_ones_own(pair):
    model, _ = pair
    patched = copy.deepcopy(model)
    patched.model.__class__ = type("ServicesModel", (type(model.model),), {})
    kiln.torch.patch(patched)
    torch.testing.assert_close(parted(patched, [11, 11]), one_by_one(model, [11, 11]), rtol=1e-4, atol=1e-4)


def test_they_do_where_the_layers_are_another_models(pair):
    model, _ = pair

    class Own(type(model).__mro__[1]):  # the family's PreTrainedModel
        def __init__(self, base):
            super().__init__(base.config)
            self.base = torch.nn.ModuleDict(base.named_children())

        def forward(self, tokens, positions):
            x = self.base["embed_tokens"](tokens)
            tables = self.base["rotary_emb"](x, positions)
            for layer in self.base["layers"]:
                x = layer(x, attention_mask=None, position_ids=positions, position_embeddings=tables)
            return self.base["norm"](x)

    own = kiln.torch.patch(Own(copy.deepcopy(model.model)))
    positions = torch.arange(11).repeat(2)[None]
    with torch.no_grad():
        found, expected = own(TOKENS.view(1, 22), positions), model.model(TOKENS)[0].view(1, 22, -1)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert not [name for each in kiln.torch.unpatch(own).modules() for name in vars(each) if "kiln" in name]


def test_they_do_without_patch_and_have_the_same_gradients(pair):
    model, patched = pair
    bare = with_kiln(model)
    torch.testing.assert_close(parted(bare, [5, 6, 11]), one_by_one(model, [5, 6, 11]), rtol=1e-4, atol=1e-4)
    with torch.inference_mode():
        torch.testing.assert_close(parted(bare, [11, 11]), one_by_one(model, [11, 11]), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(parted(bare, [11, 11]), one_by_one(model, [11, 11]), rtol=1e-4, atol=1e-4)
    positions = torch.arange(11).repeat(2)[None]
    for each in (model, patched, bare):
        each(TOKENS.view(1, 22), position_ids=positions, use_cache=False).logits.square().sum().backward()
    for (name, expected), *found in zip(model.named_parameters(), patched.parameters(), bare.parameters()):
        for each in found:
            torch.testing.assert_close(each.grad, expected.grad, rtol=1e-3, atol=1e-3, msg=lambda text: f"{name}: {text}")


def test_positions_of_one_row_serve_batches_of_any_size(pair):
    model, patched = pair
    positions = torch.cat([torch.arange(4), torch.arange(7)])[None]
    with torch.no_grad():
        for each in (patched, with_kiln(model)):
            for rows in (1, 2, 1):
                found, expected = (one(TOKENS[:rows], position_ids=positions, use_cache=False).logits for one in (each, model))
                torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_positions_are_waited_for_once_and_only_where_given(pair, monkeypatch):
    model, patched = pair
    asked, modules = [], [sys.modules[f"kiln_torch.{each}"] for each in ("patch", "huggingface")]
    own = modules[0].sequences_of
    for module in modules:
        monkeypatch.setattr(module, "sequences_of", lambda *given: asked.append(given) or own(*given))
    with torch.no_grad():
        cache = patched(TOKENS, use_cache=True).past_key_values
        patched(TOKENS[:, :2], past_key_values=cache, position_ids=torch.tensor([[11, 12]]))
        assert not asked
        patched(TOKENS, position_ids=torch.arange(11)[None])
        assert len(asked) == 1
        with_kiln(model)(TOKENS, position_ids=torch.arange(11)[None])
        assert len(asked) == 2


def test_a_window_does_not_reach_over_padding_between_tokens():
    config = dict(use_sliding_window=True, sliding_window=4, max_window_layers=0)
    model = model_of("Qwen2", **config)
    patched = kiln.torch.patch(copy.deepcopy(model))
    masks = [torch.ones_like(TOKENS) for _ in range(3)]
    masks[0][0, :4], masks[1][1, 7:], masks[2][0, 3:6] = 0, 0, 0
    with torch.no_grad():
        for mask in masks[:2]:
            found, expected = (each(TOKENS, attention_mask=mask, use_cache=False).logits[mask.bool()] for each in (patched, model))
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
        with pytest.raises(ValueError, match="padding between tokens, over which a sliding window would reach too far; pad only the ends"):
            patched(TOKENS, attention_mask=masks[2])
        for each in (model, patched):  # a window that holds all
            for layer in each.model.layers:
                layer.self_attn.sliding_window = 11
        model.config.sliding_window = patched.config.sliding_window = 11
        found, expected = (each(TOKENS, attention_mask=masks[2], use_cache=False).logits[masks[2].bool()] for each in (patched, model))
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("inference", [False, True])
def test_autocast_keeps_the_residual_stream_in_f32(inference):
    """torch.autocast of CUDA is what Kiln's functions ask, and of the CPU what torch's do here."""
    wide = model_of("Llama", num_hidden_layers=12).double()
    models = model_of("Llama", num_hidden_layers=12), kiln.torch.patch(model_of("Llama", num_hidden_layers=12), inference=inference)
    with torch.no_grad():
        expected, errors = wide(TOKENS).logits, []
        for model in models:
            torch.set_autocast_enabled("cuda", True)
            torch.set_autocast_dtype("cuda", torch.bfloat16)
            try:
                with torch.autocast("cpu", torch.bfloat16):
                    found = model(TOKENS, output_hidden_states=True)
            finally:
                torch.set_autocast_enabled("cuda", False)
            assert {each.dtype for each in found.hidden_states} == {torch.float32}
            errors.append(((found.logits.double() - expected).norm() / expected.norm()).item())
    assert errors[1] < 1.2 * errors[0], errors


def test_another_attention_may_be_asked_for_after_patch(pair):
    model, patched = pair
    for named in ("sdpa", "eager"):
        patched.set_attn_implementation(named)
        with torch.no_grad(), Launched() as launched:
            torch.testing.assert_close(patched(TOKENS).logits, model(TOKENS).logits, rtol=1e-4, atol=1e-4)
        assert not launched.names


@pytest.mark.parametrize("named", ["eager", "sdpa"])
def test_a_copied_layer_has_kilns_attention_too(named):
    """A deep copy of a layer has a configuration of its own."""
    model = model_of("Llama")
    model.set_attn_implementation(named)
    model.model.layers.append(copy.deepcopy(model.model.layers[0]))
    model.model.layers[2].self_attn.layer_idx, model.config.num_hidden_layers = 2, 3
    patched, mask = kiln.torch.patch(copy.deepcopy(model)), torch.ones_like(TOKENS)
    mask[0, :4] = 0
    with torch.no_grad(), Launched() as launched:
        torch.testing.assert_close(patched(TOKENS).logits, model(TOKENS).logits, rtol=1e-4, atol=1e-4)
        found, expected = (each(TOKENS, attention_mask=mask).logits[mask.bool()] for each in (patched, model))
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert launched.names == 3 * ["attention_dense_causal"] + 3 * ["attention_packed_causal"]
    patched.set_attn_implementation("sdpa")
    with torch.no_grad():
        torch.testing.assert_close(patched(TOKENS, attention_mask=mask).logits[mask.bool()], expected, rtol=1e-4, atol=1e-4)
    patched.set_attn_implementation("kiln")
    patched.model.layers.append(copy.deepcopy(patched.model.layers[0]))  # a copy that is Kiln's already
    back = kiln.torch.unpatch(kiln.torch.patch(patched))
    assert {layer.self_attn.config._attn_implementation for layer in back.model.layers} == {named}


@pytest.mark.parametrize("inference", [False, True])
def test_one_graph_serves_all_lengths(pair, inference):
    model, patched = pair
    kiln.torch.patch(patched, inference=inference)
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
    with pytest.raises(ValueError, match="LlamaMLP has the activation GELU, expected SiLU"):
        kiln.torch.patch(model)


def test_f32_is_refused_by_name_unless_autocast_is_on():
    with FakeTensorMode(), torch.no_grad():
        q = torch.empty(1, 4, 5, 8, device="cuda")
        with pytest.raises(ValueError, match="the model computes in f32, expected bf16 or f16; use model.to.torch.bfloat16. or torch.autocast"):
            kiln.torch.huggingface_attention(torch.nn.Module(), q, q, q, None)
        torch.set_autocast_enabled("cuda", True)
        torch.set_autocast_dtype("cuda", torch.bfloat16)
        try:
            assert kiln.torch.huggingface_attention(torch.nn.Module(), q, q, q, None)[0].dtype == torch.bfloat16
        finally:
            torch.set_autocast_enabled("cuda", False)
