#!/usr/bin/env python3
"""Draws problems of attention of models, for bench/peers/attention_turns.py.

    bench/draw_attention.py --models COUNT [--seed S] [--lengths log|served] [--backward] [--packed | --paged]

COUNT problems of the models of bench/problems/models.toml; bench/models.py says how lengths are drawn.
"""
import argparse
import random

import models


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--models", type=int, metavar="COUNT", required=True)
    parser.add_argument("--lengths", choices=models.DISTRIBUTIONS, default="log")
    parser.add_argument("--backward", action="store_true")
    parser.add_argument("--packed", action="store_true")
    parser.add_argument("--paged", action="store_true")
    asked = parser.parse_args()
    draw = random.Random(asked.seed)
    if asked.paged:
        lines = models.paged(draw, asked.models)
    elif asked.packed:
        lines = models.packed(draw, asked.models, asked.backward)
    else:
        lines = models.attention(draw, asked.models, asked.lengths, asked.backward)
    print("\n".join(lines))


if __name__ == "__main__":
    main()
