#!/usr/bin/env python3
"""The host's cost of a call by each route, while the GPU keeps up: bench/python/host.py [--rounds N]

rms_norm of 8 rows of 256 in bf16. Routes take turns, a round each. An object a route, with the least and the median of its rounds. "empty op" is an op
that allocates the same result and launches nothing. Needs c++ for it.
"""
import argparse
import pathlib
import statistics
import subprocess
import sysconfig
import tempfile
import time

import torch
import torch.nn.functional as F

import kiln
import kiln.torch as kt
from rows import emit, settle, versions

SHAPE, EPSILON = (8, 256), 1e-6


def load_empty_op() -> None:
    folder, include = tempfile.mkdtemp(), pathlib.Path(torch.__file__).parent / "include"
    library = f"{folder}/empty_op.so"
    subprocess.run(["c++", "-O2", "-std=c++17", "-shared", "-fPIC", "-DTORCH_TARGET_VERSION=0x020b000000000000", f"-I{include}", "-o", library,
                    pathlib.Path(__file__).with_name("empty_op.cpp"), f"-L{include.parent}/lib", "-ltorch_cpu"], check=True)
    torch.ops.load_library(library)


def triton_norm():
    """A plain kernel of Triton behind a function that allocates, as its tutorials have it. None where there is no Triton."""
    try:
        from triton_norm import norm
    except ImportError:
        return None
    return norm


def routes() -> tuple[dict, dict]:
    """Without gradients, and with."""
    x, weight, y = (torch.randn(*shape, device="cuda", dtype=torch.bfloat16) for shape in (SHAPE, SHAPE[1:], SHAPE))
    leaf, gain = (each.clone().requires_grad_() for each in (x, weight))
    norm, op, backward = kiln.op("rms_norm"), torch.ops.kiln.rms_norm.default, torch.ops.kiln.rms_norm_backward.default
    empty, theirs = torch.ops.kiln_bench.empty_norm.default, lambda x, weight: F.rms_norm(x, SHAPE[1:], weight, EPSILON)
    ours = lambda x, weight: kt.rms_norm(x, weight, EPSILON)  # noqa: E731
    compiled, their_compiled = torch.compile(ours, fullgraph=True), torch.compile(theirs, fullgraph=True)
    plain = {
        "torch empty_like": lambda: torch.ops.aten.empty_like.default(x),
        "empty op": lambda: empty(x, weight, EPSILON),
        "kiln.op, no allocation": lambda: norm(x=x, weight=weight, y=y, epsilon=EPSILON),
        "torch.ops.kiln": lambda: op(x, weight, EPSILON),
        "kiln.torch": lambda: ours(x, weight),
        "kiln.torch, torch.compile": lambda: compiled(x, weight),
        "torch": lambda: theirs(x, weight),
        "torch, torch.compile": lambda: their_compiled(x, weight),
        "torch.ops.kiln, its gradients": lambda: backward(x, weight, y, EPSILON),
    }
    if triton := triton_norm():
        plain["Triton"] = lambda: triton(x, weight, EPSILON)
    trained = {
        "torch.abs, forward and backward": lambda: leaf.abs().backward(y),
        "kiln.torch, forward for a backward": lambda: ours(leaf, gain),
        "torch, forward for a backward": lambda: theirs(leaf, gain),
        "kiln.torch, forward and backward": lambda: ours(leaf, gain).backward(y),
        "torch, forward and backward": lambda: theirs(leaf, gain).backward(y),
        "kiln.torch, torch.compile, forward and backward": lambda: compiled(leaf, gain).backward(y),
        "torch, torch.compile, forward and backward": lambda: their_compiled(leaf, gain).backward(y),
    }
    try:
        from liger_kernel.ops.rms_norm import LigerRMSNormFunction
        trained["Liger, forward and backward"] = lambda: LigerRMSNormFunction.apply(leaf, gain, EPSILON, 0.0, "llama", False).backward(y)
    except ImportError:
        pass
    return plain, trained


def one_thread(trained: dict) -> dict:
    """Backward on the thread that asks for it, not on the device's."""
    def run(function):
        with torch.autograd.set_multithreading_enabled(False):
            function()
    return {f"{name}, one thread": lambda each=trained[name]: run(each) for name in ("kiln.torch, forward and backward", "torch, forward and backward")}


def measure(functions: dict, calls: int, rounds: int) -> None:
    found = {name: [] for name in functions}
    for function in functions.values():
        for _ in range(20):
            function()
    settle()
    for _ in range(rounds):
        for name, function in functions.items():
            torch.cuda.synchronize()
            begin = time.perf_counter_ns()
            for _ in range(calls):
                function()
            found[name].append((time.perf_counter_ns() - begin) / calls / 1000)
    for name, times in found.items():
        emit(bench="torch_host", route=name, us=round(statistics.median(times), 2), least_us=round(min(times), 2), rounds=rounds, calls=calls,
             python=sysconfig.get_python_version(), **versions("triton"))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    kiln.configure(overlay="", on_miss="nearest")
    load_empty_op()
    plain, trained = routes()
    with torch.no_grad():
        measure(plain, 500, rounds)
    measure(trained | one_thread(trained), 200, rounds)


if __name__ == "__main__":
    main()
