"""torch, torch.compile, Liger-Kernel and quack beside bench_throughput: the same problems, from standard input, one a line.

    python3 bench/peers/family.py [--extra-path FOLDER]... [--peers torch,compile,liger,quack] [--check] < bench/problems/family.txt

Results are compared with torch on f32 copies before they are timed. A backward pass is timed alone, its forward pass made before. torch.compile
is given each size as a constant, and its first call is told apart. --check compares and times nothing; it does on a CPU too (Liger-Kernel there
under TRITON_INTERPRET=1). One JSON object a problem and peer: the nanoseconds, and whether results were
right; or the reason why there are none.
"""
import argparse
import site
import sys
import time

import torch
import torch._functorch.config

import family_cases
import family_libraries
from common import device_ns, emit, parse
from family_libraries import LIBRARIES, Unsupported


def tensors(outputs):
    return family_cases.dequantised(tuple(outputs))


def judged(case, launch):
    """Whether results are within the tolerance, and their largest error over the root mean square."""
    relative, absolute = case.tolerance
    right, worst = True, 0.0
    wanted_all, got_all = tensors(case.wanted()), tensors(launch())
    if len(got_all) > len(wanted_all):
        got_all = (torch.cat(got_all, dim=1),)  # queries and keys apart
    for wanted, got in zip(wanted_all, got_all, strict=True):
        error, rms = (got.float() - wanted).abs(), wanted.square().mean().sqrt()
        right &= bool((error <= relative * wanted.abs() + absolute * rms).all())
        worst = max(worst, (error.max() / rms).item())
    return {"right": right, "worst_error": round(worst, 5)}


def compiled(case):
    torch._dynamo.reset()
    return case.launcher(torch.compile(case.forward, dynamic=False))


def run(peer, libraries, case, check):
    begun = time.perf_counter()
    own = case.copy()  # some kernels overwrite what they are given
    if peer in libraries:
        launch = family_libraries.launcher(libraries[peer], own)
    else:
        launch = compiled(own) if peer == "compile" else own.launcher(own.forward)
    row = {}
    if peer == "compile":
        launch()
        row["first_call_s"] = round(time.perf_counter() - begun, 2)
    row |= judged(case, launch)
    return row if check else row | {"ns": round(device_ns(launch))}


def loaded(names):
    """The libraries of these names that can be imported; of each other one a line says why not."""
    libraries = {}
    for name in names:
        try:
            libraries[name] = LIBRARIES[name]()
        except Exception as error:  # whatever an import may raise
            emit(bench="family", peer=name, reason=f"cannot be imported: {type(error).__name__}: {error}")
    return libraries


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--extra-path", action="append", default=[], help="a folder of packages, such as pip install --target makes")
    options.add_argument("--peers", default="torch,compile,liger,quack")
    options.add_argument("--check", action="store_true", help="compare results, time nothing")
    asked = options.parse_args()
    for path in asked.extra_path:
        site.addsitedir(path)  # its .pth files count, which a plain entry of sys.path would leave unread
    torch._functorch.config.donated_buffer = False  # else a compiled backward pass can run only once
    peers = asked.peers.split(",")
    libraries = loaded(peer for peer in peers if peer in LIBRARIES)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for line in sys.stdin:
        op, values = parse(line)
        if op not in family_cases.BUILDERS:
            continue
        case = family_cases.build(op, values, device)
        for peer in peers:
            if peer in LIBRARIES and peer not in libraries:
                continue
            try:
                row = run(peer, libraries, case, asked.check)
            except Unsupported as reason:
                row = {"reason": str(reason)}
            except Exception as error:  # whatever a peer may raise: it then has no figure here
                row = {"reason": f"{type(error).__name__}: {error}".splitlines()[0]}
            emit(bench="family", peer=peer, op=op, problem=line.split("#")[0].strip().split(" ", 1)[1], **row)


main()
