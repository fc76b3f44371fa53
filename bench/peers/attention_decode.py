"""torch beside bench_throughput: attention_decode, from standard input, one problem a line.

    python3 bench/peers/attention_decode.py [--peers read,flash,flashinfer] [--extra-path DIR] [--check] < bench/problems/attention_decode.txt

read sums as many bytes as the problem's keys and values have: the rate at which they can be read at best. flash is that backend of
scaled_dot_product_attention, for contiguous caches; flashinfer, where it can be imported, is the faster of its decode wrapper's two kernels,
with and without tensor cores, for paged caches and one query; caches of e4m3 have scales of one. Results are compared with float64 on a sample before they are timed. One JSON object a problem and peer: nanoseconds with L2 flushed,
or the reason why there are none. --check compares and times nothing.
"""
import argparse
import site
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from common import device_ns, emit, parse

TYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "e4m3": torch.float8_e4m3fn}
TOLERANCE = {torch.bfloat16: 2e-2, torch.float16: 4e-3}  # of the root mean square: P is rounded to the type, and so is the result
SAMPLED = 32  # rows
SEED = 20261121  # of bench/throughput.cpp


class Case:
    """A contiguous cache [sequence, key, head, dim], or pages [page, row, head, dim] in an order that is drawn."""

    def __init__(self, values, device):
        self.dtype = TYPES[values.get("dtype", "bf16")]
        self.batch, self.keys, self.queries, self.heads = (values[name] for name in ("batch", "keys", "queries", "heads"))
        self.causal = values.get("mask", "causal") != "none" and self.queries > 1
        self.page = values.get("page_size", 64) if values.get("layout") == "paged" else None
        made = lambda *shape: torch.randn(*shape, device=device, dtype=self.dtype)
        self.q = made(self.batch, self.queries, self.heads, values["head_dim"])
        rows = (self.batch, self.keys) if self.page is None else (self.batch * -(-self.keys // self.page), self.page)
        cache = TYPES[values.get("cache_dtype", values.get("dtype", "bf16"))]
        self.k = made(*rows, values["key_heads"], values["head_dim"]).to(cache)
        self.v = made(*rows, values["key_heads"], values["value_dim"]).to(cache)
        if self.page is not None:
            self.table = torch.randperm(rows[0], device=device, dtype=torch.int32).view(self.batch, -1)

    def peers(self):
        if self.page is not None:
            return ("read", "flashinfer") if self.queries == 1 else ("read",)
        return ("read",) if self.causal else ("read", "flash")  # torch's causal mask begins at the first key

    def launches(self, peer):
        """A peer's ways, each a call that gives [sequence, query, head, dim]; nothing that can be judged for `read`."""
        if peer == "read":
            words = torch.zeros((self.k.nbytes + self.v.nbytes) // 4, device=self.q.device)
            return {"sum": lambda: words.sum()}
        if peer == "flash":
            q, k, v = (each.transpose(1, 2) for each in (self.q, self.k, self.v))

            def launch():
                with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                    return torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True).transpose(1, 2)

            return {"sdpa": launch}
        return {way: self.flashinfer(way == "tensor cores") for way in ("tensor cores", "CUDA cores")}

    def flashinfer(self, tensor_cores):
        import flashinfer

        wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
            torch.empty(256 << 20, dtype=torch.uint8, device=self.q.device), "NHD", use_tensor_cores=tensor_cores)
        pages = self.table.shape[1]
        offsets = torch.arange(self.batch + 1, device=self.q.device, dtype=torch.int32) * pages
        last = torch.full((self.batch,), self.keys - (pages - 1) * self.page, device=self.q.device, dtype=torch.int32)
        wrapper.plan(offsets, self.table.flatten(), last, self.heads, self.k.shape[2], self.q.shape[3], self.page, q_data_type=self.dtype, kv_data_type=self.k.dtype)
        return lambda: wrapper.run(self.q[:, 0], (self.k, self.v)).unsqueeze(1)

    def rows_of(self, cache, sequence, head):
        if self.page is None:
            return cache[sequence, :, head]
        return cache[self.table[sequence].long(), :, head].flatten(0, 1)[: self.keys]

    def judged(self, out):
        """Whether sampled rows are within the tolerance, and their largest error over the root mean square."""
        worst, group = 0.0, self.heads // self.k.shape[2]
        for draw in range(SAMPLED):
            sequence, head, query = draw * 7 % self.batch, draw % self.heads, draw % self.queries
            k, v = (self.rows_of(each, sequence, head // group).double() for each in (self.k, self.v))
            weights = torch.softmax(k @ self.q[sequence, query, head].double() / k.shape[1] ** 0.5, 0)
            wanted = weights @ v
            error = (out[sequence, query, head].double() - wanted).abs().max() / wanted.square().mean().sqrt()
            worst = max(worst, error.item())
        return {"right": worst <= TOLERANCE[self.dtype] and not out.isnan().any().item(), "worst_error": round(worst, 6)}


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--peers", default="read,flash,flashinfer")
    options.add_argument("--extra-path", help="a folder with further packages")
    options.add_argument("--check", action="store_true", help="compare results, time nothing")
    asked = options.parse_args()
    if asked.extra_path:
        site.addsitedir(asked.extra_path)  # its .pth files count
    torch.manual_seed(SEED)
    for line in sys.stdin:
        op, values = parse(line)
        if op != "attention_decode":
            continue
        case = Case(values, "cuda")
        for peer in (each for each in case.peers() if each in asked.peers.split(",")):
            row = {}
            try:
                with torch.no_grad():
                    for way, launch in case.launches(peer).items():
                        if peer != "read":
                            row |= case.judged(launch())
                        if not row.get("right", True):
                            break
                        ns = None if asked.check else round(device_ns(launch, 25))
                        if ns and ns < row.get("ns", ns + 1):
                            row |= {"ns": ns, "way": way}
            except Exception as error:  # whatever a peer may raise: it then has no figure here
                row = {"reason": f"{type(error).__name__}: {error}".splitlines()[0]}
            emit(bench="decode", op=op, peer=peer, asked=" ".join(line.split("#")[0].split()[1:]), **row)
        del case


main()
