"""Kiln's ops in PyTorch on a GPU: what passed, the host's cost of a call, and a model from its first batch on. The logs are those of
python/torch/tests/gpu.py and bench/python/show."""
import collections

from evidence.claim import listed
from evidence.table import markdown

CHECKS = "torch-h100/checks.jsonl"
RANKS = "torch-h200/ranks.jsonl"
LLAMA, TRAINED = "python/llama.jsonl", "python/llama_train.jsonl"
ROUTES, LENGTH = "python/host.jsonl", "python/length_graph.jsonl"
BATCHES = 1, 10, 100, 1000
SHOWS = {"values": "ops beside formulas in torch", "opcheck": "torch.library.opcheck, with sizes that vary", "gradients": "gradients beside f64",
         "autocast": "autocast", "inputs": "empty, strided and refused inputs", "graph": "CUDA graphs beside eager", "300 lengths": "300 lengths through torch.compile",
         "first launches": "first launches of 16 threads at once", "patch": "Llama, Qwen2 and Qwen3 after `patch`, beside f64"}


def torch_checks(read):
    passed, failed = collections.Counter(), collections.defaultdict(list)
    for row in read(CHECKS):
        if row["ok"] and row["check"] != "end":
            passed[row["check"]] += 1
        elif row["ok"] is False and row["check"] != "end":
            failed[row["check"]].append(f"{row['case']}: {row['error']}")
    return markdown(["what", "passed", "failed"], [[what, passed[check], "; ".join(failed[check]) or 0] for check, what in SHOWS.items()])


def torch_lengths(read):
    body = [["with" if row["case"] == "gradients=True" else "without", row["graphs"], row["tunes"], row["compiles"], row["prewarm_s"], row["lengths_s"]]
            for row in read(CHECKS) if row["check"] == "300 lengths"]
    return markdown(["gradients", "graphs", "tunes", "compiles", "12 first lengths, s", "300 lengths, s"], body)


def torch_host(read):
    return markdown(["route", "us a call, median of the rounds", "least"], [[row["route"], row["us"], row["least_us"]] for row in read(ROUTES)])


CALLS = {"": "a call", ", torch.compile": "a compiled call", ", forward for a backward": "a forward that keeps what a backward needs", ", forward and backward": "both passes",
         ", torch.compile, forward and backward": "both passes compiled"}


def host_winners(read):
    """Who takes less of the host's time, Kiln's op or torch's, by the medians."""
    us = {row["route"]: row["us"] for row in read(ROUTES)}
    timed = {call: (us[f"kiln.torch{route}"], us[f"torch{route}"]) for route, call in CALLS.items() if {f"kiln.torch{route}", f"torch{route}"} <= us.keys()}
    less = {"`kiln.torch`": [call for call, (kiln, torch) in timed.items() if kiln < torch], "Torch": [call for call, (kiln, torch) in timed.items() if torch < kiln]}
    return " ".join(f"{who} takes less time for {listed(calls)}." for who, calls in less.items() if calls)


def length_winners(read):
    """Which graphs Kiln's is faster than, and at which lengths."""
    rows = [row for row in read(LENGTH) if row["equal"]]
    exact, padded = ([f"{row['rows']:,}" for row in rows if row["us"] < row[peer]] for peer in ("exact_us", "padded_us"))
    alone = f"at {listed(exact)} rows alone" if exact else "at none"
    return f"Kiln's graph takes less time than torch's of all rows at {len(padded)} of {len(rows)} lengths. It takes less than a graph of the length itself {alone}."


def torch_length(read):
    body = [[f"{row['rows']:,}", row["us"], row["padded_us"], row["exact_us"]] for row in read(LENGTH) if row["equal"]]
    return markdown(["rows", "Kiln: one graph, its length on the device, us", "torch: one graph of 8,192 rows", "torch: a graph of this length"], body)


def ended(read):
    """The last row of each contender without gradients."""
    return {row["contender"]: row for row in read(LLAMA)}


def torch_ranks(read):
    rows = read(RANKS)
    body = []
    for what, has in (("ops of teams beside torch.distributed", " of "), ("their sums have the same bits on all ranks", "sums"), ("gradients beside f64", "gradients"),
                      ("three buckets of two ops by one new overlay, tuned once in all, the same bits", "one overlay")):
        of = [row for row in rows if (row["check"].split()[0] in ("sums", "gradients", "one")) == (has != " of ") and has in row["check"]]
        body.append([what, sum(row["ok"] for row in of), ", ".join(row["check"] for row in of if not row["ok"]) or 0])
    return markdown(["two ranks by torchrun", "passed", "failed"], body)


def llama_rows(read, name):
    """Seconds from the first batch's beginning on, in the order of the last batch's; "-" past the time limit of a contender."""
    body, runs = [], {}
    for row in read(name):
        runs.setdefault(row["contender"], []).append(row)
    for contender, rows in sorted(runs.items(), key=lambda run: run[1][-1]["seconds"] / run[1][-1]["batches"]):
        after = {row["batches"]: row["seconds"] for row in rows}
        end = rows[-1]
        body.append([contender, *(after.get(count, "-") for count in BATCHES), f"{end['batches']:,}", end.get("second_half_ms") or "-"])
    return markdown(["contender", *(f"{count:,} batch{'es' * (count > 1)}, s" for count in BATCHES), "batches run", "ms a batch, second half of them"], body)


TABLES = {"torch_llama": lambda read: llama_rows(read, LLAMA), "torch_llama_train": lambda read: llama_rows(read, TRAINED), "torch_ranks": torch_ranks,
          "torch_checks": torch_checks, "torch_lengths": torch_lengths, "torch_host": torch_host, "torch_length": torch_length}
FIGURES = {"host_winners": lambda read: read.figure(host_winners), "length_winners": lambda read: read.figure(length_winners)}
