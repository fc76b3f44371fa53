"""Steps of generation over caches: static ones, padding, chunks of prompts, torch.compile; with patch and with Kiln's attention alone."""
from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import kiln.torch  # noqa: E402
from small_models import TOKENS, Launched, model_of, with_kiln  # noqa: E402
from torch._dynamo.utils import counters  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

KINDS = {
    "Llama": {},
    "Qwen3": {},
    "Qwen2": {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 0},
    "Mistral": {"sliding_window": 4},
    "Gemma2": {"attn_logit_softcapping": 2.0, "query_pre_attn_scalar": 8, "sliding_window": 4},
    "GptOss": {"sliding_window": 4, "num_local_experts": 4, "num_experts_per_tok": 2},
}
PROMPT = TOKENS.clamp(1)  # 0 is padding
LONG = torch.randint(1, 64, (2, 29), generator=torch.Generator().manual_seed(3))


@pytest.fixture(params=KINDS)
def models(request):
    """One in eager mode, and those that Kiln computes."""
    model = model_of(request.param, **KINDS[request.param])
    ours = [with_kiln(model)]
    if request.param in kiln.torch.patch.__globals__["FAMILIES"]:
        ours += [kiln.torch.patch(copy.deepcopy(model), inference=each) for each in (False, True)]
    return model, ours


def padded(tokens, row=0, columns=4):  # before the tokens
    mask = torch.ones_like(tokens)
    mask[row, :columns] = 0
    return mask


