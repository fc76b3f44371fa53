"""Attention beside torch's cuDNN and FlashAttention-2 backends and its varlen_attn."""
import re

from evidence.table import markdown, mean, number, us, words
from evidence.tuner import TWO_TUNES, two_tunes

FOLDER = "attention-h100"
PEERS = {"cudnn": "cuDNN / Kiln", "flash": "FlashAttention-2 / Kiln", "varlen": "torch `varlen_attn` / Kiln"}
MODELS_PEERS = {"cudnn": PEERS["cudnn"], "flash4": "FlashAttention-4 / Kiln"}
HEADS_PEERS = {"cudnn": PEERS["cudnn"], "flash3": "FlashAttention-3 / Kiln"}
PACKED_PEERS = {"varlen": PEERS["varlen"], "padded": "padded, cuDNN / Kiln"}


def named(row):
    """The problem in a few words: sizes, heads, dimensions, then what is not the default."""
    size = words(row["asked"])
    heads = size["heads"] if size["heads"] == size["key_heads"] else f"{size['heads']} of {size['key_heads']}"
    dims = size["head_dim"] if size["head_dim"] == size["value_dim"] else f"{size['head_dim']}, {size['value_dim']}"
    length = size["queries"] if size["queries"] == size["keys"] else f"{size['queries']}, {size['keys']}"
    mask = size.get("mask", "none") + (", deterministic" if size.get("deterministic") == "yes" else "")
    return [size["batch"], length, heads, dims, mask, size.get("layout", "dense")]


def table_of(read, name, of_peers=PEERS):
    peers = {(row["peer"], row["asked"]): row["ns"] for row in read(f"{FOLDER}/{name}_peers.json") if row.get("right") and "ns" in row}
    body, columns = [], {peer: [] for peer in of_peers}
    for row in read(f"{FOLDER}/{name}.json"):
        if "ns" not in row:  # why, its line says; the problem stands there in place of what was asked
            body.append([*named({"asked": row["problem"]}), "no answer", *["-"] * (len(of_peers) + 1)])
            continue
        ratios = {peer: peers[peer, row["asked"]] / row["ns"] for peer in of_peers if (peer, row["asked"]) in peers}
        for peer, ratio in ratios.items():
            columns[peer].append(ratio)
        body.append([*named(row), us(row), f"{row['tflop_s']:.0f}", *(number(ratios.get(peer)) for peer in of_peers)])
    if not body:
        return ""
    body.append(["geometric mean", *[""] * 7, *(number(mean(ratios)) for ratios in columns.values())])
    return markdown(["batch", "queries and keys", "heads", "dimension", "mask", "layout", "us", "TFLOP/s", *of_peers.values()], body)


def e4m3(read):
    """Each problem in e4m3 beside the same in bf16, of one run."""
    rows = [row for row in read(f"{FOLDER}/attention_e4m3.json") if "ns" in row]
    wide = {row["asked"]: row["ns"] for row in rows}
    body, ratios = [], []
    for row in rows:
        if words(row["asked"])["dtype"] != "e4m3":
            continue
        ratio = wide[same] / row["ns"] if (same := row["asked"].replace("dtype=e4m3", "dtype=bf16")) in wide else None
        ratios += [ratio] if ratio else []
        body.append([*named(row), row["implementation"], us(row), f"{row['tflop_s']:.0f}", number(ratio)])
    if not body:
        return ""
    body.append(["geometric mean", *[""] * 8, number(mean(ratios))])
    return markdown(["batch", "queries and keys", "heads", "dimension", "mask", "layout", "implementation", "us", "TFLOP/s", "bf16 / e4m3"], body)


PROFILED = {"time, us": ("Duration", ".0f"), "instructions, millions": ("Executed Instructions", ".0f"), "issue slots busy": ("Issue Slots Busy", ".0f"),
            "cycles in which no warp can issue": ("No Eligible", ".0f"), "tensor cores busy": (r"Shared is the highest-utilized pipeline \(", ".0f")}


def e4m3_profile(read):
    """What Nsight Compute says of one launch in e4m3, and of the same in bf16."""
    def of(text, named):
        found = re.search(rf"{named}(?:\s+[a-z%]+\s+)?([\d.,]+)", text)
        return float(found[1].replace(",", ""))

    texts = {dtype: read.text(f"attention-h200/profile_{dtype}.txt") for dtype in ("e4m3", "bf16")}
    if not all(texts.values()):
        return ""
    body = []
    for title, (named, form) in PROFILED.items():
        values = [of(text, named) / (1e6 if "millions" in title else 1) for text in texts.values()]
        body.append([title, *(format(value, form) + (" %" if "," not in title else "") for value in values)])
    return markdown(["one launch", *texts], body)


def ratios_of(read, name, peer, counts=lambda row: True):
    """The peer's time over Kiln's, for each problem that both computed and that `counts`."""
    peers = {row["asked"]: row["ns"] for row in read(f"{FOLDER}/{name}_peers.json") if row["peer"] == peer and row.get("right") and "ns" in row}
    return [peers[row["asked"]] / row["ns"] for row in read(f"{FOLDER}/{name}.json") if "ns" in row and row["asked"] in peers and counts(row)]


