#!/usr/bin/env python3
"""Compares instructions of hot launches of two builds, as bench/callgrind-hit --rows counts them.

    bench/hit_counts.py OLD.json NEW.json

Prints each kind of launch with both counts and their ratio. Fails where a ratio is more than 2 % from 1: what was timed of OLD is not what
NEW does. Kinds that only one of them has are named and not compared.
"""
import argparse
import json
import pathlib
import sys

LAUNCHES = ("Plan::launch", "Op::launch")
ALIKE = 0.02


def counts_of(path):
    rows = [json.loads(line) for line in pathlib.Path(path).read_text().splitlines() if line.startswith("{")]
    return {(row["op"], way): row[way]["instructions"] for row in rows for way in LAUNCHES}


def compared(old, new):
    """Kind, both counts and the ratio, of what both have."""
    return [(kind, old[kind], new[kind], new[kind] / old[kind]) for kind in old if kind in new]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    asked = parser.parse_args()
    old, new = counts_of(asked.old), counts_of(asked.new)
    apart = False
    for (op, way), before, now, ratio in compared(old, new):
        far = abs(ratio - 1) > ALIKE
        apart = apart or far
        print(f"{op}, {way}: {before} -> {now}, {ratio:.3f}{' (past 2 %)' if far else ''}")
    for op, way in sorted(old.keys() ^ new.keys()):
        print(f"{op}, {way}: in one of them alone")
    return 1 if apart or not old.keys() & new.keys() else 0


if __name__ == "__main__":
    sys.exit(main())
