"""torch beside bench_attention_packed: varlen_attn on the packed batch, and cuDNN on the same batch padded to its longest sequence.

    python3 bench/peers/attention_packed.py [--backward] < bench/problems/attention_packed.txt

Padding stands behind each sequence, so a causal mask hides it; without a mask a boolean one does. Results of both are compared with float64
on a sample of queries before they are timed, with L2 flushed. One JSON object a batch and peer. With --backward varlen_attn's gradients on a
kept graph are timed, after those of one group of heads of the shortest and of the longest sequence were compared with float64.
"""
import itertools
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from common import device_ns, emit

TOLERANCE = 2e-2  # of the root mean square, as bench/peers/attention.py
GRADIENT_TOLERANCE = 0.1  # of an element and the root mean square together: P and dS are rounded to the type, and the first keys' sums are large
SAMPLED = 32


def larger(worst, error):
    """An error that is not a number is the largest."""
    return max(worst, error.nan_to_num(nan=torch.inf).item())


class Batch:
    def __init__(self, line):
        self.name, self.mask, *numbers = line.split()
        self.heads, self.key_heads, self.dim, *self.lengths = map(int, numbers)
        self.begins = [0, *itertools.accumulate(self.lengths)]
        made = lambda heads: torch.randn(self.begins[-1], heads, self.dim, device="cuda", dtype=torch.bfloat16)
        self.q, self.k, self.v = made(self.heads), made(self.key_heads), made(self.key_heads)

    def varlen(self):
        from torch.nn.attention.varlen import varlen_attn

        offsets = torch.tensor(self.begins, device="cuda", dtype=torch.int32)
        most, mask = max(self.lengths), {"window_size": (-1, 0)} if self.mask == "causal" else {}
        grouped = {"enable_gqa": True} if self.key_heads != self.heads else {}
        launch = lambda: varlen_attn(self.q, self.k, self.v, offsets, offsets, most, most, **mask, **grouped)
        try:
            launch()
        except TypeError:  # a release that groups heads without being asked
            launch = lambda: varlen_attn(self.q, self.k, self.v, offsets, offsets, most, most, **mask)
        return launch, lambda out: out

    def padded(self):
        most = max(self.lengths)

        def pad(packed):
            full = torch.zeros(len(self.lengths), most, *packed.shape[1:], device="cuda", dtype=packed.dtype)
            for i, length in enumerate(self.lengths):
                full[i, :length] = packed[self.begins[i] : self.begins[i + 1]]
            return full.transpose(1, 2)

        q, k, v = pad(self.q), pad(self.k), pad(self.v)
        options = {"is_causal": True} if self.mask == "causal" else {}
        if self.mask == "none":
            there = torch.arange(most, device="cuda")[None] < torch.tensor(self.lengths, device="cuda")[:, None]
            options = {"attn_mask": there[:, None, None, :].expand(-1, 1, most, -1)}
        if self.key_heads != self.heads:
            options["enable_gqa"] = True

        def launch():
            with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                return torch.nn.functional.scaled_dot_product_attention(q, k, v, **options)

        return launch, lambda out: torch.cat([out[i, :, :length].transpose(0, 1) for i, length in enumerate(self.lengths)])

    def judged(self, out):
        """Whether sampled queries are within the tolerance, and their largest error over the root mean square."""
        worst, group = 0.0, self.heads // self.key_heads
        for draw in range(SAMPLED):
            sequence, head = draw % len(self.lengths), draw % self.heads
            query, begin = int(torch.randint(self.lengths[sequence], ())), self.begins[sequence]
            seen = query + 1 if self.mask == "causal" else self.lengths[sequence]
            k, v = (each[begin : begin + seen, head // group].double() for each in (self.k, self.v))
            wanted = torch.softmax(k @ self.q[begin + query, head].double() / self.dim**0.5, 0) @ v
            worst = larger(worst, (out[begin + query, head].double() - wanted).abs().max() / wanted.square().mean().sqrt())
        return {"right": worst <= TOLERANCE, "worst_error": round(worst, 6)}

    def judged_gradients(self, gradients, dout):
        worst, group = 0.0, self.heads // self.key_heads
        for sequence in {self.lengths.index(min(self.lengths)), self.lengths.index(max(self.lengths))}:
            rows = slice(self.begins[sequence], self.begins[sequence + 1])
            q, k, v = (each[rows, heads].detach().double().requires_grad_() for each, heads in ((self.q, slice(group)), (self.k, 0), (self.v, 0)))
            scores = torch.einsum("qhd,kd->hqk", q, k) / self.dim**0.5
            if self.mask == "causal":
                scores = scores.masked_fill(torch.ones_like(scores[0], dtype=torch.bool).triu(1), -torch.inf)
            out = torch.einsum("hqk,kd->qhd", torch.softmax(scores, 2), v)
            wanted = torch.autograd.grad(out, (q, k, v), dout[rows, :group].double())
            got = (gradients[0][rows, :group], gradients[1][rows, 0], gradients[2][rows, 0])
            for a, b in zip(got, wanted):
                worst = larger(worst, ((a.double() - b).abs() / (b.abs() + b.square().mean().sqrt())).max())
        return {"right": worst <= GRADIENT_TOLERANCE, "worst_error": round(worst, 6)}


def backward(batch):
    for each in (batch.q, batch.k, batch.v):
        each.requires_grad_()
    launch, _ = batch.varlen()
    out = launch()
    dout = torch.randn_like(out)
    gradients = lambda: torch.autograd.grad(out, (batch.q, batch.k, batch.v), dout, retain_graph=True)
    return {**batch.judged_gradients(gradients(), dout), "ns": round(device_ns(gradients, 25))}


def forward(batch, peer):
    with torch.no_grad():
        launch, packed = getattr(batch, peer)()
        return {**batch.judged(packed(launch())), "ns": round(device_ns(launch, 25))}


def main():
    torch.manual_seed(20261124)
    of_gradients = sys.argv[1:] == ["--backward"]
    for line in sys.stdin:
        if not line.strip() or line.startswith("#"):
            continue
        batch = Batch(line)
        for peer in ("varlen",) if of_gradients else ("varlen", "padded"):
            try:
                row = backward(batch) if of_gradients else forward(batch, peer)
            except Exception as error:  # whatever a peer may raise: it then has no figure here
                row = {"reason": f"{type(error).__name__}: {error}".splitlines()[0]}
            emit(bench="attention_packed", peer=peer, asked=batch.name, **row)


main()
