#!/usr/bin/env python3
"""All of kiln.torch that needs a GPU, in one process: python/torch/tests/gpu.py [--seconds N] [--base FILE] [SECTION ...]

Prints a JSON object a line: check, case, ok, and what was measured; also to $OUT/torch-gpu.jsonl where OUT is set. Ends with 1 where a check failed.
Each row says the build that KILN_BENCH_BUILD names (git describe --always --dirty of what the wheels were built from), where it is set.
"""
from __future__ import annotations

import argparse
import concurrent.futures
import copy
import itertools
import json
import os
import pathlib
import sys
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
os.environ.setdefault("KILN_CACHE", "")

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

import kiln  # noqa: E402
import kiln.torch as kt  # noqa: E402
import attention_models  # noqa: E402
import decode  # noqa: E402
import paged  # noqa: E402
import reference  # noqa: E402
import samples  # noqa: E402
from errors import error_of, largest  # noqa: E402
from host_time import host_us, settle  # noqa: E402

BEGAN = time.monotonic()
DEADLINE = BEGAN  # when no more is begun
LIMITS = {torch.bfloat16: 2e-2, torch.float16: 4e-3, torch.float32: 2e-3, torch.float8_e4m3fn: 8e-2}  # of the largest magnitude
BUILD = {"build": os.environ["KILN_BENCH_BUILD"]} if "KILN_BENCH_BUILD" in os.environ else {}
rows: list[dict] = []
os.makedirs(os.environ.get("OUT") or ".", exist_ok=True)
log = open(os.path.join(os.environ["OUT"], "torch-gpu.jsonl"), "w") if os.environ.get("OUT") else None


def row(check: str, case: str, ok: bool | None = None, **values) -> None:
    made = {**BUILD, "check": check, "case": case, "ok": ok, **values, "at_s": round(time.monotonic() - BEGAN, 2)}
    rows.append(made)
    for stream in (sys.stdout, log):
        if stream is not None:
            print(json.dumps(made), file=stream, flush=True)


def attempt(check: str, case: str, function, *given) -> None:
    """A row of failure where it raises."""
    try:
        function(*given)
    except Exception as error:
        row(check, case, False, error=f"{type(error).__name__}: {error}"[:600], where=traceback.format_exc().splitlines()[-3:-1])


def op_of(name: str):
    return getattr(torch.ops.kiln, name).default


def compare(check: str, case: str, found, expected, limit: float | None = None) -> None:
    found, expected = (each if isinstance(each, (tuple, list)) else (each,) for each in (found, expected))
    errors = [error_of(one, wanted) for one, wanted in zip(found, expected)]
    limits = [limit or LIMITS.get(one.dtype, 1e-6) for one in found]
    same = [(one.dtype, one.shape) == (wanted.dtype, wanted.shape) for one, wanted in zip(found, expected)]
    row(check, case, all(error <= most for error, most in zip(errors, limits)) and all(same), errors=[float(f"{each:.3g}") for each in errors], limits=limits)


# Ops.

def section_ops() -> None:
    given = samples.samples("cuda")
    names = [each.split("(")[0] for each in kt.ops() if each.split("(")[0] in given]  # ops of teams are ranks.py's
    begin = time.monotonic()

    def run(name):
        torch.cuda.set_device(0)
        return op_of(name)(*samples.complete(name, clone(given[name]), op_of))

    def clone(values):
        return tuple(each.clone() if torch.is_tensor(each) else each for each in values)

    first = [each for each in names if not (each.startswith("attention") and "_backward" in each)]
    for group in (first, [each for each in names if each not in first]):
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            for name, future in [(name, pool.submit(run, name)) for name in group]:
                attempt("first launch", name, future.result)
    torch.cuda.synchronize()
    row("first launches", "16 threads", True, seconds=round(time.monotonic() - begin, 2), compiles=kiln.stats()["compiles"])
    for name in names:
        attempt("values", name, values_of, name, clone(given[name]), clone(given[name]))
        attempt("opcheck", name, check_of, name, given[name])


def values_of(name, ours, theirs) -> None:
    found = op_of(name)(*samples.complete(name, ours, op_of))
    expected = reference.references()[name](*samples.complete(name, theirs, op_of))
    if found is None:  # it changes its last argument
        found, expected = ours[-1], theirs[-1]
    if name.endswith("_deterministic"):
        assert all(map(torch.equal, found, op_of(name)(*samples.complete(name, ours, op_of)))), "a second launch gives other bits"
    compare("values", name, found, expected, 2e-2 if "sinks_backward" in name else None)  # dsink is f32, of results in bf16