def packed(read, run="packed", titles=PACKED_PEERS):
    """Packed batches of a run beside the peers that `titles` names."""
    peers = {(row["peer"], row["asked"]): row["ns"] for row in read(f"packed-h100/{run}_peers.json") if row.get("right") and "ns" in row}
    body, columns = [], {peer: [] for peer in titles}
    for row in read(f"packed-h100/{run}.json"):
        ratios = {peer: peers[peer, row["asked"]] / row["ns"] for peer in columns if (peer, row["asked"]) in peers}
        for peer, ratio in ratios.items():
            columns[peer].append(ratio)
        body.append([row["asked"], row["sequences"], row["tokens"], row["longest"], row["mask"], us(row), f"{row['tflop_s']:.0f}",
                     *(number(ratios.get(peer)) for peer in columns)])
    if not body:
        return ""
    body.append(["geometric mean", *[""] * 6, *(number(mean(ratios)) for ratios in columns.values())])
    return markdown(["batch", "sequences", "tokens", "longest", "mask", "us", "TFLOP/s", *titles.values()], body)


def packed_backward(read):
    return packed(read, "packed_backward", {"varlen": PEERS["varlen"]})


def packed_sorted(read):
    """Gradients of packed batches by a build that may take the longest tiles first, and by one before it, in one run."""
    before = {row["asked"]: row["ns"] for row in read("packed-h200/packed_backward_unsorted.json")}
    body = [[row["asked"], row["sequences"], row["tokens"], row["longest"], "yes" if "sorted=1" in row["config"] else "no", us(row),
             f"{before[row['asked']] / 1000:.1f}", number(before[row["asked"]] / row["ns"])] for row in read("packed-h200/packed_backward.json")]
    return body and markdown(["batch", "sequences", "tokens", "longest", "longest tiles first, by its tune", "us", "before, us", "before / now"], body)


def serving(read):
    steps, graph = read("packed-h100/serving.json")
    return markdown(["shown", "result"], [
        [f"{steps['steps']:,} steps of one bucket; offsets, scale, cap, window, diagonal, longest query and batch strides change", f"{steps['looked_up']} look-up, {steps['hot']} hits, {steps['tunes']} tunes, {steps['compiles']} compiles"],
        [f"one graph over {graph['batches']} random batches, beside eager launches", f"{graph['same_bits']} of {graph['batches']} equal bit for bit"],
        ["the graph's time over the eager launch's, host included", f"median {graph['ratio']:.2f}, largest {graph['largest_ratio']:.2f}"]])


def tunes(read):
    """Each op's buckets: what a tune takes, whether two agree, and regret at lengths drawn along all axes."""
    rows = read(f"{FOLDER}/attention_tunes.json")
    body = []
    for op in dict.fromkeys(row["op"] for row in rows):
        some = [row for row in rows if row["op"] == op]
        body += two_tunes(op, sum("bucket" in row or "error" in row for row in some), some)
    return markdown([*TWO_TUNES[:1], "buckets", *TWO_TUNES[2:]], body) if body else ""


def splits(read):
    """torch's memory-efficient backward with its default count of splits of keys, and with one, beside Kiln. * marks results outside the tolerance, which no mean counts."""
    peers = {(row["peer"], row["asked"]): row for row in read("splits-h100/attention_splits_peers.json") if "ns" in row}
    body, columns = [], ([], [])
    for row in read("splits-h100/attention_splits.json"):
        both = [peers.get((peer, row.get("asked"))) for peer in ("default", "one")]
        if "ns" not in row or None in both:
            continue
        ratios = both[0]["ns"] / row["ns"], both[1]["ns"] / both[0]["ns"]
        right = all(each["right"] for each in both)
        for column, ratio in zip(columns, ratios) if right else ():
            column.append(ratio)
        star = "" if right else " *"
        body.append([*named(row)[:-1], us(row), *(f"{each['ns'] / 1000:.0f}{star}" for each in both), *(f"{ratio:.1f}{star}" for ratio in ratios)])
    if not body:
        return ""
    body.append(["geometric mean", *[""] * 7, *(number(mean(column), ".1f") for column in columns)])
    return markdown(["batch", "queries and keys", "heads", "dimension", "mask", "us", "torch, us", "torch with one split, us", "torch / Kiln",
                     "one split / torch's own count"], body)


def splits_found(read):
    """What the commands say of a record whose count of splits was edited."""
    explained = re.search(r"^idle +(.*)$", read.text("splits-h100/splits_explained.txt"), re.M)
    heads, cells = ([re.split(r"\s{2,}", line) for line in read.text("splits-h100/splits_found.txt").splitlines()] + [[], []])[:2]
    timed = dict(zip(heads, cells))
    if not explained or "found" not in timed:
        return ""
    return markdown(["a record with edited splits", f"`{timed['config']}` of {timed['op']}"], [
        ["`kiln explain`, before anything is timed", explained[1]],
        ["`kiln bench records`", f"stored {timed['stored']}, now {timed['now']}; {timed['found']}"]])


PLAIN = ("attention", "attention_backward", "attention_drawn_forward", "attention_drawn_backward")
TABLES = {"attention_tunes": tunes, "attention_e4m3": e4m3, "e4m3_profile": e4m3_profile, "packed": packed, "packed_backward": packed_backward, "packed_sorted": packed_sorted, "serving": serving, "attention_splits": splits,
          "splits_found": splits_found} | {name: lambda read, name=name: table_of(read, name) for name in PLAIN} | {"attention_models": lambda read: table_of(read, "attention_models", MODELS_PEERS),
             "attention_heads_forward": lambda read: table_of(read, "attention_heads_forward", HEADS_PEERS),
             "attention_heads_backward": lambda read: table_of(read, "attention_heads_backward", {"cudnn": PEERS["cudnn"]})}
