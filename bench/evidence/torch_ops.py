"""Kiln's ops in PyTorch on a GPU: what passed, the host's cost of a call, and a model from its first batch on. The logs are those of
python/torch/tests/gpu.py and bench/python/show."""
import collections
import itertools
import re
import statistics

from evidence.claim import listed
from evidence.table import markdown, number

CHECKS = "torch-h200/checks.jsonl"
RANKS, TRAINING, PARALLEL, DEVICES, TUNED = (f"torch-h200/{name}.jsonl" for name in ("ranks", "training", "tensor_parallel", "devices", "devices_tune"))
LLAMA, TRAINED, STEPS = ("python/llama.jsonl", "python/llama_peers.jsonl"), ("python/llama_train.jsonl", "python/llama_train_peers.jsonl"), "python/llama_steps.txt"
ROUTES, LENGTH, GENERATE = "python/host.jsonl", "python/length_graph.jsonl", "python/generate.jsonl"
BATCHES, CONTEST_BATCHES = (1, 10, 100, 1000), (1, 100, 1000)
CONTEST = {"Kiln, prewarmed": "Kiln, a prewarmed file", "Kiln, records": "Kiln, the shipped records", "Kiln, records with machine code": "Kiln, the package of `scripts/build-records`", "Kiln, nothing": "Kiln, no file", "eager": "eager torch", "liger": "eager torch with Liger's kernels",
           "torch.compile": "`torch.compile`", "torch.compile, by caches of an earlier process": "`torch.compile`, the caches of an earlier process"}
SHOWS = {"values": "ops beside formulas in torch", "opcheck": "torch.library.opcheck, with sizes that vary", "gradients": "gradients beside f64",
         "autocast": "autocast", "inputs": "empty, strided and refused inputs", "graph": "CUDA graphs beside eager", "300 lengths": "300 lengths through torch.compile",
         "first launches": "first launches of 16 threads at once", "patch": "Llama, Qwen2 and Qwen3 after `patch`, beside f64", "attention": "Gemma 2, gpt-oss and Mistral with Kiln's attention and a patched Llama, over caches too, beside f32"}
UNSHOWN = {"machine", "host cost", "a step", "stats", "end", "first launch"}  # what has no result that is right or wrong, or is part of another check


def torch_checks(read):
    passed, failed = collections.Counter(), collections.defaultdict(list)
    for row in read(CHECKS):
        if row["check"] not in SHOWS.keys() | UNSHOWN:
            raise ValueError(f"{CHECKS}: the table has no line for the check {row['check']}")
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


CALLS = {"": "a call", ", torch.compile": "a compiled call", ", forward for a backward": "a forward before a backward",
         ", forward and backward": "both passes in eager mode", ", torch.compile, forward and backward": "both passes compiled"}


AS_MUCH = 0.03  # of the median: a smaller difference is told as none


def host_winners(read):
    """Who takes less of the host's time, Kiln's op or torch's, by the medians."""
    us = {row["route"]: row["us"] for row in read(ROUTES)}
    over = {call: us[f"torch{route}"] / us[f"kiln.torch{route}"] for route, call in CALLS.items() if {f"kiln.torch{route}", f"torch{route}"} <= us.keys()}
    said = {"`kiln.torch` takes less time for": [call for call, ratio in over.items() if ratio > 1 + AS_MUCH], "Torch takes less time for": [call for call, ratio in over.items() if ratio < 1 - AS_MUCH],
            "Both take the same time, within 3 %, for": [call for call, ratio in over.items() if abs(ratio - 1) <= AS_MUCH]}
    return " ".join(f"{who} {listed(calls)}." for who, calls in said.items() if calls)


def length_winners(read):
    """Which graphs Kiln's is faster than, and at which lengths."""
    rows = [row for row in read(LENGTH) if row["equal"]]
    exact, padded = ([f"{row['rows']:,}" for row in rows if row["us"] < row[peer]] for peer in ("exact_us", "padded_us"))
    alone = f"only at {listed(exact)} rows" if exact else "at none"
    return f"Kiln's graph takes less time than torch's of all rows at {len(padded)} of {len(rows)} lengths. It takes less than a graph of the length itself {alone}."


def length_ratios(read):
    """Torch's graph of a length over Kiln's graph of all lengths."""
    return [row["exact_us"] / row["us"] for row in read(LENGTH) if row["equal"]]


def torch_generate(read):
    body = [[row["batch"], row["contender"], row["step_ms"], row["least_step_ms"], row["call_ms"], row["first_call_s"]] for row in read(GENERATE)]
    return markdown(["batch", "model and cache", "ms a step, median of the rounds", "least", "ms a call", "s of the first call"], body)


def steps_beside(peer, cache, time="step_ms"):
    """A step of `peer` over one of Kiln's with that cache, the least and the most of the batches."""
    def told(read):
        steps = {(row["batch"], row["contender"]): row[time] for row in read(GENERATE)}
        ratios = [steps[batch, peer] / us for (batch, contender), us in steps.items() if contender == f"Kiln, {cache} cache"]
        return f"{min(ratios):.2f} to {max(ratios):.2f} times"
    return lambda read: read.figure(told)


