"""From the start of a Python process to a first correct rms_norm: torch, and Triton with a warm disk cache.

    python3 bench/peers/cold_start.py [RUNS]

Fresh processes in turns, as bench_cold_start starts its own; the first of each way fills Triton's disk cache and the page cache and is
not counted. Stages are counted from just before the process was asked for, on the clock that all processes share. What a program pays
that has its imports behind it and a context at hand is from "tensors" to "result".
"""
import json
import os
import statistics
import subprocess
import sys
import time

from rows import emit, versions

ROWS, COLS, EPSILON = 8, 4096, 1e-6


def child(way, began):
    stages = {}

    def reached(stage):
        stages[stage] = (time.clock_gettime_ns(time.CLOCK_MONOTONIC) - began) / 1e6

    reached("main")
    import torch

    reached("import_torch")
    if way == "triton":
        import triton  # noqa: F401

        import cold_start_triton

        reached("import_triton")
    torch.cuda.init()
    torch.empty(1, device="cuda")
    torch.cuda.synchronize()
    reached("context")
    host = ((torch.arange(ROWS * COLS) * 37 % 97 - 48) / 16).reshape(ROWS, COLS)
    host_weight = 1 + torch.arange(COLS) % 7 / 8
    x = host.to(torch.bfloat16).cuda()
    weight = host_weight.to(torch.bfloat16).cuda()
    y = torch.zeros_like(x)
    torch.cuda.synchronize()
    reached("tensors")
    if way == "triton":
        cold_start_triton.rms_norm(x, weight, y, EPSILON)
    else:
        y = torch.nn.functional.rms_norm(x, (COLS,), weight, EPSILON)
    reached("launched")
    got = y.cpu()
    reached("result")
    wanted = host.double() / (host.double().pow(2).mean(dim=1, keepdim=True) + EPSILON).sqrt() * host_weight.double()
    assert ((got.double() - wanted).abs() <= 8e-3 * wanted.abs() + 1e-3).all(), "wrong result"
    print(json.dumps([stages, versions()]))


def start(way):
    began = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    done = subprocess.run([sys.executable, os.path.abspath(__file__), "--child", way, str(began)], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    return json.loads(done.stdout)


def main():
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    names = {"torch": "torch rms_norm", "triton": "Triton, warm disk cache"}
    ways = {way: [] for way in names}
    found = {}  # versions
    for each in range(-1, runs):
        for way in list(ways):
            try:
                reached, found[way] = start(way)
            except RuntimeError as error:  # the other way goes on
                emit(bench="cold_start", way=names[way], failed=str(error))
                del ways[way]
                continue
            if each >= 0:
                ways[way].append(reached)
    for way, runs_of_it in ways.items():
        median = {stage: statistics.median(run[stage] for run in runs_of_it) for stage in runs_of_it[0]}
        row = {"bench": "cold_start", "versions": found[way], "way": names[way], "runs": len(runs_of_it), "result_ms": round(median["result"], 2),
               "after_imports_and_context_ms": round(statistics.median(run["result"] - run["tensors"] for run in runs_of_it), 2),
               "import_torch_ms": round(median["import_torch"] - median["main"], 2)}
        if way == "triton":
            row["import_triton_ms"] = round(median["import_triton"] - median["import_torch"], 2)
        row |= {f"until_{stage}_ms": round(ms, 2) for stage, ms in median.items() if stage != "result"}
        emit(**row)


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1] == "--child":
        child(sys.argv[2], int(sys.argv[3]))
    else:
        main()
