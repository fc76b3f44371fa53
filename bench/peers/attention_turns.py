"""Attention by Kiln and by its peers in turns in one process: forward or backward, dense or packed, from standard input, one problem a line.

    python3 bench/peers/attention_turns.py [--ways kiln,flash3,flash4,cudnn,varlen] [--base FILE] [--check] [--share I/N] <PROBLEMS

A problem is as bench/draw_attention.py --models prints it. flash3 is fa3-fwd (forward alone), flash4 is flash-attn-4, cudnn the backend of
scaled_dot_product_attention (dense, without windows), varlen torch's varlen_attn (packed); kiln is kiln.torch by the records of FILE, and what
these lack is tuned at its first launch. Each result is compared with float64 on a sample of queries and of keys before it is timed. One JSON
object a problem: what Kiln launched, whether it tuned, and nanoseconds by way, L2 flushed, or the reason why there are none. --check compares
and times nothing. --share: of N parts of the problems, part I.
"""
import argparse
import inspect
import itertools
import sys

import torch

from common import emit, parse, prepared, time_in_turns
from launched import launched

TOLERANCE = {"forward": 3e-2, "backward": 4e-2}  # of the root mean square: P and dS are rounded to bf16, and so is the result, to which few keys add most
SAMPLED, ROWS, AT_ONCE = 3, 8, 2048  # pairs of a sequence and a head, queries and keys of each, queries at a time
SEED = 20261127
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Case:
    """Tensors as [tokens, heads, dim], all sequences in a row; of a dense batch the sequences are equally long."""

    def __init__(self, line):
        self.op, values = parse(line)
        self.backward = self.op == "attention_backward"
        self.sizes = {name: values[name] for name in ("batch", "queries", "keys", "heads", "key_heads", "head_dim", "value_dim")}
        self.packed = values.get("layout") == "packed"
        self.mask = values.get("mask", "none")
        self.window = (values["window_left"], values["window_right"]) if self.mask == "window" else None
        told = values.pop("lengths", None)
        self.lengths = [values["queries"]] * values["batch"] if not self.packed else [int(each) for each in str(told).split(",")]
        self.ends = [0, *itertools.accumulate(self.lengths)]
        made = lambda heads, dim: torch.randn(self.ends[-1], heads, dim, device=DEVICE, dtype=torch.bfloat16)
        self.q, self.k = made(values["heads"], values["head_dim"]), made(values["key_heads"], values["head_dim"])
        self.v, self.dout = made(values["key_heads"], values["value_dim"]), made(values["heads"], values["value_dim"])
        self.offsets = torch.tensor(self.ends, device=DEVICE, dtype=torch.int32)

    def tensors(self):
        """q, k and v as a peer takes them, each with gradients where those are asked."""
        shaped = (each if self.packed else each.view(self.sizes["batch"], -1, *each.shape[1:]) for each in (self.q, self.k, self.v))
        return [each.detach().requires_grad_(self.backward) for each in shaped]

    def launch(self, way):
        """A call that gives the result, or dq, dk and dv, as [tokens, heads, dim]."""
        q, k, v = self.tensors()
        call = getattr(self, way)(q, k, v)
        if not self.backward:
            return lambda: call().flatten(0, -3)
        out = call()
        dout = self.dout.view(out.shape)
        return lambda: [each.flatten(0, -3) for each in torch.autograd.grad(out, (q, k, v), dout, retain_graph=True)]

    def kiln(self, q, k, v):
        import kiln.torch

        named = {"causal": self.mask == "causal", "window": self.window}
        if self.packed:
            named |= {"query_offsets": self.offsets, "longest_query": max(self.lengths)}
        return lambda: kiln.torch.attention(q, k, v, **named)

    def varlen_arguments(self):
        return self.offsets, self.offsets, max(self.lengths), max(self.lengths)

    def flash3(self, q, k, v):
        import fa3_fwd_interface as flash

        if self.backward:
            raise ValueError("fa3-fwd has the forward pass alone")
        named = {"causal": self.mask == "causal", "window_size": self.window or (-1, -1)}
        if self.packed:
            return lambda: flash.flash_attn_varlen_func(q, k, v, *self.varlen_arguments(), **named)
        return lambda: flash.flash_attn_func(q, k, v, **named)

    def flash4(self, q, k, v):
        from flash_attn.cute import interface as flash

        named = {"causal": self.mask == "causal", "window_size": self.window or (None, None)}
        if self.packed:
            at = dict(zip(("cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k"), self.varlen_arguments()))
            return lambda: flash.flash_attn_varlen_func(q, k, v, **at, **named)[0]
        return lambda: flash.flash_attn_func(q, k, v, **named)[0]

    def cudnn(self, q, k, v):
        from torch.nn.attention import SDPBackend, sdpa_kernel

        if self.packed or self.window:
            raise ValueError("scaled_dot_product_attention has no packed batches and no windows")
        q, k, v = (each.transpose(1, 2) for each in (q, k, v))
        grouped = {"enable_gqa": True} if self.sizes["heads"] != self.sizes["key_heads"] else {}

        def launch():
            with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.mask == "causal", **grouped).transpose(1, 2)

        return launch

    def varlen(self, q, k, v):
        from torch.nn.attention.varlen import varlen_attn

        if not self.packed:
            raise ValueError("of packed batches alone")
        named = {"window_size": self.window or ((-1, 0) if self.mask == "causal" else (-1, -1))}
        if self.sizes["heads"] != self.sizes["key_heads"] and "enable_gqa" in inspect.signature(varlen_attn).parameters:
            named["enable_gqa"] = True  # other releases group heads without being asked
        return lambda: varlen_attn(q, k, v, *self.varlen_arguments(), **named)

    def seen(self, queries, keys):
        """[queries, keys]: which keys the mask leaves to which queries."""
        ahead = keys[None] - queries[:, None]
        if self.mask == "none":
            return torch.ones_like(ahead, dtype=torch.bool)
        return (ahead <= 0) & (ahead >= -self.window[0] if self.window else True)


