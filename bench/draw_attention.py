#!/usr/bin/env python3
"""Draws problems of attention of models, for bench/peers/attention_turns.py, attention_paged.py and attention_extras.py.

    bench/draw_attention.py --models COUNT [--seed S] [--lengths log|served] [--backward] [--packed | --paged] [--extras]

COUNT problems of the models of bench/problems/models.toml; bench/models.py says how lengths are drawn. --extras: of the models with a soft cap or sinks,
bench/problems/models_extras.toml, instead. Of dense ones, eight have the global and the local layers of each model.
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
    parser.add_argument("--extras", action="store_true")
    asked = parser.parse_args()
    if asked.extras and asked.paged:
        parser.error("--extras has no problems over pages, expected --packed or neither")
    draw = random.Random(asked.seed)
    if asked.paged:
        lines = models.paged(draw, asked.models)
    elif asked.packed:
        lines = models.packed(draw, asked.models, asked.backward, models.read(models.EXTRAS) if asked.extras else None)
    else:
        lines = models.attention(draw, asked.models, asked.lengths, asked.backward, list(models.with_extras()) if asked.extras else None)
    print("\n".join(lines))


if __name__ == "__main__":
    main()
