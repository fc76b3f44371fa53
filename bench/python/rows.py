"""What the measurements of Kiln in PyTorch share: rows of JSON, and a wait for compiles that run beside."""
import json
import os
import time

import torch

BUILD = {"build": os.environ["KILN_BENCH_BUILD"]} if "KILN_BENCH_BUILD" in os.environ else {}


def emit(**values) -> None:
    print(json.dumps({**BUILD, **values}), flush=True)


def versions(*names: str) -> dict:
    """Of the peers in a row, as bench/stamp.py reads them."""
    import importlib.metadata

    there = {each.metadata["Name"] for each in importlib.metadata.distributions()}
    return {"versions": {name: importlib.metadata.version(name).split("+")[0] for name in ("torch", *names) if name in there or name.replace("-", "_") in there}}


def settle(seconds: float = 30.0) -> None:
    """Waits until nothing is compiled any more: neighbours of what ran are, on cores that the calls would run on."""
    import kiln

    end, known, since = time.monotonic() + seconds, -1, time.monotonic()
    while time.monotonic() < min(end, since + 3):
        if (now := kiln.stats()["compiles"]) != known:
            known, since = now, time.monotonic()
        time.sleep(0.1)
    torch.cuda.synchronize()
