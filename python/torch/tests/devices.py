#!/usr/bin/env python3
"""Two GPUs of one process: python/torch/tests/devices.py [tune]

tune: buckets are tuned on each. Else ops on a device that is not the current one, threads, graphs and streams of two devices, a model that moves and one that is split. Prints an object a check,
and ends with 1 where one failed. KILN_BENCH_BUILD: the build that rows name.
"""
from __future__ import annotations

import concurrent.futures
import copy
import json
import os
import sys
import traceback

os.environ.setdefault("KILN_CACHE", "")

import torch
import torch.nn.functional as F
import transformers

import kiln
import kiln.torch as kt
from errors import error_of, largest

BUILD = {"build": os.environ["KILN_BENCH_BUILD"]} if "KILN_BENCH_BUILD" in os.environ else {}
DEVICES = [torch.device("cuda", ordinal) for ordinal in (0, 1)]
failed = []


def row(check: str, ok: bool, **values) -> None:
    if not ok:
        failed.append(check)
    print(json.dumps({**BUILD, "check": check, "ok": ok, **values}), flush=True)


def drawn(device, *shape):
    return torch.randn(*shape, device=device, dtype=torch.bfloat16, generator=torch.Generator(device).manual_seed(len(shape) + shape[0])) / 8


def layer(x, norm, matrix):
    y = kt.linear(kt.rms_norm(x, norm), matrix)
    q = y.view(1, -1, 4, 64)
    return kt.attention(q, q, q, causal=True)


def expected_of(x, norm, matrix):
    y = F.rms_norm(x, (256,), norm, 1e-6) @ matrix.t()
    q = y.view(1, -1, 4, 64).transpose(1, 2)
    return F.scaled_dot_product_attention(q, q, q, is_causal=True).transpose(1, 2)


def given_on(device, rows=200):
    return drawn(device, rows, 256), drawn(device, 256) * 8, drawn(device, 256, 256)


def other_than_the_current() -> None:
    """Forward and backward on device 1, by a thread whose current device is 0."""
    errors = []
    for device in DEVICES:
        given = [each.requires_grad_() for each in given_on(device)]
        found = layer(*given)
        wanted = expected_of(*given)
        errors += [error_of(found, wanted), *map(error_of, torch.autograd.grad(found.float().sum(), given), torch.autograd.grad(wanted.float().sum(), given))]
        assert torch.cuda.current_device() == 0
    row("tensors of a device that is not the current one", largest(errors) < 3e-2, errors=errors)


def two_devices_of_one_call() -> None:
    said = ""
    try:
        kt.rms_norm(drawn(DEVICES[0], 8, 256), drawn(DEVICES[1], 256))
    except RuntimeError as error:
        said = str(error)
    errors = [error_of(layer(*given), expected_of(*given)) for device in DEVICES for given in [given_on(device)]]  # no context is broken
    row("tensors of two devices in one call are refused", "lies on device 1, expected memory of device 0" in said and largest(errors) < 3e-2, said=said.splitlines()[:1])


def streams() -> None:
    """Two streams of device 1 beside its default one, by a thread whose current device is 0."""
    errors = []
    for stream in (torch.cuda.Stream(DEVICES[1]), torch.cuda.Stream(DEVICES[1])):
        given = given_on(DEVICES[1], 321)
        torch.cuda.synchronize(1)
        with torch.cuda.stream(stream):  # makes its device the current one
            torch.cuda.set_device(0)
            found = [layer(*given) for _ in range(3)]
        stream.synchronize()
        errors += [error_of(each, expected_of(*given)) for each in found]
    row("streams of a device that is not the current one", largest(errors) < 3e-2, errors=errors)


def tunes() -> None:
    """By the policy tune on each device, whichever is current; then what kiln.op gives there."""
    errors = []
    for device in DEVICES:
        x, weight, matrix = given_on(device, 45)
        errors.append(error_of(kt.linear(kt.rms_norm(x, weight), matrix), F.rms_norm(x, (256,), weight, 1e-6) @ matrix.t()))
        y = torch.empty_like(x)
        kiln.op("rms_norm")(x=x, weight=weight, y=y, epsilon=1e-6)
        errors.append(error_of(y, F.rms_norm(x, (256,), weight, 1e-6)))
    counts = [kiln.stats(device=ordinal)["tunes"] for ordinal in (0, 1)]
    row("tunes on two devices", largest(errors) < 3e-2 and min(counts) >= 2, errors=errors, tunes=counts)


