"""torch beside bench_chain: rms_norm -> linear -> softmax in bf16, eager, in CUDA graphs, and compiled.

    python3 bench/peers/chain.py [ROWS...]

The same sizes and batches as bench_chain. Each way is compared with the chain in float64 before it is timed; one that fails says why. torch's h and s are rounded to bf16
on the way where it materialises them; a compiler that fuses may keep them in float32, which the tolerance allows.
"""
import statistics
import sys
import time

import torch
import torch.nn.functional as F

from common import emit

HIDDEN, WIDTHS, EPSILON = 4096, (4096, 1024), 1e-6
CHAINS_A_BATCH, CHAINS_A_STEP, BATCHES = 96, 16, 41
TOLERANCE = 0.04
HELD_BACK_CYCLES = 20_000_000  # some 10 ms: longer than a batch takes to enqueue


def chain(x, weight, w):
    return torch.softmax(F.linear(F.rms_norm(x, (HIDDEN,), weight, EPSILON), w), dim=-1)


def exact(x, weight, w):
    x = x.double()
    h = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPSILON) * weight.double()
    s = h.bfloat16().double() @ w.double().T
    return torch.softmax(s.bfloat16().double(), dim=-1)


def captured(run, chains):
    """A CUDA graph of some chains, and where the last one leaves its result."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(chains):
            y = run()
    return graph.replay, lambda: y


def compiled(mode, x, weight, w):
    torch._dynamo.reset()
    function = torch.compile(chain, mode=mode, dynamic=False)

    def step():
        torch.compiler.cudagraph_mark_step_begin()
        return function(x, weight, w)

    for _ in range(5):  # compiles, then records its graph
        step()
    return step, step


def ways(*tensors):
    """Name, chains a call, and what makes ready the call and says where its result is."""
    eager = lambda: chain(*tensors)
    yield "torch eager", 1, lambda: (eager, eager)
    yield "torch graph", 1, lambda: captured(eager, 1)
    yield f"torch graph of {CHAINS_A_STEP}", CHAINS_A_STEP, lambda: captured(eager, CHAINS_A_STEP)
    for mode in ("reduce-overhead", "max-autotune"):
        yield f"torch.compile {mode}", 1, lambda: compiled(mode, *tensors)


def batch(call, chains, held_back=False):
    """Nanoseconds a chain by events, and by the host's clock until all is enqueued; the device kept from it until then if asked for."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    if held_back:
        torch.cuda._sleep(HELD_BACK_CYCLES)
    begin.record()
    begun = time.perf_counter_ns()
    for _ in range(0, CHAINS_A_BATCH, chains):
        call()
    host = (time.perf_counter_ns() - begun) / CHAINS_A_BATCH
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e6 / CHAINS_A_BATCH, host


def worst_error(got, wanted):
    return ((got.double() - wanted).abs() / wanted).max().item()


def timed(chains, make, wanted):
    begun = time.perf_counter()
    call, result = make()
    call()
    error = worst_error(result(), wanted)
    ready_s = time.perf_counter() - begun
    if not error <= TOLERANCE:
        return {"reason": f"relative error {error:.3g}"}
    batch(call, chains)
    samples = [(*batch(call, chains), batch(call, chains, held_back=True)[0]) for _ in range(BATCHES)]
    ns, host, device = (round(statistics.median(each)) for each in zip(*samples))
    return {"ns": ns, "device_ns": device, "host_ns": host, "worst_error": float(f"{error:.3g}"), "ready_s": round(ready_s, 1)}


@torch.inference_mode()
def measure(rows, n):
    x = torch.randn(rows, HIDDEN, device="cuda", dtype=torch.bfloat16)
    weight = torch.randn(HIDDEN, device="cuda", dtype=torch.bfloat16)
    w = (torch.randn(n, HIDDEN, device="cuda") * HIDDEN**-0.5).bfloat16()
    wanted = exact(x, weight, w)
    for name, chains, make in ways(x, weight, w):
        try:
            row = timed(chains, make, wanted)
        except Exception as error:  # whatever a compiler may raise: this way then has no figure here
            row = {"reason": f"{type(error).__name__}: {error}".splitlines()[0]}
        emit(bench="chain", rows=rows, n=n, way=name, **row)


torch.manual_seed(20261121)
for n in WIDTHS:
    for rows in [int(word) for word in sys.argv[1:]] or [1, 2, 4, 8, 16, 32, 64, 128]:
        measure(rows, n)
