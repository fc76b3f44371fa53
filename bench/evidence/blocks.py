"""Whole transformer blocks beside the same blocks in torch."""
from evidence.table import markdown, mean, number

BLOCKS = {("h100", "llama"): "Llama 3 8B, packed, H100"}
FILES = ("prewarmed", "", "peers")
SIDES = {"kiln, a prewarmed file": "Kiln, a prewarmed file", "kiln": "Kiln, that process's file", "eager": "torch, eager",
         "compile, no cache": "`torch.compile`, no cache yet", "compile": "`torch.compile`, that process's cache",
         "dynamic, no cache": "`torch.compile(dynamic=True)`, no cache yet", "dynamic": "`torch.compile(dynamic=True)`, that process's cache"}
PEERS = {"eager": "eager", "compile": "`torch.compile`", "dynamic": "`dynamic=True`"}


def rows_of(read, block, files=FILES):
    device, name = block
    return [row for file in files for row in read(f"blocks-{device}/blocks_{file}{'_' * bool(file)}{name}.json")]


def of(rows, phase, side):
    return [row for row in rows if (row["phase"], row.get("side")) == (phase, side)]


def stream(read):
    """The first pass of a process; one that was ended before all batches says how many it did, and counts these alone."""
    body = []
    for block, title in BLOCKS.items():
        rows = rows_of(read, block)
        for side, name in SIDES.items():
            firsts, whole, memory = (of(rows, phase, side) for phase in ("first", "stream", "memory"))
            if not firsts:
                continue
            seconds = whole[0]["ms"] / 1000 if whole else sum(row["infer_ms"] + row["train_ms"] for row in firsts) / 1000
            begun, *later = ((row["infer_ms"] + row["train_ms"]) / 1000 for row in firsts)
            counts = [sum(row[key] for row in firsts) if key in firsts[0] else "-" for key in ("tunes", "compiles")]
            gigabytes = [f"{memory[0][key] / 1e9:.1f}" if memory else "-" for key in ("tensor_bytes", "device_bytes")]
            body.append([title, name, f"{len(firsts)}{'' if whole else ', then ended'}", f"{seconds:.1f}", f"{begun:.2f}", number(max(later, default=None)), *counts, *gigabytes])
    return body and markdown(["block", "side", "batches", "first pass, s", "first batch, s", "longest later batch, s", "tunes", "compiles", "GB of tensors", "GB of device memory"], body)


def over_kiln(rows, side, key):
    """A side's steady times over Kiln's, each with its batch's tokens."""
    kiln = {row["batch"]: row[key] for row in of(rows, "steady", "kiln")}
    return [(row[key] / kiln[row["batch"]], row["tokens"]) for row in of(rows, "steady", side) if row["batch"] in kiln]


def steady(read):
    body = []
    for block, title in BLOCKS.items():
        rows = rows_of(read, block, ("", "peers"))
        kiln = of(rows, "steady", "kiln")
        for key, name in (("infer_ns", "forward"), ("train_ns", "forward and backward")):
            cells = []
            for side in PEERS:
                ratios = over_kiln(rows, side, key)
                cells += [number(mean(ratio for ratio, _ in ratios)), f"{min(ratios)[0]:.2f} at {min(ratios)[1]}" if ratios else "-"]
            if kiln:
                tokens = sum(row["tokens"] for row in kiln)
                body.append([title, name, len(kiln), f"{tokens / sum(row[key] for row in kiln) * 1000:.2f}", *cells])
    heads = [head for name in PEERS.values() for head in (f"{name} / Kiln", "worst, at tokens")]
    return body and markdown(["block", "pass", "batches", "Kiln, million tokens a second", *heads], body)


def errors(read):
    body = []
    for block, title in BLOCKS.items():
        for row in of(rows_of(read, block, ("peers",)), "check", "kiln"):
            body.append([title, row["tokens"], row["tensor"], "yes" if row["right"] else "NO", *(f"{row[key]:.2%}" for key in ("error", "torch_error", "worst", "torch_worst"))])
    return body and markdown(["block", "tokens", "result, or gradient of", "within the tolerance", "Kiln's error", "torch's in bf16", "Kiln's worst element", "torch's"], body)


TABLES = {"blocks_stream": stream, "blocks_steady": steady, "blocks_errors": errors}