def threads() -> None:
    """Eight threads. The tensors of each task and its current device are of either device, in all four combinations."""

    def run(index):
        device = DEVICES[index % 2]
        with torch.no_grad(), torch.cuda.device(DEVICES[(index // 2) % 2]):
            errors = []
            for rows in (33, 200, 700, 65):
                given = given_on(device, rows + index)
                errors.append(error_of(layer(*given), expected_of(*given)))
        return errors

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        errors = [each for found in pool.map(run, range(16)) for each in found]
    row("eight threads on two devices", largest(errors) < 3e-2, worst=largest(errors))


def graphs() -> None:
    """A graph of each device, captured in turns and replayed at once."""
    made = []
    for device in DEVICES:
        with torch.cuda.device(device), torch.no_grad():
            given = given_on(device)
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                layer(*given)
            torch.cuda.current_stream().wait_stream(side)
            kiln.wait_for_tunes(120)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=side):  # torch's default is a stream of the device that captured first
                found = layer(*given)
            made.append((graph, given, found))
    errors = []
    for seed in range(3):
        for device, (_, given, found) in zip(DEVICES, made):
            given[0].copy_(torch.randn(200, 256, device=device, generator=torch.Generator(device).manual_seed(seed)))
            found.fill_(float("nan"))
        for device, (graph, _, _) in zip(DEVICES, made):
            with torch.cuda.device(device):
                graph.replay()
        for device, (_, given, found) in zip(DEVICES, made):
            torch.cuda.synchronize(device)
            errors.append(error_of(found, expected_of(*given)))
    row("graphs of two devices", largest(errors) < 3e-2, errors=errors)


def small_llama():
    config = transformers.LlamaConfig(vocab_size=1000, hidden_size=512, intermediate_size=1024, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=2, head_dim=64,
                                      max_position_embeddings=512)
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(config).to(torch.bfloat16).eval()


def model_that_moves() -> None:
    """Patched and run on device 0, then on device 1, then on 0 again."""
    plain = small_llama()
    patched = kt.patch(copy.deepcopy(plain), inference=True)
    tokens, errors = torch.randint(1000, (2, 77)), []
    for device in (*DEVICES, DEVICES[0]):
        plain.to(device), patched.to(device)
        with torch.no_grad():
            errors.append(error_of(patched(tokens.to(device)).logits, plain(tokens.to(device)).logits))
    row("a patched model that moves between devices", largest(errors) < 5e-2, errors=errors)


def model_that_is_split() -> None:
    """accelerate's device map: layers of both devices. Patched first; after the split, patch() says why not."""
    import accelerate

    plain = small_llama()
    place = {"model.embed_tokens": 0, "model.rotary_emb": 0, **{f"model.layers.{index}": index // 2 for index in range(4)}, "model.norm": 1, "lm_head": 1}
    patched = accelerate.dispatch_model(kt.patch(copy.deepcopy(plain), inference=True), place)
    plain.to(DEVICES[0])
    tokens = torch.randint(1000, (2, 77), device=DEVICES[0])
    with torch.no_grad():
        error = error_of(patched(tokens).logits.to(DEVICES[0]), plain(tokens).logits)
        ours, theirs = (each.generate(tokens[:1], max_new_tokens=16, do_sample=False, pad_token_id=0) for each in (patched, plain))
    said = ""
    try:
        kt.patch(accelerate.dispatch_model(copy.deepcopy(plain), place), inference=True)
    except ValueError as failure:
        said = str(failure)
    ok = error < 5e-2 and "a forward of its own" in said and bool((ours == theirs).float().mean() > 0.9)
    row("a patched model with a device map", ok, error=error, same_tokens=int((ours == theirs).sum()), of_tokens=ours.numel(), after_the_split=said)


def data_parallel() -> None:
    """torch.nn.DataParallel: copies of a patched model, a thread a device."""
    plain = small_llama().to(DEVICES[0])
    patched = torch.nn.DataParallel(kt.patch(copy.deepcopy(plain), inference=True), device_ids=[0, 1])
    tokens = torch.randint(1000, (6, 77), device=DEVICES[0])
    with torch.no_grad():
        error = error_of(patched(input_ids=tokens, use_cache=False).logits, plain(tokens).logits)
    row("a patched model in DataParallel", error < 5e-2, error=error)


def main() -> int:
    is_tuned = sys.argv[1:] == ["tune"]
    kiln.configure(overlay="", on_miss="tune" if is_tuned else "nearest")
    served = (other_than_the_current, two_devices_of_one_call, streams, threads, graphs, model_that_moves, model_that_is_split, data_parallel)
    for check in (tunes,) if is_tuned else served:
        try:
            check()
        except Exception as error:
            row(check.__name__, False, error=f"{type(error).__name__}: {error}"[:900], where=traceback.format_exc().splitlines()[-6:])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
