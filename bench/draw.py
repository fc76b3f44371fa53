#!/usr/bin/env python3
"""Draws pairs of a model's product and a length, for bench_gemm and bench_tuning.

    bench/draw.py COUNT [--seed S] [--most M] [--buckets] <bench/problems/gemm.txt

Reads problems "gemm m=M n=N k=K # name" and writes COUNT distinct ones: n, k and name of a line drawn at random, and an m whose
logarithm is drawn evenly from 1 to M (16384). --buckets: no two of one n, k and power-of-two bucket of m.
"""
import argparse
import random
import re
import sys


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--most", type=int, default=16384)
    parser.add_argument("--buckets", action="store_true")
    asked = parser.parse_args()
    found = (re.match(r"gemm\s+m=\d+\s+n=(\d+)\s+k=(\d+)\s*#\s*(.*)", line) for line in sys.stdin)
    shapes = sorted({match.groups() for match in found if match})
    draw = random.Random(asked.seed)
    seen = set()
    while len(seen) < asked.count:
        n, k, name = draw.choice(shapes)
        m = round(asked.most ** draw.random())
        key = (n, k, (m - 1).bit_length() if asked.buckets else m)
        if key in seen:
            continue
        seen.add(key)
        print(f"gemm m={m} n={n} k={k} # {name}")


if __name__ == "__main__":
    main()
