"""Weights of a patched model are what they were: adapters, hooks, pruning, copies, files and optimizers work as with torch's own modules."""
from __future__ import annotations

import copy
import io
import os
import pathlib
import pickle
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import kiln.torch  # noqa: E402
from small_models import FAMILIES, TOKENS, Launched, model_of  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.utils import parametrize, prune  # noqa: E402

PROJECTIONS = {f"{name}_proj": f"{part}.{name}_proj" for part, names in (("self_attn", "qkvo"), ("mlp", ("gate", "up", "down"))) for name in names}


class Adapter(nn.Module):
    """What an adapter of low rank puts in a projection's place."""

    def __init__(self, base):
        super().__init__()
        self.base_layer, self.first, self.second = base, nn.Linear(base.in_features, 2, bias=False), nn.Linear(2, base.out_features, bias=False)
        torch.manual_seed(base.out_features)
        for each in (self.first, self.second):
            nn.init.normal_(each.weight)

    def forward(self, x):
        return self.base_layer(x) + self.second(self.first(x))


class Halved(nn.Module):
    def forward(self, weight):
        return weight * 0.5


def adapt(layer, name):
    path, _, own = PROJECTIONS[name].rpartition(".")
    setattr(layer.get_submodule(path), own, Adapter(layer.get_submodule(PROJECTIONS[name])))


def replace(layer, name):
    each = layer.get_submodule(PROJECTIONS[name])
    each.weight = nn.Parameter(each.weight.detach() * 0.5, requires_grad=each.weight.requires_grad)


def replace_data(layer, name):
    each = layer.get_submodule(PROJECTIONS[name]).weight
    each.data = each.data * 0.5


CHANGES = {
    "an adapter": adapt, "another parameter": replace, "other data": replace_data,
    "a hook": lambda layer, name: layer.get_submodule(PROJECTIONS[name]).register_forward_hook(lambda module, given, y: y * 0.5),
    "a hook before": lambda layer, name: layer.get_submodule(PROJECTIONS[name]).register_forward_pre_hook(lambda module, given: (given[0] * 0.5,)),
    "pruning": lambda layer, name: prune.l1_unstructured(layer.get_submodule(PROJECTIONS[name]), "weight", 0.5),
    "a parametrization": lambda layer, name: parametrize.register_parametrization(layer.get_submodule(PROJECTIONS[name]), "weight", Halved()),
}


def close(found, expected, **tolerances):
    torch.testing.assert_close(found, expected, **({"rtol": 1e-4, "atol": 1e-4} | tolerances))


def logits(model, **named):
    with torch.no_grad():
        return model(TOKENS, use_cache=False, **named).logits


def products(model):
    with Launched("linear") as launched:
        logits(model)
    return launched.names


def gradients(model):
    model.zero_grad()
    model(TOKENS, labels=TOKENS, use_cache=False).loss.backward()
    return {name: each.grad for name, each in model.named_parameters()}


def same_gradients(found, expected):
    assert found.keys() == expected.keys() and {name for name in found if found[name] is None} == {name for name in found if expected[name] is None}
    for name, each in expected.items():
        if each is not None:
            close(found[name], each, msg=lambda text, name=name: f"{name}: {text}")


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_a_projection_counts(change, inference):
    model, patched = model_of("Llama"), kiln.torch.patch(model_of("Llama"), inference=inference)
    before = logits(model)
    for name in PROJECTIONS:
        plain, other = copy.deepcopy(model), copy.deepcopy(patched)
        for each in (plain, other):
            CHANGES[change](each.model.layers[0], name)
        expected = logits(plain)
        assert (expected - before).abs().max() > 0.05
        close(logits(other), expected)
        if not inference:
            same_gradients(gradients(other), gradients(plain))


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("name", ["mlp", "post_attention_layernorm", "input_layernorm", "self_attn.o_proj"])
def test_hooks_of_parts_see_what_torch_shows_them(name, inference):
    model, patched = model_of("Llama"), kiln.torch.patch(model_of("Llama"), inference=inference)
    seen = []
    for each in (model, patched):
        each.model.layers[0].get_submodule(name).register_forward_hook(lambda module, given, y: seen.append((*given, y)) or y * 2)
    close(logits(patched), logits(model))
    close(seen[0], seen[1])


