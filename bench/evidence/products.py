"""Products of groups and batches beside torch, and those of a training step beside cuBLASLt."""
from evidence.family import asked, sizes
from evidence.table import markdown, mean, us, words

GROUPED = {"grouped": "torch `_grouped_mm` / Kiln", "loop": "loop of cuBLAS / Kiln"}
BATCHED = {"bmm": "cuBLAS's strided batch / Kiln"}


def grouped_ratios(read):
    """The faster peer's time over Kiln's of each gemm_grouped that a peer computed."""
    peers = read("products-h100/products_peers.json")
    found = []
    for row in read("products-h100/products.json"):
        times = [peer["ns"] for peer in peers if peer["op"] == row["op"] == "gemm_grouped" and peer.get("right") and all(peer.get(axis) == int(asked(row)[axis]) for axis in ("groups", "m", "n", "k"))]
        if times and "ns" in row:
            found.append(min(times) / row["ns"])
    return found


def products(read, op, axes, peers):
    times = {(row["peer"], *(row.get(axis) for axis in axes)): row["ns"] for row in read("products-h100/products_peers.json") if row["op"] == op and row.get("right")}
    body, columns = [], {peer: [] for peer in peers}
    for row in read("products-h100/products.json"):
        if row["op"] != op or "ns" not in row:
            continue
        shape = tuple(int(asked(row)[axis]) for axis in axes)
        ratios = {peer: times[peer, *shape] / row["ns"] for peer in peers if (peer, *shape) in times}
        for peer, ratio in ratios.items():
            columns[peer].append(ratio)
        body.append(["H100", *shape, us(row), f"{row['tflop_s']:.0f}", *(f"{ratios[peer]:.2f}" if peer in ratios else "-" for peer in peers)])
    body.append(["H100", "geometric mean", *[""] * (len(axes) + 1), *(f"{mean(ratios):.2f}" for ratios in columns.values())])
    return markdown(["device", f"{op}: {axes[0]}", *axes[1:], "us", "TFLOP/s", *peers.values()], body)


def grouped(read):
    return products(read, "gemm_grouped", ("groups", "m", "n", "k"), GROUPED)


def batched(read):
    return products(read, "gemm_batched", ("batch", "m", "n", "k"), BATCHED)


LAYOUTS = {"nt": "forward (nt)", "nn": "an input's gradient (nn)", "tn": "a weight's gradient (tn)"}


def training(read):
    """Llama 3 8B's products in a training step, by the records that ship, beside cuBLASLt's best for that length and its heuristic's first."""
    body, by_layout = [], {}
    for row in read("training-h100/training.json"):
        if "best_over_kiln" in row:
            by_layout.setdefault(words(row["problem"])["layout"], []).append(row)
    for layout, title in LAYOUTS.items():
        if rows := by_layout.get(layout):
            worst = min(rows, key=lambda row: row["best_over_kiln"])
            body.append(["H100", title, len(rows), sum(row["implementation"] == "cublaslt" for row in rows), *(f"{mean(row[key] for row in rows):.3f}" for key in ("best_over_kiln", "first_over_kiln")),
                         f"{worst['best_over_kiln']:.3f} at {sizes_of({**worst, 'op': 'gemm'})}"])
    return body and markdown(["device", "product, bf16", "count", "served by cuBLASLt", "cuBLASLt's best / Kiln", "its first / Kiln", "worst of best / Kiln, at m x n x k"], body)


def sizes_of(row):
    return " x ".join(words(row["problem"])[axis] for axis in "mnk") if row["op"] == "gemm" else sizes(row)


TABLES = {"grouped": grouped, "batched": batched, "training": training}