class Reference:
    """In float64, of some sequences and heads: rows of the result or of the gradients, and where they stand."""

    def __init__(self, case):
        self.case, self.parts = case, []  # of each: which result, its index, the values
        group = case.sizes["heads"] // case.sizes["key_heads"]
        chosen = sorted({0, len(case.lengths) - 1, max(range(len(case.lengths)), key=case.lengths.__getitem__)})[:SAMPLED]
        for nth, sequence in enumerate(chosen):
            begin, length, key_head = case.ends[sequence], case.lengths[sequence], (nth * 7) % case.sizes["key_heads"]
            queries = torch.cat([torch.randint(length // 2, length, (ROWS,)), torch.tensor([length - 1])]).to(DEVICE)
            head = key_head * group + nth % group
            weights, changes = self.rows(begin, length, head, key_head, queries)
            k, v = (each[begin : begin + length, key_head].double() for each in (case.k, case.v))
            if not case.backward:
                self.parts.append((0, (begin + queries, head), weights @ v))
                continue
            self.parts.append((0, (begin + queries, head), changes @ k))
            if nth == 0:
                self.of_keys(begin, length, key_head, group)

    def rows(self, begin, length, head, key_head, queries):
        case = self.case
        k, v = (each[begin : begin + length, key_head].double() for each in (case.k, case.v))
        scores = case.q[begin + queries, head].double() @ k.T / case.sizes["head_dim"] ** 0.5
        scores.masked_fill_(~case.seen(queries, torch.arange(length, device=DEVICE)), -torch.inf)
        weights = torch.softmax(scores, 1)
        of_weights = case.dout[begin + queries, head].double() @ v.T
        return weights, weights * (of_weights - (weights * of_weights).sum(1, keepdim=True)) / case.sizes["head_dim"] ** 0.5

    def of_keys(self, begin, length, key_head, group):
        case, keys = self.case, torch.randint(0, max(1, length // 2), (ROWS,), device=DEVICE)
        dk = dv = 0
        for head in range(key_head * group, (key_head + 1) * group):
            for some in torch.arange(length, device=DEVICE).split(AT_ONCE):
                weights, changes = self.rows(begin, length, head, key_head, some)
                dk = dk + changes[:, keys].T @ case.q[begin + some, head].double()
                dv = dv + weights[:, keys].T @ case.dout[begin + some, head].double()
        self.parts += [(1, (begin + keys, key_head), dk), (2, (begin + keys, key_head), dv)]

    def judged(self, results):
        results = results if self.case.backward else [results]
        worst = 0.0
        for which, at, wanted in self.parts:
            error = (results[which][at].detach().double() - wanted).abs().max() / wanted.square().mean().sqrt()
            worst = max(worst, error.nan_to_num(nan=torch.inf).item())
        right = worst <= TOLERANCE["backward" if self.case.backward else "forward"] and not any(each.isnan().any().item() for each in results)
        return right, round(worst, 6)


def run(case, reference, ways, check, **choices):
    """`choices`: words of the problem that are neither sizes nor layout nor mask."""
    import kiln

    row = {}

    def prepare(way):
        before = kiln.stats() if way == "kiln" else {}
        try:
            launch = case.launch(way)
            right, worst = reference.judged(launch())
        finally:
            row.update({name: kiln.stats()[name] - before[name] for name in ("tunes", "compiles") if before})
        return {"right": right, "worst_error": worst}, launch

    ready, launches = prepared(ways, prepare)
    if "kiln" in launches:
        try:
            row |= launched(case.op, **case.sizes, layout="packed" if case.packed else "dense", mask=case.mask, **choices)
        except Exception as error:
            row["because"] = f"{type(error).__name__}: {error}"
    if not check:
        time_in_turns(ready, launches)
    return {"ways": ready, **row}


def main(bench, ways, answer):
    """A row of `bench` for each problem: the op and the rest of the row, as `answer(line, ways, check)` gives them."""
    options = argparse.ArgumentParser()
    options.add_argument("--ways", default=ways)
    options.add_argument("--base", action="append", default=[])
    options.add_argument("--check", action="store_true", help="compare results, time nothing")
    options.add_argument("--share", default="0/1")
    asked = options.parse_args()
    if "kiln" in asked.ways:
        import kiln

        kiln.configure(bases=asked.base, on_miss="tune")
    torch.manual_seed(SEED)
    part, parts = map(int, asked.share.split("/"))
    for line in [line for line in sys.stdin if line.startswith("attention_")][part::parts]:
        op, row = answer(line, asked.ways.split(","), asked.check)
        text, _, remark = line.partition("#")
        emit(bench=bench, op=op, asked=" ".join(text.split()[1:]), remark=remark.strip(), **row)
        torch.cuda.empty_cache()  # else a tune of the next one may find too little memory


def answer(line, ways, check):
    case = Case(line)
    return case.op, run(case, Reference(case), ways, check)


if __name__ == "__main__":
    main("attention_turns", "kiln,flash3,flash4,cudnn,varlen", answer)
