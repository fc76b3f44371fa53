"""torch beside bench_blocks: a block of Llama 3 8B and one of FLUX.1, forward and backward, eager or compiled.

    python3 bench/peers/blocks.py llama|flux [--way eager|compile|dynamic] [--name NAME] [--batches N] [--steady] [--sdpa NAMES]
        < bench/problems/blocks.txt
    python3 bench/peers/blocks.py llama|flux --check DIR

Lines are those of bench_blocks. compile: torch.compile as it comes, which takes sizes for dynamic from the second one on; dynamic: with
dynamic=True. Packed attention is varlen_attn, dense attention SDPA, by cuDNN unless
another is named. Weights and inputs are bench_blocks', bit for bit.
--check: results that bench_blocks left in DIR, and torch's in bf16, beside the block in float32. Exit status 1 where Kiln's are not within
the tolerance. Without a GPU only --check runs.
"""
import argparse
import math
import pathlib
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from common import emit

try:
    from torch.nn.attention.varlen import varlen_attn  # of 2.11: heads are grouped without being asked
except ImportError:  # then Llama's sides fail, and say so
    varlen_attn = None

TOLERANCE = 2e-2  # the error's root mean square over that of the tensor
WORST = 0.25  # the largest error of one element over that root mean square plus the element: isolated wrong elements hide in a mean
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
AT_ONCE = 1 << 24


def drawn(shape, seed, deviation, mean=0.0):
    """As Tensors::drawn of bench/blocks/block.cpp, in bf16."""
    count, low = math.prod(shape), 0xFFFFFFFF
    made = torch.empty(count, dtype=torch.bfloat16, device=DEVICE)
    step = torch.tensor(deviation * math.sqrt(3.0) / (1 << 23), dtype=torch.float32, device=DEVICE)
    for begin in range(0, count, AT_ONCE):
        at = (torch.arange(begin, min(begin + AT_ONCE, count), device=DEVICE) + seed * 0x9E3779B9) & low
        at = ((at ^ (at >> 16)) * 0x7FEB352D) & low
        at = ((at ^ (at >> 15)) * 0x846CA68B) & low
        made[begin : begin + AT_ONCE] = ((((at ^ (at >> 16)) >> 8) - (1 << 23)).to(torch.float32) * step + mean).to(torch.bfloat16)
    return made.view(shape)