@pytest.mark.parametrize("family", FAMILIES)
def test_each_weight_may_be_the_only_one_that_trains(family):
    model, patched = model_of(family), kiln.torch.patch(model_of(family))
    for name in PROJECTIONS:
        for each in (model, patched):
            for path, parameter in each.named_parameters():
                parameter.requires_grad_(name in path)
        same_gradients(gradients(patched), gradients(model))


def test_only_adapters_train():
    models = model_of("Llama"), kiln.torch.patch(model_of("Llama"))
    for each in models:
        each.requires_grad_(False)
        for layer in each.model.layers:
            for name in PROJECTIONS:
                adapt(layer, name)
        each.enable_input_require_grads()
    found = gradients(models[1])
    same_gradients(found, gradients(models[0]))
    assert sum(each is not None for each in found.values()) == 2 * 2 * len(PROJECTIONS)


def test_an_adapter_may_be_there_before():
    model = model_of("Llama")
    for layer in model.model.layers:
        adapt(layer, "q_proj")
    patched = kiln.torch.patch(copy.deepcopy(model))
    assert products(patched).count("linear") == 2 * 6 and products(patched).count("linear_add") == 2  # base_layer of the adapter too
    close(logits(patched), logits(model))
    before = kiln.torch.patch(copy.deepcopy(model))
    with pytest.raises(ValueError, match="LlamaAttention has hooks or an adapter at q_proj.*merge or remove these, or patch without inference=True"):
        kiln.torch.patch(copy.deepcopy(model), inference=True)
    with pytest.raises(ValueError, match="LlamaAttention has hooks or an adapter at q_proj"):
        kiln.torch.patch(before, inference=True)
    close(logits(before), logits(model))


def test_weights_stay_where_they_are():
    model = model_of("Qwen2")
    before = {name: (each, each.data_ptr(), each.stride()) for name, each in model.named_parameters()}
    kiln.torch.patch(model)
    assert before == {name: (each, each.data_ptr(), each.stride()) for name, each in model.named_parameters()}
    assert torch.nn.utils.parameters_to_vector(model.parameters()).isfinite().all()


def test_a_fused_step_of_adamw_is_torchs():
    models = model_of("Llama"), kiln.torch.patch(model_of("Llama"))
    for each in models:
        optimizer = torch.optim.AdamW(each.parameters(), lr=1e-2, fused=True)
        for _ in range(2):
            gradients(each)
            optimizer.step()
    for found, expected in zip(*(each.parameters() for each in reversed(models))):
        close(found, expected, rtol=1e-3, atol=1e-3)


def test_a_weight_that_changes_before_backward_is_noticed():
    patched = kiln.torch.patch(model_of("Llama"))
    for name in PROJECTIONS:
        loss = patched(TOKENS, labels=TOKENS, use_cache=False).loss
        with torch.no_grad():
            patched.model.layers[0].get_submodule(PROJECTIONS[name]).weight.mul_(0.5)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def by_torch_save(model):
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


COPIES = {"deepcopy": copy.deepcopy, "pickle": lambda model: pickle.loads(pickle.dumps(model)), "torch.save": by_torch_save,
          "an average": lambda model: torch.optim.swa_utils.AveragedModel(model).module}
JOINED = 2 * ["linear", "linear", "linear_swiglu", "linear_add"]
SEPARATE = 2 * (6 * ["linear"] + ["linear_add"])


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("how", COPIES)
def test_copies_compute_the_same_and_change_alone(how, inference):
    model = model_of("Llama")
    patched = kiln.torch.patch(copy.deepcopy(model), inference=inference)
    copied = COPIES[how](patched)
    close(logits(copied), logits(model))
    wanted = {name: each * 0.5 if "proj" in name else each for name, each in model.state_dict().items()}
    copied.load_state_dict(wanted)
    close(logits(patched), logits(model))
    model.load_state_dict(wanted)
    close(logits(copied), logits(model))
    assert products(copied) == products(patched) == (JOINED if inference else SEPARATE)


