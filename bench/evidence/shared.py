"""What stores that machines share withstand, by a folder and by a Redis server: bench/shared-store.

A zero that no row has is what the tests checked that wrote the rows: the run fails where one of them does.
"""
from evidence.table import markdown

FILE = "shared-store/shared.jsonl"


def shared_store(read):
    rows = read(FILE)
    of = lambda what, back_end: next((row for row in rows if row["what"] == what and row.get("back_end", back_end) == back_end), None)
    body = []

    def line(text, what, tell, only=("folder", "server")):
        found = [of(what, back_end) if back_end in only else None for back_end in ("folder", "server")]
        if any(found):
            body.append([text.format(**(found[0] or found[1])), *(tell(row) if row else "-" for row in found)])

    line("tunes of {machines} machines that meet {buckets} cold buckets at once", "machines", lambda row: row["tunes"])
    line("a new machine then meets all {buckets}: tunes, compiles, time", "machines", lambda row: f"{row['late_tunes']}, {row['late_compiles']}, {row['late_seconds']:.2f} s")
    line("tunes if the server begins again empty meanwhile", "restart", lambda row: row["tunes"], ("server",))
    line("a bucket of a killed machine is tuned by another after", "takeover", lambda row: f"{row['seconds']:.1f} s")
    line("launches while the store stops or fails: how many, failed, the longest with its own tune", "launches", lambda row: f"{row['stops']:,}, 0, {row['longest_seconds']:.2f} s")
    line("operations under {stops:,} stops: how many, values lost", "operations", lambda row: f"{row['operations']:,}, 0", ("server",))
    line("writers killed inside operations: how many, values torn or worse", "kills", lambda row: f"{row['writers']:,}, 0", ("folder",))
    line("values spoilt or made up: how many, served", "hostile", lambda row: f"{row['values'] + row['made_up']:,}, {row['served']}", ("folder",))
    line("tunes of {machines} machines in namespaces of their own, of {buckets} buckets", "namespaces", lambda row: row["tunes"])
    hits = [row for row in rows if row["what"] == "hits"]
    if hits:
        apart = max(abs(row["shared"] - row["alone"]) for row in hits)
        body.append([f"instructions more of a hot launch, the most of {len(hits)} ops", apart, "-"])
    return markdown(["", "folder", "server"], body)


TABLES = {"shared_store": shared_store}
