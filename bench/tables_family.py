"""The tables of the fused memory-bound family: Kiln beside a copy, torch, torch.compile, Liger-Kernel and quack."""
import math

PEERS = {"torch": "torch", "compile": "torch.compile", "liger": "Liger", "quack": "quack"}
CLASSES = {"a decode step": (0, 32e6), "past L2": (32e6, 320e6), "large": (320e6, math.inf)}  # by bytes moved


SIZES = ("rows", "cols", "tokens", "heads", "dim")
LEFT_OUT = ("dtype", "rotary_dim", "queries")


def asked(row):
    return dict(word.split("=") for word in row.get("asked", row.get("problem", "")).split())


def key(row):
    return row["op"], frozenset(asked(row).items())


def label(row):
    """'rms_norm residual=add': what is asked beside sizes and type."""
    return " ".join([row["op"], *(f"{name}={value}" for name, value in asked(row).items() if name not in SIZES + LEFT_OUT)])


def sizes(row):
    return " x ".join(value for name, value in asked(row).items() if name in SIZES)


def mean(values):
    values = list(values)
    return f"{math.exp(sum(map(math.log, values)) / len(values)):.2f}" if values else "-"


def show(measured, peers, table):
    """`measured` by bench_throughput, `peers` by peers/family.py; prints a table a size class with `table`."""
    times = {(row["peer"], key(row)): row for row in peers if "ns" in row}
    for name, (low, high) in CLASSES.items():
        rows = [row for row in measured if low <= row.get("bytes", -1) < high]
        if not rows:
            continue
        ratios = {peer: [] for peer in PEERS}
        body = []
        for row in rows:
            cells = []
            for peer in PEERS:
                time = times.get((peer, key(row)))
                if time:
                    ratios[peer].append(time["ns"] / row["ns"])
                cells.append(f"{ratios[peer][-1]:.2f}" + ("" if time["right"] else ", wrong") if time else "-")
            body.append([label(row), sizes(row), f"{row['ns'] / 1000:.1f}", f"{row['gb_s']:.0f}", f"{row['of_copy']:.2f}", f"{row['of_large_copy']:.2f}", *cells])
        body.append(["geometric mean", "", "", "", mean(row["of_copy"] for row in rows), mean(row["of_large_copy"] for row in rows), *map(mean, ratios.values())])
        table([f"{name}, bf16", "sizes", "us", "GB/s", "of a copy of the same bytes", "of a large copy", *(f"{each} / Kiln" for each in PEERS.values())], body)
    for row in measured:
        if "error" in row:
            print(f"{row['op']} {row['problem']}: {row['error']}\n")
