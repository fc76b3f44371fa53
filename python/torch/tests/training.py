#!/usr/bin/env python3
"""Training on two GPUs or more of one host: torchrun --nproc-per-node 2 python/torch/tests/training.py

A patched Llama in DDP and in FSDP, beside the same without patch(): losses and gradients. Rank 0 prints an object a check, and ends with 1 where one failed.
"""
from __future__ import annotations

import os
import sys

import torch
import torch.distributed as distributed
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

import kiln
import kiln.torch as kt
from devices import small_llama
from errors import error_of, largest
from ranks import failed, meet, of_all, row


def sharded(model: torch.nn.Module, **options) -> torch.nn.Module:
    for layer in model.model.layers:
        fully_shard(layer, **options)
    return fully_shard(model, **options)


def wrapped(rank: int) -> dict:
    """What training wraps a model in, by name."""
    mixed = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    return {
        "DDP": lambda model: torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank]),
        "FSDP": lambda model: FullyShardedDataParallel(model, use_orig_params=True, device_id=rank, auto_wrap_policy=ModuleWrapPolicy({type(model.model.layers[0])})),
        "FSDP2": sharded,
        "FSDP2 with f32 weights and bf16 compute": lambda model: sharded(model.float(), mp_policy=mixed),
        "FSDP2 and torch.compile": lambda model: torch.compile(sharded(model)),
    }


def stepped(model: torch.nn.Module, rank: int) -> tuple[list[float], dict]:
    """Losses of four steps of AdamW on this rank's tokens, and the gradients of the first step, whole."""
    optimiser, losses, first = torch.optim.AdamW(model.parameters(), lr=1e-4), [], {}
    for step in range(4):
        tokens = torch.randint(1000, (2, 97), device="cuda", generator=torch.Generator("cuda").manual_seed(10 * step + rank))
        loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
        loss.backward()
        losses.append(loss.item())
        for name, each in model.named_parameters():
            if step == 0 and each.grad is not None:
                first[name] = (each.grad.full_tensor() if hasattr(each.grad, "full_tensor") else each.grad).float().clone()
        optimiser.step()
        optimiser.zero_grad()
    return losses, first


def training(rank: int) -> None:
    for name, wrap in wrapped(rank).items():
        torch._dynamo.reset()
        theirs, expected = stepped(wrap(small_llama().cuda().train()), rank)
        ours, found = stepped(wrap(kt.patch(small_llama().cuda().train())), rank)
        shared = sorted(expected.keys() & found.keys())
        errors = of_all([abs(one - other) for one, other in zip(ours, theirs)] + [error_of(found[each], expected[each]) for each in shared])
        ok = all(of_all(bool(expected) and expected.keys() == found.keys())) and largest(each for both in errors for each in both) < 5e-2
        row(rank, f"training in {name}", ok, losses=ours, losses_without_patch=theirs, gradients=len(shared), worst=largest(each for both in errors for each in both))


def main() -> int:
    meet()
    kiln.configure(overlay="", on_miss="nearest")
    training(int(os.environ["LOCAL_RANK"]))
    distributed.destroy_process_group()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
