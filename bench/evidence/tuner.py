"""The tuner's tables: random pairs of a product and a length beside other libraries, what a tune costs, regret, and stand-ins."""
from evidence.table import markdown, mean, number, quantile, words

TYPES = ("bf16", "f16", "e4m3")
DEVICES = ("H200", "H100")
ROWS = {"1 to 64": (1, 64), "65 to 1024": (65, 1024), "1025 and more": (1025, 1 << 30)}
LONG_NS = 300e3
MODELS = [f"peers-h100/products_models_{lengths}.json" for lengths in ("log", "served")]


def folder(device):
    return f"tuner-{device.lower()}"


def measured(read, device, dtype):
    """The rows of every draw: pairs_TYPE.json, pairs_TYPE_seed24.json."""
    return [row for name in read.matching(f"{folder(device)}/pairs_{dtype}*.json") for row in read(name) if "error" not in row]


def runs(read, devices=DEVICES):
    """What was measured of each device and type: a title, the device, the type and the rows."""
    for device in devices:
        for dtype in TYPES:
            if rows := measured(read, device, dtype):
                yield f"{device}, {dtype}", device, dtype, rows


def sizes(row):
    return tuple(int(words(row["problem"])[axis]) for axis in "mnk")


def at(row):
    return " x ".join(map(str, sizes(row)))


def asked(read, device, dtype):
    return sum(line.startswith("gemm") for name in read.matching(f"{folder(device)}/pairs_{dtype}*.txt") for line in read.text(name).splitlines())


def pairs(read):
    body = []
    for title, device, dtype, rows in runs(read):
        for what, field in (("with the library", "best_over_kiln"), ("own kernels alone", "best_over_own")):
            some = [row for row in rows if field in row]
            ratios = [row[field] for row in some]
            worst = min(some, key=lambda row: row[field])
            body.append([f"{title}, {what}", f"{len(some)} of {asked(read, device, dtype)}", number(mean(ratios), ".3f"), f"{quantile(ratios, 0.05):.3f}",
                         f"{worst[field]:.3f} at {at(worst)}", sum(ratio < 0.97 for ratio in ratios), sum(ratio < 0.92 for ratio in ratios),
                         sum(ratio >= 1 for ratio in ratios)])
    return markdown(["cuBLASLt's best for that length / Kiln", "pairs, of those drawn", "geometric mean", "5th percentile", "worst", "under 0.97",
                     "under 0.92", "1 or more"], body)


def pairs_by_rows(read):
    body = []
    for title, _, _, rows in runs(read):
        groups = [[row["best_over_kiln"] for row in rows if low <= sizes(row)[0] <= high] for low, high in ROWS.values()]
        long, short = [[row["best_over_kiln"] < 0.97 for row in rows if (row["kiln_ns"] >= LONG_NS) == which] for which in (True, False)]
        body.append([title, *(f"{number(mean(group), '.3f')} ({len(group)})" for group in groups), *(f"{sum(each)} of {len(each)}" for each in (short, long))])
    return markdown(["cuBLASLt's best / Kiln with the library, by rows of x", *ROWS, "under 0.97 below 0.3 ms", "from 0.3 ms on"], body)


def tunes(read):
    body = []
    models = [row for name in MODELS for row in read(name) if "error" not in row]
    for title, rows in [("H100, bf16, products of twenty models", models), *((title, rows) for title, _, _, rows in runs(read))]:
        tuned = [row for row in rows if row["tunes"]]
        seconds = [row["ready_ms"] / 1000 for row in tuned]
        longest = max(tuned, key=lambda row: row["ready_ms"])
        body.append([title, len(tuned), f"{quantile(seconds, 0.5):.2f}", f"{quantile(seconds, 0.95):.2f}", f"{max(seconds):.2f} at {at(longest)}",
                     sum(row["compiles"] for row in tuned), sum(row.get("implementation") == "cublaslt" for row in rows)])
    return markdown(["a bucket's tune, s", "buckets", "median (aim 3)", "95th percentile", "worst (aim 6)", "compiles", "pairs that the library serves"], body)


def regrets(read):
    """Device, op and summary of every `kiln bench regret` that said one."""
    for device in DEVICES:
        for name in read.matching(f"{folder(device)}/regret_*.json"):
            for row in read(name):
                if row.get("event") == "summary" and row.get("from") is None:
                    yield device, name.split("regret_")[1].removesuffix(".json"), row


def regret(read):
    exits = {(device, row["command"].split(" regret ")[1].split()[0]): row["exit"] for device in DEVICES for row in read(f"{folder(device)}/steps.jsonl")
             if row["step"] == "regret"}  # of the last run
    body = [[f"{device}, {op}{' (ended early)' if exits.get((device, op)) else ''}", row["lengths"], f"{row['median']:.1%}", f"{row['p95']:.1%}", f"{row['worst']:.1%}",
             row["worst_length"]] for device, op, row in regrets(read)]
    return markdown(["bf16", "lengths", "median (aim 0.5 %)", "95th percentile (aim 3 %)", "worst (aim 5 %)", "at rows"], body)


def untuned(read):
    body = []
    for title, _, _, rows in runs(read):
        some = [row for row in rows if row.get("stand_in_origin") in ("nearest", "model", "default")]
        if not some:
            continue
        slower = [row["stand_in_over_kiln"] - 1 for row in some]
        worst = max(some, key=lambda row: row["stand_in_over_kiln"])
        origins = [row["stand_in_origin"] for row in some]
        body.append([title, len(some), f"{quantile(slower, 0.5):.1%}", f"{quantile(slower, 0.95):.1%}", f"{max(slower):.1%} at {at(worst)}",
                     ", ".join(f"{origin} {origins.count(origin)}" for origin in dict.fromkeys(origins))])
    return markdown(["without a tune, over tuned", "pairs", "median (aim 3 %)", "95th percentile (aim 15 %)", "worst", "served by"], body)


TABLES = {"pairs": pairs, "pairs_by_rows": pairs_by_rows, "tunes": tunes, "regret": regret, "untuned": untuned}
