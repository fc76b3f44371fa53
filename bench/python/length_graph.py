#!/usr/bin/env python3
"""One CUDA graph whose length lies on the device: bench/python/length_graph.py

rms_norm, a product with 4096 columns and SwiGLU, captured once for 8192 rows of 4096 in bf16. Replayed, it computes as many rows as an i32 in device memory
says. Beside it: a graph of torch's ops, which computes all 8192, and torch's ops in a graph that is captured for the very length. An object a length, with the median
of 51 replays, and whether the rows are those of Kiln's ops outside of the graph.
"""
import statistics

import torch
import torch.nn.functional as F

import kiln
import kiln.torch as kt
from rows import emit, settle, versions

ROWS, COLS = 8192, 4096


def captured(function):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            function()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = function()
    return graph, y


def replay_us(graph) -> float:
    times = []
    for _ in range(51):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1000)
    return round(statistics.median(times), 2)


@torch.no_grad()
def main() -> None:
    kiln.configure(overlay="", on_miss="nearest")
    x, weight, matrix = (torch.randn(*shape, device="cuda", dtype=torch.bfloat16) / 8 for shape in ((ROWS, COLS), (COLS,), (COLS, COLS)))
    length = torch.tensor(ROWS, dtype=torch.int32, device="cuda")
    norm, product, gate = kt.op("rms_norm", lengths=("rows",)), kt.op("gemm", layout="nt", lengths=("m",), omit=("bias", "y_scale"), values=()), kt.op("swiglu", lengths=("rows",))

    def ours():
        y = product(norm(x, weight, length), matrix, length)
        return gate(y, x, length)

    def theirs(rows=x):
        return F.silu(F.linear(F.rms_norm(rows, (COLS,), weight, 1e-6), matrix)) * rows

    ours(), theirs()
    settle()
    before = kiln.stats()
    graph, y = captured(ours)
    padded, _ = captured(theirs)
    for rows in (1, 64, 500, 1000, 2000, 4000, ROWS):
        length.fill_(rows)
        exact, _ = captured(lambda: theirs(x[:rows]))
        graph.replay()
        found = y[:rows].clone()
        expected = ours()[:rows]
        emit(bench="length_graph", rows=rows, us=replay_us(graph), padded_us=replay_us(padded), exact_us=replay_us(exact), equal=torch.equal(found, expected),
             compiles=kiln.stats()["compiles"] - before["compiles"], device=torch.cuda.get_device_name(), **versions())


if __name__ == "__main__":
    main()
