"""Which weights of a model patched for inference count as joined, with the references in the kernels' place."""
from __future__ import annotations

import copy

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import kiln.torch  # noqa: E402
from small_models import TOKENS, Launched, model_of  # noqa: E402
from torch import nn  # noqa: E402

def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def logits(model):
    with torch.no_grad():
        return model(TOKENS, use_cache=False).logits


def linears(model):
    with Launched("linear") as launched:
        logits(model)
    return launched.names


def set_parameter(module, weight):
    module.weight = nn.Parameter(weight, requires_grad=False)


def set_data(module, weight):
    module.weight.data = weight


@pytest.mark.parametrize("put", [set_parameter, set_data])
@pytest.mark.parametrize("names, view", [
    (["self_attn.q_proj"], lambda weight: weight.t()),
    (["self_attn.q_proj"], lambda weight: weight[:1].expand_as(weight)),
    (["mlp.gate_proj"], lambda weight: weight[:1].expand_as(weight)),
    (["mlp.gate_proj", "mlp.up_proj"], lambda weight: weight[:32]),
], ids=["transposed", "one row for all of q", "one row for all of gate", "fewer rows"])
def test_another_view_of_a_joined_weight_counts(names, view, put):
    model, served = model_of("Llama"), kiln.torch.patch(model_of("Llama"), inference=True)
    before = logits(model)
    for each in (model, served):
        layer = each.model.layers[0]
        for name in names:
            put(layer.get_submodule(name), view(layer.get_submodule(name).weight.detach()))
        if len(names) > 1:
            down = layer.mlp.down_proj
            down.weight = nn.Parameter(down.weight.detach()[:, :32], requires_grad=False)
    assert (logits(model) - before).abs().max() > 0.05
    close(logits(served), logits(model))
    close(logits(kiln.torch.patch(served, inference=True)), logits(model))
    assert linears(served)[:4] == ["linear", "linear", "linear_swiglu", "linear_add"]  # joined again


def test_a_view_that_trains_has_a_gradient():
    model, served = model_of("Llama"), kiln.torch.patch(model_of("Llama"), inference=True)
    found = []
    for each in (model.requires_grad_(False), served):
        projection = each.model.layers[1].self_attn.q_proj
        projection.weight = nn.Parameter(projection.weight.detach().t())
        each(TOKENS, labels=TOKENS, use_cache=False).loss.backward()
        found.append(projection.weight.grad)
    torch.testing.assert_close(found[1], found[0], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("how", ["as it is", "copied", "moved", "loaded"])
@pytest.mark.parametrize("name", ["self_attn.k_proj", "mlp.gate_proj"])
def test_a_weight_of_two_layers_lies_in_one_of_them_alone(name, how):
    model = model_of("Llama")
    model.model.layers[1].get_submodule(name).weight = model.model.layers[0].get_submodule(name).weight
    served = kiln.torch.patch(copy.deepcopy(model), inference=True)
    if how == "copied":
        served = copy.deepcopy(served)
    elif how == "moved":
        served.double()
        model.double()
    elif how == "loaded":
        served.load_state_dict(model.state_dict())
    compiled = torch.compile(served, backend="aot_eager")
    close(logits(compiled), logits(model))
    with torch.no_grad():
        for each in (model, served):
            each.model.layers[0].get_submodule(name).weight.mul_(0.5)
    for each in (compiled, served):
        close(logits(each), logits(model))
    part = name.split(".")[0]
    assert [getattr(layer, part)._kiln_joined is None for layer in served.model.layers] == [False, True]
    assert served.model.layers[0].get_submodule(name).weight is served.model.layers[1].get_submodule(name).weight
    kiln.torch.unpatch(served)
    close(logits(served), logits(model))
    torch._dynamo.reset()


def test_a_weight_is_free_once_its_part_is_gone():
    first, second = model_of("Llama"), model_of("Llama")
    for name in ("q_proj", "k_proj"):
        getattr(second.model.layers[0].self_attn, name).weight = getattr(first.model.layers[0].self_attn, name).weight
    expected = logits(model := copy.deepcopy(second))
    kiln.torch.patch(first, inference=True)
    kiln.torch.patch(second, inference=True)
    assert second.model.layers[0].self_attn._kiln_joined is None
    close(logits(second), expected)
    kiln.torch.unpatch(first)
    assert kiln.torch.patch(second, inference=True).model.layers[0].self_attn._kiln_joined is not None
    close(logits(second), logits(model))
