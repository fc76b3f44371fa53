"""attention_decode beside the rate at which torch reads as many bytes, torch's FlashAttention-2 backend and FlashInfer."""
from evidence.table import markdown, mean, number, words

FOLDER = "decode-h100"
PEERS = {"flash": "FlashAttention-2 / Kiln", "flashinfer": "FlashInfer / Kiln"}
LARGE = 64e6  # bytes of keys and values from which on decode is to be bound by memory


def times(read):
    """Nanoseconds by peer and problem; "read" is a sum over as many bytes."""
    rows = read(f"{FOLDER}/decode_peers.json")
    return {(row["peer"], row["asked"]): row["ns"] for row in rows if "ns" in row and row.get("right", True)}


def shares_of_read(read):
    """A plain read's time over Kiln's, for each problem of LARGE bytes or more."""
    peers = times(read)
    return [peers["read", row["asked"]] / row["ns"] for row in read(f"{FOLDER}/decode.json") if "ns" in row and row["bytes"] >= LARGE and ("read", row["asked"]) in peers]


def decode(read):
    peers = times(read)
    body, columns, shares = [], {peer: [] for peer in PEERS}, []
    for row in read(f"{FOLDER}/decode.json"):
        size = words(row.get("asked", row["problem"]))
        named = [size["batch"], size["keys"], size["queries"], f"page {size['page_size']}" if "page_size" in size else size.get("layout", "contiguous")]
        if "ns" not in row:  # why, its line says
            body.append([*named, "no answer", *["-"] * (len(PEERS) + 2)])
            continue
        share = peers["read", row["asked"]] / row["ns"] if ("read", row["asked"]) in peers else None
        ratios = {peer: peers[peer, row["asked"]] / row["ns"] for peer in PEERS if (peer, row["asked"]) in peers}
        for peer, ratio in ratios.items():
            columns[peer].append(ratio)
        if share is not None and row["bytes"] >= LARGE:
            shares.append(share)
        body.append([*named, f"{row['ns'] / 1000:.1f}", f"{row['gb_s']:.0f}", number(share), *(number(ratios.get(peer)) for peer in PEERS)])
    if not body:
        return ""
    body.append(["geometric mean", *[""] * 5, f"{number(mean(shares))} from 64 MB on", *(number(mean(ratios)) for ratios in columns.values())])
    return markdown(["batch", "keys", "queries", "cache", "us", "GB/s", "of a read", *PEERS.values()], body)


TABLES = {"decode": decode}