def check_of(name, given) -> None:
    is_of_bytes = "scaled" in name or name.endswith("_e4m3")  # test_schema multiplies inputs, which torch cannot do in e4m3
    tests = ("test_faketensor", "test_aot_dispatch_dynamic") if is_of_bytes else ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
    tolerance = {"atol": 2e-2, "rtol": 2e-2} if name.endswith("_backward") else {}  # some add in any order
    torch.library.opcheck(op_of(name), samples.complete(name, given, op_of), test_utils=tests, **tolerance)
    row("opcheck", name, True)


# Gradients.

def gradient_cases() -> dict:
    def leaf(*shape):
        return torch.randn(*shape, dtype=torch.bfloat16, device="cuda").requires_grad_()

    angles = torch.rand(64, 32, device="cuda")
    tables = (angles.cos(), angles.sin(), torch.randint(64, (2, 40), device="cuda"))
    offsets = torch.tensor([0, 33, 33, 70], dtype=torch.int32, device="cuda")
    x, weight, bias, residual = leaf(2, 40, 256), leaf(256), leaf(256), leaf(2, 40, 256)
    cases = {
        "rms_norm": (lambda x, w: kt.rms_norm(x, w), lambda x, w: F.rms_norm(x, (256,), w, 1e-6), x, weight),
        "rms_norm with residual": (lambda x, w, r: kt.rms_norm(x, w, residual=r), lambda x, w, r: (F.rms_norm(x + r, (256,), w, 1e-6), x + r), x, weight, residual),
        "layer_norm": (kt.layer_norm, lambda x, w, b: F.layer_norm(x, (256,), w, b), x, weight, bias),
        "swiglu": (kt.swiglu, lambda a, b: F.silu(a) * b, x, residual),
        "rotary": (lambda x: kt.rotary(x, *tables), lambda x: reference._rotate("half", "forward")(x, *tables), leaf(2, 40, 4, 80)),
        "softmax causal": (lambda x: kt.softmax(x, 0.5, causal=True), lambda x: reference._softmax("causal")(x, 0.5, 40), leaf(2, 3, 40, 64)),
        "linear with residual": (lambda x, w, r: kt.linear(x, w, residual=r), lambda x, w, r: x @ w.t() + r, x, leaf(96, 256), leaf(2, 40, 96)),
    }
    for activation in ("none", "relu", "gelu", "silu", "swiglu"):
        cases[f"linear {activation}"] = (lambda x, w, b, a=activation: kt.linear(x, w, b, a),
                                         lambda x, w, b, a=activation: reference._activate(F.linear(x, w, b), a), x, leaf(96, 256), leaf(96))
    dense = (leaf(2, 40, 4, 64), leaf(2, 48, 2, 64), leaf(2, 48, 2, 64))
    packed = (leaf(70, 4, 64), leaf(70, 2, 64), leaf(70, 2, 64))
    for mask, extra in itertools.product(("none", "causal", "window"), ("", "_softcap", "_sinks")):
        named = {"causal": mask == "causal", "window": (16, 0) if mask == "window" else None, "softcap": 2.0 if extra == "_softcap" else None}
        rest = (None, *((2.0,) if extra == "_softcap" else ()), *((16, 0) if mask == "window" else ()))
        sinks = (leaf(4),) if extra == "_sinks" else ()
        for layout, given, cut in (("dense", dense, ()), ("packed", packed, (offsets, offsets))):
            named |= {"query_offsets": offsets} if cut else {}
            cases[f"attention {layout} {mask}{extra}"] = (
                lambda q, k, v, *s, n=dict(named): kt.attention(q, k, v, sinks=s[0] if s else None, **n),
                lambda *a, l=layout, m=mask, e=extra, r=(*cut, *rest): reference.attention(l, m, e)(*a, *r)[0], *given, *sinks)
    return cases


def section_gradients() -> None:
    for name, (ours, theirs, *inputs) in gradient_cases().items():
        attempt("gradients", name, gradient_of, name, ours, theirs, inputs)


def gradient_of(name, ours, theirs, inputs) -> None:
    wide = [each.detach().double().requires_grad_() for each in inputs]
    results, expected = ours(*inputs), theirs(*wide)
    results, expected = (each if isinstance(each, tuple) else (each,) for each in (results, expected))
    seeds = [torch.randn_like(each) for each in results]
    found = torch.autograd.grad(results, inputs, seeds)
    wanted = torch.autograd.grad(expected, wide, [each.double() for each in seeds])
    compare("gradients", name, found, [each.to(torch.bfloat16) for each in wanted], 3e-2)