def test_a_whole_model_that_another_process_loads_knows_its_padding(tmp_path):
    mask = torch.ones_like(TOKENS)
    mask[1, :3] = 0
    patched = kiln.torch.patch(model_of("Llama"))
    torch.save((patched, TOKENS, mask), tmp_path / "model")
    program = """
import sys, reference, torch
model, tokens, mask = torch.load(sys.argv[1], weights_only=False)
keep = reference.install_on_cpu()
with torch.no_grad():
    torch.save(model(tokens, attention_mask=mask).logits, sys.argv[2])
"""
    paths = os.pathsep.join([str(pathlib.Path(__file__).parent), *sys.path])
    subprocess.run([sys.executable, "-c", program, tmp_path / "model", tmp_path / "logits"], check=True, env={**os.environ, "PYTHONPATH": paths})
    with torch.no_grad():
        expected = patched(TOKENS, attention_mask=mask).logits
    close(torch.load(tmp_path / "logits")[mask.bool()], expected[mask.bool()])


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_files_hold_what_the_model_had(family, inference, tmp_path):
    from safetensors.torch import load_file, save_model

    model = model_of(family)
    patched = kiln.torch.patch(copy.deepcopy(model), inference=inference)
    patched.save_pretrained(tmp_path / "saved")
    close(logits(transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "saved", attn_implementation="eager")), logits(model))
    save_model(patched, str(tmp_path / "weights"))
    for name, each in load_file(str(tmp_path / "weights")).items():
        assert torch.equal(each, model.get_parameter(name))
    torch.save(patched.state_dict(), tmp_path / "state")
    loaded = torch.load(tmp_path / "state")
    assert all(torch.equal(loaded[name], each) and loaded[name].is_contiguous() for name, each in model.state_dict().items())
    assert (tmp_path / "state").stat().st_size < 1.5 * sum(each.nbytes for each in model.parameters()) + 20000


@pytest.mark.parametrize("inference", [False, True])
def test_loading_by_assignment_is_seen_by_a_compiled_model_too(inference):
    model = model_of("Llama")
    wanted = {name: each * 0.5 if "proj" in name else each for name, each in model.state_dict().items()}
    patched = kiln.torch.patch(copy.deepcopy(model), inference=inference)
    patched.load_state_dict(wanted, assign=True)
    model.load_state_dict(wanted)
    if inference:
        assert products(patched) == JOINED
    close(logits(patched), logits(model))
    close(logits(torch.compile(patched, backend="aot_eager")), logits(model))
    torch._dynamo.reset()


@pytest.mark.parametrize("name", ["k_proj", "up_proj"])
@pytest.mark.parametrize("inference", [False, True])
def test_a_compiled_model_sees_another_parameter(inference, name):
    model = model_of("Llama")
    patched = kiln.torch.patch(copy.deepcopy(model), inference=inference)
    compiled = torch.compile(patched, backend="aot_eager")
    close(logits(compiled), logits(model))
    for each in (model, patched):
        replace(each.model.layers[1], name)
    close(logits(compiled), logits(model))
    torch._dynamo.reset()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_served_model_computes_the_same_by_fewer_products(family):
    model = model_of(family)
    patched = kiln.torch.patch(copy.deepcopy(model), inference=True)
    close(logits(patched), logits(model))
    assert products(patched) == (JOINED if family != "Qwen3" else 2 * (4 * ["linear"] + ["linear_swiglu", "linear_add"]))
    assert not any(each.requires_grad for each in patched.parameters())
    with torch.no_grad():
        assert torch.equal(*(each.generate(TOKENS, max_new_tokens=4, do_sample=False) for each in (model, patched)))
    close(logits(patched.double()), logits(model.double()))
    assert "linear_swiglu" in products(patched)
    close(logits(torch.compile(patched, backend="aot_eager", fullgraph=True)), logits(model))
    torch._dynamo.reset()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_served_model_computes_an_ensemble_by_vmap(family):
    model = model_of(family).requires_grad_(False)
    patched = kiln.torch.patch(copy.deepcopy(model), inference=True)
    weights, found = {name: torch.stack([each, 1.1 * each]) for name, each in model.named_parameters()}, []
    for each in (model, patched):
        found.append(torch.vmap(lambda own, each=each: torch.func.functional_call(each, own, (TOKENS,), {"use_cache": False}).logits)(weights))
    close(found[1], found[0])
    with pytest.raises(RuntimeError, match="is called under a transform of torch.func"):
        torch.func.grad(lambda own: torch.func.functional_call(patched, own, (TOKENS,), {"use_cache": False}).logits.sum())(dict(model.named_parameters()))


