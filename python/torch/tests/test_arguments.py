"""Arguments of kiln.torch's functions that are taken or refused, with the references in the kernels' place."""
from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import kiln.torch as kt  # noqa: E402
import reference  # noqa: E402

KEEP = reference.install_on_cpu()


@pytest.mark.parametrize("more", [{}, {"block": True}, {"scale": torch.ones(1)}])
def test_quantise_refuses_a_tensor_that_requires_a_gradient(more):
    x = torch.randn(4, 256, requires_grad=True)
    with pytest.raises(RuntimeError, match="kiln.torch.quantise: x requires a gradient, which this function does not have"):
        kt.quantise(x, **more)
    with torch.no_grad():
        kt.quantise(x, **more)
    kt.quantise(x.detach(), **more)


def test_scales_that_require_a_gradient_are_refused():
    scale = torch.ones(1, requires_grad=True)
    with pytest.raises(RuntimeError, match="kiln.torch.quantise: scale requires a gradient"):
        kt.quantise(torch.randn(4, 256), scale=scale)
    q, k, lengths = torch.randn(2, 1, 4, 16), torch.randn(2, 9, 2, 16).to(torch.float8_e4m3fn), torch.tensor([5, 9], dtype=torch.int32)
    for name in ("k_scale", "v_scale"):
        with pytest.raises(RuntimeError, match=f"kiln.torch.attention_decode: {name} requires a gradient"):
            kt.attention_decode(q, k, k, lengths, **{name: scale})


def of_one_dimension():
    """By name: Kiln's function of one row, torch's of the same, and what both take."""
    functional, of = torch.nn.functional, lambda *shape: torch.randn(*shape, dtype=torch.float64, requires_grad=True)
    return {
        "linear": (kt.linear, functional.linear, of(8), of(4, 8), of(4)),
        "linear, gelu": (lambda *given: kt.linear(*given, activation="gelu"), lambda *given: functional.gelu(functional.linear(*given)),
                         of(8), of(4, 8), of(4)),
        "linear, residual": (lambda x, w, b, r: kt.linear(x, w, b, residual=r), lambda x, w, b, r: functional.linear(x, w, b) + r,
                             of(8), of(4, 8), of(4), of(4)),
        "rms_norm": (kt.rms_norm, lambda x, w: functional.rms_norm(x, (8,), w, 1e-6), of(8), of(8)),
        "layer_norm": (kt.layer_norm, lambda x, w, b: functional.layer_norm(x, (8,), w, b), of(8), of(8), of(8)),
        "swiglu": (kt.swiglu, lambda gate, up: functional.silu(gate) * up, of(8), of(8)),
        "softmax": (kt.softmax, lambda x: x.softmax(-1), of(8)),
    }


@pytest.mark.parametrize("name", of_one_dimension())
def test_a_tensor_of_one_dimension_has_gradients(name):
    ours, theirs, *inputs = of_one_dimension()[name]
    result, expected = ours(*inputs), theirs(*inputs)
    torch.testing.assert_close(result, expected)
    seed = torch.randn_like(expected)
    for found, wanted in zip(torch.autograd.grad(result, inputs, seed), torch.autograd.grad(expected, inputs, seed)):
        torch.testing.assert_close(found, wanted)


def test_autocast_leaves_f64_and_refuses_integers(monkeypatch):
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda _="": True)
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda _="": torch.bfloat16)
    wide, weight, counts = torch.randn(5, 16).double(), torch.randn(16, 16), torch.full((5, 16), 257)
    assert kt.linear(wide, weight.double()).dtype == torch.float64
    q = torch.randn(1, 5, 2, 16)
    calls = (lambda: kt.linear(counts, weight), lambda: kt.linear(weight, counts), lambda: kt.attention(q, q.long(), q), lambda: kt.swiglu(weight, counts),
             lambda: kt.rms_norm(weight, counts[0]), lambda: kt.rms_norm(weight, weight[0], residual=counts),
             lambda: kt.layer_norm(weight, weight[0], counts[0]))
    for call in calls:
        with pytest.raises(ValueError, match=r"kiln.torch: a tensor of \[.*16\] has torch.int64, and autocast casts floating-point tensors alone; make it"):
            call()
    with pytest.raises(ValueError, match="has torch.bool, and autocast"):
        kt.linear(weight, weight > 0)


def test_an_op_that_changes_its_argument_is_traced():
    x, w = torch.randn(6, 8), torch.randn(6, 4)

    def step(x, w, y):
        y = y * 2
        torch.ops.kiln.matmul_tn_accumulate(x, w, y)
        return y + 1

    y = torch.randn(8, 4)
    torch.testing.assert_close(torch.compile(step, backend="aot_eager", fullgraph=True)(x, w, y), 2 * y + x.t() @ w + 1)
    saved, factor = y.clone(), torch.ones(8, 4, requires_grad=True)
    total = (factor * saved).sum()
    torch.compile(torch.ops.kiln.matmul_tn_accumulate, backend="aot_eager", fullgraph=True)(x, w, saved)
    torch.testing.assert_close(saved, y + x.t() @ w)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        total.backward()
    exported = torch.export.export(type("Step", (torch.nn.Module,), {"forward": staticmethod(step)})(), (x, w, y))
    torch.testing.assert_close(exported.module()(x, w, y), 2 * y + x.t() @ w + 1)
    torch._dynamo.reset()


def test_keys_of_attention_decode_may_be_any_rows_of_its_cache():
    q, k, v = torch.randn(3, 2, 4, 16), torch.randn(3, 20, 2, 16), torch.randn(3, 20, 2, 8)
    lengths, indices = torch.tensor([20, 7, 0], dtype=torch.int32), torch.stack([torch.randperm(20) for _ in range(3)]).int()
    own = [torch.stack([each[i][indices[i].long()] for i in range(3)]) for each in (k, v)]
    for named in ({}, {"window": 4}, {"softcap": 2.0}, {"sinks": torch.randn(4), "scale": 0.5}):
        expected = kt.attention_decode(q, *own, lengths, **named)
        torch.testing.assert_close(kt.attention_decode(q, k, v, lengths, key_indices=indices, **named), expected)
    strided = torch.cat([torch.full((3, 2), 99, dtype=torch.int32), indices], 1)[:, 2:]
    torch.testing.assert_close(kt.attention_decode(q, k, v, lengths, key_indices=strided), kt.attention_decode(q, *own, lengths))
    few = kt.attention_decode(q, k, v, lengths.clamp(max=3), key_indices=indices[:, :3].contiguous())
    torch.testing.assert_close(few, kt.attention_decode(q, *(each[:, :3] for each in own), lengths.clamp(max=3)))
    with pytest.raises(ValueError, match="both block_table and key_indices are given, expected one of them"):
        kt.attention_decode(q, k, v, lengths, key_indices=indices, block_table=indices)
    for given, found in ((indices.long(), r"torch.int64 \[3, 20\] on cpu"), (indices[:2], r"torch.int32 \[2, 20\]"), (indices[0], r"torch.int32 \[20\]"),
                         (indices.to("meta"), r"torch.int32 \[3, 20\] on meta"), ([[0]] * 3, "a list")):
        with pytest.raises(ValueError, match=rf"attention_decode: key_indices is {found}.*, expected torch.int32 \[3, keys\] on cpu"):
            kt.attention_decode(q, k, v, lengths, key_indices=given)
    with pytest.raises(ValueError, match="keys is given without a block_table"):
        kt.attention_decode(q, k, v, lengths, key_indices=indices, keys=8)
