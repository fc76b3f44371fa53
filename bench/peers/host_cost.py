"""Host time of a launch: Triton's autotuned kernel once tuned, Triton's plain kernel, and torch ops.

    python3 bench/peers/host_cost.py

Batches of launches, the device synchronised between batches outside the timed span, as bench_hit_latency does.
"""
import statistics
import time

import torch
import triton
import triton.language as tl

from common import emit

LAUNCHES, BATCHES = 200, 101


@triton.jit
def plain(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)


@triton.autotune(configs=[triton.Config({"BLOCK": 1024}), triton.Config({"BLOCK": 2048})], key=["n"])
@triton.jit
def tuned(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)


def measure(way, launch):
    for _ in range(20):
        launch()
    torch.cuda.synchronize()
    ns = []
    for _ in range(BATCHES):
        begin = time.perf_counter_ns()
        for _ in range(LAUNCHES):
            launch()
        ns.append((time.perf_counter_ns() - begin) / LAUNCHES)
        torch.cuda.synchronize()
    emit(bench="hit_latency", way=way, median_ns=round(statistics.median(ns)), best_ns=round(min(ns)), launches=LAUNCHES * BATCHES)


n = 8 * 4096
x = torch.randn(n, device="cuda")
y = torch.empty_like(x)
rows = torch.randn(8, 4096, device="cuda", dtype=torch.bfloat16)
weight = torch.randn(4096, device="cuda", dtype=torch.bfloat16)
small = torch.randn(16, 16, device="cuda", dtype=torch.bfloat16)
measure("Triton, plain", lambda: plain[(n // 1024,)](x, y, n, BLOCK=1024))
measure("Triton, autotuned, already tuned", lambda: tuned[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, n))
measure("torch rms_norm", lambda: torch.nn.functional.rms_norm(rows, (4096,), weight, 1e-6))
measure("torch linear", lambda: torch.nn.functional.linear(small, small))
