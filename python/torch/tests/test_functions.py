"""Gradients, autocast and torch.compile, with the references in the kernels' place. python/torch/tests/gpu.py does the same on a GPU."""
from __future__ import annotations

import re

import pytest

torch = pytest.importorskip("torch")

import kiln.torch as kt  # noqa: E402
import reference  # noqa: E402
from torch._dynamo.testing import CompileCounterWithBackend  # noqa: E402
from torch.autograd import forward_ad  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

KEEP = reference.install_on_cpu()


def leaf(*shape, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


def same_gradients(ours, theirs, *inputs):
    """Of a weighted sum of all results."""
    results, expected = ours(*inputs), theirs(*inputs)
    results, expected = (each if isinstance(each, tuple) else (each,) for each in (results, expected))
    leaves = [each for each in inputs if torch.is_tensor(each) and each.requires_grad]
    seeds = [torch.randn_like(each) for each in expected]
    for result, wanted in zip(results, expected):
        torch.testing.assert_close(result, wanted)
    found = torch.autograd.grad(results, leaves, seeds)
    for each, wanted in zip(found, torch.autograd.grad(expected, leaves, seeds)):
        torch.testing.assert_close(each, wanted)


def rms(x, weight, epsilon=1e-6):
    return torch.nn.functional.rms_norm(x, (x.shape[-1],), weight, epsilon)


def test_norms_have_gradients():
    x, weight, bias, residual = leaf(2, 5, 32), leaf(32), leaf(32), leaf(2, 5, 32)
    same_gradients(kt.rms_norm, rms, x, weight)
    same_gradients(lambda *a: kt.rms_norm(*a[:2], residual=a[2]), lambda x, w, r: (rms(x + r, w), x + r), x, weight, residual)
    layer = lambda x, w, b=None: torch.nn.functional.layer_norm(x, (32,), w, b)  # noqa: E731
    same_gradients(kt.layer_norm, layer, x, weight, bias)
    same_gradients(kt.layer_norm, layer, x, weight)
    same_gradients(lambda x, w, b, r: kt.layer_norm(x, w, b, residual=r), lambda x, w, b, r: (layer(x + r, w, b), x + r), x, weight, bias, residual)


@pytest.mark.parametrize("activation", ["none", "relu", "gelu", "silu", "swiglu"])
def test_products_have_gradients(activation):
    x, weight, bias = leaf(2, 5, 16), leaf(24, 16), leaf(24)
    expected = lambda x, w, b: reference._activate(torch.nn.functional.linear(x, w, b), activation)  # noqa: E731
    same_gradients(lambda *a: kt.linear(*a, activation=activation), expected, x, weight, bias)
    with torch.no_grad():
        torch.testing.assert_close(kt.linear(x, weight, bias, activation), expected(x, weight, bias))


def test_a_product_adds_a_residual():
    x, weight, residual = leaf(2, 5, 16), leaf(24, 16), leaf(2, 5, 24)
    same_gradients(lambda x, w, r: kt.linear(x, w, residual=r), lambda x, w, r: x @ w.t() + r, x, weight, residual)


def test_swiglu_rotary_and_softmax_have_gradients():
    gate, up, x = leaf(2, 5, 16), leaf(2, 5, 16), leaf(2, 5, 3, 10)
    same_gradients(kt.swiglu, lambda gate, up: torch.nn.functional.silu(gate) * up, gate, up)
    angles, positions = torch.rand(7, 4, dtype=torch.float64), torch.randint(7, (2, 5))
    for interleaved in (False, True):
        turn = reference._rotate("interleaved" if interleaved else "half", "forward")
        tables = angles.cos(), angles.sin(), positions
        same_gradients(lambda x: kt.rotary(x, *tables, interleaved), lambda x: turn(x, *tables), x)
    halves = angles.cos().bfloat16(), angles.sin().bfloat16()
    assert torch.equal(kt.rotary(x.float(), *halves, positions), kt.rotary(x.float(), *(each.float() for each in halves), positions))
    scores = leaf(2, 4, 6)
    for named in ({}, {"causal": True}, {"mask": torch.rand(4, 6) < 0.7}, {"mask": torch.randn(4, 6, dtype=torch.float64)}):
        rest = ("causal", (4,)) if named.get("causal") else ("none", ()) if not named else ("boolean" if named["mask"].dtype == torch.bool else "additive", (named["mask"],))
        values = (*rest[1], 0.5) if rest[0] != "causal" else (0.5, 4)
        same_gradients(lambda x: kt.softmax(x, 0.5, **named), lambda x: reference._softmax(rest[0])(x, *values), scores)


@pytest.mark.parametrize("extra", ["", "_softcap", "_sinks"])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("mask", ["none", "causal", "window"])
def test_attention_has_gradients(packed, mask, extra):
    q, k, v = (leaf(*shape) for shape in ([(9, 4, 8), (9, 2, 8), (9, 2, 8)] if packed else [(2, 5, 4, 8), (2, 7, 2, 8), (2, 7, 2, 8)]))
    offsets = torch.tensor([0, 4, 4, 9], dtype=torch.int32)
    named = {"causal": mask == "causal", "window": (2, 1) if mask == "window" else None, "softcap": 1.5 if extra == "_softcap" else None}
    if packed:
        named |= {"query_offsets": offsets}
    rest = (*((offsets, offsets) if packed else ()), None, *((1.5,) if extra == "_softcap" else ()), *((2, 1) if mask == "window" else ()))
    expected = reference.attention("packed" if packed else "dense", mask, extra)
    sinks = [torch.randn(4, requires_grad=True)] if extra == "_sinks" else []
    same_gradients(lambda q, k, v, *s: kt.attention(q, k, v, sinks=s[0] if s else None, **named), lambda *a: expected(*a, *rest)[0], q, k, v, *sinks)


def test_a_window_may_be_its_left_side_alone():
    q, k = torch.randn(1, 7, 2, 8), torch.randn(1, 9, 2, 8)
    for causal in (False, True):
        torch.testing.assert_close(kt.attention(q, k, k, window=3, causal=causal), kt.attention(q, k, k, window=(3, 0)))
        torch.testing.assert_close(kt.attention(q, k, k, window=(3, 2), causal=causal), kt.attention(q, k, k, window=(3, 2)))


def test_sinks_of_any_type_take_weight_and_count_in_the_sum():
    q, k, v, sinks = torch.randn(1, 3, 2, 8), torch.randn(1, 3, 2, 8), torch.randn(1, 3, 2, 8), torch.tensor([0.5, 4.0]).bfloat16().requires_grad_()
    (out, lse), (plain, of_keys) = (kt.attention(q, k, v, sinks=each, return_lse=True) for each in (sinks, None))
    share = torch.exp(of_keys - lse)  # of the keys
    torch.testing.assert_close(lse, torch.logaddexp(of_keys, sinks.float()[None, :, None].expand_as(of_keys)))
    torch.testing.assert_close(out, plain * share.mT[..., None])
    out.sum().backward()
    assert sinks.grad.dtype == torch.bfloat16 and sinks.grad.abs().min() > 0


def test_softcap_and_sinks_together_are_refused():
    q, lengths, sinks = torch.randn(1, 1, 2, 8), torch.tensor([1], dtype=torch.int32), torch.zeros(2)
    table, offsets = torch.zeros(1, 1, dtype=torch.int32), torch.tensor([0, 1], dtype=torch.int32)
    for name, given in (("attention", ()), ("attention_paged", (offsets, lengths, table)), ("attention_decode", (lengths,))):
        tensors = (q[0], q, q) if name == "attention_paged" else (q, q, q)
        with pytest.raises(ValueError, match=re.escape(f"kiln.torch.{name}: both softcap and sinks are given, expected one of them; kiln.torch.op() makes")):
            getattr(kt, name)(*tensors, *given, softcap=30.0, sinks=sinks)


def differentiable():
    """Calls of all functions that have gradients, by the name that an error says, with the inputs that have them."""
    x, square, cols, heads = leaf(5, 16), leaf(16, 16), leaf(16), leaf(2, 5, 4, 8)
    tables = torch.rand(7, 4, dtype=torch.float64), torch.rand(7, 4, dtype=torch.float64), torch.randint(7, (2, 5))
    return {
        "rms_norm": (kt.rms_norm, x, cols), "rms_norm_add": (lambda x, w, r: kt.rms_norm(x, w, residual=r)[0], x, cols, leaf(5, 16)),
        "layer_norm": (kt.layer_norm, x, cols, leaf(16)), "layer_norm_add": (lambda x, w, r: kt.layer_norm(x, w, residual=r)[0], x, cols, leaf(5, 16)),
        "linear": (kt.linear, x, square), "linear, gelu": (lambda x, w: kt.linear(x, w, activation="gelu"), x, square),
        "swiglu": (kt.swiglu, x, leaf(5, 16)), "rotary": (lambda x: kt.rotary(x, *tables), heads), "softmax": (kt.softmax, x),
        "attention": (kt.attention, heads, leaf(2, 7, 2, 8), leaf(2, 7, 2, 8)),
    }


@pytest.mark.parametrize("name", list(differentiable()))
def test_second_derivatives_are_refused_and_first_ones_may_build_a_graph(name):
    function, *inputs = differentiable()[name]
    for loss in (lambda y: (y**3).sum(), torch.sum):  # of a sum the incoming gradient needs none
        plain = torch.autograd.grad(loss(function(*inputs)), inputs)
        found = torch.autograd.grad(loss(function(*inputs)), inputs, create_graph=True)
        torch.testing.assert_close(found, plain)
        total = sum((each**2).sum() for each in found)
        if name == "rotary" and loss is torch.sum:
            assert not total.requires_grad  # truly constant
            continue
        with pytest.raises(RuntimeError, match=f"the gradient of {name.partition(',')[0]} has no gradient of its own; compute this part by torch's own functions"):
            torch.autograd.grad(total, inputs, allow_unused=True)


def test_second_derivatives_of_what_is_compiled_are_refused():
    x, weight = leaf(5, 16), leaf(16, 16)
    compiled = torch.compile(kt.linear, fullgraph=True, backend="aot_eager")
    with pytest.raises(RuntimeError, match="does not currently support double backward"):
        [dx] = torch.autograd.grad((compiled(x, weight) ** 2).sum(), x, create_graph=True)
        torch.autograd.grad(dx.sum(), weight)
    torch._dynamo.reset()


@pytest.mark.parametrize("name", list(differentiable()))
def test_forward_mode_is_refused(name):
    function, *inputs = differentiable()[name]
    x, *rest = (each.detach() for each in inputs)
    refused = pytest.raises(NotImplementedError, match=r"has a forward-mode tangent, and Kiln's ops have no forward mode; take backward\(\)")
    with forward_ad.dual_level(), refused:
        function(forward_ad.make_dual(x, x), *rest)
    with refused:
        torch.func.jvp(lambda x: function(x, *rest), (x,), (x,))
    one = torch.ones(())
    with refused:  # the tangent of an outer level
        torch.func.jvp(lambda x: torch.func.jvp(lambda by: by * function(x, *rest), (one,), (one,))[1], (x,), (x,))
    with forward_ad.dual_level():
        torch.testing.assert_close(function(x, *rest), function(*inputs).detach())
    with pytest.raises(RuntimeError, match=f"kiln.torch: {name.split(',')[0]} of a tensor that requires a gradient is called under a transform of torch.func"):
        torch.func.grad(lambda x: function(x, *rest).sum())(x)
    with torch.no_grad():
        torch.testing.assert_close(torch.vmap(lambda x: function(x, *rest))(torch.stack([x, x])), torch.stack([function(x, *rest)] * 2))


def test_forward_mode_is_refused_where_there_are_no_gradients():
    q, k, lengths = torch.randn(2, 1, 4, 16), torch.randn(2, 9, 2, 16), torch.tensor([5, 9], dtype=torch.int32)
    paged = lambda q: kt.attention_paged(q[:, 0], k, k, torch.tensor([0, 1, 2], dtype=torch.int32), lengths, torch.tensor([[0], [1]], dtype=torch.int32))  # noqa: E731
    for function in (lambda q: kt.attention_decode(q, k, k, lengths), paged, lambda q: kt.quantise(q)[0]):
        with pytest.raises(NotImplementedError, match="has a forward-mode tangent"):
            torch.func.jvp(function, (q,), (q,))


class Seen(TorchDispatchMode):
    """The names of the ops that ran."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, given=(), named=None):
        self.names.append(str(function))
        return function(*given, **(named or {}))


@pytest.mark.parametrize("backend", [None, "aot_eager"])
@pytest.mark.parametrize("packed", [False, True])
def test_the_backward_of_attention_is_deterministic_where_torch_asks_for_it(backend, packed):
    q, k = leaf(9, 4, 8) if packed else leaf(1, 9, 4, 8), leaf(9, 2, 8) if packed else leaf(1, 9, 2, 8)
    offsets = torch.tensor([0, 4, 9], dtype=torch.int32) if packed else None
    attend = lambda q, k: kt.attention(q, k, k, causal=True, query_offsets=offsets)  # noqa: E731
    attend = torch.compile(attend, fullgraph=True, backend=backend) if backend else attend
    try:
        for is_on, warn_only in ((False, False), (True, False), (False, False), (True, True)):
            torch.use_deterministic_algorithms(is_on, warn_only=warn_only)
            loss = attend(q, k).sum()  # torch.compile traces under no dispatch mode
            with Seen() as seen:
                loss.backward()
            name = f"kiln.attention_{'packed' if packed else 'dense'}_causal_backward{'_deterministic' if is_on else ''}.default"
            assert [each for each in seen.names if each.startswith("kiln.") and "backward" in each] == [name]
    finally:
        torch.use_deterministic_algorithms(False)
        torch._dynamo.reset()


@pytest.mark.parametrize("shape", [(2, 3, 4, 6), (3, 4, 6), (4, 6), (6,), (1, 1, 4, 6), (2, 1, 4, 6), (2, 1, 1, 6), (2, 3, 1, 6), (1, 3, 1, 6), (4, 1), (2, 1, 4, 1), (1,), ()])
def test_a_mask_broadcasts_as_torchs_does(shape):
    x = leaf(2, 3, 4, 6)
    keep, bias = torch.rand(shape) < 0.7, torch.randn(shape, dtype=torch.float64)
    expected = lambda x: torch.softmax(x.masked_fill(~keep, -torch.inf), -1).nan_to_num(0.0)  # noqa: E731
    torch.testing.assert_close(kt.softmax(x, mask=keep), expected(x))
    same_gradients(lambda x: kt.softmax(x, mask=bias), lambda x: torch.softmax(x + bias, -1), x)


@pytest.mark.parametrize("shape", [(5, 6), (12, 6), (24, 6), (3, 2, 4, 6), (4, 5), (1, 2, 3, 4, 6), (2, 3, 4)])
def test_a_mask_that_does_not_broadcast_is_refused(shape):
    with pytest.raises(ValueError, match=re.escape(f"softmax: the mask is {list(shape)}, expected a shape that broadcasts to [2, 3, 4, 6], that of x")):
        kt.softmax(leaf(2, 3, 4, 6), mask=torch.ones(shape, dtype=torch.bool))


def test_what_has_no_gradient_is_refused_where_it_requires_one():
    x, one, tables, lengths = leaf(3, 4), leaf(1)[0].abs(), (leaf(7, 4), leaf(7, 4)), torch.full((2,), 5, dtype=torch.int32)
    heads, ids = torch.randn(2, 5, 2, 8), torch.arange(10).view(2, 5)
    calls = {
        "softmax: mask": lambda: kt.softmax(x, mask=leaf(3, 4)), "softmax: scale": lambda: kt.softmax(x.detach(), scale=one),
        "rotary: cos": lambda: kt.rotary(heads, *tables, ids), "rotary: sin": lambda: kt.rotary(heads, tables[0].detach(), tables[1], ids),
        "attention: scale": lambda: kt.attention(heads, heads, heads, scale=one), "rms_norm: epsilon": lambda: kt.rms_norm(x, leaf(4), one),
        "layer_norm: epsilon": lambda: kt.layer_norm(x, leaf(4), epsilon=one),
        "attention_decode: a tensor": lambda: kt.attention_decode(heads[:, :1], heads, heads, lengths, scale=one),
    }
    for what, call in calls.items():
        with pytest.raises(RuntimeError, match=f"kiln.torch.{what} requires a gradient"):
            call()
    with torch.no_grad():
        assert kt.softmax(x, scale=one, mask=leaf(3, 4)).shape == kt.rms_norm(x, leaf(4), one).shape


@pytest.mark.parametrize("norm", ["rms_norm", "layer_norm"])
def test_a_norm_without_weights_is_refused(norm):
    with pytest.raises(ValueError, match=f"kiln.torch.{norm}: weight is a NoneType, expected a tensor of one number a column; give ones"):
        getattr(kt, norm)(torch.randn(2, 8), None)


def test_attention_decode_takes_keys_and_values_of_8_bits_with_their_scales():
    q, lengths = torch.randn(2, 1, 4, 16), torch.tensor([5, 9], dtype=torch.int32)
    k, v = (torch.randn(2, 9, 2, 16).to(torch.float8_e4m3fn) for _ in range(2))
    of_heads, of_all = torch.tensor([0.5, 2.0]), torch.tensor(3.0)
    expected = reference.of_bytes(reference.decode("contiguous"))(q, k, v, of_heads, of_all.expand(2), lengths, None)[0]
    torch.testing.assert_close(kt.attention_decode(q, k, v, lengths, k_scale=of_heads, v_scale=of_all), expected)
    table = torch.tensor([[0], [1]], dtype=torch.int32)
    paged = kt.attention_decode(q, k, v, lengths, block_table=table, k_scale=of_heads, v_scale=of_all)
    torch.testing.assert_close(paged, expected)
    torch.testing.assert_close(kt.attention_decode(q, k, v, lengths), reference.decode("contiguous")(q, k.float(), v.float(), lengths, None)[0])
    with pytest.raises(ValueError, match="k has torch.float32"):
        kt.attention_decode(q, k.float(), v.float(), lengths, v_scale=of_all)


def in_pages(lengths=(9, 20, 0, 40), queries=(4, 0, 2, 40)):
    """Keys and values of several sequences, [tokens, heads, dim], and the arguments of attention_paged for them."""
    k, v = torch.randn(sum(lengths), 2, 16), torch.randn(sum(lengths), 2, 8)
    pools, table = (torch.randn(20, 16, 2, 16), torch.randn(20, 16, 2, 8)), torch.randperm(20)[: 4 * 4].view(4, 4).int()
    for i, (end, length) in enumerate(zip(torch.tensor(lengths).cumsum(0).tolist(), lengths)):
        for key in range(length):
            for pool, each in zip(pools, (k, v)):
                pool[table[i, key // 16], key % 16] = each[end - length + key]
    offsets = [torch.nn.functional.pad(torch.tensor(each).cumsum(0), (1, 0)).int() for each in (queries, lengths)]
    q = torch.randn(sum(queries), 4, 16)
    return (q, k, v, *offsets), (q, *pools, offsets[0], torch.tensor(lengths, dtype=torch.int32), table)


EXTRA = ({}, {"softcap": 2.0}, {"sinks": torch.tensor([0.5, -1.0, 3.0, 0.0])})


@pytest.mark.parametrize("extra", EXTRA)
@pytest.mark.parametrize("named", [{}, {"causal": False}, {"window": (5, 0)}, {"scale": 0.5, "causal": False, "window": (0, 0), "longest_query": 40}])
def test_attention_paged_is_packed_attention_of_what_the_pages_have(named, extra):
    (q, k, v, queries, keys), given = in_pages()
    named = {**named, **extra}
    expected = kt.attention(q, k, v, query_offsets=queries, key_offsets=keys, return_lse=True, **{"causal": True, **named})
    found = kt.attention_paged(*given, return_lse=True, **named)
    torch.testing.assert_close(found, expected)
    assert found[0].shape == (46, 4, 8) and found[1].shape == (4, 46) and not found[0][4:6].any()
    assert (found[1][:, 4:6] == (extra["sinks"][:, None] if "sinks" in extra else -torch.inf)).all()
    torch.testing.assert_close(kt.attention_paged(*given[:5], given[5][:, :3], keys=40, **named), expected[0])


@pytest.mark.parametrize("extra", EXTRA)
@pytest.mark.parametrize("named", [{}, {"causal": False}, {"window": 5}])
def test_attention_paged_takes_pages_of_8_bits_with_their_scales(named, extra):
    _, (q, *pools, offsets, lengths, table) = in_pages()
    pools, k_scale, v_scale = [each.to(torch.float8_e4m3fn) for each in pools], torch.tensor([0.5, 2.0]), torch.tensor([3.0, 0.25])
    found = kt.attention_paged(q, *pools, offsets, lengths, table, k_scale=k_scale, v_scale=v_scale, return_lse=True, **named, **extra)
    wide = [each.float() * scale[:, None] for each, scale in zip(pools, (k_scale, v_scale))]
    torch.testing.assert_close(found, kt.attention_paged(q, *wide, offsets, lengths, table, return_lse=True, **named, **extra))
    with pytest.raises(ValueError, match="kiln.torch.attention_paged: k_scale and v_scale are of keys and values in float8_e4m3fn; k has torch.float32"):
        kt.attention_paged(q, *(each.float() for each in pools), offsets, lengths, table, v_scale=k_scale)


def over_caches():
    """attention_paged and attention_decode of one query a sequence, by name, with other tensors where these are given."""
    q, k, lengths, table = torch.randn(2, 4, 16), torch.randn(2, 16, 2, 16), torch.tensor([5, 16], dtype=torch.int32), torch.tensor([[0], [1]], dtype=torch.int32)
    offsets = torch.arange(3, dtype=torch.int32)
    return {"attention_paged": lambda q=q, k=k, v=k, **named: kt.attention_paged(q, k, v, offsets, lengths, table, **named),
            "attention_decode": lambda q=q, k=k, v=k, **named: kt.attention_decode(q[:, None], k, v, lengths, block_table=table, **named)}


@pytest.mark.parametrize("name", ["attention_paged", "attention_decode"])
def test_attention_over_a_cache_refuses_gradients_and_mixed_types(name):
    run = over_caches()[name]
    for given in ({"q": leaf(2, 4, 16)}, {"v": leaf(2, 16, 2, 16)}, {"sinks": torch.zeros(4, requires_grad=True)}):
        with pytest.raises(RuntimeError, match=f"kiln.torch.{name}: a tensor requires a gradient, and this function has none; call it under torch.no_grad"):
            run(**given)
        with torch.no_grad():
            run(**{key: each.float() for key, each in given.items()})
    eighth = torch.randn(2, 16, 2, 16).to(torch.float8_e4m3fn)
    with pytest.raises(ValueError, match=f"kiln.torch.{name}: k has torch.float32 and v has torch.float8_e4m3fn, expected one type"):
        run(v=eighth)
    with pytest.raises(ValueError, match=f"kiln.torch.{name}: k and v have torch.float8_e5m2, expected float8_e4m3fn or the type of q"):
        run(k=eighth.to(torch.float8_e5m2), v=eighth.to(torch.float8_e5m2))
    for scale, found in ((2.0, "a float"), (torch.ones(3), r"\[3\]"), (torch.ones(1, 2), r"\[1, 2\]")):
        with pytest.raises(ValueError, match=rf"kiln.torch.{name}: v_scale is {found}, expected a tensor of f32, \[2\] or of one number"):
            run(k=eighth, v=eighth, v_scale=scale)


@pytest.mark.parametrize("name", ["attention", "attention_paged", "attention_decode"])
def test_a_soft_cap_is_a_number_above_0_and_sinks_are_a_tensor(name):
    run = over_caches().get(name, lambda **named: kt.attention(*(torch.randn(1, 3, 2, 8) for _ in range(3)), **named))
    for named, found in (({"softcap": 0.0}, "softcap is 0.0, expected a number above 0, or None for no soft cap"), ({"softcap": -1}, "softcap is -1, expected"),
                         ({"softcap": torch.tensor(2.0)}, "softcap is a tensor, expected a number"), ({"sinks": [0.0, 0.0]}, "sinks is a list, expected a tensor")):
        with pytest.raises(ValueError, match=f"kiln.torch.{name}: {found}"):
            run(**named)


def test_a_window_over_pages_is_a_number_of_keys_before_the_diagonal():
    _, given = in_pages()
    torch.testing.assert_close(kt.attention_paged(*given, window=5), kt.attention_paged(*given, window=(5, 0)))
    torch.testing.assert_close(kt.attention_paged(*given, causal=False, window=(None, 0)), kt.attention_paged(*given))
    one = torch.randn(4, 2, 4, 16)
    for name, run in (("attention_paged", lambda **named: kt.attention_paged(*given, **named)),
                      ("attention_decode", lambda **named: kt.attention_decode(one, *given[1:3], given[4], block_table=given[5], **named))):
        with pytest.raises(ValueError, match=re.escape(f"{name}: the window is (5, 1), expected (left, 0): no query sees keys after its own")):
            run(window=(5, 1))


@pytest.mark.parametrize("extra", EXTRA)
@pytest.mark.parametrize("window", [None, 0, 5, (5, 0), (None, 0), 100])
@pytest.mark.parametrize("is_of_bytes", [False, True])
def test_attention_decode_is_attention_of_the_last_queries(window, extra, is_of_bytes):
    q, lengths, k_scale, v_scale = torch.randn(4, 2, 4, 16), (9, 20, 2, 40), torch.tensor([0.5, 2.0]), torch.tensor([3.0, 0.25])
    (_, k, v, _, keys), (_, *pools, _, counts, table) = in_pages(lengths)
    scales = {"k_scale": k_scale, "v_scale": v_scale} if is_of_bytes else {}
    if is_of_bytes:
        k, v, *pools = (each.to(torch.float8_e4m3fn) for each in (k, v, *pools))
        k, v = k.float() * k_scale[:, None], v.float() * v_scale[:, None]
    named = {"window": None if window is None else window if isinstance(window, tuple) else (window, 0), **extra}
    expected = kt.attention(q.flatten(0, 1), k, v, causal=True, query_offsets=torch.arange(0, 9, 2).int(), key_offsets=keys, **named).view(4, 2, 4, 8)
    paged = kt.attention_decode(q, *pools, counts, block_table=table, window=window, **scales, **extra)
    torch.testing.assert_close(paged, expected)
    whole = [each[table].flatten(1, 2) for each in pools]
    torch.testing.assert_close(kt.attention_decode(q, *whole, counts, window=window, **scales, **extra), expected)


@pytest.mark.parametrize("named", [{}, {"window": 5}])
def test_one_graph_of_attention_paged_serves_all_lengths(named):
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(lambda *given: kt.attention_paged(*given, return_lse=True, **named), fullgraph=True, backend=counter)
    for batch, pages, queries in ((4, 3, (4, 0, 2, 40)), (3, 4, (1, 2, 0, 7)), (2, 2, (9, 20, 0, 3))):
        q, k, v, offsets, lengths, table = in_pages(queries=queries)[1]
        given = q, k, v, offsets[: batch + 1], lengths[:batch], table[:batch, :pages].contiguous()
        for at, dimension in ((0, 0), (3, 0), (4, 0), (5, 0), (5, 1)):
            torch._dynamo.mark_dynamic(given[at], dimension)
        torch.testing.assert_close(compiled(*given), kt.attention_paged(*given, return_lse=True, **named))
    assert counter.frame_count == 1
    torch._dynamo.reset()


def block(x, weights, offsets):
    """What a layer does, with all that has a gradient."""
    norm, qkv, out, up = weights
    y = kt.rms_norm(x, norm)
    q, k, v = kt.linear(y, qkv).unflatten(-1, (3, 2, 16)).unbind(-3)
    y = kt.attention(q, k, v, causal=True, query_offsets=offsets).flatten(-2)
    y, x = kt.rms_norm(kt.linear(y, out), norm, residual=x)
    gate, up = kt.linear(y, up).chunk(2, -1)
    return kt.linear(kt.swiglu(gate, up), out, residual=x)


def weights():
    return tuple(torch.randn(*shape, requires_grad=True) for shape in ((32,), (96, 32), (32, 32), (64, 32)))


@pytest.mark.parametrize("has_gradients", [False, True])
def test_one_graph_serves_all_lengths(has_gradients):
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(block, fullgraph=True, backend=counter)
    given = weights()
    with torch.set_grad_enabled(has_gradients):
        for tokens in (8, 13, 27, 64, 5):
            x = torch.randn(tokens, 32)
            torch._dynamo.mark_dynamic(x, 0)
            offsets = torch.tensor([0, tokens // 2, tokens], dtype=torch.int32)
            result, expected = compiled(x, given, offsets), block(x, given, offsets)
            torch.testing.assert_close(result, expected)
            if has_gradients:
                found, wanted = (torch.autograd.grad(each.sum(), given) for each in (result, expected))
                torch.testing.assert_close(found, wanted)
    assert counter.frame_count == 1
    torch._dynamo.reset()


def test_a_tensor_that_is_given_twice_is_compiled_too():
    """Which torch.compile of torch 2.15 refuses of a Function."""
    x, weight = leaf(9, 8), leaf(8, 8)
    square = lambda x, weight: kt.linear(x, weight, residual=x)  # noqa: E731
    same_gradients(torch.compile(square, fullgraph=True, backend="aot_eager"), lambda x, weight: x @ weight.T + x, x, weight)
    q, offsets = leaf(9, 4, 8), torch.tensor([0, 4, 9], dtype=torch.int32)
    itself = lambda q: kt.attention(q, q, q, query_offsets=offsets, key_offsets=offsets)  # noqa: E731
    same_gradients(torch.compile(itself, fullgraph=True, backend="aot_eager"), itself, q)
    torch._dynamo.reset()


def test_torch_export_keeps_the_length_open_and_the_file_gives_the_same(tmp_path):
    class Layer(torch.nn.Module):
        def forward(self, x, norm, weight, offsets):
            y = kt.linear(kt.rms_norm(x, norm), weight).unflatten(-1, (3, 2, 8)).unbind(-3)
            return kt.attention(*y, causal=True, query_offsets=offsets)

    given = torch.randn(9, 16), torch.randn(16), torch.randn(48, 16)
    of = lambda tokens: torch.tensor([0, 2, tokens], dtype=torch.int32)  # noqa: E731
    tokens = torch.export.Dim("tokens", min=2, max=4096)
    exported = torch.export.export(Layer(), (*given, of(9)), dynamic_shapes=({0: tokens}, None, None, None))
    torch.export.save(exported, tmp_path / "layer.pt2")
    loaded = torch.export.load(tmp_path / "layer.pt2").module()
    for count in (9, 5, 30):
        x = torch.randn(count, 16)
        torch.testing.assert_close(loaded(x, *given[1:], of(count)), Layer()(x, *given[1:], of(count)))


def test_autocast_gives_products_its_type_and_norms_that_of_x(monkeypatch):
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda _="": True)
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda _="": torch.bfloat16)
    x, weight = torch.randn(5, 16, requires_grad=True), torch.randn(16, 16, requires_grad=True)
    y = kt.linear(x, weight)
    assert y.dtype == torch.bfloat16
    assert kt.rms_norm(y, weight[0]).dtype == torch.bfloat16
    kt.rms_norm(y, weight[0]).sum().backward()
    assert x.grad.dtype == weight.grad.dtype == torch.float32
    assert kt.attention_paged(*in_pages()[1]).dtype == torch.bfloat16
    q, k, v = (torch.randn(1, 8, 2, 16) for _ in range(3))
    for call in (lambda: kt.attention(q, k.to(torch.float8_e4m3fn), v), lambda: kt.linear(x, torch.zeros(16, 16, dtype=torch.int8))):
        with pytest.raises(ValueError, match=r"a tensor of \[.*16\] has torch.(float8_e4m3fn|int8), and autocast would cast it without its scale"):
            call()


def test_what_makes_no_sense_is_refused():
    x, weight = torch.randn(5, 16), torch.randn(16, 16)
    with pytest.raises(ValueError, match="activation is 'tanh', expected one of: none, relu, gelu, silu, swiglu"):
        kt.linear(x, weight, activation="tanh")
    with pytest.raises(ValueError, match="activation and residual are given"):
        kt.linear(x, weight, activation="relu", residual=x)
    with pytest.raises(ValueError, match="causal and mask are given"):
        kt.softmax(x, causal=True, mask=x)
    with pytest.raises(ValueError, match=r"softmax: x is \[16\], expected \[..., queries, keys\], since causal is given"):
        kt.softmax(x[0], causal=True)
    for each in (weight[:15], weight[:15].requires_grad_()):
        with pytest.raises(ValueError, match="swiglu joins neighbouring columns, and the weight has 15 rows, expected an even number"):
            kt.linear(x, each, activation="swiglu")
    with pytest.raises(ValueError, match="quantise: scale and block are given, expected one of them"):
        kt.quantise(x, scale=torch.ones(1), block=True)
    q = torch.randn(1, 5, 2, 8)
    with pytest.raises(ValueError, match="key_offsets are given without query_offsets, expected both for packed sequences, or none"):
        kt.attention(q, q, q, key_offsets=torch.tensor([0, 5], dtype=torch.int32))
