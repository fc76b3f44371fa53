#!/usr/bin/env python3
"""Two ranks or more on GPUs of one host: torchrun --nproc-per-node 2 python/torch/tests/ranks.py OVERLAY

Ops of teams beside torch.distributed's, and ops of one GPU by one overlay, a file that is not there yet: each bucket is tuned once in all, and the ranks give
the same bits. Rank 0 prints an object a check, and ends with 1 where one failed.
"""
from __future__ import annotations

import hashlib
import json
import os
import sys
import time

import torch
import torch.distributed as distributed

import kiln
import kiln.torch as kt
from errors import error_of, largest

BUILD = {"build": os.environ["KILN_BENCH_BUILD"]} if "KILN_BENCH_BUILD" in os.environ else {}
failed = []


def row(rank: int, check: str, ok: bool, **values) -> None:
    if not ok:
        failed.append(check)
    if rank == 0:
        print(json.dumps({**BUILD, "check": check, "ok": ok, **values}), flush=True)


def bits(*tensors: torch.Tensor) -> str:
    return hashlib.sha256(b"".join(each.contiguous().view(torch.uint8).cpu().numpy().tobytes() for each in tensors)).hexdigest()


def of_all(value) -> list:
    found = [None] * distributed.get_world_size()
    distributed.all_gather_object(found, value)
    return found


def teams(team: kiln.Team) -> None:
    world, rank = team.world, team.rank

    def gathered(tensor):
        parts = [torch.empty_like(tensor) for _ in range(world)]
        distributed.all_gather(parts, tensor.contiguous())
        return torch.stack(parts).double()

    for rows in (8, 512):
        x, w = (torch.randn(*shape, device="cuda", dtype=torch.bfloat16, generator=torch.Generator("cuda").manual_seed(10 * rank + rows)) / 8
                for shape in ((world * rows, 1024), (2048, 1024)))
        all_x, all_w = gathered(x), gathered(w)
        products = (all_x @ all_w.transpose(1, 2)).sum(0)
        mine = slice(rank * rows, (rank + 1) * rows)
        total, y = kt.all_reduce(x), kt.gemm_all_reduce(x, w)
        found = {
            "all_reduce": (total, all_x.sum(0)), "all_gather": (kt.all_gather(x), all_x.flatten(0, 1)), "reduce_scatter": (kt.reduce_scatter(x), all_x.sum(0)[mine]),
            "all_gather_gemm": (kt.all_gather_gemm(x, w), all_x.flatten(0, 1) @ w.double().t()), "gemm_reduce_scatter": (kt.gemm_reduce_scatter(x, w), products[mine]),
            "gemm_all_reduce": (y, products),
        }
        for name, (result, expected) in found.items():
            errors = of_all(error_of(result, expected))
            row(rank, f"{name} of {world * rows} rows", largest(errors) < 2e-2 and result.shape == expected.shape, errors=errors)
        row(rank, f"sums of {world * rows} rows on all ranks", len(set(of_all(bits(total, y)))) == 1)


def gradients(team: kiln.Team) -> None:
    """Of one product's two ways over the ranks, beside one process's in f64."""
    world, rank, rows = team.world, team.rank, 64

    def parts(seed, *shape):
        return [torch.randn(*shape, device="cuda", dtype=torch.bfloat16, generator=torch.Generator("cuda").manual_seed(seed + each)) / 8 for each in range(world)]

    x, w, dy, dz = parts(100, world * rows, 256), parts(200, 512, 256), parts(300, world * world * rows, 512), parts(400, rows, 512)
    for name, function, seed in (("all_gather_gemm", kt.all_gather_gemm, dy), ("gemm_reduce_scatter", kt.gemm_reduce_scatter, dz)):
        wide, weights = ([each.double().requires_grad_() for each in given] for given in (x, w))
        if name == "all_gather_gemm":
            torch.autograd.backward([torch.cat(wide) @ each.t() for each in weights], [each.double() for each in seed])
        else:
            sum(one @ other.t() for one, other in zip(wide, weights)).backward(torch.cat(seed).double())
        leaf, weight = (each[rank].clone().requires_grad_() for each in (x, w))
        function(leaf, weight).backward(seed[rank])
        errors = of_all((error_of(leaf.grad, wide[rank].grad), error_of(weight.grad, weights[rank].grad)))
        row(rank, f"gradients of {name}", largest(each for both in errors for each in both) < 3e-2, errors=errors)


def one_overlay(rank: int) -> None:
    begin, before = time.monotonic(), kiln.stats()["tunes"]
    x, weight, matrix = (torch.randn(*shape, device="cuda", dtype=torch.bfloat16, generator=torch.Generator("cuda").manual_seed(1)) / 8
                         for shape in ((300, 1024), (1024,), (512, 1024)))
    results = [kt.linear(kt.rms_norm(x[:rows], weight), matrix) for rows in (7, 60, 300)]  # three buckets of each op
    digests, tunes = of_all(bits(*results)), of_all(kiln.stats()["tunes"] - before)
    row(rank, "one overlay", len(set(digests)) == 1 and sum(tunes) == 6, tunes=tunes, seconds=round(time.monotonic() - begin, 2))


def meet() -> None:
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    distributed.init_process_group("nccl", device_id=torch.device("cuda", torch.cuda.current_device()))


def main() -> int:
    meet()
    kiln.configure(overlay=sys.argv[1], on_miss="tune")
    team = kt.join_team()
    with torch.no_grad():
        one_overlay(team.rank)
        teams(team)
    gradients(team)
    row(team.rank, "stats", True, device=torch.cuda.get_device_name(), ranks=team.world, tunes=of_all(kiln.stats()["tunes"]), torch=torch.__version__)
    torch.cuda.synchronize()
    team.close()
    distributed.destroy_process_group()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
