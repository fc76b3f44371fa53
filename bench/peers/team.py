"""NCCL and torch beside bench_team: collectives of the GPUs of one host, and products before or after them, from standard input, one a line.

    python3 bench/peers/team.py [--world 2] [--seconds S] [--check] [--skew] < bench/problems/team.txt

nccl is torch.distributed's collective, then or after torch.mm, which calls cuBLAS. fused is torch.ops.symm_mem's fused_all_gather_matmul and
fused_matmul_reduce_scatter. all_to_all is a permutation, NCCL's exchange and a permutation. attention_context is NCCL's gather of keys and values,
then torch's scaled_dot_product_attention by cuDNN or FlashAttention. One process a GPU. Before each run L2 is flushed and
the devices meet in an all-reduce of one element. One JSON object a problem and peer: ns and p95_ns of the maxima over the ranks, host_us and
wall_us from an idle device, and with --skew skewed_ns, as bench_team gives them. Each result is compared with one in float32. NVLink multicast
is off in NCCL and in torch's symmetric memory.
"""
import argparse
import functools
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right

from common import BATCH_NS, BEYOND_HELP_NS, CYCLES_PER_NS, REST, UNNOTICED_NS, emit, parse

TYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
SAMPLES, WARM, SKEWED_SAMPLES = 51, 5, 15
MOST_AT_ONCE = 32  # runs: the driver's queue holds about a thousand operations
SKEWS_US = 0, 50, 500, 100_000
ENQUEUED_NS = 150_000  # on the host: the flush and the barrier before each run
COOLING_S = 0.2  # before each: what ran before may have lowered the clock


def drawn(rank, *shape, dtype, scale=1.0):
    generator = torch.Generator(device="cuda").manual_seed(1000 + rank)
    return (torch.randn(*shape, generator=generator, device="cuda", dtype=torch.float32) * scale).to(dtype)


