"""Norms, softmax, SwiGLU and their gradients by Kiln and by its peers in turns in one process, from standard input, one problem a line.

    python3 bench/peers/family_turns.py [--ways kiln,compile,max-autotune,quack] [--base FILE] [--check] [--share I/N] < bench/problems/family_turns.txt

Ways beside kiln are those of family.py; max-autotune is torch.compile in its mode max-autotune-no-cudagraphs, which leaves out what a graph
copies. quack's plain rms_norm is the one that it tunes itself. Results are compared with torch on f32 copies before they are timed, L2 flushed.
--check compares and times nothing. One JSON object a problem: what Kiln launched, and nanoseconds by way, or the reason why there are none.
"""
import argparse
import sys

import torch
import torch._functorch.config

import family_cases
import family_libraries
from common import emit, parse, prepared, time_in_turns
from launched import launched


def judged(case, launch):
    """Whether results are within the tolerance, and their largest error over the root mean square."""
    relative, absolute = case.tolerance
    right, worst = True, 0.0
    for wanted, got in zip(case.wanted(), launch(), strict=True):
        error, rms = (got.float() - wanted).abs(), wanted.square().mean().sqrt()
        right &= bool((error <= relative * wanted.abs() + absolute * rms).all())
        worst = max(worst, (error.max() / rms).item())
    return {"right": right, "worst_error": round(worst, 5)}


def kiln_forward(case):
    import kiln.torch as kt

    def norm(x, weight, bias=None, residual=None):
        y = kt.layer_norm(x, weight, bias, residual=residual) if case.op.startswith("layer") else kt.rms_norm(x, weight, residual=residual)
        return (y,) if residual is None else (y[1], y[0])

    return {"rms": norm, "layer": norm, "softmax": lambda x: (kt.softmax(x),), "swiglu": lambda gate, up: (kt.swiglu(gate, up),)}[case.op.split("_")[0]]


def quack_tuned(norms, case):
    """rmsnorm_fwd_tuned, which chooses its configuration by timing; nothing where the problem is another one."""
    if case.op != "rms_norm" or "residual" in case.inputs:
        return None
    x, weight = case.inputs["x"], case.inputs["weight"]
    out = torch.empty_like(x)
    return lambda: (norms.rmsnorm_fwd_tuned(x, weight, out, eps=1e-6), (out,))[1]


def launcher(way, case):
    if way == "kiln":
        return case.launcher(kiln_forward(case))
    if way == "quack":
        library = family_libraries.LIBRARIES["quack"]()
        return quack_tuned(library.norms, case) or family_libraries.launcher(library, case)
    torch._dynamo.reset()
    return case.launcher(torch.compile(case.forward, dynamic=False, **({"mode": "max-autotune-no-cudagraphs"} if way == "max-autotune" else {})))


def run(case, ways, check):
    def prepare(way):
        launch = launcher(way, case.copy())  # some kernels overwrite what they are given
        return judged(case, launch), launch

    ready, launches = prepared(ways, prepare)
    row = {"ways": ready}
    if "kiln" in launches:
        row |= launched(case.op, **case.values)
    if not check:
        time_in_turns(ready, launches)
    return row


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--ways", default="kiln,compile,max-autotune,quack")
    options.add_argument("--base", action="append", default=[])
    options.add_argument("--check", action="store_true", help="compare results, time nothing")
    options.add_argument("--share", default="0/1")
    asked = options.parse_args()
    torch._functorch.config.donated_buffer = False  # else a compiled backward pass can run only once
    if "kiln" in asked.ways:
        import kiln

        kiln.configure(bases=asked.base, on_miss="tune")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    part, parts = map(int, asked.share.split("/"))
    lines = [line for line in sys.stdin if parse(line)[0] in family_cases.BUILDERS]
    for line in lines[part::parts]:
        op, values = parse(line)
        case = family_cases.build(op, values, device)
        emit(bench="family_turns", op=op, asked=line.split("#")[0].strip().split(" ", 1)[1], **run(case, asked.ways.split(","), asked.check))
        del case


if __name__ == "__main__":
    main()