class Llama(nn.Module):
    HIDDEN, HEADS, KEY_HEADS, DIM, WIDE = 4096, 32, 8, 128, 14336

    def __init__(self, dtype):
        super().__init__()
        made = lambda *drawing: nn.Parameter(drawn(*drawing).to(dtype))
        inputs, qkv = self.HIDDEN**-0.5, (self.HEADS + 2 * self.KEY_HEADS) * self.DIM
        self.norm = made((self.HIDDEN,), 1, 0.1, 1.0)
        self.qkv = made((qkv, self.HIDDEN), 2, inputs)
        self.out = made((self.HIDDEN, self.HEADS * self.DIM), 3, (self.HEADS * self.DIM) ** -0.5)
        self.mlp_norm = made((self.HIDDEN,), 4, 0.1, 1.0)
        self.gate_up = made((2 * self.WIDE, self.HIDDEN), 5, inputs)
        self.down = made((self.HIDDEN, self.WIDE), 6, self.WIDE**-0.5)

    INPUT_SEEDS = 7, 8

    def places(self, lengths):
        """Offsets, the longest length, and cosines and sines of the positions: what a batch needs beside x."""
        dtype = self.norm.dtype
        ends = torch.tensor(lengths).cumsum(0)
        offsets = F.pad(ends, (1, 0)).to(torch.int32).to(DEVICE)
        positions = torch.cat([torch.arange(length) for length in lengths])
        angles = positions[:, None].double() * 500000.0 ** (-torch.arange(0, self.DIM, 2).double() / self.DIM)
        angles = torch.cat((angles, angles), -1)[:, None]
        return offsets, max(lengths), angles.cos().to(dtype).to(DEVICE), angles.sin().to(dtype).to(DEVICE)

    def attention(self, q, k, v, offsets, longest):
        if q.dtype != torch.bfloat16 or DEVICE == "cpu":  # the reference: sequence by sequence
            bounds = offsets.tolist()
            parts = [[each[begin:end].transpose(0, 1)[None] for each in (q, k, v)] for begin, end in zip(bounds, bounds[1:])]
            made = [F.scaled_dot_product_attention(*part, is_causal=True, enable_gqa=True)[0].transpose(0, 1) for part in parts]
            return torch.cat(made)
        return varlen_attn(q, k, v, offsets, offsets, longest, longest, window_size=(-1, 0))

    def forward(self, x, offsets, longest, cos, sin):
        h = F.rms_norm(x, (self.HIDDEN,), self.norm, 1e-5)
        heads, keys = self.HEADS, self.KEY_HEADS
        q, k, v = F.linear(h, self.qkv).unflatten(-1, (-1, self.DIM)).split((heads, keys, keys), 1)
        turned = lambda at: at * cos + torch.cat((-at[..., self.DIM // 2 :], at[..., : self.DIM // 2]), -1) * sin
        x = x + F.linear(self.attention(turned(q), turned(k), v, offsets, longest).flatten(1), self.out)
        h = F.rms_norm(x, (self.HIDDEN,), self.mlp_norm, 1e-5)
        gate, up = F.linear(h, self.gate_up).chunk(2, -1)
        return x + F.linear(F.silu(gate) * up, self.down)


class Flux(nn.Module):
    HIDDEN, HEADS, DIM, WIDE = 3072, 24, 128, 12288
    AXES = 16, 56, 56

    def __init__(self, dtype):
        super().__init__()
        made = lambda *drawing: nn.Parameter(drawn(*drawing).to(dtype))
        hidden, wide = self.HIDDEN, self.WIDE
        self.scale = nn.Parameter((drawn((hidden,), 11, 0.1, 1.0).float() - 1).to(dtype))  # exact
        self.shift = made((hidden,), 12, 0.1)
        self.gate = made((hidden,), 13, 0.1, 1.0)
        self.linear1 = made((3 * hidden + wide, hidden), 14, hidden**-0.5)
        self.linear2 = made((hidden, hidden + wide), 15, (hidden + wide) ** -0.5)
        self.query_norm = made((self.DIM,), 16, 0.1, 1.0)
        self.key_norm = made((self.DIM,), 17, 0.1, 1.0)

    INPUT_SEEDS = 18, 19

    def places(self, lengths):
        """Rotations of the tokens' places, as the model's own code has them: [token, pair, 2, 2] in float32."""
        text, image = lengths
        width, at = math.isqrt(image), torch.arange(image)
        places = torch.zeros(text + image, 3, dtype=torch.float64)
        places[text:, 1], places[text:, 2] = at // width, at % width
        angles = torch.cat([places[:, i, None] * 10000.0 ** (-torch.arange(0, dim, 2).double() / dim) for i, dim in enumerate(self.AXES)], -1)
        return (torch.stack((angles.cos(), -angles.sin(), angles.sin(), angles.cos()), -1).unflatten(-1, (2, 2)).float().to(DEVICE),)

    def forward(self, x, turns):
        h = (1 + self.scale) * F.layer_norm(x, (self.HIDDEN,), eps=1e-6) + self.shift
        qkv, mlp = F.linear(h, self.linear1).split((3 * self.HIDDEN, self.WIDE), -1)
        q, k, v = qkv.unflatten(-1, (3, self.HEADS, self.DIM)).permute(1, 2, 0, 3)[:, None]

        def turned(at):
            pairs = at.float().unflatten(-1, (-1, 1, 2))
            return (turns[..., 0] * pairs[..., 0] + turns[..., 1] * pairs[..., 1]).flatten(-2).to(at.dtype)

        q, k = (turned(F.rms_norm(at, (self.DIM,), weight, 1e-6)) for at, weight in ((q, self.query_norm), (k, self.key_norm)))
        attended = F.scaled_dot_product_attention(q, k, v)[0].transpose(0, 1).flatten(1)
        return x + self.gate * F.linear(torch.cat((attended, F.gelu(mlp)), -1), self.linear2)


class Bench:
    def __init__(self, block, dtype, way, most_tokens):
        self.module = block(dtype)
        hidden = block.HIDDEN
        self.x, self.dy = (drawn((most_tokens, hidden), seed, 1.0).to(dtype) for seed in block.INPUT_SEEDS)
        self.call = {"eager": lambda: self.module, "compile": lambda: torch.compile(self.module),
                     "dynamic": lambda: torch.compile(self.module, dynamic=True)}[way]()

    def take(self, lengths):
        tokens = sum(lengths)
        self.batch = self.x[:tokens].detach().requires_grad_(), self.dy[:tokens], self.module.places(lengths)

    def infer(self):
        x, _, places = self.batch
        with torch.no_grad():
            return self.call(x, *places)

    def train(self):
        x, dy, places = self.batch
        x.grad = None
        self.module.zero_grad(set_to_none=True)
        y = self.call(x, *places)
        y.backward(dy)
        return y

    def results(self):
        """y and gradients, by name."""
        y = self.train()
        return {"inferred": self.infer(), "y": y.detach(), "x": self.batch[0].grad, **{name: each.grad for name, each in self.module.named_parameters()}}


def ms_since(begun):
    torch.cuda.synchronize()
    return (time.perf_counter() - begun) * 1e3


def time_ns(step):
    """As bench_blocks: the median over batches of steps of some 30 ms, enqueued back to back."""

    def elapsed_ns(steps):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(steps):
            step()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e6 / steps

    elapsed_ns(1)
    steps = min(20, max(1, int(30e6 / elapsed_ns(1))))
    return round(statistics.median(elapsed_ns(steps) for _ in range(5)))


def first(bench, batches, row):
    stream_ms = 0.0
    for i, lengths in enumerate(batches):
        bench.take(lengths)
        torch.cuda.synchronize()
        begun = time.perf_counter()
        bench.infer()
        infer_ms = ms_since(begun)
        bench.train()
        ms = ms_since(begun)
        stream_ms += ms
        emit(**row, phase="first", batch=i, tokens=sum(lengths), infer_ms=round(infer_ms, 2), train_ms=round(ms - infer_ms, 2))
    emit(**row, phase="stream", batches=len(batches), ms=round(stream_ms, 1))


def measure(block, batches, asked, row):
    torch.cuda.synchronize()  # the context
    free = torch.cuda.mem_get_info()[0]
    bench = Bench(block, torch.bfloat16, asked.way, max(map(sum, batches)))
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    first(bench, batches, row)
    for i, lengths in enumerate(batches if asked.steady else ()):
        bench.take(lengths)
        emit(**row, phase="steady", batch=i, tokens=sum(lengths), infer_ns=time_ns(bench.infer), train_ns=time_ns(bench.train))
    emit(**row, phase="memory", tensor_bytes=torch.cuda.max_memory_allocated(), device_bytes=free - torch.cuda.mem_get_info()[0])


def errors(got, wanted):
    """Of a tensor: the error's root mean square over its own, and the largest error of one element over the sum of that and the element."""
    wanted, rms = wanted.float(), wanted.float().square().mean().sqrt()
    error = got.float() - wanted
    return (error.square().mean().sqrt() / rms).item(), (error.abs() / (wanted.abs() + rms)).max().item()


def check(block, folder, row):
    """Whether all of Kiln's results are within the tolerance."""
    lengths = [int(word) for word in (folder / "lengths.txt").read_text().split()]
    made = {}
    for dtype in (torch.float32, torch.bfloat16):
        bench = Bench(block, dtype, "eager", sum(lengths))
        bench.take(lengths)
        made[dtype] = bench.results()
    all_right = True
    for name, wanted in made[torch.float32].items():
        bits = torch.frombuffer(bytearray((folder / f"{name}.bf16").read_bytes()), dtype=torch.bfloat16)
        error, worst = errors(bits.to(DEVICE).view(wanted.shape), wanted)
        torch_error, torch_worst = errors(made[torch.bfloat16][name], wanted)
        right = error <= TOLERANCE and worst <= WORST  # false for NaN
        all_right = all_right and right
        emit(**row, side="kiln", phase="check", tokens=sum(lengths), tensor=name, right=right, error=float(f"{error:.3g}"), worst=float(f"{worst:.3g}"),
             torch_error=float(f"{torch_error:.3g}"), torch_worst=float(f"{torch_worst:.3g}"))
    return all_right


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("block", choices=("llama", "flux"))
    options.add_argument("--way", choices=("eager", "compile", "dynamic"), default="eager")
    options.add_argument("--name", help="of the side, in what is printed: the way unless given")
    options.add_argument("--batches", type=int, default=1000)
    options.add_argument("--steady", action="store_true")
    options.add_argument("--sdpa", default="cudnn,flash", help="backends of dense attention, the preferred one first")
    options.add_argument("--check", type=pathlib.Path, metavar="DIR")
    asked = options.parse_args()
    block = {"llama": Llama, "flux": Flux}[asked.block]
    row = {"bench": "blocks", "block": asked.block}
    if asked.check:
        return 0 if check(block, asked.check, row) else 1
    row["side"] = asked.name or asked.way
    lines = [line.split() for line in sys.stdin]
    batches = [[int(word) for word in words[1:]] for words in lines if words[:1] == [asked.block]][: asked.batches]
    try:
        with sdpa_kernel([getattr(SDPBackend, f"{name.upper()}_ATTENTION") for name in asked.sdpa.split(",")], set_priority=True):
            measure(block, batches, asked, row)
    except Exception as error:  # whatever a compiler may raise: what was measured before stands
        emit(**row, phase="failed", reason=f"{type(error).__name__}: {error}".splitlines()[0])
        return 1
    return 0


sys.exit(main())