def test_a_served_model_has_gradients_of_inputs_and_none_of_weights():
    model = model_of("Llama").requires_grad_(False)
    patched = kiln.torch.patch(copy.deepcopy(model), inference=True)
    found = []
    for each in (model, patched):
        x = torch.randn(1, 5, 32, generator=torch.Generator().manual_seed(2)).requires_grad_()
        each(inputs_embeds=x, use_cache=False).logits.square().sum().backward()
        found.append(x.grad)
    close(found[1], found[0], rtol=1e-3, atol=1e-3)
    for name in ("k_proj", "up_proj"):
        parameter = patched.model.layers[1].get_submodule(PROJECTIONS[name]).weight.requires_grad_()
        with pytest.raises(RuntimeError, match=f"the weight of {name} requires a gradient in a model patched for inference; call kiln.torch.patch"):
            patched(TOKENS, labels=TOKENS)
        close(logits(patched), logits(model))  # under no_grad
        parameter.requires_grad_(False)
    with torch.no_grad():
        assert products(kiln.torch.patch(patched.requires_grad_())) == SEPARATE
    same_gradients(gradients(patched), gradients(model.requires_grad_()))
    assert all(each.is_contiguous() and each.untyped_storage().nbytes() == each.nbytes for each in patched.parameters())


def test_a_served_model_that_would_train_is_refused():
    patched = kiln.torch.patch(model_of("Llama"), inference=True).requires_grad_()  # so each layer's input has a gradient too
    with pytest.raises(RuntimeError, match="the weight of q_proj requires a gradient in a model patched for inference; call kiln.torch.patch"):
        patched(TOKENS, labels=TOKENS)
    patched.requires_grad_(False)
    adapt(patched.model.layers[0], "up_proj")
    logits(patched.requires_grad_(False))
    patched.model.layers[0].mlp.up_proj.base_layer.weight.requires_grad_()
    with pytest.raises(RuntimeError, match="the weight of up_proj requires a gradient in a model patched for inference"):
        patched(TOKENS, labels=TOKENS)


@pytest.mark.parametrize("change", ["an adapter", "pruning"])
@pytest.mark.parametrize("back", [kiln.torch.patch, kiln.torch.unpatch])
def test_joined_weights_behind_a_change_are_dense_in_files_and_get_memory_of_their_own(back, change):
    model = model_of("Llama")
    patched = kiln.torch.patch(copy.deepcopy(model), inference=True)
    for each in (model, patched):
        for name in ("q_proj", "gate_proj"):
            CHANGES[change](each.model.layers[0], name)
    for name, each in patched.state_dict().items():
        assert each.is_contiguous() and (not name.startswith("model.layers.0") or each.untyped_storage().nbytes() == each.nbytes), name
    back(patched)
    for name, each in patched.named_parameters():
        assert each.is_contiguous() and each.untyped_storage().nbytes() == each.nbytes, name
    close(logits(patched), logits(model))


def test_one_weight_of_two_projections_stays_one():
    model = model_of("Llama")
    model.model.layers[0].mlp.up_proj.weight = model.model.layers[0].mlp.gate_proj.weight
    patched = kiln.torch.patch(copy.deepcopy(model), inference=True)
    for each in (model, patched):
        with torch.no_grad():
            each.model.layers[0].mlp.gate_proj.weight.mul_(0.5)
    close(logits(patched), logits(model))


