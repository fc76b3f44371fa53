"""The fused memory-bound family beside a copy of the same bytes, torch, torch.compile, Liger-Kernel and quack."""
import math

from evidence.table import markdown, mean, number, us, words

PEERS = {"torch": "torch", "compile": "torch.compile", "liger": "Liger", "quack": "quack"}
CLASSES = {"16 rows": (0, 32e6), "100 to 200 MB": (32e6, 320e6), "0.7 to 1.4 GB": (320e6, math.inf)}  # by bytes moved
SIZES = ("rows", "cols", "tokens", "heads", "dim")
LEFT_OUT = ("dtype", "rotary_dim", "queries")


def asked(row):
    return words(row.get("asked", row.get("problem", "")))


def key(row):
    return row["op"], frozenset(asked(row).items())


def label(row):
    """'rms_norm residual=add': what is asked beside sizes and type."""
    return " ".join([row["op"], *(f"{name}={value}" for name, value in asked(row).items() if name not in SIZES + LEFT_OUT)])


def sizes(row):
    return " x ".join(value for name, value in asked(row).items() if name in SIZES)


def rows_and_peers(read):
    """Kiln's rows, and the peers' by name and problem; and which peers were timed at all."""
    rows = [row for row in read("memory-bound-h100/family.json") if "ns" in row]
    peers = {(row["peer"], key(row)): row for name in ("family_peers", "family_compiled") for row in read(f"memory-bound-h100/{name}.json") if "ns" in row}
    return rows, peers, [peer for peer in PEERS if any(peer == name for name, _ in peers)]


def in_class(rows, name):
    low, high = CLASSES[name]
    return [row for row in rows if low <= row["bytes"] < high]


def ratios(rows, peers, peer):
    return [peers[peer, key(row)]["ns"] / row["ns"] for row in rows if (peer, key(row)) in peers]


def family(read):
    """The large sizes, a line a kernel. `*`: outside the check's tolerance."""
    rows, peers, names = rows_and_peers(read)
    body = []
    for row in in_class(rows, "0.7 to 1.4 GB"):
        each = [peers.get((name, key(row))) for name in names]
        cells = [f"{peer['ns'] / row['ns']:.2f}" + ("" if peer["right"] else " *") if peer else "-" for peer in each]
        body.append([label(row), sizes(row), us(row), f"{row['gb_s']:.0f}", f"{row['of_copy']:.2f}", *cells])
    return markdown(["bf16, 0.7 to 1.4 GB moved", "sizes", "us", "GB/s", "of a copy of the same bytes", *(f"{PEERS[name]} / Kiln" for name in names)], body)


def family_means(read):
    """Geometric means by size, with the number of kernels, and the worst of a copy's rate."""
    rows, peers, names = rows_and_peers(read)
    body = []
    for name in CLASSES:
        some = in_class(rows, name)
        worst = min(some, key=lambda row: row["of_copy"])
        cells = [ratios(some, peers, peer) for peer in names]
        body.append([name, len(some), number(mean(row["of_copy"] for row in some)), f"{worst['of_copy']:.2f}, {label(worst)}",
                     *(f"{number(mean(cell))} ({len(cell)})" for cell in cells)])
    return markdown(["geometric means", "kernels", "of a copy of the same bytes", "worst", *(f"{PEERS[name]} / Kiln" for name in names)], body)


TABLES = {"family": family, "family_means": family_means}
