"""Kiln and its peers in turns in one process, on problems that are drawn from models' configurations."""
import re

from evidence.table import markdown, mean, number, words

FOLDER = "peers-h100"
ATTENTION = {"flash3": "FlashAttention-3", "flash4": "FlashAttention-4", "cudnn": "cuDNN", "varlen": "torch `varlen_attn`", "rows3": "FlashAttention-3, keys in a row", "bf16": "bf16",
             "flashinfer": "FlashInfer"}


def of_peers(row):
    """Nanoseconds of each peer that has a figure, its result right."""
    return {way: each["ns"] for way, each in row["ways"].items() if way != "kiln" and "ns" in each}


def is_timed(row):
    return "ns" in row["ways"].get("kiln", {}) and bool(of_peers(row))


def over_kiln(row, peer=None):
    """The peer's time over Kiln's; that of the fastest peer where none is named."""
    peers = of_peers(row)
    return (min(peers.values()) if peer is None else peers[peer]) / row["ways"]["kiln"]["ns"]


def ratios_of(read, lists, peer=None, counts=lambda row: True):
    rows = [row for name in lists for row in read(f"{name}.json") if is_timed(row) and counts(row)]
    return [over_kiln(row, peer) for row in rows if peer is None or peer in of_peers(row)]


def is_masked(row):
    return words(row["asked"]).get("mask", "none") != "none"


def is_forward(row):
    return row["op"] == "attention_forward"


def is_short(row):
    return int(words(row["asked"])["queries"]) < 1000


def kiln_us(row):
    return f"{row['ways']['kiln']['ns'] / 1000:.1f}" + (f" {row.mark}" if getattr(row, "mark", "") else "")


def of_model(row):
    """The model, the batch, lengths, heads, dimension, and mask with a soft cap or sinks."""
    size = words(row["asked"])
    heads = size["heads"] if size["heads"] == size["key_heads"] else f"{size['heads']} of {size['key_heads']}"
    dims = size["head_dim"] if size["head_dim"] == size["value_dim"] else f"{size['head_dim']}, {size['value_dim']}"
    if "key_lengths" in size:
        pairs = zip(*(size[name].split(",") for name in ("lengths", "key_lengths")))
        size["lengths"] = ",".join(new if new == all else f"{new} of {all}" for new, all in pairs)
    mask = f"window of {int(size['window_left']) + 1}" if size.get("mask") == "window" else size.get("mask", "none")
    mask += f", soft cap of {size['cap']}" if "soft_cap" in size else ", sinks" if "sinks" in size else ""
    lengths = size["lengths"].replace(",", ", ") if "lengths" in size else size["queries"]
    return [re.sub(r", (log|served)$", "", row["remark"]), size["batch"], lengths, heads, dims, mask]


def attention(read, lists, peers, counts=lambda row: True, fastest=True):
    """Beside each of `peers`, and beside the fastest where there are several and `fastest` asks for it."""
    body, columns = [], {each: [] for each in (*peers, *([None] if fastest and len(peers) > 1 else []))}
    for row in (row for name in lists for row in read(f"{name}.json") if counts(row)):
        if "ns" not in row["ways"].get("kiln", {}):
            body.append([*of_model(row), "no answer", *["-"] * len(columns)])
            continue
        found = {each: over_kiln(row, each) for each in of_peers(row) if each in peers} | ({None: over_kiln(row)} if is_timed(row) else {})
        for each in found.keys() & columns:
            columns[each].append(found[each])
        body.append([*of_model(row), kiln_us(row), *(number(found.get(each)) for each in columns)])
    if not body:
        return ""
    body.append(["geometric mean", *[""] * 6, *(number(mean(each)) for each in columns.values())])
    ratios = (f"{ATTENTION.get(each, 'the fastest')} / Kiln" for each in columns)
    return markdown(["model", "batch", "queries and keys", "heads", "dimension", "mask", "us", *ratios], body)


def compared(read, lists=("log", "served")):
    """Rows of products that cuBLASLt has a time for."""
    return [row for lengths in lists for row in read(f"{FOLDER}/products_models_{lengths}.json") if "best_over_kiln" in row]


def products(read):
    body, columns = [], ([], [])
    for lengths in ("log", "served"):
        for row in compared(read, (lengths,)):
            size, own = words(row["problem"]), row["best_over_own"]
            columns[0].append(row["best_over_kiln"])
            columns[1].append(own)
            body.append([row["name"].rsplit(", ", 1)[0], {"log": "log-uniform", "served": "as served"}[lengths], *(size[axis] for axis in "mnk"),
                         f"{row['kiln_ns'] / 1000:.1f}" + (f" {row.mark}" if row.mark else ""), f"{row['kiln_tflop_s']:.0f}", "cuBLASLt" if row["implementation"] == "cublaslt" else "own",
                         number(row["best_over_kiln"], ".3f"), number(own, ".3f")])
    if not body:
        return ""
    body.append(["geometric mean", *[""] * 7, *(number(mean(each), ".3f") for each in columns)])
    return markdown(["product", "rows drawn", "m", "n", "k", "us", "TFLOP/s", "kernel", "cuBLASLt's best / Kiln", "cuBLASLt's best / Kiln's own kernels"], body)


