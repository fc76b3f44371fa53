"""torch beside bench_team_layers: stacks of layers cut over the GPUs of one host, and each GPU with whole batches of its own.

    python3 bench/peers/team_layers.py llama|flux [--world 2] [--layers N] [--seconds S] [--alone] < bench/problems/team_layers.txt

By NCCL and cuBLAS: all_gather_into_tensor, linear, silu and a product, linear, reduce_scatter_tensor; or all_to_all_single with the copies that
it needs around cuDNN's attention. --alone: each rank computes a batch of its own by whole weights, so a batch takes ms / world. The layers, the
JSON lines and what they count are bench_team_layers'.
"""
import argparse
import os
import statistics
import sys
import time

BEGUN = time.clock_gettime(time.CLOCK_BOOTTIME) - float(open("/proc/self/stat").read().rsplit(")", 1)[1].split()[19]) / os.sysconf("SC_CLK_TCK")

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
import torch.nn.functional as functional

from common import emit

STARTED = time.monotonic() - BEGUN  # this process, by the clock of all
SETS, STEADY = 2, 5


def weight(outputs, inputs):
    return torch.randn(outputs, inputs, device="cuda", dtype=torch.bfloat16) * inputs ** -0.5


def norm_weight(hidden):
    return torch.randn(hidden, device="cuda", dtype=torch.bfloat16) * 0.1 + 1


class Llama:
    HIDDEN, WIDE, LAYERS = 8192, 28672, 80

    def __init__(self, parts):
        self.parts, self.share = parts, self.WIDE // parts
        self.sets = [(norm_weight(self.HIDDEN), weight(2 * self.share, self.HIDDEN), weight(self.HIDDEN, self.share)) for _ in range(SETS)]

    def layer(self, x, index):
        norm, up, down = self.sets[index % SETS]
        normed = functional.rms_norm(x, x.shape[-1:], norm, 1e-6)
        if self.parts > 1:
            gathered = torch.empty(self.parts * x.shape[0], self.HIDDEN, device="cuda", dtype=x.dtype)
            dist.all_gather_into_tensor(gathered, normed)
            normed = gathered
        gate, up = functional.linear(normed, up).chunk(2, dim=-1)
        y = functional.linear(functional.silu(gate) * up, down)
        if self.parts > 1:
            own = torch.empty_like(x)
            dist.reduce_scatter_tensor(own, y)
            y = own
        return y


class Flux:
    HEADS, DIM, LAYERS = 24, 128, 57
    HIDDEN = HEADS * DIM

    def __init__(self, parts):
        hidden = self.HIDDEN
        self.parts = parts
        self.sets = [(norm_weight(hidden), weight(3 * hidden, hidden), weight(hidden, hidden), norm_weight(hidden), weight(4 * hidden, hidden), weight(hidden, 4 * hidden))
                     for _ in range(SETS)]

    def layer(self, x, index):
        norm, qkv, out, mlp_norm, up, down = self.sets[index % SETS]
        rows, parts = x.shape[0], self.parts
        y = functional.linear(functional.rms_norm(x, x.shape[-1:], norm, 1e-6), qkv)
        if parts > 1:  # the heads of a rank side by side, so that one exchange brings q, k and v
            sent = y.view(rows, parts, -1).transpose(0, 1).contiguous()
            y = torch.empty_like(sent)
            dist.all_to_all_single(y, sent)
        y = y.view(parts * rows, 3, self.HEADS // parts, self.DIM)
        q, k, v = (each.transpose(0, 1)[None] for each in y.unbind(1))
        y = functional.scaled_dot_product_attention(q, k, v)[0].transpose(0, 1)
        if parts > 1:
            sent = y.contiguous().view(parts, rows, -1)
            y = torch.empty_like(sent)
            dist.all_to_all_single(y, sent)
            y = y.transpose(0, 1)
        x = x + functional.linear(y.reshape(rows, self.HIDDEN), out)
        y = functional.gelu(functional.linear(functional.rms_norm(x, x.shape[-1:], mlp_norm, 1e-6), up))
        return x + functional.linear(y, down)


def maxima(values):
    tensor = torch.tensor(values, dtype=torch.float64, device="cuda")
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    return tensor.tolist()


def run(rank, options, batches):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(options.port), NCCL_NVLS_ENABLE="0")
    torch.cuda.set_device(rank)
    torch.cuda.init()
    free_before = torch.cuda.mem_get_info()[0]
    dist.init_process_group("nccl", rank=rank, world_size=options.world, device_id=torch.device("cuda", rank))
    parts = 1 if options.alone else options.world
    kind = {"llama": Llama, "flux": Flux}[options.stack]
    stack, layers = kind(parts), kind.LAYERS if options.layers is None else options.layers
    side = "torch_alone" if options.alone else "torch"

    def say(**row):
        if rank == 0:
            emit(bench="team_layers", stack=options.stack, side=side, world=options.world, layers=layers, **row)

    most = torch.randn(-(-max(batches) // parts), stack.HIDDEN, device="cuda", dtype=torch.bfloat16)
    state = {}

    @torch.inference_mode()
    def batch_ms(tokens):
        x = most[:-(-tokens // parts)]
        maxima([0.0])  # the ranks begin together
        torch.cuda.synchronize()
        begun = time.perf_counter()
        for index in range(layers):
            x = stack.layer(x, index)
        torch.cuda.synchronize()
        state["last"] = x
        return (time.perf_counter() - begun) * 1e3

    ran = []
    for tokens in batches:
        if maxima([time.monotonic() - options.started])[0] > options.seconds:
            break
        say(phase="first", tokens=tokens, ms=round(maxima([batch_ms(tokens)])[0], 2))
        ran.append(tokens)
    say(phase="stream", batches=len(ran), seconds=round(maxima([time.monotonic() - options.started])[0], 2))
    for tokens in ran:
        say(phase="steady", tokens=tokens, ms=round(statistics.median(maxima([batch_ms(tokens)])[0] for _ in range(STEADY)), 3))
    taken, infinite = maxima([float(free_before - torch.cuda.mem_get_info()[0]), float(not torch.isfinite(state["last"]).all())])
    say(phase="memory", device_bytes=round(taken), finite=infinite == 0)
    dist.destroy_process_group()


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("stack", choices=("llama", "flux"))
    options.add_argument("--world", type=int, default=2)
    options.add_argument("--layers", type=int)
    options.add_argument("--seconds", type=float, default=1e9)
    options.add_argument("--port", type=int, default=29518)
    options.add_argument("--alone", action="store_true")
    asked = options.parse_args()
    asked.started = STARTED
    batches = [int(line.split()[1]) for line in sys.stdin if line.split()[:1] == [asked.stack]]
    multiprocessing.spawn(run, args=(asked, batches), nprocs=asked.world)


if __name__ == "__main__":
    main()
