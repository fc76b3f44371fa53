"""torch beside bench_throughput: attention_forward, from standard input, one problem a line.

    python3 bench/peers/attention.py [--peers cudnn,flash,varlen] [--check] < bench/problems/attention.txt

cudnn and flash are backends of scaled_dot_product_attention, for dense batches; varlen is torch's varlen_attn, for packed ones, whose
sequences are as long as each other, as those that Kiln times. Each result is compared with float64 on a sample of queries before it is timed.
One JSON object a problem and peer: nanoseconds with L2 flushed, or the reason why there are none. --check compares and times nothing.
"""
import argparse
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from common import device_ns, emit, parse

TYPES = {"bf16": torch.bfloat16, "f16": torch.float16}
TOLERANCE = {"bf16": 2e-2, "f16": 4e-3}  # of the root mean square: P is rounded to the type, and so is the result
SAMPLED = 32  # queries, over all sequences
SEED = 20261121  # of bench/throughput.cpp
BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}


class Case:
    """Tensors as [sequence, length, head, dim], which lie as Kiln's do."""

    def __init__(self, values, device):
        self.dtype = TYPES[values.get("dtype", "bf16")]
        self.packed = values.get("layout") == "packed"
        self.causal = values.get("mask") == "causal"
        self.batch, self.heads = values["batch"], values["heads"]
        divisor = self.batch if self.packed else 1
        self.queries, self.keys = values["queries"] // divisor, values["keys"] // divisor
        made = lambda length, heads, dim: torch.randn(self.batch, length, heads, dim, device=device, dtype=self.dtype)
        self.q = made(self.queries, self.heads, values["head_dim"])
        self.k = made(self.keys, values["key_heads"], values["head_dim"])
        self.v = made(self.keys, values["key_heads"], values["value_dim"])

    def peers(self):
        return ("varlen",) if self.packed else tuple(BACKENDS)

    def launch(self, peer):
        """A call that gives [sequence, length, head, dim]."""
        if peer == "varlen":
            from torch.nn.attention.varlen import varlen_attn

            offsets = lambda length: torch.arange(self.batch + 1, device=self.q.device, dtype=torch.int32) * length
            q, k, v = (each.flatten(0, 1) for each in (self.q, self.k, self.v))
            at = (offsets(self.queries), offsets(self.keys), self.queries, self.keys)
            mask = {"window_size": (-1, 0)} if self.causal else {}
            return lambda: varlen_attn(q, k, v, *at, **mask).view(self.batch, self.queries, self.heads, -1)
        q, k, v = (each.transpose(1, 2) for each in (self.q, self.k, self.v))
        grouped = {"enable_gqa": True} if self.k.shape[2] != self.heads else {}

        def launch():
            with sdpa_kernel(BACKENDS[peer]):
                return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal, **grouped).transpose(1, 2)

        return launch

    def judged(self, out):
        """Whether sampled queries, the last one among them, are within the tolerance, and their largest error over the root mean square."""
        worst, group = 0.0, self.heads // self.k.shape[2]
        for draw in range(SAMPLED):
            sequence, head = draw % self.batch, draw % self.heads
            query = self.queries - 1 if draw == 0 else int(torch.randint(self.queries, ()))
            seen = max(0, query + 1 + self.keys - self.queries) if self.causal else self.keys
            k, v = (each[sequence, :seen, head // group].double() for each in (self.k, self.v))
            weights = torch.softmax(k @ self.q[sequence, query, head].double() / k.shape[1] ** 0.5, 0)
            wanted = weights @ v
            error = (out[sequence, query, head].double() - wanted).abs().max() / wanted.square().mean().sqrt()
            worst = max(worst, error.item())
        right = worst <= TOLERANCE["bf16" if self.dtype == torch.bfloat16 else "f16"] and not out.isnan().any().item()
        return {"right": right, "worst_error": round(worst, 6)}


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--peers", default="cudnn,flash,varlen")
    options.add_argument("--check", action="store_true", help="compare results, time nothing")
    asked = options.parse_args()
    torch.manual_seed(SEED)
    for line in sys.stdin:
        op, values = parse(line)
        if op != "attention_forward":
            continue
        case = Case(values, "cuda")
        for peer in (each for each in case.peers() if each in asked.peers.split(",")):
            try:
                with torch.no_grad():
                    launch = case.launch(peer)
                    row = case.judged(launch())
                    if not asked.check:
                        row["ns"] = round(device_ns(launch, 25))
            except Exception as error:  # whatever a peer may raise: it then has no figure here
                row = {"reason": f"{type(error).__name__}: {error}".splitlines()[0]}
            emit(bench="attention", op=op, peer=peer, asked=" ".join(line.split("#")[0].split()[1:]), **row)
        del case


main()