FAMILY = {"compile": "torch.compile", "max-autotune": "torch.compile, max-autotune", "quack": "QuACK"}


def family(read):
    """Norms, softmax, SwiGLU and gradients, each beside the ways that torch.compile has and QuACK."""
    rows = [row for row in read(f"{FOLDER}/family_turns.json") if is_timed(row)]
    if not rows:
        return ""
    ratio = lambda row, peer: over_kiln(row, peer) if peer is None or peer in of_peers(row) else None
    body = [[row["op"], row["asked"].replace("rows=", "").replace(" cols=", " x "), kiln_us(row), *(number(ratio(row, peer)) for peer in (*FAMILY, None))] for row in rows]
    means = [[each for row in rows if (each := ratio(row, peer)) is not None] for peer in (*FAMILY, None)]
    body.append(["geometric mean", "", "", *(number(mean(each)) for each in means)])
    return markdown(["op, bf16", "rows x columns", "us", *(f"{title} / Kiln" for title in FAMILY.values()), "the fastest / Kiln"], body)


def lists_of(name, draws=1, folder=FOLDER):
    """The files of a list of attention, without their ending: each draw's."""
    return tuple(f"{folder}/attention_turns_{name}" + (f"_{draw}" if draw > 1 else "") for draw in range(1, draws + 1))


LOG, SERVED, PACKED, BACKWARD = lists_of("log"), lists_of("served"), lists_of("packed", 3), lists_of("backward", 3)
DENSE = (*LOG, *SERVED)
LOG_H200, SERVED_H200, PACKED_H200, BACKWARD_H200 = (lists_of(name, folder="peers-h200") for name in ("log", "served", "packed", "backward"))
PAGED_H200 = ("peers-h200/attention_paged",)
PAGED_E4M3_H200 = ("peers-h200/attention_paged_e4m3",)
EXTRAS_H200 = ("peers-h200/attention_extras",)  # a soft cap or sinks
FORWARD_H200 = (*LOG_H200, *SERVED_H200, *PACKED_H200)
IN_A_ROW = ("flash3", "flash4", "cudnn", "varlen")  # peers of keys without pages
OF_FORWARD, OF_BACKWARD = ("flash3", "flash4", "cudnn"), ("flash4", "cudnn")


def of_h200(read):
    """Lists of attention on an H200, a line each: means of ratios and, in brackets, the least."""
    body = []
    for title, lists in (("forward, lengths log-uniform", LOG_H200), ("forward, lengths as served", SERVED_H200), ("forward, packed batches", PACKED_H200), ("backward, lengths log-uniform", BACKWARD_H200)):
        rows = [row for name in lists for row in read(f"{name}.json")]
        found = [[over_kiln(row, peer) for row in rows if is_timed(row) and (peer is None or peer in of_peers(row))] for peer in (*IN_A_ROW, None)]
        body.append([title + (f" {row.mark}" if (row := next((each for each in rows if each.mark), None)) else ""), len(rows), *(f"{mean(each):.2f} ({min(each):.2f})" if each else "-" for each in found)])
    return markdown(["twenty models", "problems", *(f"{ATTENTION[each]} / Kiln" for each in IN_A_ROW), "the fastest / Kiln"], body)


def paged_e4m3(read):
    """Pages in e4m3 beside the same numbers in bf16, both by Kiln, and beside FlashInfer once it was timed."""
    peers = ["bf16", *(["flashinfer"] if ratios_of(read, PAGED_E4M3_H200, "flashinfer") else [])]
    return attention(read, PAGED_E4M3_H200, peers, fastest=False).replace("bf16 / Kiln", "bf16 / e4m3")


TABLES = {"turns_log": lambda read: attention(read, LOG, OF_FORWARD), "turns_served": lambda read: attention(read, SERVED, OF_FORWARD),
          "turns_packed": lambda read: attention(read, PACKED, ("flash3", "flash4", "varlen")), "turns_backward": lambda read: attention(read, BACKWARD, OF_BACKWARD),
          "turns_paged": lambda read: attention(read, PAGED_H200, ("flash4", "rows3")),
          "turns_paged_e4m3": paged_e4m3,
          "turns_extras": lambda read: attention(read, EXTRAS_H200, ("flash3", "flash4"), is_forward),
          "turns_extras_backward": lambda read: attention(read, EXTRAS_H200, ("flash4",), lambda row: not is_forward(row)),
          "turns_h200": of_h200, "turns_products": products, "turns_family": family}
