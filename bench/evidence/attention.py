"""Attention beside torch's cuDNN and FlashAttention-2 backends and its varlen_attn."""
from evidence.table import markdown, mean, number, us, words

FOLDER = "attention-h100"
PEERS = {"cudnn": "cuDNN / Kiln", "flash": "FlashAttention-2 / Kiln", "varlen": "torch `varlen_attn` / Kiln"}
MODELS_PEERS = {"cudnn": PEERS["cudnn"], "flash4": "FlashAttention-4 / Kiln"}
HEADS_PEERS = {"cudnn": PEERS["cudnn"], "flash3": "FlashAttention-3 / Kiln"}


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


def ratios_of(read, name, peer, counts=lambda row: True):
    """The peer's time over Kiln's, for each problem that both computed and that `counts`."""
    peers = {row["asked"]: row["ns"] for row in read(f"{FOLDER}/{name}_peers.json") if row["peer"] == peer and row.get("right") and "ns" in row}
    return [peers[row["asked"]] / row["ns"] for row in read(f"{FOLDER}/{name}.json") if "ns" in row and row["asked"] in peers and counts(row)]


PLAIN = ("attention", "attention_backward")
TABLES = {"attention_e4m3": e4m3} | {name: lambda read, name=name: table_of(read, name) for name in PLAIN} | {
    "attention_models": lambda read: table_of(read, "attention_models", MODELS_PEERS),
    "attention_heads_forward": lambda read: table_of(read, "attention_heads_forward", HEADS_PEERS),
    "attention_heads_backward": lambda read: table_of(read, "attention_heads_backward", {"cudnn": PEERS["cudnn"]})}
