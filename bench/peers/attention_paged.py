"""Steps of a service whose keys lie in pages, by Kiln and by its peers in turns in one process, from standard input, one problem a line.

    python3 bench/peers/attention_paged.py [--ways kiln,flash4,rows3] [--base FILE] [--seconds S] [--check] <PROBLEMS

A problem is as bench/draw_attention.py --paged prints it. kiln is kiln.torch by the records of FILE, and what these lack is tuned at its first launch.
flash4 is flash-attn-4 with a page table. rows3 is fa3-fwd on the same keys in a row, since its wheel takes no pages and no windows. Each result is compared
with float64 on a sample of queries before it is timed. One JSON object a problem, as attention_turns.py prints them. Problems that S leaves out are
named on standard error.
"""
import argparse
import itertools
import math
import sys
import time

import torch

from common import emit, parse, prepared, time_in_turns
from launched import launched

DEVICE, SEED = "cuda" if torch.cuda.is_available() else "cpu", 20261129
SAMPLED, ROWS, TOLERANCE = 3, 8, 3e-2  # sequences, queries of each; of the root mean square


class PagedCase:
    """Queries in a row, keys and values in pages that lie in no order, and the same keys in a row."""

    def __init__(self, line):
        self.op, values = parse(line)
        self.sizes = {name: values[name] for name in ("batch", "queries", "keys", "heads", "key_heads", "head_dim", "value_dim")}
        self.mask = values.get("mask", "none")
        self.left = values["window_left"] if self.mask == "window" else None
        self.lengths, self.keys = ([int(each) for each in str(values[name]).split(",")] for name in ("lengths", "key_lengths"))
        self.ends, self.key_ends = ([0, *itertools.accumulate(each)] for each in (self.lengths, self.keys))
        made = lambda tokens, heads, dim: torch.randn(tokens, heads, dim, device=DEVICE, dtype=torch.bfloat16)
        self.q = made(self.ends[-1], values["heads"], values["head_dim"])
        self.k, self.v = (made(self.key_ends[-1], values["key_heads"], values[dim]) for dim in ("head_dim", "value_dim"))
        ints = lambda numbers: torch.tensor(numbers, device=DEVICE, dtype=torch.int32)
        self.offsets, self.key_offsets, self.key_lengths = ints(self.ends), ints(self.key_ends), ints(self.keys)
        self.in_pages(values["page_size"])

    def in_pages(self, size):
        entries = -(-max(self.keys) // size)
        order = torch.randperm(len(self.keys) * entries)
        self.table = order.view(len(self.keys), entries).int().to(DEVICE)
        self.pools = [torch.full((len(order), size, *each.shape[1:]), torch.nan, device=DEVICE, dtype=each.dtype) for each in (self.k, self.v)]
        for pool, rows in zip(self.pools, (self.k, self.v)):
            for i, (begin, end) in enumerate(itertools.pairwise(self.key_ends)):
                at = torch.arange(end - begin, device=DEVICE)
                pool[self.table[i, at // size].long(), at % size] = rows[begin:end]

    def launch(self, way):
        ways = {"kiln": self.kiln, "flash4": self.flash4, "rows3": self.rows3}
        if way not in ways:
            raise ValueError("not of pages")
        return ways[way]()

    def kiln(self):
        import kiln.torch

        named = {"causal": self.mask == "causal", "window": self.left, "longest_query": max(self.lengths), "keys": max(self.keys)}
        return lambda: kiln.torch.attention_paged(self.q, *self.pools, self.offsets, self.key_lengths, self.table, **named)

    def flash4(self):
        from flash_attn.cute import interface as flash

        pools = [each.nan_to_num() for each in self.pools]  # it multiplies what lies behind a sequence's last key
        named = {"causal": self.mask == "causal", "window_size": (None, None) if self.left is None else (self.left, 0)}
        return lambda: flash.flash_attn_varlen_func(self.q, *pools, cu_seqlens_q=self.offsets, max_seqlen_q=max(self.lengths), max_seqlen_k=max(self.keys),
                                                    seqused_k=self.key_lengths, page_table=self.table, **named)[0]

    def rows3(self):
        import fa3_fwd_interface as flash

        if self.left is not None:
            raise ValueError("the wheel of FlashAttention-3 has no windows")
        return lambda: flash.flash_attn_varlen_func(self.q, self.k, self.v, self.offsets, self.key_offsets, max(self.lengths), max(self.keys),
                                                    causal=self.mask == "causal")


class PagedReference:
    """In float64, rows of some sequences and heads."""

    def __init__(self, case):
        self.parts, group = [], case.sizes["heads"] // case.sizes["key_heads"]
        chosen = sorted({0, len(case.keys) - 1, max(range(len(case.keys)), key=case.keys.__getitem__)})[:SAMPLED]
        for nth, sequence in enumerate(chosen):
            queries, keys, key_head = case.lengths[sequence], case.keys[sequence], (nth * 7) % case.sizes["key_heads"]
            rows = torch.cat([torch.randint(0, queries, (ROWS,)), torch.tensor([0, queries - 1])]).to(DEVICE)
            at = (case.ends[sequence] + rows, key_head * group + nth % group)
            k, v = (each[case.key_ends[sequence] : case.key_ends[sequence] + keys, key_head].double() for each in (case.k, case.v))
            ahead = torch.arange(keys, device=DEVICE)[None] - (rows + keys - queries)[:, None]
            hidden = (ahead > 0) | (ahead < -(keys if case.left is None else case.left)) if case.mask != "none" else torch.zeros_like(ahead, dtype=torch.bool)
            scores = (case.q[at].double() @ k.T / case.sizes["head_dim"] ** 0.5).masked_fill(hidden, -torch.inf)
            self.parts.append((at, torch.softmax(scores, 1) @ v))

    def judged(self, out):
        worst = 0.0
        for at, wanted in self.parts:
            error = (out[at].double() - wanted).abs().max() / wanted.square().mean().sqrt()
            worst = max(worst, error.nan_to_num(nan=torch.inf).item())
        return worst <= TOLERANCE and not out.isnan().any().item(), round(worst, 6)


def run(case, ways, check, types):
    import kiln

    row, reference = {}, PagedReference(case)

    def prepare(way):
        before = kiln.stats() if way == "kiln" else {}
        launch = case.launch(way)
        right, worst = reference.judged(launch())
        row.update({name: kiln.stats()[name] - before[name] for name in ("tunes", "compiles") if before})
        return {"right": right, "worst_error": worst}, launch

    ready, launches = prepared(ways, prepare)
    if "kiln" in launches:
        row |= launched(case.op, **case.sizes, mask=case.mask, **types)
    if not check:
        time_in_turns(ready, launches)
    return {"ways": ready, **row}


def main(bench, made, ways, **types):
    options = argparse.ArgumentParser()
    options.add_argument("--ways", default=ways)
    options.add_argument("--base", action="append", default=[])
    options.add_argument("--seconds", type=float, default=math.inf, help="after which no problem is begun")
    options.add_argument("--check", action="store_true", help="compare results, time nothing")
    asked, began = options.parse_args(), time.monotonic()
    if "kiln" in asked.ways:
        import kiln

        kiln.configure(bases=asked.base, on_miss="tune")
    torch.manual_seed(SEED)
    for line in [line for line in sys.stdin if line.startswith("attention_paged")]:
        if time.monotonic() - began > asked.seconds:
            print(f"left out after {asked.seconds:g} s: {line.strip()}", file=sys.stderr)
            continue
        case = made(line)
        text, _, remark = line.partition("#")
        emit(bench=bench, op=case.op, asked=" ".join(text.split()[1:]), remark=remark.strip(), **run(case, asked.ways.split(","), asked.check, types))
        del case
        torch.cuda.empty_cache()  # else a tune of the next one may find too little memory


if __name__ == "__main__":
    main("attention_paged", PagedCase, "kiln,flash4,rows3")
