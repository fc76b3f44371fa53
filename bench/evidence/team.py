"""What two GPUs of one host offer a team of ranks, and ops of a team beside NCCL and torch."""
from evidence.table import markdown, number, us, words

STORED = "team-h200/team_probe.json"
BLOCKS = (1, 2, 4, 8, 16, 32, 132)
LATE_US = ("0", "50", "500", "100000")
COLLECTIVES = {"all_gather_gemm": ("all_gather", "k"), "gemm_reduce_scatter": ("reduce_scatter", "n")}  # of a fused product, and which size its columns are
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


def compared(read, run="team"):
    """The rows of ops that a run timed, each with its peers' by name; "nccl" is the fastest that begins with it."""
    peers = {}
    for row in read(f"team-h200/{run}_peers.json"):
        if row.get("right") and "ns" in row:
            of, peer = peers.setdefault(row["asked"], {}), row["peer"].split(" ")[0]
            if peer not in of or row["ns"] < of[peer]["ns"]:
                of[peer] = row
    return [(row, peers.get(row["asked"], {})) for row in read(f"team-h200/{run}.json") if "ns" in row]


def best_of_peers(peers):
    """Nanoseconds of the fastest peer: NCCL with a library, or torch's fused op."""
    return min(row["ns"] for row in peers.values())


def over(rows, peer, field="ns"):
    """Each problem's time by a peer over that by Kiln."""
    return [peers[peer][field] / row[field] for row, peers in rows if peer in peers]


def ops(read, run="team", ranks="two"):
    body = [[row["asked"], us(row), *(number(peers[peer]["ns"] / row["ns"]) if peer in peers else "-" for peer in ("nccl", "fused")),
             f"{row['host_us']:.1f}", *(f"{peers[peer]['host_us']:.0f}" if peer in peers else "-" for peer in ("nccl", "fused")), number(row["replayed_ns"] / row["ns"])]
            for row, peers in compared(read, run)]
    return markdown([f"problem, of each of {ranks} ranks", "Kiln, us", "torch with NCCL, without NVLS / Kiln", "torch's fused op / Kiln", "host time of a launch, us", "by NCCL", "by torch's fused op",
                     "replayed / launched"], body) if body else ""


def few(read, run="team_few", ranks="two"):
    """Sums of few bytes beside every way that torch has for them."""
    body = [[row["asked"], row["implementation"], us(row), *(number(peers[peer]["ns"] / row["ns"]) if peer in peers else "-" for peer in ("nccl", "one_shot", "two_shot")), f"{row['host_us']:.1f}"]
            for row, peers in compared(read, run)]
    return markdown([f"problem, of each of {ranks} ranks", "implementation", "Kiln, us", "torch with NCCL, without NVLS / Kiln", "torch's one-shot / Kiln", "torch's two-shot / Kiln", "host time of a launch, us"], body) if body else ""


def skew(read):
    """Ranks that begin apart: Kiln's times by the last rank's delay, and the peers' times over these, in the same order."""
    body = []
    for row, peers in compared(read, "team_skew"):
        own = row["skewed_ns"]
        ratios = [", ".join(number(peers[peer]["skewed_ns"][late] / own[late]) for late in LATE_US) if peer in peers else "-" for peer in ("nccl", "fused")]
        body.append([row["asked"], us(row), *(f"{own[late] / 1000:.1f}" for late in LATE_US), *ratios])
    return markdown(["problem, of each of two ranks", "Kiln, us", *(f"{int(late):,} us apart" for late in LATE_US), "torch with NCCL, without NVLS / Kiln, at each", "torch's fused op / Kiln, at each"],
                    body) if body else ""


def parts_of(row):
    """The product and the collective of a fused product, as bench/problems/team_parts.txt asks for each; nothing for other rows."""
    op, size = row["asked"].split()[0], words(row["asked"])
    if op not in COLLECTIVES:
        return []
    collective, cols = COLLECTIVES[op]
    return [f"gemm m={row['world'] * int(size['rows'])} n={size['n']} k={size['k']} dtype={size['dtype']}", f"{collective} rows={size['rows']} cols={size[cols]} dtype={size['dtype']}"]


def parts(read):
    """Fused products beside their product alone and their collective alone: what hides entirely takes the larger part's time."""
    rows = {row["asked"]: row for row in read("team-h200/team_parts.json") if "ns" in row}
    body = []
    for row in rows.values():
        if asked := parts_of(row):
            alone = [rows[part]["ns"] if part in rows else None for part in asked]
            shares = [of(alone) / row["ns"] if None not in alone else None for of in (max, sum)]
            body.append([row["asked"], row["implementation"], *(number(ns and ns / 1000, ".1f") for ns in (row["ns"], *alone)), *map(number, shares)])
    return markdown(["problem, of each of two ranks", "implementation", "whole, us", "product alone, us", "collective alone, us", "larger part / whole", "sum of parts / whole"], body) if body else ""


def team_faults(read):
    said = {"counts": lambda row: ["launches of captured graphs, random counts on each rank, 0 among them", row["launches"], f"{row['wrong']} wrong, {row['tunes']} tunes, {row['compiles']} compiles", "-"],
            "late": lambda row: [f"a rank leaves a launch out (time-out {row['timeout_ms']} ms)", row["faults"], f"{row['told']} reported, {row['served']} served after a reset", f"{row['longest_ms']:.0f} ms"],
            "killed": lambda row: [f"a rank is killed while it launches (time-out {row['timeout_ms'] // 1000} s)", row["faults"], f"{row['told']} reported", f"{row['longest_ms']:.0f} ms"]}
    body = [said[row["item"]](row) for row in read("team-h200/team_faults.json")]
    return markdown(["what", "how often", "outcome", "longest until the error"], body) if body else ""


TABLES = {"team_push": push, "team_copy": copy, "team_facts": facts, "team_ops": ops, "team_ops4": lambda read: ops(read, "team4", "four"), "team_drawn4": lambda read: ops(read, "team4_drawn", "four"), "team_again4": lambda read: ops(read, "team4_again", "four"),
          "team_again": lambda read: ops(read, "team_again"), "team_again4_2": lambda read: ops(read, "team4_again_2", "four"),
          "team_models4": lambda read: ops(read, "team4_models", "four"), "team_ops8": lambda read: ops(read, "team8", "eight"), "team_few": few, "team_few4": lambda read: few(read, "team4_few", "four"), "team_skew": skew,
          "team_parts": parts, "team_faults": team_faults}
