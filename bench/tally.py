#!/usr/bin/env python3
"""Compares what the fault tests tried with what docs/faults.md says that they try.

    KILN_FAULT_TALLY=FILE ctest --preset debug -R faults
    bench/tally.py FILE                 fails where bench/results/faults/tally.tsv has other rows, texts or counts
    bench/tally.py FILE --write         makes it say what FILE does, of the build that HEAD is

Each line of FILE is "ROW<TAB>CASES<TAB>WHAT", written by a test that passed its checks up to there, or "ROW<TAB>skipped<TAB>WHY".
Lines of one row and text are added up. Of a row that was skipped in part, anything may be missing.
"""
import argparse
import collections
import datetime
import pathlib
import subprocess
import sys

from evidence import claim, digests

FOLDER, NAME = "faults", "tally.tsv"
# What is drawn at random, or done until a time is over: of these a twentieth of the stored count is enough.
BY_CHANCE = {(1, "commits among the kills"), (22, "ranges on random axes"), (22, "sizes on random axes"), (23, "launches at random real sizes"),
             (43, "exports to one file by writers with equal process ids"), (43, "looks at the target meanwhile")}
ENOUGH = 20


def read(path):
    """Cases by row and text, and the rows that were skipped, with the reasons."""
    cases, skipped = collections.Counter(), {}
    for line in path.read_text().splitlines():
        row, count, text = line.split("\t", 2)
        if count == "skipped":
            skipped.setdefault(int(row), set()).add(text)
        else:
            cases[int(row), text] += int(count)
    return cases, skipped


def least_of(stored, key):
    return -(-stored[key] // ENOUGH) if key in BY_CHANCE else stored[key]


def differences(stored, found, skipped):
    for key in sorted(stored.keys() | found.keys()):
        (row, text), least = key, least_of(stored, key)
        if key not in stored:
            yield f"row {row}: {text}: {found[key]} cases, none stored"
        elif found[key] < least and row not in skipped or found[key] > stored[key] and key not in BY_CHANCE:
            yield f"row {row}: {text}: {found[key]} cases, expected {least}{' at least' if key in BY_CHANCE else ''}"


def merged(stored, found, skipped):
    """What is stored anew: of rows that were skipped what was found elsewhere stays, and a count by chance that was confirmed."""
    kept = {key for key in stored if key in BY_CHANCE and found[key] >= least_of(stored, key) or key[0] in skipped and not found[key]}
    return dict(found) | {key: stored[key] for key in kept}


def stored_at():
    return claim.RESULTS / FOLDER / NAME


def write(cases):
    """The run names no code: CI makes it anew with each change."""
    stored_at().write_text("".join(f"{row}\t{count}\t{text}\n" for (row, text), count in sorted(cases.items())))
    faults = claim.Claim.read(FOLDER)
    run = next(run for run in faults.run if NAME in run.files)
    run.data, run.date, run.code = digests.of_data([stored_at()]), f"{datetime.date.today()}", {}
    run.commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=digests.ROOT, capture_output=True, text=True, check=True).stdout.strip()
    faults.write()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    stored, _ = read(stored_at())
    found, skipped = read(asked.file)
    for row, reasons in sorted(skipped.items()):
        print(f"row {row} was skipped in part: {'; '.join(sorted(reasons))}")
    if asked.write:
        write(merged(stored, found, skipped))
        print(f"{stored_at()} is written; bench/tables.py --write renews docs/faults.md")
        return 0
    wrong = list(differences(stored, found, skipped))
    if wrong:
        print("\n".join(wrong), f"The tests try other faults than bench/results/faults says. If they should: bench/tally.py {asked.file} --write", sep="\n", file=sys.stderr)
        return 1
    print(f"{sum(found.values()):,} cases of {len({row for row, _ in found})} rows, as stored")
    return 0


if __name__ == "__main__":
    sys.exit(main())
