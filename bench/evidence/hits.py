"""The host's cost of a hot launch."""
from evidence.table import markdown

FOLDERS = ("hits-h100",)
THREADS = (2, 4, 8)
STAGES = {"bucket": "bucket_ns", "look up": "look_up_ns", "frame": "frame_ns", "admission": "admission_ns", "geometry and arguments": "geometry_and_arguments_ns",
          "the same with a new descriptor": "geometry_arguments_and_new_descriptor_ns"}


def problems(read):
    """A problem's launches, by way and threads, and its stages, which come last. Of an earlier run those alone that the later one lacks."""
    known = set()
    for folder in FOLDERS:
        ways = {}
        for row in read(f"{folder}/hit_latency.json"):
            if row["bench"] == "hit_latency":
                ways[row["way"], row["threads"]] = {**row, "device": folder.split("-")[1].upper(), "mark": getattr(row, "mark", "")}
            else:
                one = next(iter(ways.values()))
                if (which := (one["device"], one["op"], one["implementation"])) not in known:
                    known.add(which)
                    yield ways, row
                ways = {}


def is_comparable(ways):
    """Whether it stood beside a bare launch: a library's plan once stood beside nothing, of 2 ns."""
    return next(iter(ways.values()))["median_ns"] > 100


def title(ways):
    row = next(iter(ways.values()))
    return f"{row['op']} by `{row['implementation']}`, {row['device']}" + (f" {row['mark']}" if row["mark"] else "")


def hits(read):
    body = []
    for ways, _ in problems(read):
        one = lambda way: ways.get((way, 1), {"over_bare_ns": "-"})
        if not is_comparable(ways):
            body.append([title(ways), *["-"] * 7, max(row["allocations"] for row in ways.values())])
            continue
        body.append([title(ways), next(iter(ways.values()))["median_ns"], one("Op::launch, hot")["over_bare_ns"], one("Plan::launch")["over_bare_ns"],
                     one("Op::bind, Op::launch")["over_bare_ns"], one("kiln_launch")["over_bare_ns"],
                     one("bare after 50 multiplications")["over_bare_ns"], ", ".join(f"{ways['Op::launch, hot', count]['ratio']:.2f}" for count in THREADS),
                     max(row["allocations"] for row in ways.values())])
    told = markdown(["medians, ns", "bare launch", "Op::launch, over bare", "Plan::launch, over bare", "Op::bind and Op::launch, over bare", "kiln_launch, over bare", "50 multiplications and bare, over bare",
                     "Op::launch / bare with 2, 4, 8 threads", "allocations"], body)
    return told + ("\nThat build timed a library's plan beside nothing, so it has no figures here.\n" if any(row[1] == "-" for row in body) else "")


def hits_peers(read):
    return markdown(["host cost of a launch, ns", "median", "best"], [[row["way"], row["median_ns"], row["best_ns"]] for row in read("hits-h100/hit_latency_peers.json")])


def hit_stages(read):
    body = [[title(ways), *(stages.get(field, "-") for field in STAGES.values())] for ways, stages in problems(read)]
    return markdown(["each stage alone, ns", *STAGES], body)


def hit_instructions(read):
    rows = read("hit-instructions/callgrind_hit.json")
    stages = [name for name, value in rows[0].items() if isinstance(value, dict)]
    return markdown(["instructions, as callgrind counts", *stages], [[row["op"], *(row[stage]["instructions"] for stage in stages)] for row in rows])


TABLES = {"hits": hits, "hits_peers": hits_peers, "hit_stages": hit_stages, "hit_instructions": hit_instructions}
