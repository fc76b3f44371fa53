"""The tables of gemm: Kiln beside cuBLASLt, Triton and torch, by how many rows x has.

    python3 bench/tables_gemm.py FOLDER [--peers FOLDER] [--shapes] [--plot FOLDER]

Reads gemm_TYPE.json by bench_gemm and gemm_TYPE_peers.json by peers/gemm_triton.py. --peers: these are in another folder. --shapes: each shape on a line, too. --plot: gemm_TYPE.svg, the
ratio to cuBLASLt's best over m. All ratios are of times, over 1 where Kiln is faster.
"""
import argparse
import json
import math
import pathlib

import plot_gemm

LIMITS = {"bf16": 990, "f16": 990, "e4m3": 1980}  # TFLOP/s of an H200's data sheet, dense
CLASSES = {"1 to 64": (1, 64), "65 to 1024": (65, 1024), "1025 to 16384": (1025, 16384), "all": (1, math.inf)}
BOUND_BY_W = 64  # rows of x, up to which reading W once is most of the work
PEERS = {"triton": "Triton", "torch": "torch"}


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")] if path.exists() else []


def sizes(row):
    words = dict(word.split("=") for word in row["problem"].split())
    return tuple(int(words[axis]) for axis in "mnk")


def label(row):
    return f"{row['name']} ({' x '.join(map(str, sizes(row)))})"


def mean(values):
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def text(value, form=".2f"):
    return format(value, form) if value is not None else "-"


def times_of(peers):
    """By peer and sizes; those that came out wrong have no time that counts."""
    return {(row["peer"], (row["m"], row["n"], row["k"])): row["ns"] for row in peers if row.get("right")}


def summary_row(name, rows, dtype, times, own):
    ratios = [row for row in rows if "best_over_kiln" in row]
    cells = [name, len(rows)]
    for which in ("kiln", "own") if own else ("kiln",):
        worst = min(ratios, key=lambda row: row[f"best_over_{which}"], default=None)
        cells += [text(mean(row[f"best_over_{which}"] for row in ratios)),
                  f"{worst[f'best_over_{which}']:.2f}, {label(worst)}" if worst else "-"]
    cells.append(text(mean(row["first_over_kiln"] for row in rows if "first_over_kiln" in row)))
    for peer in PEERS:
        cells.append(text(mean(times[peer, sizes(row)] / row["kiln_ns"] for row in rows if (peer, sizes(row)) in times)))
    highest = max(row["kiln_tflop_s"] for row in rows)
    bound_by_w = all(sizes(row)[0] <= BOUND_BY_W for row in rows)
    return cells + [f"{highest:.0f}", f"{highest / LIMITS[dtype]:.0%}", text(mean(row["kiln_w_gb_s"] for row in rows), ".0f") if bound_by_w else "-"]


def show(measured, peers, dtype, table):
    """`measured` by bench_gemm, `peers` by peers/gemm_triton.py; prints a table with `table`, then what has no figure in it."""
    rows, times = [row for row in measured if "error" not in row], times_of(peers)
    own = any("own_implementation" in row for row in rows)
    classes = {name: [row for row in rows if low <= sizes(row)[0] <= high] for name, (low, high) in CLASSES.items()}
    body = [summary_row(name, some, dtype, times, own) for name, some in classes.items() if some]
    table([f"{dtype}, rows of x", "shapes", "cuBLASLt's best / Kiln, geometric mean", "worst", *(["... / Kiln's own kernels", "worst"] if own else []),
           "cuBLASLt's first / Kiln", *(f"{name} / Kiln" for name in PEERS.values()), "TFLOP/s, highest", "of the limit", "GB/s of W, geometric mean"], body)
    tuned = [row for row in rows if row["tunes"]]
    if tuned:
        ready = sorted(row["ready_ms"] / 1000 for row in tuned)
        print(f"Tuned on the way: {len(tuned)} buckets in {sum(ready):.0f} s, median {ready[len(ready) // 2]:.2f} s, worst {ready[-1]:.2f} s, "
              f"{sum(row['compiles'] for row in tuned)} compiles\n")
    for row in measured:
        if "error" in row:
            print(f"{row['name']} {row['problem']}: {row['error']}\n")
    for peer, name in PEERS.items():
        failed = sum(row["peer"] == peer and not row.get("right") for row in peers)
        if failed:
            print(f"{name}: {failed} shapes without a right result\n")


def show_shapes(measured, peers, dtype, table):
    times, body = times_of(peers), []
    for row in measured:
        if "error" in row:
            continue
        ratio = lambda name: f"{row[name]:.2f} ({row[name + '_low']:.2f} to {row[name + '_high']:.2f})" if name in row else "-"
        others = [times.get((peer, sizes(row))) for peer in PEERS]
        body.append([row["name"], " x ".join(map(str, sizes(row))), row["implementation"], f"{row['kiln_ns'] / 1000:.1f}", f"{row['kiln_tflop_s']:.0f}",
                     row["kiln_w_gb_s"], ratio("best_over_kiln"), *([ratio("best_over_own")] if any("own_implementation" in each for each in measured) else []),
                     ratio("first_over_kiln"), *(text(ns and ns / row["kiln_ns"]) for ns in others)])
    own = ["... / own kernels"] if any("own_implementation" in each for each in measured) else []
    table([f"{dtype}: layer", "m x n x k", "by", "us", "TFLOP/s", "GB/s of W", "cuBLASLt's best / Kiln", *own, "first / Kiln",
           *(f"{name} / Kiln" for name in PEERS.values())], body)


def print_table(head, body):
    print("| " + " | ".join(map(str, head)) + " |\n|" + "---|" * len(head))
    for row in body:
        print("| " + " | ".join(map(str, row)) + " |")
    print()


def main():
    options = argparse.ArgumentParser()
    options.add_argument("folder", type=pathlib.Path)
    options.add_argument("--peers", type=pathlib.Path)
    options.add_argument("--shapes", action="store_true")
    options.add_argument("--plot", type=pathlib.Path)
    asked = options.parse_args()
    for dtype in LIMITS:
        measured, peers = read(asked.folder / f"gemm_{dtype}.json"), read((asked.peers or asked.folder) / f"gemm_{dtype}_peers.json")
        if not measured:
            continue
        show(measured, peers, dtype, print_table)
        if asked.shapes:
            show_shapes(measured, peers, dtype, print_table)
        if asked.plot:
            marks = [(sizes(row)[0], row, label(row)) for row in measured if "best_over_kiln" in row]
            (asked.plot / f"gemm_{dtype}.svg").write_text(plot_gemm.chart(marks, dtype))


if __name__ == "__main__":
    main()
