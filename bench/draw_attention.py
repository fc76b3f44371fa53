#!/usr/bin/env python3
"""Draws problems of attention: of models' heads, or of given ones at lengths inside buckets, for bench_throughput and bench/peers.

    bench/draw_attention.py [--seed S] >attention_drawn.txt
    bench/draw_attention.py --models COUNT [--seed S] [--lengths log|served] [--backward] [--packed]

Without --models: for each of the head dimensions 64, 128 and 256, full and causal, four of the buckets from 512 to 32768, and in each a length
drawn evenly inside. A batch has about 16384 queries, and its heads 2048 columns together. Behind these stand the lengths 1024 and 32768
themselves. In a random order, so that a run that is cut short has some of all.
With it, COUNT problems of the models of bench/problems/models.toml; bench/models.py says how lengths are drawn.
"""
import argparse
import random

import models

TOKENS, COLUMNS = 16384, 2048
BUCKETS = [1024 << i for i in range(6)]  # by their upper ends


def problem(dim, mask, length):
    heads = COLUMNS // dim
    return (f"attention_forward batch={max(1, TOKENS // length)} queries={length} keys={length} heads={heads} key_heads={heads} "
            f"head_dim={dim} value_dim={dim}" + (f" mask={mask}" if mask != "none" else ""))


def in_buckets(draw):
    problems = [problem(128, mask, length) for mask in ("none", "causal") for length in (1024, 32768)]
    for dim in (64, 128, 256):
        for mask in ("none", "causal"):
            problems += [problem(dim, mask, draw.randint(upper // 2 + 1, upper - 1)) for upper in draw.sample(BUCKETS, 4)]
    draw.shuffle(problems)
    return ["# attention_forward at lengths drawn inside buckets, made by bench/draw_attention.py; bench/run has its gradients from the same.\n", *problems]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--models", type=int, metavar="COUNT")
    parser.add_argument("--lengths", choices=models.DISTRIBUTIONS, default="log")
    parser.add_argument("--backward", action="store_true")
    parser.add_argument("--packed", action="store_true")
    asked = parser.parse_args()
    draw = random.Random(asked.seed)
    if asked.models is None:
        lines = in_buckets(draw)
    elif asked.packed:
        lines = models.packed(draw, asked.models, asked.backward)
    else:
        lines = models.attention(draw, asked.models, asked.lengths, asked.backward)
    print("\n".join(lines))


if __name__ == "__main__":
    main()
