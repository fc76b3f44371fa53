"""attention_decode beside the rate at which torch reads as many bytes, torch's FlashAttention-2 backend and FlashInfer."""
from evidence.table import markdown, mean, number, us, words

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
    peers, rows = times(read), read(f"{FOLDER}/decode.json")
    shown = [peer for peer in PEERS if any(each == peer for each, _ in peers)]  # one that could not be loaded has no column
    body, of_read, ratios = [], {}, {}
    for row in rows:
        size = words(row.get("asked", row["problem"]))
        named = [size["batch"], size["keys"], size["queries"], f"page {size['page_size']}" if "page_size" in size else size.get("layout", "contiguous")]
        if "ns" not in row:  # why, its line says
            body.append([*named, "no answer", *["-"] * (len(shown) + 2)])
            continue
        over = {peer: peers[peer, row["asked"]] / row["ns"] for peer in ("read", *shown) if (peer, row["asked"]) in peers}
        if "read" in over and row["bytes"] >= LARGE:
            of_read.setdefault(size["queries"], []).append(over["read"])
        for peer in shown:
            ratios.setdefault((size["queries"], peer), []).extend([over[peer]] if peer in over else [])
        body.append([*named, us(row), f"{row['gb_s']:.0f}", *(number(over.get(peer)) for peer in ("read", *shown))])
    for queries in sorted(of_read, key=int):
        body.append(["geometric mean", "", queries, "", "", "", f"{number(mean(of_read[queries]))} from 64 MB on", *(number(mean(ratios[queries, peer])) for peer in shown)])
    return markdown(["batch", "keys", "queries", "cache", "us", "GB/s", "of a read", *(PEERS[peer] for peer in shown)], body) if body else ""


def of_e4m3(read):
    """Rows of decode_e4m3 by problem, and nanoseconds by peer and problem."""
    rows = {row["asked"].removeprefix("attention_decode "): row for row in read(f"{FOLDER}/decode_e4m3.json") if "ns" in row}
    return rows, {(row["peer"], row["asked"]): row["ns"] for row in read(f"{FOLDER}/decode_e4m3_peers.json") if "ns" in row and row.get("right", True)}


def over_flashinfer(read, dtype=None):
    """FlashInfer's time over Kiln's, of each problem that it computed; over caches of one type, or of both."""
    rows, peers = of_e4m3(read)
    rows |= {row["asked"].removeprefix("attention_decode "): row for row in read(f"{FOLDER}/decode.json") if "ns" in row}
    peers |= times(read)
    return [peers["flashinfer", asked] / row["ns"] for asked, row in rows.items() if ("flashinfer", asked) in peers and dtype in (None, words(asked).get("cache_dtype", "bf16"))]


def decode_e4m3(read):
    """Each problem of e4m3 beside the same in bf16, a plain read of its own bytes, and FlashInfer in both types."""
    rows, peers = of_e4m3(read)
    body, of_read, gains = [], [], []
    ratios = {"e4m3": [], "bf16": []} if any(peer == "flashinfer" for peer, _ in peers) else {}  # one that was not there has no column
    for asked, row in rows.items():
        same = asked.removesuffix(" cache_dtype=e4m3")
        wide = rows.get(same)
        if wide is row or wide is None:
            continue
        size, share, gain = words(asked), peers["read", asked] / row["ns"], wide["ns"] / row["ns"]
        of_read += [share] if row["bytes"] >= LARGE else []
        gains.append(gain)
        over = {dtype: peers.get(("flashinfer", of)) and peers["flashinfer", of] / rows[of]["ns"] for dtype, of in (("e4m3", asked), ("bf16", same)) if dtype in ratios}
        for dtype, ratio in over.items():
            ratios[dtype] += [ratio] if ratio else []
        body.append([size["batch"], size["keys"], size["queries"], size["head_dim"], size["layout"], us(row), us(wide), number(gain), number(share), *map(number, over.values())])
    means = [number(mean(gains)), f"{number(mean(of_read))} from 64 MB on" if of_read else "", *(number(mean(each)) for each in ratios.values())] if body else []
    return markdown(["batch", "keys", "queries", "head dimension", "cache", "e4m3, us", "bf16, us", "bf16 / e4m3", "of a read", *(f"FlashInfer / Kiln, {dtype}" for dtype in ratios)],
                    body and [*body, ["geometric mean", *[""] * 6, *means]])


TABLES = {"decode": decode, "decode_e4m3": decode_e4m3}