def test_patching_again_joins_again():
    model = model_of("Qwen2")
    patched = kiln.torch.patch(kiln.torch.patch(copy.deepcopy(model)))
    assert products(patched) == SEPARATE
    served = kiln.torch.patch(kiln.torch.patch(patched, inference=True), inference=True)
    assert served is patched and products(served) == JOINED
    replace(served.model.layers[0], "k_proj")
    replace(model.model.layers[0], "k_proj")
    assert products(served)[:4] == 4 * ["linear"]
    close(logits(served), logits(model))
    assert products(kiln.torch.patch(served, inference=True)) == JOINED
    close(logits(served), logits(model))
    addresses = [each.data_ptr() for each in served.parameters()]
    served.to("cpu")
    assert addresses == [each.data_ptr() for each in served.parameters()]  # as a captured graph wants it


@pytest.mark.parametrize("inference", [False, True])
def test_unpatch_gives_back_what_was(inference):
    model = model_of("Qwen2")
    patched = kiln.torch.patch(copy.deepcopy(model), inference=inference)
    back = kiln.torch.unpatch(copy.deepcopy(patched))
    assert [type(each) for each in back.modules()] == [type(each) for each in model.modules()] and products(back) == []
    assert back.config._attn_implementation == "eager" and patched.config._attn_implementation == "kiln"
    assert torch.equal(logits(back), logits(model))
    for each in back.modules():
        assert not each._forward_pre_hooks and not each._load_state_dict_post_hooks and not [name for name in vars(each) if "kiln" in name]
    assert all(each.is_contiguous() and each.untyped_storage().nbytes() == each.nbytes for each in back.parameters())
    close(logits(patched), logits(model))


def test_a_refused_patch_changes_nothing():
    model = model_of("Llama")
    model.model.layers[1].mlp.act_fn = nn.GELU()
    classes, expected = [type(each) for each in model.modules()], logits(model)
    with pytest.raises(ValueError, match="LlamaMLP has the activation GELU, expected SiLU"):
        kiln.torch.patch(model)
    assert classes == [type(each) for each in model.modules()] and model.config._attn_implementation == "eager"
    assert torch.equal(logits(model), expected)


@pytest.mark.parametrize("inference", [False, True])
def test_an_activation_with_a_hook_or_another_one_counts(inference):
    for change in (lambda mlp: mlp.act_fn.register_forward_hook(lambda module, given, y: y * 0.5), lambda mlp: setattr(mlp, "act_fn", nn.GELU())):
        model, patched = model_of("Llama"), kiln.torch.patch(model_of("Llama"), inference=inference)
        before = logits(model)
        for each in (model, patched):
            change(each.model.layers[0].mlp)
        assert (logits(model) - before).abs().max() > 0.05
        close(logits(patched), logits(model))
        close(logits(kiln.torch.patch(patched, inference=inference)), logits(model))
        close(logits(torch.compile(patched, backend="aot_eager")), logits(model))
        torch._dynamo.reset()
        if not inference:
            same_gradients(gradients(patched), gradients(model))


def test_classes_that_came_over_a_part_are_refused():
    patched = kiln.torch.patch(model_of("Llama"))
    other = model_of("Llama")
    other.model.layers[0].self_attn.__class__ = type("Sharded", (type(other.model.layers[0].self_attn),), {})
    with pytest.raises(ValueError, match="Sharded is a class of its own over LlamaAttention, as fully_shard.*patch before them"):
        kiln.torch.patch(other)
    parametrize.register_parametrization(patched.model.layers[0].mlp.up_proj, "weight", Halved())
    with pytest.raises(ValueError, match="unpatch: ParametrizedKilnLinear was changed after patch; undo parametrizations"):
        kiln.torch.unpatch(patched)
    other = model_of("Llama")
    other.model.layers[0].mlp.forward = other.model.layers[0].mlp.forward
    with pytest.raises(ValueError, match="LlamaMLP has a forward of its own.*patch a model of one device"):
        kiln.torch.patch(other)


def test_a_layer_alone_may_be_patched():
    model, patched = model_of("Llama"), model_of("Llama")
    kiln.torch.patch(patched.model.layers[0])
    close(logits(patched), logits(model))
