"""Triton and torch beside bench_gemm: the same products, from standard input, one a line.

    python3 bench/peers/gemm_triton.py [--type bf16|f16|e4m3] [--peers triton,torch] < bench/problems/gemm.txt

Triton's is a persistent kernel that loads and stores through TMA descriptors, autotuned for each shape over the configurations below. torch's
is F.linear, for e4m3 torch._scaled_mm with one scale a tensor and exact accumulation. Each result is compared with float64 on a sample of rows
and columns, the last ones among them. One JSON object a shape and peer: nanoseconds with L2 flushed, or the reason why there are none.
"""
import argparse
import functools
import sys
import time

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from common import device_ns, emit, parse

TYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "e4m3": torch.float8_e4m3fn}
TOLERANCE = {"bf16": (4.2e-3, 2e-4), "f16": (6e-4, 2e-4), "e4m3": (4.2e-3, 2e-3)}  # relative to the element, to the root mean square
SAMPLED = 96  # rows, and columns
PROMOTED = 128  # of k, that 8-bit products are summed over in the tensor cores' own precision


def tile_shapes(nargs):
    """What a configuration decides of the descriptors."""
    for name, shape in (("x", ("BM", "BK")), ("w", ("BN", "BK")), ("y", ("BM", "BN"))):
        nargs[name].block_shape = [nargs[each] for each in shape]


def config(bm, bn, bk_bytes, stages, warps):
    return triton.Config({"BM": bm, "BN": bn, "BK": bk_bytes}, num_stages=stages, num_warps=warps, pre_hook=tile_shapes)


# Columns of a tile of W are given in bytes, whatever the type.
CONFIGS = [config(bm, bn, bk, stages, 4) for bm in (16, 32, 64) for bn, bk, stages in ((32, 256, 6), (64, 256, 5), (128, 256, 3), (32, 512, 4))]
CONFIGS += [config(64, 256, 128, 4, 4), config(128, 64, 128, 5, 4), config(128, 128, 128, 4, 4), config(128, 128, 128, 4, 8), config(128, 128, 256, 3, 8),
            config(128, 256, 128, 3, 8), config(256, 128, 128, 3, 8)]


def sensible(configs, named, **_):
    """Tiles no higher than m needs, and no lower than half of that or 64; BK in elements."""
    rows = max(16, triton.next_power_of_2(named["M"]))
    size = named["x"].base.element_size()
    kept = [each for each in configs if each.kwargs["BM"] <= rows and each.kwargs["BM"] >= min(rows // 2, 64)]
    return [triton.Config(each.kwargs | {"BK": each.kwargs["BK"] // size}, num_stages=each.num_stages, num_warps=each.num_warps, pre_hook=each.pre_hook)
            for each in kept]


quick = functools.partial(triton.testing.do_bench, warmup=1, rep=8)


@triton.autotune(configs=CONFIGS, key=["M", "N", "K"], prune_configs_by={"early_config_prune": sensible}, do_bench=quick)
@triton.jit(do_not_specialize=["M"])
def product(x, w, y, x_scale, w_scale, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, BLOCKS: tl.constexpr,
            SCALED: tl.constexpr, PROMOTED: tl.constexpr, GROUP: tl.constexpr = 8):
    row_tiles, column_tiles = tl.cdiv(M, BM), tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), row_tiles * column_tiles, BLOCKS, flatten=True):
        first = tile // (GROUP * column_tiles) * GROUP  # of a band of rows of tiles that is walked together, for L2
        height = min(row_tiles - first, GROUP)
        row = (first + tile % (GROUP * column_tiles) % height) * BM
        column = tile % (GROUP * column_tiles) // height * BN
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(0, tl.cdiv(K, BK)):
            total = tl.dot(x.load([row, k * BK]), w.load([column, k * BK]).T, total, max_num_imprecise_acc=PROMOTED)
        if SCALED:
            total *= tl.load(x_scale) * tl.load(w_scale)
        y.store([row, column], total.to(y.dtype))


class Case:
    def __init__(self, values, dtype):
        m, n, k = self.sizes = tuple(values[name] for name in "mnk")
        self.scaled = dtype == torch.float8_e4m3fn
        self.x = torch.randn(m, k, device="cuda").to(dtype)
        self.w = torch.randn(n, k, device="cuda").mul_(1 if self.scaled else 0.02).to(dtype)
        self.scales = [torch.full((), value, device="cuda") for value in ((0.5, 0.04) if self.scaled else (1, 1))]
        self.y_type = torch.bfloat16 if self.scaled else dtype

    def triton(self):
        m, n, k = self.sizes
        blocks = torch.cuda.get_device_properties(0).multi_processor_count
        y = torch.empty(m, n, device="cuda", dtype=self.y_type)
        x, w, to = (TensorDescriptor.from_tensor(each, [16, 16]) for each in (self.x, self.w, y))
        grid = lambda meta: (min(blocks, triton.cdiv(m, meta["BM"]) * triton.cdiv(n, meta["BN"])),)

        def launch():
            product[grid](x, w, to, *self.scales, m, n, k, BLOCKS=blocks, SCALED=self.scaled, PROMOTED=PROMOTED if self.scaled else 0)
            return y

        return launch

    def torch(self):
        if not self.scaled:
            return lambda: torch.nn.functional.linear(self.x, self.w)
        return lambda: torch._scaled_mm(self.x, self.w.T, *self.scales, out_dtype=self.y_type, use_fast_accum=False)

    def judged(self, y, tolerance):
        """Whether a sample of y is within the tolerance of the product in float64, and its largest error over the root mean square."""
        rows, columns = (torch.randint(size, (SAMPLED,), device="cuda").index_fill_(0, torch.tensor(0, device="cuda"), size - 1) for size in self.sizes[:2])
        wanted = self.x[rows].double() @ self.w[columns].double().T * self.scales[0] * self.scales[1]
        error, rms = (y[rows][:, columns].double() - wanted).abs(), wanted.square().mean().sqrt()
        right = (error <= tolerance[0] * wanted.abs() + tolerance[1] * rms).all() and not y.isnan().any()
        return {"right": bool(right), "worst_error": round((error.max() / rms).item(), 6)}


def run(peer, case, tolerance):
    launch = getattr(case, peer)()
    begun = time.perf_counter()
    y = launch()
    torch.cuda.synchronize()
    row = {"first_call_s": round(time.perf_counter() - begun, 3)} | case.judged(y, tolerance) | {"ns": round(device_ns(launch))}
    return row | ({"config": str(product.best_config)} if peer == "triton" else {})


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--type", choices=TYPES, default="bf16")
    options.add_argument("--peers", default="triton,torch")
    asked = options.parse_args()
    torch.manual_seed(20261121)
    for line in sys.stdin:
        op, values = parse(line)
        if op != "gemm":
            continue
        case = Case(values, TYPES[asked.type])
        for peer in asked.peers.split(","):
            try:
                row = run(peer, case, TOLERANCE[asked.type])
            except Exception as error:  # whatever a peer may raise: it then has no figure here
                row = {"reason": f"{type(error).__name__}: {error}".splitlines()[0]}
            emit(bench="gemm", peer=peer, dtype=asked.type, **{name: values[name] for name in "mnk"}, **row)


main()
