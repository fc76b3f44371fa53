#!/usr/bin/env python3
"""Compares instructions of hot launches of two builds, as bench/callgrind-hit --rows counts them.

    bench/hit_counts.py OLD.json NEW.json

Prints each kind of launch with both counts and their ratio. Fails where a ratio is more than 2 % from 1, or where the driver is called more
or less often: what was timed of OLD is not what NEW does. Kinds that only one of them has are named and not compared.
"""
import argparse
import json
import pathlib
import sys

from evidence.marks import INSTRUCTIONS, is_other_launch

LAUNCHES = ("Plan::launch", "Op::launch")


def counts_of(path):
    rows = [json.loads(line) for line in pathlib.Path(path).read_text().splitlines() if line.startswith("{")]
    return {(row["op"], way): row[way] for row in rows for way in LAUNCHES}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    asked = parser.parse_args()
    old, new = counts_of(asked.old), counts_of(asked.new)
    apart = False
    for op, way in (kind for kind in old if kind in new):
        (before, calls_before), (now, calls_now) = ((of[op, way]["instructions"], of[op, way]["driver_calls"]) for of in (old, new))
        why = [f" (past {100 * INSTRUCTIONS:g} %)"] * (abs(now / before - 1) > INSTRUCTIONS) + [f" (driver calls: {calls_before} -> {calls_now})"] * (calls_before != calls_now)
        apart = apart or is_other_launch(old[op, way], new[op, way])
        print(f"{op}, {way}: {before} -> {now}, {now / before:.3f}{''.join(why)}")
    for op, way in sorted(old.keys() ^ new.keys()):
        print(f"{op}, {way}: in one of them alone")
    return 1 if apart or not old.keys() & new.keys() else 0


if __name__ == "__main__":
    sys.exit(main())