class Case:
    """The peers of a problem: functions without arguments that return the result, and what it should be in float32."""

    def __init__(self, op, values, rank, world):
        dtype = TYPES[values.get("dtype", "bf16")]
        self.rank, self.world = rank, world
        getattr(self, op)(values, dtype)

    def parts(self, *shape, dtype, scale=1.0):
        """Every rank's part: the own is drawn as the others draw it for themselves."""
        return [drawn(rank, *shape, dtype=dtype, scale=scale) for rank in range(self.world)]

    def all_gather(self, values, dtype):
        all_x = self.parts(values["rows"], values["cols"], dtype=dtype)
        y = torch.empty(self.world * values["rows"], values["cols"], device="cuda", dtype=dtype)
        self.wanted = torch.cat(all_x).float()
        self.peers = {"nccl": lambda: (dist.all_gather_into_tensor(y, all_x[self.rank]), y)[1]}

    def reduce_scatter(self, values, dtype):
        rows = values["rows"]
        all_x = self.parts(self.world * rows, values["cols"], dtype=dtype)
        y = torch.empty(rows, values["cols"], device="cuda", dtype=dtype)
        self.wanted = sum(x[self.rank * rows:(self.rank + 1) * rows].float() for x in all_x)
        self.peers = {"nccl": lambda: (dist.reduce_scatter_tensor(y, all_x[self.rank]), y)[1]}

    def all_reduce(self, values, dtype):
        all_x = self.parts(values["rows"], values["cols"], dtype=dtype)
        own = all_x[self.rank].clone()
        self.wanted = sum(x.float() for x in all_x)
        self.own, self.before = own, all_x[self.rank]
        self.peers = {"nccl": lambda: (dist.all_reduce(own), own)[1]}

    def all_to_all(self, values, dtype):
        rows, heads, dim = values["rows"], values["heads"], values["dim"]
        share = heads // self.world
        all_x = self.parts(rows, heads, dim, dtype=dtype)
        sent = torch.empty(self.world, rows, share, dim, device="cuda", dtype=dtype)
        y = torch.empty_like(sent)

        def nccl():
            sent.copy_(all_x[self.rank].view(rows, self.world, share, dim).transpose(0, 1))
            dist.all_to_all_single(y, sent)
            return y.view(self.world * rows, share, dim)

        self.wanted = torch.cat([x[:, self.rank * share:(self.rank + 1) * share] for x in all_x]).float()
        self.peers = {"nccl": nccl}

    def all_gather_gemm(self, values, dtype):
        rows, n, k = values["rows"], values["n"], values["k"]
        all_x, w = self.parts(rows, k, dtype=dtype), drawn(100 + self.rank, n, k, dtype=dtype, scale=0.02)
        gathered = torch.empty(self.world * rows, k, device="cuda", dtype=dtype)
        group = dist.group.WORLD.group_name

        def nccl():
            dist.all_gather_into_tensor(gathered, all_x[self.rank])
            return gathered @ w.T

        self.wanted = torch.cat(all_x).float() @ w.float().T
        self.peers = {"nccl": nccl,
                      "fused": lambda: torch.ops.symm_mem.fused_all_gather_matmul(all_x[self.rank], [w.T], gather_dim=0, group_name=group)[1][0]}

    def gemm_reduce_scatter(self, values, dtype):
        rows, n, k = values["rows"], values["n"], values["k"]
        all_x = self.parts(self.world * rows, k, dtype=dtype)
        all_w = [drawn(100 + rank, n, k, dtype=dtype, scale=0.02) for rank in range(self.world)]
        y = torch.empty(rows, n, device="cuda", dtype=dtype)
        group = dist.group.WORLD.group_name

        def nccl():
            dist.reduce_scatter_tensor(y, all_x[self.rank] @ all_w[self.rank].T)
            return y

        self.wanted = sum(x[self.rank * rows:(self.rank + 1) * rows].float() @ w.float().T for x, w in zip(all_x, all_w))
        self.peers = {"nccl": nccl,
                      "fused": lambda: torch.ops.symm_mem.fused_matmul_reduce_scatter(all_x[self.rank], all_w[self.rank].T, "sum", scatter_dim=0, group_name=group)}


    def gemm_all_reduce(self, values, dtype):
        rows, n, k = values["rows"], values["n"], values["k"]
        all_x = self.parts(rows, k, dtype=dtype)
        all_w = [drawn(100 + rank, n, k, dtype=dtype, scale=0.02) for rank in range(self.world)]

        def nccl():
            y = all_x[self.rank] @ all_w[self.rank].T
            dist.all_reduce(y)
            return y

        self.wanted = sum(x.float() @ w.float().T for x, w in zip(all_x, all_w))
        self.peers = {"nccl": nccl}

    def attention_context(self, values, dtype):
        """The keys of all ranks, or with a causal mask those up to this rank's own, for this rank's queries. A sequence a batch."""
        rows, heads, key_heads = values["rows"], values["heads"], values["key_heads"]
        all_k = self.parts(rows, key_heads, values["head_dim"], dtype=dtype)
        all_v = [drawn(200 + rank, rows, key_heads, values["value_dim"], dtype=dtype) for rank in range(self.world)]
        q = drawn(300 + self.rank, rows, heads, values["head_dim"], dtype=dtype)
        gathered = [torch.empty(self.world * rows, *part[0].shape[1:], device="cuda", dtype=dtype) for part in (all_k, all_v)]
        causal = values.get("mask") == "causal"
        seen = (self.rank + 1) * rows if causal else self.world * rows
        bias = causal_lower_right(rows, seen) if causal else None

        def attend(q, k, v):
            heads_first = [tensor.transpose(0, 1)[None] for tensor in (q, k[:seen], v[:seen])]
            out = torch.nn.functional.scaled_dot_product_attention(*heads_first, attn_mask=bias, enable_gqa=heads != key_heads)
            return out[0].transpose(0, 1)

        def nccl(backends):
            for into, parts in zip(gathered, (all_k, all_v)):
                dist.all_gather_into_tensor(into, parts[self.rank])
            with sdpa_kernel(backends):
                return attend(q, *gathered)

        self.wanted = attend_in_float(q, torch.cat(all_k)[:seen], torch.cat(all_v)[:seen], seen - rows if causal else seen)
        self.peers = {"nccl + flash": lambda: nccl([SDPBackend.FLASH_ATTENTION])}
        if not causal:  # torch gives cuDNN no mask of a lower right corner
            self.peers["nccl + cudnn"] = lambda: nccl([SDPBackend.CUDNN_ATTENTION])


def attend_in_float(q, k, v, shown):
    """Row i sees the keys up to shown + i."""
    out = torch.empty(q.shape[0], q.shape[1], v.shape[2], device="cuda")
    hidden = torch.arange(k.shape[0], device="cuda")[None] > shown + torch.arange(q.shape[0], device="cuda")[:, None]
    for head in range(q.shape[1]):
        of = head // (q.shape[1] // k.shape[1])
        scores = q[:, head].float() @ k[:, of].float().T / q.shape[2] ** 0.5
        out[:, head] = torch.softmax(scores.masked_fill_(hidden, float("-inf")), dim=1) @ v[:, of].float()
    return out


def is_right(got, wanted):
    """Row by row, since rows of attention under a causal mask differ in size."""
    wanted = wanted.flatten(1)
    error = (got.float().reshape(wanted.shape) - wanted).abs().amax(1) / wanted.pow(2).mean(1).sqrt()
    return bool(torch.isfinite(error).all()) and float(error.max()) < 0.15  # of bf16: a sum of few rounded parts


def maxima(values):
    """Each value's maximum over the ranks."""
    tensor = torch.tensor(values, dtype=torch.float64, device="cuda")
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    return tensor.tolist()


