"""The README's tables, from a folder that bench/run wrote: those whose files are there.

    python3 bench/tables.py bench/results/throughput-h200
"""
import json
import pathlib
import sys

import tables_family
import tables_gemm

folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")


def rows(name):
    path = folder / name
    return [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")] if path.exists() else []


def table(head, body):
    print("| " + " | ".join(map(str, head)) + " |\n|" + "---|" * len(head))
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
    measured = rows("hit_latency.json")
    ways = [row for row in measured if row["bench"] == "hit_latency"] + rows("hit_latency_peers.json")
    table(["host cost of a launch", "op", "threads", "median ns", "over bare", "of bare"],
          [[row["way"], row.get("op", ""), row.get("threads", 1), row["median_ns"], row.get("over_bare_ns", ""), row.get("ratio", "")] for row in ways])
    stages = [row for row in measured if row["bench"] == "hit_stages"]
    if stages:
        names = sorted({name for row in stages for name in row if name.endswith("_ns")}, key=lambda name: max(list(row).index(name) for row in stages if name in row))
        table(["stage alone, ns", *(name.removesuffix("_ns").replace("_", " ") for name in names)],
              [[row["op"], *(row.get(name, "") for name in names)] for row in stages])


def compiles():
    rates = {}
    for row in rows("compile_rate.json"):
        rates.setdefault((row["source"], row["in"]), {})[row["workers"]] = row["per_second"]
    counts = sorted({workers for each in rates.values() for workers in each})
    table(["compiles a second", "in", *counts], [[*key, *(each.get(count, "-") for count in counts)] for key, each in rates.items()])


def compile_times():
    measured = [row for path in sorted(folder.glob("compile_time_*.json")) for row in rows(path.name)]
    table(["one compile", "problem", "configs, of", "median ms", "95th percentile", "worst", "refused"],
          [[f"{row['op']} {row['implementation']}", short(row["problem"]), f"{row['compiled']}, {row['space']}", row.get("median_ms", "-"),
            row.get("p95_ms", "-"), row.get("worst_ms", "-"), row["refused"]] for row in measured])


def background():
    table(["2,000 requests a second", "share asked", "p50 us", "p99 us", "p99.9 us", "share taken", "all tuned after"],
          [[row["way"], row["share"] or "-", row["p50_us"], row["p99_us"], row["p99.9_us"], f"{row['tuner_share']:.1%}" if row["share"] else "-",
            f"{row['all_tuned_s']:.1f} s" if row["all_tuned_s"] else ("-" if not row["share"] else f"{row['tunes']} of 6 in {row['seconds']:.0f} s")]
           for row in rows("background.json")])


def family():
    tables_family.show(rows("family.json"), rows("family_peers.json") + rows("family_compiled.json"), table)


def gemm():
    for dtype in tables_gemm.LIMITS:
        if measured := rows(f"gemm_{dtype}.json"):
            tables_gemm.show(measured, rows(f"gemm_{dtype}_peers.json"), dtype, table)


def cold_start():
    body = []
    for row in rows("cold_start.json") + rows("cold_start_peers.json"):
        if "failed" not in row:
            body.append([row["way"], f"{row['result_ms']:.1f}", row.get("over_context_ms", "-"), row.get("after_imports_and_context_ms", f"{row['result_ms'] - row['until_tensors_ms']:.2f}")])
    table(["a process's first rms_norm", "ms from its start", "ms beyond a context alone", "ms from when context and tensors are there"], body)


def plans():
    body = []
    for row in rows("plans.json"):
        if "failed" not in row:
            body.append([row["loading"], row["CUDA_MODULE_LOADING"], f"{row['all_ns'] / 1e6:.0f}", f"{row['ops_ns'] / 1e6:.0f}", f"{row['plan_p50_ns'] / 1000:.1f}",
                         f"{row['plan_p99_ns'] / 1000:.1f}", f"{row['resident_bytes'] / 2**20:.0f}", f"{row['device_bytes'] / 2**20:.0f}"])
    head = ["Loading", "CUDA_MODULE_LOADING", "ms in all", "ms in Engine::op", "us a plan, p50", "p99", "host MiB", "device MiB"]
    table(head, body)


def chain():
    """Microseconds a chain with the host out of the way (device_ns), then as a program meets it (ns)."""
    peers = {}
    for row in rows("chain_peers.json"):
        if "reason" in row:
            continue
        peers.setdefault((row["n"], row["rows"]), {})[row["way"]] = row
    own = {}
    for row in rows("chain.json"):
        own.setdefault((row["n"], row["rows"]), {})[row["way"], row["pdl"]] = row
    us = lambda row, key="device_ns": f"{row[key] / 1000:.2f}" if row else "-"
    over = lambda a, b, key="device_ns": f"{a[key] / b[key]:.2f}" if a and b else "-"
    device, met = [], []
    for (n, count), ways in own.items():
        torch = peers.get((n, count), {})
        compiled = [torch[way] for way in torch if way.startswith("torch.compile")]
        best = min(compiled, key=lambda row: row["device_ns"]) if compiled else None
        eager, step = (ways[way, "tuned"] for way in ("eager", "graph of 16"))
        device.append([n, count] + [us(ways[way, pdl]) for way in ("eager", "graph of 16") for pdl in ("off", "tuned")] +
                      [over(ways["eager", "off"], eager), us(torch.get("torch graph of 16")), over(torch.get("torch graph of 16"), step), us(best),
                       over(best, ways["graph", "tuned"])])
        met.append([n, count, us(eager, "ns"), us(eager, "host_ns"), us(ways["graph", "tuned"], "ns"), us(torch.get("torch eager"), "ns"),
                    over(torch.get("torch eager"), eager, "ns"), us(torch.get("torch graph"), "ns"), us(best, "ns"), over(best, ways["graph", "tuned"], "ns")])
    table(["rms_norm, gemm, softmax: n", "rows", "us: eager", "PDL", "graph of 16", "PDL", "eager / PDL", "torch graph of 16", "torch / Kiln",
           "torch.compile", "torch.compile / Kiln graph"], device)
    table(["as enqueued: n", "rows", "us: Kiln eager", "of the host", "Kiln graph", "torch eager", "torch / Kiln", "torch graph", "torch.compile",
           "torch.compile / Kiln graph"], met)


made_from = {replay: "replay_verified.json", host_cost: "hit_latency.json", throughput: "throughput.json", compiles: "compile_rate.json", compile_times: "compile_time_4096.json", background: "background.json",
             family: "family.json", gemm: "gemm_bf16.json", cold_start: "cold_start.json", plans: "plans.json", chain: "chain.json"}
if __name__ == "__main__":
    for show, needed in made_from.items():
        if (folder / needed).exists():
            show()
