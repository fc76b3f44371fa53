"""The README's tables, from a folder that bench/run-h200 wrote.

    python3 bench/tables.py bench/results/2026-11-21-h200
"""
import json
import pathlib
import sys

folder = pathlib.Path(sys.argv[1])


def rows(name):
    path = folder / name
    return [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")] if path.exists() else []


def table(head, body):
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for row in body:
        print("| " + " | ".join(str(cell) for cell in row) + " |")
    print()


def short(problem):
    return " ".join(word for word in problem.split() if not word.startswith(("dtype", "layout", "activation")))


def throughput():
    peers = {(row["op"], short(row["problem"])): row["ns"] for row in rows("throughput_peers.json")}
    memory, compute = [], []
    for row in rows("throughput.json"):
        peer = peers.get((row["op"], short(row["problem"])))
        ratio = f"{peer / row['ns']:.2f}" if peer else "-"
        if row["op"] == "gemm":
            compute.append([short(row["problem"]), f"{row['ns'] / 1000:.1f}", f"{row['tflop_s']:.0f}", f"{peer / 1000:.1f}", ratio])
        else:
            memory.append([row["op"], short(row["problem"]), f"{row['ns'] / 1000:.1f}", f"{row['gb_s']:.0f}", f"{row['of_copy']:.2f}", f"{peer / 1000:.1f}", ratio])
    table(["op", "problem, bf16", "us", "GB/s", "of a copy of the same bytes", "torch us", "torch / Kiln"], memory)
    table(["gemm, bf16, y = x W^T", "us", "TFLOP/s", "torch (cuBLASLt) us", "torch / Kiln"], compute)


def replay():
    names = {"replay_first.json": "tuned file as overlay", "replay_new_process.json": "the same in a new process",
             "replay_shipped_no_nvrtc.json": "only the exported file, NVRTC hidden"}
    body = []
    for name, what in names.items():
        row = rows(name)[0]
        origin = row["by_origin"]
        stand_ins = sum(origin[name]["launches"] for name in ("nearest", "model", "default") if name in origin)
        body.append([what, row["problems"], row["buckets"], row["tunes"], row["compiles"], stand_ins, f"{origin['hot']['host_median_ns'] / 1000:.2f}",
                     f"{row['host_ns'] / 1e9:.2f} s", f"{row['device_ns'] / 1e9:.2f} s"])
    table(["10,000 distinct problems", "launches", "buckets", "tunes", "compiles", "stand-ins", "host us a hot launch, median", "host, all", "device, all"], body)
    verified = rows("replay_verified.json")[-1]
    print(f"Verified in a separate pass: {verified['verified']}, wrong: {verified['wrong']}\n")
    triton = rows("triton_autotune.json")
    total = sum(row["seconds"] for row in triton)
    print(f"Triton's autotune, the first {len(triton)} gemm lengths: {total:.1f} s, {total / len(triton):.2f} s a length\n")


def host_cost():
    table(["host cost of a launch", "median ns", "over bare"],
          [[row["way"], row["median_ns"], row.get("over_bare_ns", "")] for row in rows("hit_latency.json") + rows("hit_latency_peers.json")])


replay()
host_cost()
throughput()
