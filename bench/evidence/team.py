"""What two GPUs of one host offer a team of ranks."""
from evidence.table import markdown

STORED = "team-h200/team_probe.json"
BLOCKS = (1, 2, 4, 8, 16, 32, 132)
TITLES = {("bulk", "constant"): "bulk stores of shared memory", ("bulk", "memory"): "bulk copies", ("vector", "constant"): "16-byte stores of registers",
          ("vector", "memory"): "16-byte copies"}


def of(read, probe):
    return [row for row in read(STORED) if row["probe"] == probe]


def push(read):
    rates = {}
    for row in of(read, "push"):
        rates.setdefault((row["store"], row["source"], row["chunk_bytes"], row["stages"]), {})[row["blocks"]] = row["gb_per_second"]
    body = [[f"{TITLES[store, source]}, {chunk:,} bytes x {stages}" if store == "bulk" else TITLES[store, source], *(f"{found[blocks]:.0f}" for blocks in BLOCKS)]
            for (store, source, chunk, stages), found in rates.items()]
    return markdown(["GB/s to the peer, by blocks", *map(str, BLOCKS)], body) if body else ""


def copy(read):
    one, both = ({row[size]: row[rate] for row in of(read, probe)} for probe, size, rate in
                 (("copy_engine", "bytes", "gb_per_second"), ("copy_engine_both_ways", "bytes_each", "gb_per_second_each")))
    if not one:
        return ""
    return markdown(["copy engine, GB/s", *(f"{size / 2**20:g} MiB" for size in one)],
                    [["one way", *(f"{rate:.0f}" for rate in one.values())], ["both ways, each", *(f"{both[size]:.0f}" for size in one)]])


def facts(read):
    rounds = {}
    for row in of(read, "flag_round_trip"):
        rounds.setdefault((row["data_bytes"], row["checked"]), []).append(row["ns_per_round"])
    body = [[f"a flag's round trip{f' with {size:,} bytes before it' if size else ''}{', loaded and compared by the peer' if checked else ''}", f"{sorted(ns)[len(ns) // 2]:,} ns"]
            for (size, checked), ns in rounds.items()]
    for row in of(read, "dead_exporter"):
        body.append([f"exporter killed while {row['exporter']}: {row['phase']}", row["result"] + ("" if "wrong_words" not in row else f", {row['wrong_words']} wrong words")])
    for row in of(read, "restricted_visibility"):
        body.append([f"rank {row['rank']} sees {row['devices_seen']} GPU, writes to the other's memory, and reads what it wrote there", f"{row['write']}, {row['read']}, {row['wrong_words']} wrong words"])
    return markdown(["asked", "found"], body) if body else ""


TABLES = {"team_push": push, "team_copy": copy, "team_facts": facts}
