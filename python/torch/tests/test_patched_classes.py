"""Classes that kiln.torch.patch() makes, and those that it refuses since something replaced their forward."""
from __future__ import annotations

import functools
import pickle
import sys
import threading
import time

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import kiln.torch  # noqa: E402
from small_models import FAMILIES, TOKENS, model_of  # noqa: E402


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("part", ["RMSNorm", "RotaryEmbedding", "MLP", "Attention", "DecoderLayer"])
def test_a_class_with_another_forward_is_refused(monkeypatch, part, inference):
    module = transformers.models.llama.modeling_llama
    model, own = model_of("Llama"), getattr(module, f"Llama{part}")
    forward = own.forward

    def plain(self, *given, **named):
        return forward(self, *given, **named)

    def named_as_before(self, *given, **named):
        return forward(self, *given, **named)

    functools.update_wrapper(named_as_before, forward, assigned=("__module__", "__name__", "__qualname__"))
    for other in (plain, functools.wraps(forward)(lambda *given: forward(*given)), named_as_before, torch.no_grad()(plain)):
        with monkeypatch.context() as patched:
            patched.setattr(own, "forward", other)
            with pytest.raises(ValueError, match=f"Llama{part}(.forward of transformers .*, replaced by| has another forward than transformers', or)"):
                kiln.torch.patch(model, inference=inference)
        assert type(model.model.layers[0].mlp) is module.LlamaMLP
    kiln.torch.patch(model, inference=inference)


def test_a_class_in_the_place_of_transformers_own_is_refused(monkeypatch):
    """As Liger's functions put theirs there."""
    module, patching = transformers.models.llama.modeling_llama, sys.modules["kiln_torch.patch"]
    with monkeypatch.context() as patched, pytest.raises(ValueError, match=f"transformers' LlamaMLP was replaced by {__name__}.Mlp; undo what replaced it"):
        patched.setattr(module, "LlamaMLP", type("Mlp", (module.LlamaMLP,), {"__module__": __name__, "forward": lambda self, x: x}))
        patching._classes_of.cache_clear()
        kiln.torch.patch(model_of("Llama"))
    assert "Kiln" in kiln.torch.patch(model_of("Llama")).model.layers[0].mlp._get_name()


def test_two_threads_that_patch_first_get_the_same_classes(monkeypatch):
    patching = sys.modules["kiln_torch.patch"]
    patching._classes_of.cache_clear()
    models, both, own = [model_of("Llama") for _ in range(2)], threading.Barrier(2), patching._cache_of
    monkeypatch.setattr(patching, "_cache_of", lambda *given: time.sleep(0.01) or own(*given))  # so that both would be in it

    def run(model):
        both.wait()
        kiln.torch.patch(model)

    threads = [threading.Thread(target=run, args=(each,)) for each in models]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert [type(each) for each in models[0].modules()] == [type(each) for each in models[1].modules()]
    for each in models:
        pickle.loads(pickle.dumps(each))
        kiln.torch.unpatch(kiln.torch.patch(each))


def test_a_module_with_another_rotary_function_is_refused(monkeypatch):
    model, module = model_of("Llama"), transformers.models.llama.modeling_llama
    with monkeypatch.context() as patched, pytest.raises(ValueError, match="modeling_llama another apply_rotary_pos_emb"):
        patched.setattr(module, "apply_rotary_pos_emb", lambda q, k, cos, sin: (q, k))
        kiln.torch.patch(model)
    kiln.torch.patch(model)


def test_a_projection_or_an_activation_with_another_forward_is_refused(monkeypatch):
    model = model_of("Llama")
    for each in (torch.nn.Linear, type(model.model.layers[0].mlp.act_fn)):
        with monkeypatch.context() as patched:
            own = each.forward
            patched.setattr(each, "forward", functools.wraps(own)(lambda self, x: 0.5 * own(self, x)))  # noqa: B023
            with pytest.raises(ValueError, match=f"has a part with another forward than that of .*{each.__name__}; undo what replaced it"):
                kiln.torch.patch(model)
    kiln.torch.patch(model)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_layer_takes_its_arguments_by_position_as_transformers_own(family):
    model, patched = model_of(family), kiln.torch.patch(model_of(family))
    positions, found = torch.arange(11)[None], []
    for each in (model, patched):
        layer, cache = each.model.layers[0], transformers.DynamicCache(config=each.config)
        x = each.model.embed_tokens(TOKENS)
        tables = each.model.rotary_emb(x, positions)
        mask = torch.full((1, 1, 11, 11), float("-inf")).triu(1) if each is model else None  # Kiln's attention is causal by itself
        with torch.no_grad():
            found.append((layer(x, mask, positions, cache, True, tables), layer(x, mask, positions, position_embeddings=tables),
                          layer.self_attn(x, tables, mask, None)[0], layer.mlp(x), layer.input_layernorm(x), torch.tensor(cache.get_seq_length())))
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-4)
    with pytest.raises(TypeError, match="takes .* positional arguments at most, and 7 were given"):
        layer(x, None, positions, None, True, tables, None)
    with pytest.raises(TypeError, match="got multiple values for argument 'attention_mask'"):
        layer(x, None, attention_mask=None)
    compiled = torch.compile(lambda x: layer(x, None, positions, None, False, tables), backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), found[1][1])
    torch._dynamo.reset()