def samples_of(launch, pause, flush, one, runs, late_us=0):
    """Nanoseconds of each of so many runs, from the beginning of the last rank, which begins later by late_us; maxima over the ranks. What is
    subtracted from the other ranks' times is the delay as it was measured: the clock by which it is made may have changed since its calibration."""
    late = dist.get_rank() == dist.get_world_size() - 1
    cycles = late_us * cycles_per_us() if late_us else 0  # before anything is enqueued: the first call waits for the device
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(3)] for _ in range(runs)]
    torch.cuda._sleep(pause * runs)
    for met, begin, end in events:
        torch.sum(flush[0], dim=0, out=flush[1])
        dist.all_reduce(one)
        if late_us:
            met.record()
            if late:
                torch.cuda._sleep(cycles)
        begin.record()
        launch()
        end.record()
    torch.cuda.synchronize()
    own = [begin.elapsed_time(end) * 1e6 for _, begin, end in events]
    if not late_us:
        return maxima(own)
    delays = maxima([met.elapsed_time(begin) * 1e6 for met, begin, _ in events])  # the late rank's, which is the longest
    return maxima(own if late else [max(met.elapsed_time(end) * 1e6 - delay, 0) for (met, _, end), delay in zip(events, delays)])


@functools.cache
def cycles_per_us():
    """Of torch.cuda._sleep, measured."""
    pair, cycles = (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)), 20_000_000
    for _ in range(2):  # the first one loads the kernel
        pair[0].record()
        torch.cuda._sleep(cycles)
        pair[1].record()
        torch.cuda.synchronize()
    return round(cycles / (pair[0].elapsed_time(pair[1]) * 1e3))


def timed(launch, flush, skews):
    """As bench_team: batches are enqueued while the stream pauses, and long ones are followed by rests, of all ranks alike."""
    one = torch.zeros(1, device="cuda")
    time.sleep(COOLING_S)
    for _ in range(WARM):
        launch()
    torch.cuda.synchronize()
    begun = time.perf_counter_ns()
    launch()
    host_ns = maxima([time.perf_counter_ns() - begun])[0]
    pause = int((2 * host_ns + ENQUEUED_NS) * CYCLES_PER_NS)
    ns, each = [], samples_of(launch, pause, flush, one, 1)[0]
    while len(ns) < SAMPLES:
        batch = samples_of(launch, pause, flush, one, min(SAMPLES - len(ns), MOST_AT_ONCE, max(1, int(BATCH_NS / max(each, 1)))))
        ns += batch
        busy = sum(batch)
        each = busy / len(batch)
        if busy >= UNNOTICED_NS and each <= BEYOND_HELP_NS:
            time.sleep(REST * busy / 1e9)
    host, wall = [], []
    for _ in range(SAMPLES):
        dist.all_reduce(one)
        torch.cuda.synchronize()
        begun = time.perf_counter_ns()
        launch()
        host.append((time.perf_counter_ns() - begun) / 1e3)
        torch.cuda.synchronize()
        wall.append((time.perf_counter_ns() - begun) / 1e3)
    host, wall = maxima(host), maxima(wall)
    skewed = {us: round(statistics.median(samples_of(launch, pause, flush, one, SKEWED_SAMPLES, us))) for us in skews}
    return {**({"skewed_ns": skewed} if skewed else {}), "ns": round(statistics.median(ns)), "p95_ns": round(sorted(ns)[int(0.95 * SAMPLES)]), "host_us": round(statistics.median(host), 2),
            "wall_us": round(statistics.median(wall), 2)}


def run(rank, options, problems):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(options.port), NCCL_NVLS_ENABLE="0", TORCH_SYMM_MEM_DISABLE_MULTICAST="1")
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=options.world, device_id=torch.device("cuda", rank))
    try:
        from torch.distributed._symmetric_memory import enable_symm_mem_for_group
        enable_symm_mem_for_group(dist.group.WORLD.group_name)
    except ImportError:
        pass
    flush = torch.zeros(32 << 20, dtype=torch.int32, device="cuda"), torch.empty((), dtype=torch.int64, device="cuda")
    begun = time.monotonic()
    for line in problems:
        late = torch.tensor(float(time.monotonic() - begun > options.seconds), device="cuda")
        dist.broadcast(late, 0)
        if late.item():
            break
        op, values = parse(line)
        case = Case(op, values, rank, options.world)
        for name, launch in case.peers.items():
            row = {"asked": line.split("#")[0].strip(), "peer": name, "world": options.world}
            try:
                row["right"] = not maxima([float(not is_right(launch(), case.wanted))])[0]
                if not options.check:
                    row.update(timed(launch, flush, SKEWS_US if options.skew else ()))
            except Exception as error:  # a fused op that this torch lacks fails on all ranks alike
                row["error"] = str(error).splitlines()[0]
            if rank == 0:
                emit(**row)
        del case
        torch.cuda.empty_cache()
    dist.destroy_process_group()


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--world", type=int, default=2)
    options.add_argument("--seconds", type=float, default=1e9)
    options.add_argument("--port", type=int, default=29517)
    options.add_argument("--check", action="store_true")
    options.add_argument("--skew", action="store_true")
    asked = options.parse_args()
    problems = [line for line in sys.stdin if parse(line)[0]]
    multiprocessing.spawn(run, args=(asked, problems), nprocs=asked.world)


if __name__ == "__main__":
    main()