def torch_length(read):
    body = [[f"{row['rows']:,}", row["us"], row["padded_us"], row["exact_us"]] for row in read(LENGTH) if row["equal"]]
    return markdown(["rows", "Kiln: one graph, its length on the device, us", "torch: one graph of 8,192 rows", "torch: a graph of this length"], body)


def runs_of(rows):
    """A contender's rows, run by run. A run's last row has "end"; where a limit took it, the count of batches falls."""
    runs = [rows[:1]]
    for before, row in itertools.pairwise(rows):
        if before.get("end") or row["batches"] < before["batches"]:
            runs.append([])
        runs[-1].append(row)
    return runs


def median_run(rows):
    """The run of median time a batch, with the medians of all runs: the seconds where each counted as many batches, and the time a token."""
    runs = sorted(runs_of(rows), key=lambda run: run[-1]["seconds"] / run[-1]["batches"])
    seconds = {count: [times_after(run).get(count) for run in runs] for count in times_after(rows)}
    medians = [row if None in (each := seconds[row["batches"]]) else {**row, "seconds": round(statistics.median(each), 3)} for row in runs[len(runs) // 2]]
    tokens = [us for run in runs if (us := us_a_token(run[-1]))]
    return [*medians[:-1], medians[-1] | ({"us_a_token": statistics.median(tokens)} if tokens else {})]


def rows_by_contender(read, names, train=False):
    rows_of = {}
    for row in (row for name in names for row in read(name) if row["train"] == train):
        rows_of.setdefault(row["contender"], []).append(row)
    return rows_of


def contenders(read, names, train=False):
    """The rows of each contender's median run, that of the least time a batch first."""
    medians = {name: median_run(rows) for name, rows in rows_by_contender(read, names, train).items()}
    return dict(sorted(medians.items(), key=lambda run: run[1][-1]["seconds"] / run[1][-1]["batches"]))


def contest_runs(read):
    """How often each contender of README's table ran, and how far its runs lie apart."""
    runs = {name: [run[-1]["seconds"] for run in runs_of(rows)] for name, rows in rows_by_contender(read, LLAMA).items() if rows[-1]["batches"] == BATCHES[-1]}
    counts = {len(seconds) for seconds in runs.values()}
    if not counts or max(counts) < 2:
        return "once" if counts else ""
    apart = {name: max(seconds) / min(seconds) - 1 for name, seconds in runs.items() if len(seconds) > 1}
    widest = max(apart, key=apart.get)
    return f"{' or '.join(map(str, sorted(counts)))} times, and the table has medians. Times of {BATCHES[-1]:,} batches differed by up to {apart[widest]:.0%}, most for {CONTEST[widest]}"


def times_after(rows):
    """Seconds after some of the batches of a contender."""
    return {row["batches"]: row["seconds"] for row in rows}


def us_a_token(end):
    """Of the second half of a contender's batches, by its last row; None where it was ended too early. Of several runs, the median."""
    if "us_a_token" in end:
        return end["us_a_token"]
    return (end["batches"] - end["batches"] // 2) * end["second_half_ms"] * 1000 / end["second_half_tokens"] if end.get("second_half_ms") else None


def eager_leads(contender, names=LLAMA, train=False):
    """After which numbers of batches eager torch is ahead of the contender, by more than is told as none; also where the contender came to its limit before."""
    def told(read):
        runs_of = contenders(read, names, train)
        after, end = {name: times_after(rows) for name, rows in runs_of.items()}, runs_of["eager"][-1]
        counts = sorted(after["eager"].keys() - ({end["batches"]} if end["batches"] < end.get("of_batches", 0) else set()))  # its limit's is no mark of the rest
        runs = [list(run) for leads, run in itertools.groupby(counts, lambda count: after["eager"][count] * (1 + AS_MUCH) < after[contender].get(count, float("inf"))) if leads]
        marks = listed(f"{run[0]:,} to {run[-1]:,}" if len(run) > 1 else f"{run[0]:,}" for run in runs)
        return f"at {marks} batches" if runs else "at no count of batches"
    return lambda read: read.figure(told)


def train_took(read):
    """What all batches took with gradients, Kiln by records with machine code and eager torch."""
    after = {name: times_after(rows) for name, rows in contenders(read, TRAINED, train=True).items()}
    kiln, eager = (after.get(name, {}).get(BATCHES[-1]) for name in ("Kiln, records with machine code", "eager"))
    return f"{kiln:#.3g} s, and eager torch {eager:#.3g} s" if kiln and eager else ""


def prewarm_took(read):
    """Seconds of `kiln prewarm` in a log of bench/python/show."""
    return read.figure(lambda r: next((f"{found[1]} s" for line in r.text(STEPS).splitlines() if (found := re.match(r"(\d+) s, status 0: kiln prewarm", line))), ""))


def torch_ranks(read):
    """What two GPUs showed: of two processes by torchrun, and of one."""
    ranks, training, parallel, devices, tuned = (read(name) for name in (RANKS, TRAINING, PARALLEL, DEVICES, TUNED))
    body = []
    for what, has in (("ops of teams beside torch.distributed", " of "), ("their sums have the same bits on all ranks", "sums"), ("gradients beside f64", "gradients"),
                      ("three buckets of two ops by one new overlay, tuned once in all, the same bits", "one overlay")):
        body.append([what, [row for row in ranks if (row["check"].split()[0] in ("sums", "gradients", "one")) == (has != " of ") and has in row["check"]]])
    for what, of in (("four steps of a patched Llama beside the same without `patch`", training), ("a Llama divided between two ranks", parallel), ("one process on both devices", (*devices, *tuned))):
        checks = [row for row in of if row["check"] != "machine"]
        body.append([f"{what}: {'; '.join(row['check'].removeprefix('training in ') for row in checks)}", checks])
    return markdown(["two GPUs", "passed", "failed"], [[what, sum(row["ok"] for row in of), ", ".join(row["check"] for row in of if not row["ok"]) or 0] for what, of in body if of])


def llama_rows(read, names, train=False):
    """Seconds from the first batch's beginning on; "-" past the time limit of a contender. Contenders that were ended early ran other batches than the rest,
    so the second half of each one's batches is given by the token."""
    body = []
    for contender, rows in contenders(read, names, train).items():
        after, end = times_after(rows), rows[-1]
        ran = f"{end['batches']:,}" + ("" if end["batches"] == end["of_batches"] else f", then its limit of {end['limit_s']:.0f} s")
        body.append([contender, *(after.get(count, "-") for count in BATCHES), ran, number(us_a_token(end))])
    return markdown(["contender", *(f"{count:,} batch{'es' * (count > 1)}, s" for count in BATCHES), "batches run", "us a token, second half of them"], body)


def contest(read):
    """README's table of the contenders that ran all batches, a figure each. Its mark is that of the whole row, and stands at the contender's name."""
    def told(name, file):
        def of(r):
            rows = contenders(r, [file])[name]
            after = times_after(rows)
            return " | ".join([*(f"{after[count]:#.3g} s" for count in CONTEST_BATCHES), f"{round(1e6 / us_a_token(rows[-1]), -2):,.0f}", CONTEST.get(name, name)])
        return of
    ran = {name: rows[-1] for name, rows in contenders(read, LLAMA).items() if rows[-1]["batches"] == BATCHES[-1]}
    file_of = {row["contender"]: file for file in LLAMA for row in read(file)}
    figures = [figure.split(" | ") for name in ran if (figure := read.figure(told(name, file_of[name])))]
    device = listed(sorted({end["device"].removeprefix("NVIDIA ") for end in ran.values()}))
    heads = [f"{count:,} batch{'es' * (count > 1)}" for count in CONTEST_BATCHES]
    return markdown([f"8-layer Llama in PyTorch on one {device}, to the end of", *heads, f"tokens a second, batches {BATCHES[-1] // 2 + 1:,} to {BATCHES[-1]:,}"], [[title, *cells] for *cells, title in figures])


HOST = {"host_python": {"kiln.torch": "{} with `kiln.torch`", "torch": "{} with torch's op", "Triton": "{} with a Triton kernel"}, "host_python_given": {"kiln.op, no allocation": "{}"},
        "host_python_both": {"kiln.torch, forward and backward": "{} with `kiln.torch`", "torch, forward and backward": "{} with torch"}}


def host_costs(routes):
    """The host's time of a call by each of the routes, without those that were not timed."""
    def told(read):
        us = {row["route"]: row["us"] for row in read(ROUTES)}
        return listed(title.format(f"{f'{us[route]:#.3g}'.rstrip('.')} us") for route, title in routes.items() if route in us)
    return lambda read: read.figure(told)


TABLES = {"contest": contest, "torch_llama": lambda read: llama_rows(read, LLAMA), "torch_llama_train": lambda read: llama_rows(read, TRAINED, train=True), "torch_ranks": torch_ranks,
          "torch_checks": torch_checks, "torch_lengths": torch_lengths, "torch_host": torch_host, "torch_generate": torch_generate, "torch_length": torch_length}
FIGURES = {"generate_dynamic": steps_beside("eager, dynamic cache", "dynamic"), "generate_static": steps_beside("eager, static cache", "static"),
           **{f"generate_{cache}_least": steps_beside(f"eager, {cache} cache", cache, "least_step_ms") for cache in ("dynamic", "static")}, "llama_prewarm": prewarm_took, "contest_runs": lambda read: read.figure(contest_runs),
           "eager_leads": eager_leads("Kiln, records with machine code"), "eager_leads_records": eager_leads("Kiln, records"), "eager_leads_prewarmed": eager_leads("Kiln, prewarmed"), "train_took": lambda read: read.figure(train_took),
           "train_leads": eager_leads("Kiln, records with machine code", TRAINED, train=True), "train_leads_prewarmed": eager_leads("Kiln, prewarmed", TRAINED, train=True), "train_leads_records": eager_leads("Kiln, records", TRAINED, train=True),
           **{name: host_costs(routes) for name, routes in HOST.items()}, "host_winners": lambda read: read.figure(host_winners), "length_winners": lambda read: read.figure(length_winners)}
