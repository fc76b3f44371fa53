"""Triton's autotune on lengths as they come: 12 configs of a bf16 GEMM, keyed on M, N and K as its tutorial does.

    python3 bench/peers/triton_autotune.py N K < lengths.txt

One JSON object a line: the length, and the seconds until its first result.
"""
import sys
import time

import torch
import triton
import triton.language as tl

from common import emit

CONFIGS = [
    triton.Config({"BM": bm, "BN": bn, "BK": bk}, num_stages=stages, num_warps=warps)
    for bm, bn, bk, stages, warps in [
        (128, 256, 64, 3, 8), (64, 256, 32, 4, 4), (128, 128, 32, 4, 4), (128, 64, 32, 4, 4), (64, 128, 32, 4, 4), (128, 32, 32, 4, 4),
        (64, 32, 32, 5, 2), (32, 64, 32, 5, 2), (128, 128, 64, 4, 8), (64, 64, 64, 4, 4), (32, 128, 64, 4, 4), (16, 128, 64, 5, 4),
    ]
]


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"])
@triton.jit
def linear(x, w, y, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        a = tl.load(x + rows[:, None] * K + (k + inner)[None, :], mask=(rows < M)[:, None], other=0.0)
        b = tl.load(w + cols[None, :] * K + (k + inner)[:, None], mask=(cols < N)[None, :], other=0.0)
        total = tl.dot(a, b, total)
    tl.store(y + rows[:, None] * N + cols[None, :], total.to(tl.bfloat16), mask=(rows < M)[:, None] & (cols < N)[None, :])


def main():
    n, k = int(sys.argv[1]), int(sys.argv[2])
    w = torch.randn(n, k, device="cuda", dtype=torch.bfloat16)
    for line in sys.stdin:
        m = int(line)
        x = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
        y = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
        torch.cuda.synchronize()
        begin = time.perf_counter()
        linear[lambda meta: (triton.cdiv(m, meta["BM"]), triton.cdiv(n, meta["BN"]))](x, w, y, m, n, k)
        torch.cuda.synchronize()
        seconds = time.perf_counter() - begin
        error = ((y.float() - (x.float() @ w.float().T)).norm() / y.float().norm()).item()
        emit(bench="triton_autotune", m=m, n=n, k=k, seconds=round(seconds, 3), relative_error=round(error, 5))


main()