def written_by(model, tokens, **named):
    return model.generate(tokens, **{"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0, **named})


@pytest.mark.parametrize("cache", ("static", "dynamic"))
@pytest.mark.parametrize("tokens", (PROMPT, LONG), ids=("short", "long"))
def test_generate_writes_the_same_over_each_cache(models, cache, tokens):
    model, ours = models
    for mask in (None, torch.ones_like(tokens), padded(tokens)):
        expected = written_by(model, tokens, attention_mask=mask, cache_implementation=cache)
        for each in ours:
            assert torch.equal(written_by(each, tokens, attention_mask=mask, cache_implementation=cache), expected)


@pytest.mark.parametrize("cache", ("static", "dynamic"))
def test_generate_takes_prompts_in_chunks(models, cache):
    model, ours = models
    named = dict(cache_implementation=cache, prefill_chunk_size=5, disable_compile=True, max_new_tokens=3)
    for mask in (None, padded(LONG)):
        expected = written_by(model, LONG, attention_mask=mask, **named)
        for each in ours:
            assert torch.equal(written_by(each, LONG, attention_mask=mask, **named), expected)


@pytest.mark.parametrize("has_padding", (False, True))
def test_steps_over_a_static_cache_are_one_graph(models, has_padding):
    model, ours = models
    mask = padded(PROMPT) if has_padding else None
    expected = written_by(model, PROMPT, attention_mask=mask, cache_implementation="static", disable_compile=True)
    for each in ours:
        torch._dynamo.reset()
        counters.clear()
        config = transformers.CompileConfig(fullgraph=True, backend="aot_eager", mode=None)
        config._compile_all_devices = True
        assert torch.equal(written_by(each, PROMPT, attention_mask=mask, cache_implementation="static", compile_config=config), expected)
        window = getattr(model.config, "sliding_window", None)
        assert counters["stats"]["unique_graphs"] == (2 if window else 1)  # one more until a window is full
    torch._dynamo.reset()


def test_chunks_of_a_prompt_over_a_static_cache(models):
    model, ours = models
    for mask in (None, torch.ones_like(LONG), padded(LONG)):
        expected, *found = ([], *([] for _ in ours))
        for each, logits in zip((model, *ours), (expected, *found)):
            cache = transformers.StaticCache(config=each.config, max_cache_len=40)
            with torch.no_grad():
                for begin, end in ((0, 3), (3, 4), (4, 24), (24, 26), (26, 29)):
                    rows = each(LONG[:, begin:end], past_key_values=cache, attention_mask=None if mask is None else mask[:, :end]).logits
                    logits.append(rows if mask is None else rows[mask[:, begin:end].bool()])
        for each in found:
            torch.testing.assert_close(each, expected, rtol=1e-4, atol=1e-4)


def test_a_compiled_model_is_told_the_keys_of_a_static_cache():
    model = model_of("Llama")
    patched = kiln.torch.patch(copy.deepcopy(model))
    compiled = torch.compile(patched, backend="aot_eager", fullgraph=True)
    expected, found = [], []
    for each, logits in ((model, expected), (compiled, found)):
        cache = transformers.StaticCache(config=model.config, max_cache_len=40)
        cache.early_initialization(batch_size=2, num_heads=2, head_dim=8, dtype=torch.float32, device="cpu")
        with torch.no_grad():
            for begin, end in ((0, 20), (20, 21), (21, 22), (22, 25), (25, 29)):
                logits.append(each(LONG[:, begin:end], past_key_values=cache).logits)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    torch._dynamo.reset()


def test_a_mask_may_have_a_column_for_each_key_of_a_static_cache():
    model = model_of("Llama")
    patched = kiln.torch.patch(copy.deepcopy(model))
    mask = torch.ones(2, 40, dtype=torch.long)
    mask[0, :2] = 0
    expected, found = [], []
    for each, logits in ((model, expected), (patched, found)):
        cache = transformers.StaticCache(config=model.config, max_cache_len=40)
        with torch.no_grad():
            each(LONG[:, :20], past_key_values=cache, attention_mask=mask[:, :20])
            for begin, end in ((20, 21), (21, 24), (24, 29)):
                logits.append(each(LONG[:, begin:end], past_key_values=cache, attention_mask=mask).logits)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    with torch.no_grad(), pytest.raises(ValueError, match=r"the attention mask is \[2, 40\] for 20 tokens, expected a column for each token of the cache"):
        patched(LONG[:, :20], past_key_values=transformers.StaticCache(config=model.config, max_cache_len=40), attention_mask=mask)


def test_a_static_cache_without_a_mask_has_no_gradient():
    for each in (kiln.torch.patch(model_of("Llama")), with_kiln(model_of("Llama"))):
        cache = transformers.StaticCache(config=each.config, max_cache_len=32)
        with pytest.raises(ValueError, match="without an attention mask a static cache has no gradient; call the model under torch.no_grad()"):
            each(PROMPT, past_key_values=cache)
        each.requires_grad_(False)
        each(PROMPT, past_key_values=transformers.StaticCache(config=each.config, max_cache_len=32))


def test_without_the_mask_function_a_static_cache_is_refused():
    bare = with_kiln(model_of("Llama"))
    transformers.AttentionInterface.register("kiln_alone", kiln.torch.huggingface_attention)
    bare.set_attn_implementation("kiln_alone")
    with torch.no_grad(), pytest.raises(ValueError, match="nothing tells how many keys of a static cache are written; register kiln.torch.huggingface_mask"):
        bare(PROMPT, past_key_values=transformers.StaticCache(config=bare.config, max_cache_len=32))


class Waits(TorchDispatchMode):
    """What reads a value of a tensor, for which the host would wait."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.__name__.split(".")[0] in ("_local_scalar_dense", "nonzero", "is_nonzero", "equal", "masked_select"):
            self.names.append(func.__name__)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("has_padding", (False, True))
def test_a_step_over_a_static_cache_waits_for_nothing(has_padding):
    patched = kiln.torch.patch(model_of("Llama"))
    mask = padded(LONG) if has_padding else torch.ones_like(LONG)
    cache = transformers.StaticCache(config=patched.config, max_cache_len=40)
    with torch.no_grad():
        patched(LONG[:, :20], past_key_values=cache, attention_mask=mask[:, :20])
        with Waits() as waits:
            patched(LONG[:, 20:21], past_key_values=cache, attention_mask=mask[:, :21])
        assert waits.names == []
        with Waits() as waits:  # of a prompt, which shows that they are noticed
            patched(LONG[:, 21:29], past_key_values=cache, attention_mask=mask)
        assert waits.names != []


def test_a_padded_step_packs_nothing():
    patched = kiln.torch.patch(model_of("Llama"))
    with Launched() as launched:
        written_by(patched, PROMPT, attention_mask=padded(PROMPT), cache_implementation="static", max_new_tokens=3)
    assert launched.names == 2 * ["attention_packed_causal"] + 2 * 2 * ["attention_decode_indexed"]


@pytest.mark.parametrize("cache", ("static", "dynamic"))
def test_a_step_passes_over_padding_between_tokens(cache):
    model = model_of("Llama")
    patched, found = kiln.torch.patch(copy.deepcopy(model)), []
    mask = torch.ones(2, 21, dtype=torch.long)
    mask[0, 3:7], mask[1, 12], mask[1, 19] = 0, 0, 0
    for each in (model, patched):
        kept = transformers.StaticCache(config=model.config, max_cache_len=40) if cache == "static" else transformers.DynamicCache(config=model.config)
        with torch.no_grad():
            model(LONG[:, :20], past_key_values=kept)  # the same keys for both
            found.append(each(LONG[:, 20:21], past_key_values=kept, attention_mask=mask, position_ids=torch.full((2, 1), 20)).logits)
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)


def test_a_mask_may_be_wider_than_the_tokens():
    """torch.compile leaves such steps of several tokens to eager mode, since their mask is refused while it traces."""
    model = model_of("Llama")
    patched = kiln.torch.patch(copy.deepcopy(model))
    compiled = torch.compile(patched, backend="aot_eager")
    for columns in (26, 30, 40):
        mask, found = torch.ones(2, columns, dtype=torch.long), []
        mask[0, :2] = 0
        for each, step in ((model, model), (patched, compiled)):
            cache = transformers.StaticCache(config=model.config, max_cache_len=40)
            with torch.no_grad():
                each(LONG[:, :20], past_key_values=cache, attention_mask=mask[:, :20])
                found.append([which(LONG[:, begin : begin + 3], past_key_values=cache, attention_mask=mask).logits for which, begin in ((each, 20), (step, 23))])
        torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-4)
    torch._dynamo.reset()
    named = dict(batch_size=2, q_length=3, kv_length=40, q_offset=torch.tensor(20), attention_mask=mask.bool(), allow_is_causal_skip=True, device="cpu")
    with torch.no_grad(), pytest.MonkeyPatch.context() as patch, pytest.raises(ValueError, match="is compiled for steps of one token alone.*do not compile"):
        patch.setattr(torch.compiler, "is_compiling", lambda: True)
        kiln.torch.huggingface_mask(**named)


def test_a_mask_of_new_tokens_alone_is_refused(models):
    """Under it they would see the first keys of the cache, and none of their own."""
    for each in models[1]:
        for of in (transformers.DynamicCache, lambda config: transformers.StaticCache(config=config, max_cache_len=40)):
            for columns, begin in ((3, 0), (5, 2)):
                cache, mask = of(config=each.config), padded(PROMPT[:, :columns], columns=begin)
                with torch.no_grad(), pytest.raises(ValueError, match=rf"the attention mask is \[2, {columns}\] for 12 tokens, expected a column for each"):
                    each(LONG[:, :9], past_key_values=cache)
                    each(LONG[:, 9:12], past_key_values=cache, attention_mask=mask)


@pytest.mark.parametrize("dtype", (torch.int16, torch.int32, torch.int64, torch.bool, torch.float32))
def test_masks_of_four_dimensions_are_refused(dtype):
    for each in (kiln.torch.patch(model_of("Llama")), with_kiln(model_of("Llama"))):
        for shape in ((2, 1, 11, 11), (2, 4, 11, 11), (1, 1, 11, 11)):
            with torch.no_grad(), pytest.raises(ValueError, match=r"the attention mask is \[\d, \d, 11, 11\], expected \[2, 11\], which tells tokens"):
                each(PROMPT, attention_mask=torch.ones(shape, dtype=dtype), use_cache=False)
        for heads in (1, 2, 4):
            with torch.no_grad(), pytest.raises(ValueError, match=r"the attention mask is \[2, \d, 1, 12\]"):
                each(PROMPT[:, :1], attention_mask=torch.ones(2, heads, 1, 12, dtype=dtype), past_key_values=each(PROMPT, use_cache=True).past_key_values)


def encoder_decoder():
    sizes = dict(vocab_size=64, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=48,
                 decoder_ffn_dim=48, max_position_embeddings=128, pad_token_id=0, bos_token_id=1, eos_token_id=None, forced_eos_token_id=None,
                 decoder_start_token_id=1, attn_implementation="eager")
    torch.manual_seed(0)
    model = transformers.BartForConditionalGeneration(transformers.BartConfig(**sizes)).eval()
    with torch.no_grad():
        for each in model.parameters():
            each.mul_(6 if each.dim() > 1 else 1)
    return model


def test_attention_to_another_sequence_sees_all_of_its_keys():
    model = encoder_decoder()
    ours = with_kiln(model)
    for mask in (None, torch.ones_like(PROMPT), padded(PROMPT, columns=3)):
        for tokens in (1, 5, 11, 20):
            losses = [each(PROMPT, attention_mask=mask, decoder_input_ids=LONG[:, :tokens], use_cache=False).logits for each in (model, ours)]
            torch.testing.assert_close(*losses, rtol=1e-3, atol=1e-3)
        for cache in ("dynamic", "static"):
            for beams in (1, 3):
                written = [written_by(each, PROMPT, attention_mask=mask, cache_implementation=cache, num_beams=beams) for each in (model, ours)]
                assert torch.equal(*written)


@pytest.mark.parametrize("kind", ("Mistral", "Gemma2", "GptOss"))
def test_a_window_over_a_cache_that_was_reordered_or_records_its_past(kind):
    model = model_of(kind, **KINDS[kind])
    ours, found = with_kiln(model), []
    for has_padding in (False, True):
        mask, logits = padded(LONG, columns=2) if has_padding else torch.ones_like(LONG), []
        for each in (model, ours):
            static, recorded = transformers.StaticCache(config=each.config, max_cache_len=40), transformers.DynamicCache(config=each.config)
            for layer in recorded.layers if each is ours else ():
                if hasattr(layer, "activate_past_recording"):
                    layer.activate_past_recording()
            found = []
            with torch.no_grad():
                for begin, end in ((0, 9), (9, 10), (10, 11), (11, 12)):
                    found.append(each(LONG[:, begin:end], past_key_values=recorded, attention_mask=mask[:, :end]).logits[mask[:, begin:end].bool()])
                for begin, end in ((0, 3), (3, 9)):
                    found.append(each(LONG[:, begin:end], past_key_values=static, attention_mask=mask[:, :end]).logits[mask[:, begin:end].bool()])
                    static.reorder_cache(torch.tensor([0, 1]))
            logits.append(found)
        torch.testing.assert_close(logits[1], logits[0], rtol=1e-4, atol=1e-4)


def test_chunks_past_the_first_are_refused_where_the_mask_is_compiled(monkeypatch):
    config = transformers.Llama4TextConfig(attention_chunk_size=16)
    named = dict(batch_size=1, q_length=1, kv_length=16, kv_offset=3, q_offset=18, local_size=16, config=config, device="cpu")
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    with pytest.raises(ValueError, match="the model's mask is of chunks, expected causal, none or a sliding window"):
        kiln.torch.huggingface_mask(**named)
