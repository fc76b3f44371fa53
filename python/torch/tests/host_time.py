"""The host's time of calls, for gpu.py."""
from __future__ import annotations

import statistics
import time

import kiln
import torch


def host_us(function, calls=1000, rounds=9) -> float:
    """The least of some rounds, per call, while the GPU keeps up."""
    for _ in range(50):
        function()
    torch.cuda.synchronize()
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        for _ in range(calls):
            function()
        times.append((time.perf_counter() - begin) / calls * 1e6)
        torch.cuda.synchronize()
    return round(statistics.median(sorted(times)[:5]), 2)


def settle(seconds=30.0) -> None:
    """Waits until nothing is compiled any more: neighbours of what ran are, on cores that the calls would run on."""
    end, known, since = time.monotonic() + seconds, -1, time.monotonic()
    while time.monotonic() < min(end, since + 3):
        if (now := kiln.stats()["compiles"]) != known:
            known, since = now, time.monotonic()
        time.sleep(0.1)
