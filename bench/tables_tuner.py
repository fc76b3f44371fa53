"""The tables of the tuner, from a folder that bench/run wrote: those whose files are there.

    python3 bench/tables_tuner.py FOLDER

pairs_TYPE.json: random pairs of a product and a length, tuned by a first launch, beside cuBLASLt's best algorithm for that very length. agreement.json: two tunes of
each bucket at random lengths, and a config tuned for each of these. regret_OP.json: a bucket's configs against one tuned for the very length. Ratios are of times.
"""
import json
import math
import pathlib
import sys

from tables import table


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")] if path.exists() else []


def mean(values):
    return math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")


def quantile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def sizes(row):
    words = dict(word.split("=") for word in row["problem"].split())
    return f"{words['m']} x {words['n']} x {words['k']}"


def against_library(name, rows, field):
    ratios = [(row[field], sizes(row)) for row in rows if field in row]
    if not ratios:
        return [name, 0] + ["-"] * 6
    worst = sorted(ratios)[:3]
    values = [value for value, _ in ratios]
    return [name, len(values), f"{mean(values):.3f}", f"{quantile(values, 0.05):.3f}", f"{worst[0][0]:.3f} at {worst[0][1]}",
            sum(value < 0.97 for value in values), sum(value < 0.92 for value in values), sum(value >= 1 for value in values)]


def pairs(folder):
    body, cost, stand_ins = [], [], []
    for dtype in ("bf16", "f16", "e4m3"):
        rows = [row for row in read(folder / f"pairs_{dtype}.json") if "error" not in row]
        errors = [row for row in read(folder / f"pairs_{dtype}.json") if "error" in row]
        if not rows:
            continue
        body.append(against_library(f"{dtype}, with the library", rows, "best_over_kiln"))
        body.append(against_library(f"{dtype}, own kernels alone", rows, "best_over_own"))
        tuned = [row for row in rows if row["tunes"]]
        seconds = [row["ready_ms"] / 1000 for row in tuned]
        cost.append([dtype, len(tuned), f"{quantile(seconds, 0.5):.2f}", f"{quantile(seconds, 0.95):.2f}", f"{max(seconds):.2f}", sum(row["compiles"] for row in tuned),
                     sum(row["implementation"] == "cublaslt" for row in rows)])
        untuned = [row for row in rows if row.get("stand_in_origin") in ("nearest", "model", "default")]
        slower = [row["stand_in_over_kiln"] - 1 for row in untuned]
        if slower:
            worst = max(untuned, key=lambda row: row["stand_in_over_kiln"])
            stand_ins.append([dtype, len(slower), f"{quantile(slower, 0.5):.1%}", f"{quantile(slower, 0.95):.1%}", f"{max(slower):.1%} at {sizes(worst)}",
                              ", ".join(f"{origin} {sum(row['stand_in_origin'] == origin for row in untuned)}" for origin in ("nearest", "model", "default"))])
        for row in errors:
            print(f"{dtype} {row['problem']}: {row['error']}\n")
    if body:
        table(["cuBLASLt's best for the very length / Kiln", "pairs", "geometric mean", "5th percentile", "worst", "under 0.97", "under 0.92", "1 or more"], body)
        table(["a bucket's tune, s", "buckets", "median", "95th percentile", "worst", "compiles", "lengths that the library serves"], cost)
    if stand_ins:
        table(["without a tune, over tuned", "pairs", "median", "95th percentile", "worst", "served by"], stand_ins)


def agreement(folder):
    rows = read(folder / "agreement.json")
    lengths = [row for row in rows if "first_over_exact" in row]
    if not lengths:
        return
    apart = [max(row["first_ns"], row["second_ns"]) / min(row["first_ns"], row["second_ns"]) - 1 for row in lengths]
    regret = [max(row[f"{which}_over_exact"] - 1, 0) for row in lengths for which in ("first", "second")]
    seconds = [row[which] for row in rows for which in ("first_s", "second_s") if which in row]
    table(["two tunes", "buckets", "lengths", "within 2 %", "within 5 %", "furthest apart", "regret, median", "95th percentile", "worst", "a tune, s, median", "worst"],
          [["gemm, bf16", len(seconds) // 2, len(lengths), f"{sum(each <= 0.02 for each in apart) / len(apart):.0%}", f"{sum(each <= 0.05 for each in apart) / len(apart):.0%}",
            f"{max(apart):.1%}", f"{quantile(regret, 0.5):.1%}", f"{quantile(regret, 0.95):.1%}", f"{max(regret):.1%}", f"{quantile(seconds, 0.5):.2f}", f"{max(seconds):.2f}"]])


def regret(folder):
    body = []
    for path in sorted(folder.glob("regret_*.json")):
        for row in read(path):
            if row.get("event") == "summary" and row.get("from") is None:
                body.append([path.stem.removeprefix("regret_"), row.get("lengths", "-"), f"{row['median']:.1%}", f"{row['p95']:.1%}", f"{row['worst']:.1%}", row["worst_length"]])
    if body:
        table(["op", "lengths", "regret, median", "95th percentile", "worst", "at"], body)


if __name__ == "__main__":
    where = pathlib.Path(sys.argv[1])
    pairs(where)
    agreement(where)
    regret(where)
