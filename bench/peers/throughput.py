"""torch beside bench_throughput: the same problems, from standard input, one a line.

    python3 bench/peers/throughput.py < problems.txt
"""
import sys

import torch

from common import device_ns, emit, parse


def launcher(op, values):
    bf16 = torch.bfloat16
    if op == "gemm":
        x = torch.randn(values["m"], values["k"], device="cuda", dtype=bf16)
        w = torch.randn(values["n"], values["k"], device="cuda", dtype=bf16)
        return lambda: torch.nn.functional.linear(x, w)
    x = torch.randn(values["rows"], values["cols"], device="cuda", dtype=bf16)
    if op == "softmax":
        return lambda: torch.softmax(x, dim=-1)
    weight = torch.randn(values["cols"], device="cuda", dtype=bf16)
    return lambda: torch.nn.functional.rms_norm(x, (values["cols"],), weight, 1e-6)


for line in sys.stdin:
    if not line.strip():
        continue
    op, values = parse(line)
    emit(bench="torch", op=op, problem=line.strip().split(" ", 1)[1], ns=round(device_ns(launcher(op, values))))