# torch.compile.

def block(x, weights, offsets):
    norm, qkv, out, up = weights
    y = kt.rms_norm(x, norm)
    q, k, v = kt.linear(y, qkv).unflatten(-1, (3, 4, 64)).unbind(-3)
    y = kt.attention(q, k, v, causal=True, query_offsets=offsets).flatten(-2)
    y, x = kt.rms_norm(kt.linear(y, out), norm, residual=x)
    gate, up = kt.linear(y, up).chunk(2, -1)
    return kt.linear(kt.swiglu(gate, up), out, residual=x)


def block_weights(has_gradients):
    shapes = ((256,), (768, 256), (256, 256), (512, 256))
    return tuple((torch.randn(*shape, device="cuda", dtype=torch.bfloat16) / 16).requires_grad_(has_gradients) for shape in shapes)


def section_compile() -> None:
    for has_gradients in (False, True):
        attempt("300 lengths", f"gradients={has_gradients}", lengths_of, has_gradients)


def lengths_of(has_gradients) -> None:
    from torch._dynamo.testing import CompileCounterWithBackend

    torch._dynamo.reset()
    counter = CompileCounterWithBackend("inductor")
    compiled = torch.compile(block, fullgraph=True, backend=counter)
    weights = block_weights(has_gradients)
    lengths = torch.randint(1, 2049, (300,), generator=torch.Generator().manual_seed(3)).tolist()

    def offsets_of(tokens):
        return torch.tensor([0, tokens // 3, tokens], dtype=torch.int32, device="cuda")

    def run(function, tokens):
        x = torch.randn(tokens, 256, device="cuda", dtype=torch.bfloat16, generator=torch.Generator("cuda").manual_seed(tokens))
        torch._dynamo.mark_dynamic(x, 0)
        y = function(x, weights, offsets_of(tokens))
        return y, torch.autograd.grad(y.float().sum(), weights) if has_gradients else ()

    begin = time.monotonic()
    for tokens in [1 << power for power in range(12)]:  # every bucket that the lengths have
        run(block, tokens)
    torch.cuda.synchronize()
    warm = time.monotonic() - begin
    kiln.wait_for_tunes(120)  # a library or a near config has served meanwhile what is still compiled
    before, begin = kiln.stats(), time.monotonic()
    errors, frames = [], []
    for tokens in lengths:
        y, gradients = run(compiled, tokens)
        frames.append(counter.frame_count)
        if len(errors) < 20:
            expected, wanted = run(block, tokens)
            errors += [error_of(y, expected), *map(error_of, gradients, wanted)]
    torch.cuda.synchronize()
    after = kiln.stats()
    ok = frames[-1] == frames[1] and frames[1] <= 2 and largest(errors) < 3e-2 and after["tunes"] == before["tunes"] and after["compiles"] == before["compiles"]
    row("300 lengths", f"gradients={has_gradients}", ok, graphs=counter.frame_count, graphs_after_two=frames[1], tunes=after["tunes"] - before["tunes"],
        compiles=after["compiles"] - before["compiles"], error=largest(errors), prewarm_s=round(warm, 2), lengths_s=round(time.monotonic() - begin, 2))


# CUDA graphs.

def section_graphs() -> None:
    attempt("graph", "captured on another stream than warm-up's", graph_of)
    attempt("graph", "its length on the device", length_graph)
    attempt("graph", "torch.compile's own", overhead_graph)
    for layout in ("contiguous", "paged"):
        attempt("graph", f"decode over e4m3, {layout}", decode_graph, layout)


def graph_of() -> None:
    weights = block_weights(False)
    x, offsets = torch.randn(300, 256, device="cuda", dtype=torch.bfloat16), torch.tensor([0, 100, 300], dtype=torch.int32, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), torch.no_grad():
        for _ in range(2):
            block(x, weights, offsets)
    torch.cuda.current_stream().wait_stream(side)
    kiln.wait_for_tunes(120)  # what stands in until a compile ends would differ from eager launches after it
    before, graph = kiln.stats(), torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        y = block(x, weights, offsets)
    equal = []
    for seed in range(4):
        x.copy_(torch.randn(300, 256, device="cuda", generator=torch.Generator("cuda").manual_seed(seed)))
        offsets.copy_(torch.tensor([0, 50 + seed, 300]))
        graph.replay()
        torch.cuda.synchronize()
        found = y.clone()
        with torch.no_grad():
            equal.append(torch.equal(found, block(x, weights, offsets)))
    after = kiln.stats()
    row("graph", "captured on another stream than warm-up's", all(equal) and after["compiles"] == before["compiles"], replays_equal_to_eager=equal,
        compiles=after["compiles"] - before["compiles"], workspace_bytes=after["workspace_bytes"])


def length_graph() -> None:
    norm = kt.op("rms_norm", lengths=("rows",))
    x, weight, rows_ = torch.randn(512, 256, device="cuda", dtype=torch.bfloat16), torch.randn(256, device="cuda", dtype=torch.bfloat16), torch.tensor(512, dtype=torch.int32, device="cuda")
    norm(x, weight, rows_)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = norm(x, weight, rows_)
    errors = []
    for length in (1, 77, 511, 512):
        rows_.fill_(length)
        y.zero_()
        graph.replay()
        errors.append(error_of(y[:length], F.rms_norm(x, (256,), weight, 1e-6)[:length]) + y[length:].abs().sum().item())
    row("graph", "its length on the device", largest(errors) < 2e-2, errors=errors)


def decode_graph(layout: str) -> None:
    *both, compiles = decode.replayed(layout)
    errors = [error_of(found, expected) for found, expected in zip(*both)]
    row("graph", f"decode over e4m3, {layout}", largest(errors) < 2e-2 and compiles == 0, errors=errors, compiles=compiles)


def overhead_graph() -> None:
    torch._dynamo.reset()
    weights = block_weights(False)
    compiled = torch.compile(block, fullgraph=True, mode="reduce-overhead", dynamic=False)
    x, offsets = torch.randn(300, 256, device="cuda", dtype=torch.bfloat16), torch.tensor([0, 100, 300], dtype=torch.int32, device="cuda")
    with torch.no_grad():
        expected = block(x, weights, offsets)
        errors = [error_of(compiled(x, weights, offsets), expected) for _ in range(4)]
    row("graph", "torch.compile's own", largest(errors) < 2e-2, errors=errors)


# Many queries over pages.

def section_paged() -> None:
    for check, name, run in paged.checks():
        attempt(check, name, lambda: compare(check, name, *run()))


# Autocast, inputs of odd kinds.

def section_inputs() -> None:
    attempt("autocast", "linear, norm, attention", autocast_of)
    attempt("inputs", "empty", empty_inputs)
    attempt("inputs", "layouts", layouts)
    attempt("inputs", "refused", refusals)


def autocast_of() -> None:
    x, weight = torch.randn(40, 256, device="cuda", requires_grad=True), torch.randn(256, 256, device="cuda", requires_grad=True)
    with torch.autocast("cuda", torch.bfloat16):
        y = kt.linear(x, weight)
        z = kt.rms_norm(y, weight[0])
        a = kt.attention(*(x.view(1, 40, 4, 64),) * 3, causal=True)
    (z.float().sum() + a.float().sum()).backward()
    kinds = [str(each.dtype) for each in (y, z, a, x.grad, weight.grad)]
    row("autocast", "linear, norm, attention", kinds == ["torch.bfloat16"] * 3 + ["torch.float32"] * 2, types=kinds)


def empty_inputs() -> None:
    x = torch.empty(0, 256, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    weight = torch.ones(256, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    matrix = torch.ones(64, 256, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    y = kt.linear(kt.rms_norm(x, weight), matrix)
    y.sum().backward()
    row("inputs", "empty", y.shape == (0, 64) and not weight.grad.any().item() and not matrix.grad.any().item() and x.grad.shape == x.shape)


def layouts() -> None:
    weight = torch.randn(256, device="cuda", dtype=torch.bfloat16)
    errors = []
    for x in (torch.randn(256, 40, device="cuda").bfloat16().t(), torch.randn(40, 512, device="cuda").bfloat16()[:, 256:],
              torch.randn(3, 40, 256, device="cuda").bfloat16().transpose(0, 1), torch.randn(1, 256, device="cuda").bfloat16().expand(7, 256),
              torch.randn(40 * 256 + 1, device="cuda").bfloat16()[1:].view(40, 256)):
        errors.append(error_of(kt.rms_norm(x, weight), F.rms_norm(x, (256,), weight, 1e-6)))
    row("inputs", "layouts", largest(errors) < 2e-2, errors=errors)


def refusals() -> None:
    x, weight = torch.randn(4, 256, device="cuda"), torch.randn(256, device="cuda")
    said = []
    for function in (lambda: kt.rms_norm(x.cpu(), weight.cpu()), lambda: kt.rms_norm(x, weight.cpu()), lambda: kt.rms_norm(x, weight[:8]), lambda: kt.rms_norm(x, weight.half()),
                     lambda: kt.attention(x, x, x)):
        try:
            function()
            said.append("accepted")
        except RuntimeError as error:
            said.append(str(error).splitlines()[0])
    row("inputs", "refused", all("expected" in each for each in said), said=said)


# Host cost.

def section_host() -> None:
    x, weight = torch.randn(8, 256, device="cuda", dtype=torch.bfloat16), torch.randn(256, device="cuda", dtype=torch.bfloat16)
    matrix, y = torch.randn(256, 256, device="cuda", dtype=torch.bfloat16), torch.empty(8, 256, device="cuda", dtype=torch.bfloat16)
    norm, eager, product = kiln.op("rms_norm"), op_of("rms_norm"), op_of("linear")
    q = torch.randn(1, 64, 4, 64, device="cuda", dtype=torch.bfloat16)
    heads = [each.transpose(1, 2) for each in (q, q, q)]
    plain = {
        "empty_like": lambda: torch.ops.aten.empty_like.default(x),
        "torch.ops.kiln.rms_norm": lambda: eager(x, weight, 1e-6), "kiln.torch.rms_norm": lambda: kt.rms_norm(x, weight),
        "kiln.op rms_norm, no allocation": lambda: norm(x=x, weight=weight, y=y, epsilon=1e-6),
        "torch rms_norm": lambda: F.rms_norm(x, (256,), weight, 1e-6), "torch.ops.kiln.linear": lambda: product(x, matrix),
        "kiln.torch.linear": lambda: kt.linear(x, matrix), "torch linear": lambda: F.linear(x, matrix),
        "kiln.torch.attention": lambda: kt.attention(q, q, q, causal=True),
        "torch scaled_dot_product_attention": lambda: F.scaled_dot_product_attention(*heads, is_causal=True),
    }
    leaf, gain = (each.clone().requires_grad_() for each in (x, weight))
    trained = {
        "kiln.torch.rms_norm, forward and backward": lambda: kt.rms_norm(leaf, gain).backward(y),
        "torch rms_norm, forward and backward": lambda: F.rms_norm(leaf, (256,), gain, 1e-6).backward(y),
    }
    for function in (*plain.values(), *trained.values()):
        function()
    settle()
    with torch.no_grad():
        found = {name: host_us(function) for name, function in plain.items()}
    found |= {name: host_us(function, 300) for name, function in trained.items()}
    for name, microseconds in found.items():
        row("host cost", name, None, us=microseconds)
    over = found["torch.ops.kiln.rms_norm"] - found["empty_like"]
    row("host cost", "an op over an empty one", None, us=round(over, 2), aim_us=3.0, met=over <= 3.0)
    row("host cost", "an op under torch's own", None, us=round(found["torch rms_norm"] - found["torch.ops.kiln.rms_norm"], 2),
        met=found["torch.ops.kiln.rms_norm"] < found["torch rms_norm"])


# Models.

def section_models() -> None:
    for family in ("Llama", "Qwen2", "Qwen3"):
        if time.monotonic() < DEADLINE:
            attempt("patch", family, model_of, family)
        else:
            row("patch", family, None, skipped="out of time")
    for family in attention_models.FAMILIES:
        for name, run in attention_models.checks(family):
            attempt("attention", name, as_near, name, run)


def as_near(name, run) -> None:
    ours, theirs = run()
    ok = all(one <= 1.5 * own + 5e-3 for one, own in zip(ours, theirs))  # NaN is not
    row("attention", name, ok, errors=[float(f"{each:.3g}") for each in ours], errors_of_eager=[float(f"{each:.3g}") for each in theirs])


def model_of(family) -> None:
    import transformers

    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(vocab_size=512, hidden_size=512, intermediate_size=1024, num_hidden_layers=3, num_attention_heads=8,
                                                      num_key_value_heads=4, head_dim=64, max_position_embeddings=1024)
    config._attn_implementation = "sdpa"
    plain = getattr(transformers, f"{family}ForCausalLM")(config).to("cuda", torch.bfloat16)
    wide, patched = copy.deepcopy(plain).double(), kt.patch(copy.deepcopy(plain))
    tokens = torch.randint(512, (2, 70), device="cuda")
    losses, gradients = [], []
    for model in (wide, plain, patched):
        loss = model(tokens, labels=tokens).loss
        loss.backward()
        losses.append(loss.item())
        gradients.append([each.grad.double() for each in model.parameters()])
    ours, theirs = (largest(error_of(one, wanted) for one, wanted in zip(each, gradients[0])) for each in (gradients[2], gradients[1]))
    row("patch", f"{family}: loss and gradients against f64", abs(losses[2] - losses[0]) < 2 * abs(losses[1] - losses[0]) + 5e-3 and ours < 2 * theirs + 1e-2, losses=losses,
        error=ours, error_of_torch=theirs)
    patched.eval(), plain.eval(), wide.eval()
    with torch.no_grad():
        compare("patch", f"{family}: logits", patched(tokens).logits, wide(tokens).logits.to(torch.bfloat16), 4e-2)
        kt.patch(patched, inference=True)
        compare("patch", f"{family}: logits, for inference", patched(tokens).logits, wide(tokens).logits.to(torch.bfloat16), 4e-2)
        mask = torch.ones_like(tokens)
        mask[0, :20] = 0
        positions = (mask.cumsum(1) - 1).clamp(0)
        padded = [model(tokens, attention_mask=mask, position_ids=positions).logits[mask.bool()] for model in (patched, wide)]
        compare("patch", f"{family}: padding", padded[0], padded[1].to(torch.bfloat16), 4e-2)
        written = [model.generate(tokens, max_new_tokens=8, do_sample=False, pad_token_id=0) for model in (patched, wide)]
        same = (written[0] == written[1])[:, 70:].float().mean().item()
        row("patch", f"{family}: 8 tokens written", same >= 0.5, share_of_f64s=same)
        steps = [model(tokens[:, :1], past_key_values=model(tokens, use_cache=True).past_key_values).logits for model in (patched, wide)]
        compare("patch", f"{family}: a step over the cache", steps[0], steps[1].to(torch.bfloat16), 4e-2)
    if family == "Llama":
        attempt("patch", f"{family}: one graph", graph_of_model, family, patched, wide)


def section_steps() -> None:
    for keys in (512, 4096, 32768):
        attempt("a step", f"{keys} keys", lambda keys=keys: row("a step", f"{keys} keys", **decode.timed(keys)))


def graph_of_model(family, patched, wide) -> None:
    from torch._dynamo.testing import CompileCounterWithBackend

    torch._dynamo.reset()
    counter = CompileCounterWithBackend("inductor")
    compiled = torch.compile(patched, backend=counter, fullgraph=True)
    errors = []
    with torch.no_grad():
        for length in (70, 33, 64, 5, 128):
            tokens = torch.randint(512, (2, length), device="cuda")
            torch._dynamo.mark_dynamic(tokens, 1)
            errors.append(error_of(compiled(tokens, use_cache=False).logits, wide(tokens).logits))
    row("patch", f"{family}: one graph", counter.frame_count <= 2 and largest(errors) < 4e-2, graphs=counter.frame_count, errors=errors)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=120, help="after which no more is begun")
    parser.add_argument("--base", action="append", default=[], help="a tuned file, such as build/release/cache/h100.kiln")
    parser.add_argument("sections", nargs="*")
    given = parser.parse_args()
    global DEADLINE
    DEADLINE = BEGAN + given.seconds
    kiln.configure(overlay="", on_miss="nearest", bases=given.base)
    row("machine", torch.cuda.get_device_name(), None, torch=torch.__version__, kiln=kiln.__version__, python=sys.version.split()[0], bases=given.base)
    sections = {name.removeprefix("section_"): each for name, each in globals().items() if name.startswith("section_")}
    for name in given.sections or ("host", "inputs", "ops", "paged", "gradients", "graphs", "compile", "models", "steps"):
        if time.monotonic() > DEADLINE:
            row("section", name, None, skipped="out of time")
            continue
        attempt("section", name, sections[name])
    row("stats", "all", None, **kiln.stats(), allocated_mib=torch.cuda.max_memory_allocated() >> 20, warnings=kiln.warnings()[:5])
    failed = [f"{each['check']}: {each['case']}" for each in rows if each["ok"] is False]
    row("end", "all", not failed, failed=failed, passed=sum(each["ok"] is True for each in rows))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
