"""What the peers share: timing as Kiln's stopwatch does it, and problems as `kiln` writes them."""
import json
import statistics

import torch

_flush = None


def device_ns(launch, samples=51):
    """Median device time of `launch`, L2 flushed before each run, events around it."""
    global _flush
    if _flush is None:
        _flush = torch.zeros(32 << 20, dtype=torch.int32, device="cuda"), torch.empty((), dtype=torch.int64, device="cuda")
    launch()
    launch()
    pairs = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(samples)]
    for begin, end in pairs:
        torch.sum(_flush[0], dim=0, out=_flush[1])  # by reading, as Kiln does: a fill would leave lines to be written back
        begin.record()
        launch()
        end.record()
    torch.cuda.synchronize()
    return statistics.median(begin.elapsed_time(end) * 1e6 for begin, end in pairs)


def parse(line):
    """'rms_norm rows=8 cols=4096 dtype=bf16' -> ('rms_norm', {'rows': 8, ...})"""
    op, *settings = line.split()
    values = dict(each.split("=") for each in settings)
    return op, {name: int(value) if value.isdigit() else value for name, value in values.items()}


def emit(**row):
    print(json.dumps(row), flush=True)
