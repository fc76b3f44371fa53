#!/usr/bin/env python3
"""Draws problems of attention_forward at lengths inside buckets, for bench_throughput and bench/peers/attention.py.

    bench/draw_attention.py [--seed S] >attention_drawn.txt

For each of the head dimensions 64, 128 and 256, full and causal, four of the buckets from 512 to 32768, and in each a length drawn evenly
inside. A batch has about 16384 queries, and its heads 2048 columns together. Behind these stand the lengths 1024 and 32768 themselves.
In a random order, so that a run that is cut short has some of all.
"""
import argparse
import random

TOKENS, COLUMNS = 16384, 2048
BUCKETS = [1024 << i for i in range(6)]  # by their upper ends


def problem(dim, mask, length):
    heads = COLUMNS // dim
    return (f"attention_forward batch={max(1, TOKENS // length)} queries={length} keys={length} heads={heads} key_heads={heads} "
            f"head_dim={dim} value_dim={dim}" + (f" mask={mask}" if mask != "none" else ""))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    draw = random.Random(parser.parse_args().seed)
    problems = [problem(128, mask, length) for mask in ("none", "causal") for length in (1024, 32768)]
    for dim in (64, 128, 256):
        for mask in ("none", "causal"):
            problems += [problem(dim, mask, draw.randint(upper // 2 + 1, upper - 1)) for upper in draw.sample(BUCKETS, 4)]
    draw.shuffle(problems)
    print("# attention_forward at lengths drawn inside buckets, made by bench/draw_attention.py; bench/run has its gradients from the same.\n")
    print("\n".join(problems))


if __name__ == "__main__":
    main()
