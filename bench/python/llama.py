#!/usr/bin/env python3
"""One contender of the contest on a Llama of 8 layers, in a process of its own: bench/python/llama.py CONTENDER [option]...

Contenders: eager, compile, liger, kiln. The model is that of llama_model.py, 4096 wide, the same for all. A batch is one sequence whose length is
log-normal (median 512, sigma 1, 2 to 4096), the same lengths for all. Forward: the last token's logits, without gradients. --train: the loss of all
tokens, and gradients. A batch ends when the host has read its result.

The clock begins before the first batch, with nothing compiled: torch.compile's caches are empty, and so are Triton's, unless --caches names a folder
that an earlier process left. Kiln compiles what --base does not have. After --seconds no batch is begun. Objects: one after some of the batches, with
the seconds since the beginning, and one at the end.
"""
import argparse
import os
import pathlib
import random
import sys
import tempfile
import time

CONTENDERS = ("eager", "compile", "liger", "kiln")
MARKS = (1, 2, 5, 10, 20, 50, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("contender", choices=CONTENDERS)
    parser.add_argument("--name", help="of its rows, the contender's unless given")
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--batches", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--base", action="append", default=[], help="kiln: a tuned file")
    parser.add_argument("--record", help="kiln: writes a workload of what ran")
    parser.add_argument("--flash", action="store_true", help="torch's attention without cuDNN's, which is its default on Hopper and makes a plan for each new length")
    parser.add_argument("--caches", help="a folder for the caches of torch.compile and Triton, which stays")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--device", default="cuda")
    return parser.parse_args()


given = parse()
scratch = given.caches or tempfile.mkdtemp()
os.environ.update(TORCHINDUCTOR_CACHE_DIR=f"{scratch}/inductor", TRITON_CACHE_DIR=f"{scratch}/triton")

import torch  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import llama_model  # noqa: E402


def lengths() -> list[int]:
    draw = random.Random(20261127)
    return [min(max(round(draw.lognormvariate(0, 1) * 512), 2), llama_model.LONGEST) for _ in range(given.batches)]


def model_of() -> torch.nn.Module:
    if given.contender == "liger":
        from liger_kernel.transformers import apply_liger_kernel_to_llama
        apply_liger_kernel_to_llama()
    return llama_model.model_of(given.width, given.layers, given.device, has_gradients=given.train, use_cache=False)


def begun(model: torch.nn.Module) -> torch.nn.Module:
    torch.backends.cuda.enable_cudnn_sdp(not given.flash)
    if given.contender == "compile":
        return torch.compile(model)
    if given.contender == "kiln":
        import kiln
        import kiln.torch
        kiln.configure(overlay="", on_miss="nearest", bases=given.base)
        return kiln.torch.patch(model, inference=not given.train)
    return model


def batch(model: torch.nn.Module, tokens: torch.Tensor) -> float:
    """Its loss, or the largest logit of the last token."""
    if not given.train:
        with torch.no_grad():
            return model(input_ids=tokens, logits_to_keep=1, use_cache=False).logits.max().item()
    loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
    loss.backward()
    model.zero_grad(set_to_none=True)
    return loss.item()


def run(model: torch.nn.Module) -> None:
    from rows import emit, versions

    common = {"bench": "llama", "contender": given.name or given.contender, "train": given.train}
    stream = lengths()
    draw = torch.Generator().manual_seed(1)
    inputs = [torch.randint(32000, (1, length), generator=draw) for length in stream]
    seconds, results = [], []
    begin = time.perf_counter()
    for tokens in inputs:
        if seconds and seconds[-1] > given.seconds:
            break
        tokens = tokens.to(given.device)
        torch._dynamo.mark_dynamic(tokens, 1)
        results.append(batch(model, tokens))
        seconds.append(time.perf_counter() - begin)
        if len(seconds) in MARKS:
            emit(**common, batches=len(seconds), seconds=round(seconds[-1], 3))
    half = len(seconds) // 2
    emit(**common, batches=len(seconds), seconds=round(seconds[-1], 3), end=True, of_batches=given.batches, limit_s=given.seconds,
         second_half_ms=round((seconds[-1] - seconds[half - 1]) / (len(seconds) - half) * 1000, 3) if half else None,
         tokens=sum(stream[: len(seconds)]), second_half_tokens=sum(stream[half : len(seconds)]), first_results=[round(each, 4) for each in results[:20]],
         device=torch.cuda.get_device_name() if given.device == "cuda" else "cpu", **told(), **versions("transformers", *peers()))


def peers() -> tuple[str, ...]:
    return {"liger": ("liger-kernel", "triton"), "compile": ("triton",)}.get(given.contender, ())


def told() -> dict:
    """What the contender counted."""
    if given.contender == "compile":
        counted = torch._dynamo.utils.counters["stats"]
        return {"graphs": counted["unique_graphs"]}
    if given.contender == "kiln":
        import kiln
        return {"stats": {name: value for name, value in kiln.stats().items() if value}}
    return {}


def main() -> None:
    model = model_of()
    torch.ones(1, device=given.device).sum().item()
    run(begun(model))
    if given.record:
        import kiln
        kiln.record(given.record)


if __name__ == "__main__":
    main()
