"""Attention with a soft cap or sinks by Kiln and by its peers in turns in one process: forward or backward, dense or packed, from standard input, one
problem a line.

    python3 bench/peers/attention_extras.py [--ways kiln,flash3,flash4] [--base FILE] [--check] [--share I/N] <PROBLEMS

A problem is as bench/draw_attention.py --extras prints it: `soft_cap=tanh cap=50` as in Gemma 2, or `sinks=head` as in gpt-oss. kiln and flash4 have
both, with gradients, by the sinks too. flash3 is the wheel fa3-fwd: a soft cap, forward, without windows. Options and rows are those of attention_turns.py.
"""
import math

import torch

from attention_turns import AT_ONCE, DEVICE, Case, Reference, main, run
from common import parse

# The standard deviation of scores under a cap. With 1, a result without the cap of 50 passes. With 3, a right result in bf16 comes near TOLERANCE.
SPREAD = 2.5


class ExtrasCase(Case):
    """A Case with a soft cap, or with sinks that have about a third of the weight."""

    def __init__(self, line):
        super().__init__(line)
        values = parse(line)[1]
        self.choices = {name: values[name] for name in ("soft_cap", "sinks") if name in values}
        self.cap = float(values["cap"]) if "soft_cap" in values else None
        self.sinks = None
        if self.cap is not None:
            self.q *= SPREAD
        if "sinks" in values:
            seen = self.window[0] + 1 if self.window else max(self.lengths)
            self.sinks = (math.log(seen) + torch.randn(values["heads"], device=DEVICE)).requires_grad_(self.backward)

    def launch(self, way):
        """A call that gives the result, or dq, dk and dv, as [tokens, heads, dim]; after these the gradients of sinks."""
        ways = {"kiln": self.kiln, "flash3": self.flash3, "flash4": self.flash4}
        if way not in ways:
            raise ValueError("no soft cap and no sinks")
        tensors = self.tensors()
        call = ways[way](*tensors)
        if not self.backward:
            return lambda: call().flatten(0, -3)
        out = call()
        inputs, dout = tensors if self.sinks is None else [*tensors, self.sinks], self.dout.view(out.shape)

        def launch():
            dq, dk, dv, *dsinks = torch.autograd.grad(out, inputs, dout, retain_graph=True)
            return [*(each.flatten(0, -3) for each in (dq, dk, dv)), *dsinks]

        return launch

    def kiln(self, q, k, v):
        import kiln.torch

        named = {"causal": self.mask == "causal", "window": self.window, "softcap": self.cap, "sinks": self.sinks}
        if self.packed:
            named |= {"query_offsets": self.offsets, "longest_query": max(self.lengths)}
        return lambda: kiln.torch.attention(q, k, v, **named)

    def flash3(self, q, k, v):
        if self.sinks is not None or self.window:
            raise ValueError("the wheel of FlashAttention-3 has no sinks and no windows")
        if self.backward:
            raise ValueError("fa3-fwd has the forward pass alone")
        import fa3_fwd_interface as flash

        named = {"causal": self.mask == "causal", "softcap": self.cap}
        if self.packed:
            return lambda: flash.flash_attn_varlen_func(q, k, v, *self.varlen_arguments(), **named)
        return lambda: flash.flash_attn_func(q, k, v, **named)

    def flash4(self, q, k, v):
        from flash_attn.cute import interface as flash

        named = {"causal": self.mask == "causal", "window_size": self.window or (None, None), "softcap": self.cap or 0.0, "learnable_sink": self.sinks}
        if self.packed:
            at = dict(zip(("cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k"), self.varlen_arguments()))
            return lambda: flash.flash_attn_varlen_func(q, k, v, **at, **named)[0]
        return lambda: flash.flash_attn_func(q, k, v, **named)[0]


class ExtrasReference(Reference):
    """A Reference with the soft cap, the sinks, and the gradients of the sinks of one group of heads."""

    def __init__(self, case):
        super().__init__(case)
        if case.backward and case.sinks is not None:
            heads = list(range(case.sizes["heads"] // case.sizes["key_heads"]))
            self.parts.append((3, (heads,), torch.stack([self.of_sink(head) for head in heads])))

    def rows(self, begin, length, head, key_head, queries):
        case, scale = self.case, self.case.sizes["head_dim"] ** -0.5
        k, v = (each[begin : begin + length, key_head].double() for each in (case.k, case.v))
        scores = case.q[begin + queries, head].double() @ k.T * scale
        slopes = scale
        if case.cap is not None:
            bent = torch.tanh(scores / case.cap)
            scores, slopes = case.cap * bent, scale * (1 - bent.square())
        scores = scores.masked_fill(~case.seen(queries, torch.arange(length, device=DEVICE)), -torch.inf)
        sink = -torch.inf if case.sinks is None else case.sinks[head].item()
        weights = torch.softmax(torch.nn.functional.pad(scores, (0, 1), value=sink), 1)[:, :-1]
        of_weights = case.dout[begin + queries, head].double() @ v.T
        return weights, weights * (of_weights - (weights * of_weights).sum(1, keepdim=True)) * slopes

    def of_sink(self, head):
        """The gradient of a sink of the first key head: what its weight, which has no value, takes from each row."""
        case, total = self.case, 0.0
        for begin, length in zip(case.ends, case.lengths):
            v = case.v[begin : begin + length, 0].double()
            for some in torch.arange(length, device=DEVICE).split(AT_ONCE):
                weights, _ = self.rows(begin, length, head, 0, some)
                total -= ((1 - weights.sum(1)) * (weights @ v * case.dout[begin + some, head].double()).sum(1)).sum()
        return total


def answer(line, ways, check):
    case = ExtrasCase(line)
    return case.op, run(case, ExtrasReference(case), ways, check, **case.choices)


if __name__ == "__main__":
    main("attention_extras", "kiln,flash3,flash4", answer)
