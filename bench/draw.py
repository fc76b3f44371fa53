#!/usr/bin/env python3
"""Draws pairs of a model's product and a length, for bench_gemm.

    bench/draw.py COUNT [--seed S] [--most M] [--per-bucket N] <bench/problems/gemm.txt
    bench/draw.py COUNT --models log|served [--seed S] [--team RANKS [--collectives]]

Reads problems "gemm m=M n=N k=K # name" and writes COUNT distinct ones: n, k and name of a line drawn at random, and an m whose
logarithm is drawn evenly from 1 to M (16384).
--per-bucket: N lengths in each power-of-two bucket so drawn, the others drawn as evenly inside it; a bucket of fewer lengths gives all that it has.
--models: products of the models of bench/problems/models.toml instead, at lengths by that distribution (bench/models.py). --team: ops of a
team, whose ranks share each product. --collectives: what they send between products instead.
"""
import argparse
import random
import re
import sys

import models


def of_models(asked, draw):
    if asked.collectives:
        yield from models.collectives(draw, asked.count, asked.models, asked.team)
        return
    for m, n, k, name in models.products(draw, asked.count, asked.models, max(1, asked.team)):
        yield of_team(asked.team, m, n, k, name) if asked.team else f"gemm m={m} n={n} k={k} # {name}"


def of_team(ranks, m, n, k, name):
    """The op that a rank has in tensor parallelism: a product into a sum where the layer's name says so, all rows gathered before another."""
    own = -(-m // ranks)
    if models.is_sum(name):
        op = f"gemm_all_reduce rows={m}" if own < models.DIVIDED else f"gemm_reduce_scatter rows={own}"
        return f"{op} k={k // ranks} n={n} dtype=bf16 ranks=alike # {name}"
    return f"all_gather_gemm rows={own} k={k} n={n // ranks} dtype=bf16 ranks=alike # {name}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--most", type=int, default=16384)
    parser.add_argument("--per-bucket", type=int, default=0)
    parser.add_argument("--models", choices=models.DISTRIBUTIONS)
    parser.add_argument("--team", type=int, default=0, metavar="RANKS")
    parser.add_argument("--collectives", action="store_true")
    asked = parser.parse_args()
    if asked.collectives and not (asked.models and asked.team):
        parser.error("--collectives needs --models and --team")
    if asked.models:
        print("\n".join(of_models(asked, random.Random(asked.seed))))
        return
    found = (re.match(r"gemm\s+m=\d+\s+n=(\d+)\s+k=(\d+)\s*#\s*(.*)", line) for line in sys.stdin)
    shapes = sorted({match.groups() for match in found if match})
    draw = random.Random(asked.seed)
    seen = set()
    written = 0
    while written < asked.count:
        n, k, name = draw.choice(shapes)
        m = round(asked.most ** draw.random())
        upper = 1 << (m - 1).bit_length()
        key = (n, k, upper if asked.per_bucket else m)
        if key in seen:
            continue
        seen.add(key)
        lengths = {m}
        lower = upper // 2 + 1
        while len(lengths) < min(asked.per_bucket, upper - lower + 1, asked.count - written):
            lengths.add(round(lower * (upper / lower) ** draw.random()))
        for length in sorted(lengths):
            print(f"gemm m={length} n={n} k={k} # {name}")
        written += len(lengths)


if __name__ == "__main__":
    main()
