"""torch beside bench_throughput: products of batches and of groups of rows, from standard input, one a line.

    python3 bench/peers/products.py [--peers bmm,loop,grouped] [--check] < bench/problems/products.txt

bmm is cuBLAS's strided batch. Of groups, loop calls cuBLAS for each that has rows, which the host is told beforehand, and grouped is
torch._grouped_mm, which reads the offsets on the device as Kiln does. Rows are cut among groups where bench_throughput cuts them, whose
products also get a bias. Each result is compared with float64 on a sample of rows and columns. One JSON object a problem and peer: nanoseconds
with L2 flushed, or the reason why there are none. --check compares and times nothing; it does on a CPU too.
"""
import argparse
import sys

import torch

from common import device_ns, emit, parse

TYPES = {"bf16": torch.bfloat16, "f16": torch.float16}
TOLERANCE = {"bf16": (4.2e-3, 2e-4), "f16": (6e-4, 2e-4)}  # relative to the element, to the root mean square
SAMPLED = 64  # rows, and columns
SEED = 20261121  # of bench/throughput.cpp
OFFSETS = 2  # their place among the tensors of templates/gemm_grouped/op.toml
WORD = (1 << 64) - 1


def hashed(seed, index):
    """As templates/internal/fill.cuh."""
    z = (seed + (index + 1) * 0x9E3779B97F4A7C15) & WORD
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & WORD
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & WORD
    return z ^ (z >> 31)


def cuts(rows, groups):
    """The offsets that bench_throughput fills in."""
    seed = SEED * 0x9E3779B97F4A7C15 + OFFSETS & WORD
    inner = [int(rows * (i + 0.5 * ((hashed(seed, i) >> 40) * 2.0**-23 - 1)) / groups) for i in range(1, groups)]
    return [0, *inner, rows]


class Batched:
    peers = ("bmm",)

    def __init__(self, values, dtype, device):
        batch, m, n, k = (values[name] for name in ("batch", "m", "n", "k"))
        x_order, w_order = values.get("layout", "nt")
        operand = lambda order, rows, columns: (torch.randn(batch, rows, columns, device=device, dtype=dtype) if order == "n" else
                                                torch.randn(batch, columns, rows, device=device, dtype=dtype).mT)
        self.x, self.w = operand(x_order, m, k), operand(w_order, k, n)

    def bmm(self):
        return lambda: torch.bmm(self.x, self.w)

    def sample(self, y, draw):
        """Rows of y, and what they are in float64, at some columns of all products."""
        rows, columns = draw(y.shape[1]), draw(y.shape[2])
        return y[:, rows][:, :, columns], self.x[:, rows].double() @ self.w[:, :, columns].double()


class Grouped:
    peers = ("loop", "grouped")

    def __init__(self, values, dtype, device):
        groups, m, n, k = (values[name] for name in ("groups", "m", "n", "k"))
        self.x = torch.randn(m, k, device=device, dtype=dtype)
        self.w = torch.randn(groups, n, k, device=device, dtype=dtype)
        self.cuts = cuts(m, groups)
        self.ends = torch.tensor(self.cuts[1:], device=device, dtype=torch.int32)

    def loop(self):
        y = torch.empty(self.x.shape[0], self.w.shape[1], device=self.x.device, dtype=self.x.dtype)
        parts = [(self.x[first:end], self.w[group].T, y[first:end])
                 for group, (first, end) in enumerate(zip(self.cuts, self.cuts[1:])) if first < end]

        def launch():
            for x, w, to in parts:
                torch.mm(x, w, out=to)
            return y

        return launch

    def grouped(self):
        return lambda: torch._grouped_mm(self.x, self.w.mT, offs=self.ends)

    def sample(self, y, draw):
        rows, columns = draw(y.shape[0]), draw(y.shape[1])
        groups = torch.searchsorted(self.ends, rows.to(torch.int32), right=True)
        right = [self.w[group][columns].double() @ self.x[row].double() for row, group in zip(rows, groups)]
        return y[rows][:, columns], torch.stack(right)


CASES = {"gemm_batched": Batched, "gemm_grouped": Grouped}


def judged(case, y, tolerance):
    """Whether a sample of y, the last row and column in it, is within the tolerance, and its largest error over the root mean square."""
    draw = lambda size: torch.randint(size, (SAMPLED,), device=y.device).index_fill_(0, torch.tensor(0, device=y.device), size - 1)
    got, wanted = case.sample(y, draw)
    error, rms = (got.double() - wanted).abs(), wanted.square().mean().sqrt()
    right = (error <= tolerance[0] * wanted.abs() + tolerance[1] * rms).all() and not y.isnan().any()
    return {"right": bool(right), "worst_error": round((error.max() / rms).item(), 6)}


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--peers", default="bmm,loop,grouped")
    options.add_argument("--check", action="store_true", help="compare results, time nothing")
    asked = options.parse_args()
    torch.manual_seed(SEED)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for line in sys.stdin:
        op, values = parse(line)
        if op not in CASES:
            continue
        dtype = values.pop("dtype", "bf16")
        case = CASES[op](values, TYPES[dtype], device)
        for peer in (each for each in case.peers if each in asked.peers.split(",")):
            try:
                launch = getattr(case, peer)()
                row = judged(case, launch(), TOLERANCE[dtype])
                if not asked.check:
                    row["ns"] = round(device_ns(launch))
            except Exception as error:  # whatever a peer may raise: it then has no figure here
                row = {"reason": f"{type(error).__name__}: {error}".splitlines()[0]}
            emit(bench="products", op=op, peer=peer, dtype=dtype, **values, **row)


main()
