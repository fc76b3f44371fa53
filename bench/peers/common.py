"""What the peers share: timing as Kiln's stopwatch does it, and problems as `kiln` writes them."""
import statistics
import time

import torch

from rows import emit  # noqa: F401

_flush = None
CYCLES_PER_NS = 2  # of the fastest clock, rounded up: a pause is at least as long as asked
# As tune::in_batches has it: what is run at a time, and how many times as long the device rests, to keep its highest clock; of shorter batches
# and of longer runs it does not.
BATCH_NS, REST, UNNOTICED_NS, BEYOND_HELP_NS = 10e6, 1.5, 1e6, 20e6


def samples_of(launch, pause, runs):
    """Nanoseconds of each of so many runs. Once device_ns has made what it flushes by."""
    pairs = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(runs)]
    for begin, end in pairs:
        torch.cuda._sleep(pause)
        torch.sum(_flush[0], dim=0, out=_flush[1])  # by reading, as Kiln does: a fill would leave lines to be written back
        begin.record()
        launch()
        end.record()
    torch.cuda.synchronize()
    return [begin.elapsed_time(end) * 1e6 for begin, end in pairs]


def device_ns(launch, samples=51):
    """Median device time of `launch`, L2 flushed before each run, events around it. Before each run the stream pauses for as long as the
    host takes to enqueue it, so that host time is not measured: Kiln's stopwatch holds the stream back too. Long ones rest as Kiln's do."""
    global _flush
    if _flush is None:
        _flush = torch.zeros(32 << 20, dtype=torch.int32, device="cuda"), torch.empty((), dtype=torch.int64, device="cuda")
    launch()
    torch.cuda.synchronize()
    begun = time.perf_counter_ns()
    launch()
    host_ns = time.perf_counter_ns() - begun
    pause = int((2 * host_ns + 50_000) * CYCLES_PER_NS)
    taken, each = [], samples_of(launch, pause, 1)[0]
    while len(taken) < samples:
        batch = samples_of(launch, pause, min(samples - len(taken), max(1, int(BATCH_NS / max(each, 1)))))
        taken += batch
        busy = sum(batch)
        each = busy / len(batch)
        if busy >= UNNOTICED_NS and each <= BEYOND_HELP_NS:
            time.sleep(REST * busy / 1e9)
    return statistics.median(taken)


def in_turns(launches, budget_ns=100e6, least=7, most=25):
    """Median device times of several launches by name, timed as device_ns does: in rounds of one sample each, forwards and backwards in turns,
    as many as the budget allows."""
    taken, each, pauses = {name: [] for name in launches}, {}, {}
    for name, launch in launches.items():
        each[name] = device_ns(launch, 1)
        begun = time.perf_counter_ns()
        launch()
        pauses[name] = int((2 * (time.perf_counter_ns() - begun) + 50_000) * CYCLES_PER_NS)
        torch.cuda.synchronize()
    rounds = min(most, max(least, int(budget_ns / sum(each.values()))))
    for i in range(rounds):
        for name in list(launches) if i % 2 else reversed(launches):
            [sample] = samples_of(launches[name], pauses[name], 1)
            taken[name].append(sample)
            if sample >= UNNOTICED_NS and sample <= BEYOND_HELP_NS:
                time.sleep(REST * sample / 1e9)
    return {name: round(statistics.median(some)) for name, some in taken.items()}


def prepared(ways, prepare):
    """What `prepare(way)` gives of each way, its row and its launch: the rows, and the launches with right results. A way that raises has a reason there."""
    rows, launches = {}, {}
    for way in ways:
        begun = time.perf_counter()
        try:
            rows[way], launch = prepare(way)
            if rows[way]["right"]:
                launches[way] = launch
        except Exception as error:  # whatever a peer may raise: it then has no figure here
            rows[way] = {"reason": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
        rows[way]["ready_s"] = round(time.perf_counter() - begun, 2)
    return rows, launches


def time_in_turns(rows, launches):
    """Adds the times of in_turns to the rows of the same names."""
    for way, ns in (in_turns(launches) if launches else {}).items():
        rows[way]["ns"] = ns


def parse(line):
    """'rms_norm rows=8 cols=4096 dtype=bf16 # remark' -> ('rms_norm', {'rows': 8, ...}); nothing for an empty line"""
    op, *settings = line.split("#")[0].split() or [None]
    values = dict(each.split("=") for each in settings)
    return op, {name: int(value) if value.isdigit() else value for name, value in values.items()}
