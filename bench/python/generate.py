#!/usr/bin/env python3
"""What transformers' generate() takes for one prompt or a batch, with and without Kiln, in turns in one process: bench/python/generate.py [option]...

The model is that of llama_model.py, 8 layers, 4096 wide, a copy for each contender. Contenders: eager torch and a model after
kiln.torch.patch(inference=True), each over a dynamic cache (generate's default) and over a static one, whose steps generate() compiles into CUDA graphs.
Prompts are of one length, or of lengths between an eighth of it and the whole, with padding before them. The time of a step is that of
a call less that of a call for half as many new tokens, by the tokens between. Objects: one a contender and batch, with the seconds of its first call and the medians of the rounds.
"""
import argparse
import os
import pathlib
import random
import statistics
import sys
import tempfile
import time

scratch = tempfile.mkdtemp()
os.environ.update(TORCHINDUCTOR_CACHE_DIR=f"{scratch}/inductor", TRITON_CACHE_DIR=f"{scratch}/triton")

import torch  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import kiln  # noqa: E402
import kiln.torch  # noqa: E402
import llama_model  # noqa: E402
from rows import emit, settle, versions  # noqa: E402

BATCHES = {"one prompt": (1, False), "8 prompts with padding": (8, True), "32 prompts": (32, False)}
CONTENDERS = {f"{who}, {cache} cache": (who, cache) for who in ("eager", "Kiln") for cache in ("dynamic", "static")}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=200, help="after which no batch is begun")
    parser.add_argument("--base", action="append", default=[], help="a tuned file")
    parser.add_argument("--batch", action="append", choices=BATCHES, help="all unless given")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--device", default="cuda")
    return parser.parse_args()


given = parse()


def models_of() -> dict:
    models = {}
    for name, (who, _) in CONTENDERS.items():
        models[name] = llama_model.model_of(given.width, given.layers, given.device, bos_token_id=None, eos_token_id=None, pad_token_id=0)
        if who == "Kiln":
            kiln.torch.patch(models[name], inference=True)
    return models


def prompts_of(batch: int, has_padding: bool) -> dict:
    draw, lengths = torch.Generator().manual_seed(1), random.Random(1)
    tokens, mask = torch.randint(1, 32000, (batch, given.prompt), generator=draw), torch.ones(batch, given.prompt, dtype=torch.long)
    for row in range(batch if has_padding else 0):
        mask[row, : given.prompt - lengths.randint(given.prompt // 8, given.prompt)] = 0
    return {"input_ids": (tokens * mask).to(given.device), "attention_mask": mask.to(given.device)}


def seconds_of(model, cache: str, prompts: dict, tokens: int) -> tuple[float, torch.Tensor]:
    torch.cuda.synchronize()
    begin = time.perf_counter()
    written = model.generate(**prompts, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False, cache_implementation=cache)
    torch.cuda.synchronize()
    return time.perf_counter() - begin, written[:, given.prompt :]


def measure(models: dict, name: str) -> None:
    prompts, first, written, calls, steps = prompts_of(*BATCHES[name]), {}, {}, {}, {}
    for contender, (_, cache) in CONTENDERS.items():
        first[contender], written[contender] = seconds_of(models[contender], cache, prompts, given.tokens)
        seconds_of(models[contender], cache, prompts, given.tokens)
    settle()
    for _ in range(given.rounds):
        for contender, (_, cache) in CONTENDERS.items():
            whole, half = (seconds_of(models[contender], cache, prompts, tokens)[0] for tokens in (given.tokens, given.tokens // 2))
            calls.setdefault(contender, []).append(whole * 1000)
            steps.setdefault(contender, []).append((whole - half) / (given.tokens - given.tokens // 2) * 1000)
    for contender in CONTENDERS:
        same = (written[contender] == written["eager, dynamic cache"]).float().mean().item()
        emit(bench="generate", batch=name, prompts=BATCHES[name][0], prompt=given.prompt, tokens=given.tokens, contender=contender,
             first_call_s=round(first[contender], 2), call_ms=round(statistics.median(calls[contender]), 1), step_ms=round(statistics.median(steps[contender]), 3),
             least_step_ms=round(min(steps[contender]), 3), rounds=given.rounds, same_tokens_as_eager=round(same, 3), device=torch.cuda.get_device_name(),
             **versions("transformers", "triton"))


def main() -> None:
    began = time.monotonic()
    torch.backends.cuda.enable_cudnn_sdp(False)  # which makes a plan for each new length of the dynamic cache
    torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 256  # the models share their code
    kiln.configure(overlay=f"{scratch}/overlay.kiln", on_miss="tune", bases=given.base)
    models = models_of()
    for name in given.batch or BATCHES:
        if time.monotonic() - began < given.seconds:
            measure(models, name)
    print({each: value for each, value in kiln.stats().items() if value}, kiln.warnings()[:5], file=sys.stderr)


if __name__ == "__main__":
    main()
