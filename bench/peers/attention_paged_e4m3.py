"""Steps of a service whose pages hold e4m3, by Kiln and by its peers in turns in one process, from standard input, one problem a line.

    python3 bench/peers/attention_paged_e4m3.py [--ways kiln,bf16,flashinfer] [--base FILE] [--seconds S] [--check] <PROBLEMS

Problems, options and rows are those of attention_paged.py. bf16 is Kiln over pages of the same numbers in bf16. flashinfer is its prefill wrapper with
q in bf16 and pages in e4m3; where it is not installed, its rows say so. It multiplies its result by the scale of the values in a launch of its own, unless
the scale is 1, which it is here. Its plan is made, and its kernels are compiled, before it is timed. Where a head has neither 64 numbers nor a multiple of
128, its kernels load only a part of them, and its row says so instead. FlashAttention takes no such pages.
"""
import math

import torch

from attention_paged import DEVICE, PagedCase, main


class BytesCase(PagedCase):
    """A PagedCase whose values are numbers of e4m3, and whose keys are such numbers times a power of two: bf16 has both."""

    def in_pages(self, size):
        self.scales = [2.0 ** math.ceil(math.log2(self.k.abs().max().item() / 448)), 1.0]
        in_bytes = lambda of: [(each / scale).to(torch.float8_e4m3fn) for each, scale in zip(of, self.scales)]
        self.k, self.v = (each.to(torch.bfloat16) * scale for each, scale in zip(in_bytes((self.k, self.v)), self.scales))
        super().in_pages(size)
        self.size, self.bytes = size, in_bytes(self.pools)
        self.bytes_without_nan = lambda: in_bytes([each.nan_to_num() for each in self.pools])

    def launch(self, way):
        ways = {"kiln": self.kiln, "bf16": super().kiln, "flashinfer": self.flashinfer}
        return ways[way]()

    def kiln(self):
        import kiln.torch

        named = {"causal": self.mask == "causal", "window": self.left, "longest_query": max(self.lengths), "keys": max(self.keys)}
        named |= {name: torch.full((self.sizes["key_heads"],), scale, device=DEVICE) for name, scale in zip(("k_scale", "v_scale"), self.scales)}
        return lambda: kiln.torch.attention_paged(self.q, *self.bytes, self.offsets, self.key_lengths, self.table, **named)

    def flashinfer(self):
        import flashinfer

        for dim in (self.sizes["head_dim"], self.sizes["value_dim"]):
            if dim != 64 and dim % 128:  # 0.6.6 leaves the rest of a row out, and its places in shared memory drift: later launches may fail too
                raise ValueError(f"its results are wrong for e4m3 and {dim} numbers a head (flashinfer issue 4976)")
        wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(torch.empty(256 << 20, dtype=torch.uint8, device=DEVICE), "NHD")
        ints = lambda numbers: torch.tensor(numbers, device=DEVICE, dtype=torch.int32)
        counts = [-(-keys // self.size) for keys in self.keys]
        pages = torch.cat([row[:count] for row, count in zip(self.table, counts)])
        last = [keys - (count - 1) * self.size for keys, count in zip(self.keys, counts)]
        wrapper.plan(self.offsets, ints([sum(counts[:i]) for i in range(len(counts) + 1)]), pages, ints(last), self.sizes["heads"], self.sizes["key_heads"],
                     self.sizes["head_dim"], self.size, self.sizes["value_dim"], causal=self.mask != "none", window_left=-1 if self.left is None else self.left,
                     q_data_type=self.q.dtype, kv_data_type=torch.float8_e4m3fn)
        pools = tuple(self.bytes_without_nan())  # it multiplies what lies behind a sequence's last key
        out = self.q.new_empty(*self.q.shape[:2], self.sizes["value_dim"])  # else it fills a new one with zeros at each call
        k_scale, v_scale = self.scales
        return lambda: wrapper.run(self.q, pools, k_scale=k_scale, v_scale=v_scale, out=out)


if __name__ == "__main__":
    main("attention_paged_e4m3", BytesCase, "kiln,bf16,flashinfer", cache_dtype="e4m3")
