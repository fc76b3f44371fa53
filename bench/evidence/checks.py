"""What must hold of the evidence and of the documents that show it, as sentences about what does not."""
import json
import re
import tomllib

from evidence import claim, digests
from evidence.claim import Claim, folders
from evidence.marks import EQUAL

# Which list of bench/problems a file answers, line by line.
PROBLEMS = {"attention.json": "attention.txt", "attention_backward.json": "attention_backward.txt", "attention_models.json": "attention_models.txt",
            "attention_e4m3.json": "attention_e4m3.txt", "attention_heads_forward.json": "attention_heads_forward.txt", "attention_heads_backward.json": "attention_heads_backward.txt", "decode.json": "attention_decode.txt", "decode_e4m3.json": "attention_decode_e4m3.txt", "family.json": "family.txt", "family_turns.json": "family_turns.txt", "products.json": "products.txt",
            "team.json": "team.txt", "team4.json": "team4.txt", "team8.json": "team8.txt", "team_few.json": "team_few.txt", "team4_few.json": "team4_few.txt", "team_skew.json": "team_skew.txt", "team_parts.json": "team_parts.txt"}
SPAN = re.compile(r"<!-- table: \w+ -->.*?<!-- end -->|<!-- figure: \w+ -->.*?<!-- end -->|```.*?```|`[^`]*`|^\|.*?$|^#.*?$|\]\([^)]*\)|\((?:aim|limit) [^)]*\)|(?:Ubuntu|Debian|CUDA|NVRTC|CMake|FlashInfer|torch) [\d.]+|<!--.*?-->", re.S | re.M)
# What was measured: a decimal, a percentage, a time or a rate. Sizes, versions, aims and limits in brackets, and what an op is asked are none.
FIGURE = re.compile(r"(?<![\w./-])\d[\d,]*\.\d\d+(?![\w.])|(?<![\w.])\d[\d,.]*\s?(?:%|us|ns|ms|TFLOP/s|GB/s)(?!\w)")
EARLIER = "earlier.tsv"  # runs from before rows had their build: folder, data, commit


def of_claims():
    known = {tuple(line.split("\t")[:2]): line.split("\t")[2] for line in (claim.RESULTS / EARLIER).read_text().splitlines()} if (claim.RESULTS / EARLIER).is_file() else {}
    for folder in folders():
        read = Claim.read(folder)
        yield from read.wrong()
        yield from of_draws(folder)
        for run in read.run:
            if all((claim.RESULTS / folder / name).is_file() for name in run.files):
                yield from of_build(folder, run, known)
                yield from of_problems(folder, run)
    yield from of_equal()
    for path in claim.RESULTS.iterdir():
        if path.is_dir() and not (path / "claim.toml").is_file():
            yield f"bench/results/{path.name} has no claim.toml"


def of_equal():
    """A benign change is of a bench alone, with a reason, and is dropped once the code has changed again or no run speaks of it."""
    path = claim.RESULTS / EQUAL
    spoken = {(name, digest) for folder in folders() for run in Claim.read(folder).run for name, digest in run.code.items()}
    for each in tomllib.loads(path.read_text())["equal"] if path.is_file() else []:
        name = f"bench/results/{EQUAL}: {each['code']} of {each['was']}"
        if not each["code"].startswith("bench/") or not each.get("why"):
            yield f"{name}: expected code of bench/ and why it is equal"
        elif digests.of_code(each["code"]) != each["is"] or (each["code"], each["was"]) not in spoken:
            yield f"{name}: the code has changed again, or no run has this digest: leave it out"


def rows_of(folder, run):
    for name in run.files:
        if name.endswith((".json", ".jsonl")):
            for line in (claim.RESULTS / folder / name).read_text().splitlines():
                if line.startswith("{"):
                    yield name, json.loads(line)


def of_build(folder, run, known):
    """A run's commit is what its rows say, else what is known of runs from before rows said it."""
    builds = {row["build"] for _, row in rows_of(folder, run) if row.get("build")}
    if run.kind == "function":  # made by CI
        return
    if builds:
        if problem := why_not(builds, run.commit):
            yield f"bench/results/{folder}: {', '.join(run.files)}: {problem}"
    elif known.get((folder, run.data)) != run.commit:
        yield f"bench/results/{folder}: {', '.join(run.files)}: no row says its build, so commit = \"{run.commit}\" cannot be checked; measure again by bench/run"


def why_not(builds, commit):
    """Why rows of these builds are not of this commit; "" where they are."""
    if len({name_of(build) for build in builds}) > 1:
        return f"rows are of several builds ({', '.join(sorted(builds))})"
    build = next(iter(builds))
    if build.endswith("-dirty") or build == "unknown":
        return f"rows are of the build {build}, expected a commit without changes"
    name = name_of(build)
    return "" if commit and (commit.startswith(name) or name.startswith(commit)) else f"rows are of the build {build}, claim.toml says {commit or 'none'}"


def name_of(build):
    """The commit in what git describe says."""
    return build.rsplit("-g", 1)[-1]


def of_draws(folder):
    """Each pair that was drawn has a row in one of the files of its type. left_out may say "FILE after N: reason": then the first N have, and no other."""
    for drawn in sorted((claim.RESULTS / folder).glob("pairs_*.txt")):
        axes = ("m=", "n=", "k=")
        of = lambda text: frozenset(word for word in text.split("#")[0].split() if word.startswith(axes))
        answered = {of(json.loads(line)["problem"]) for path in (claim.RESULTS / folder).glob(f"{drawn.stem}*.json") for line in path.read_text().splitlines()}
        ended = [int(found[1]) for run in Claim.read(folder).run for text in run.left_out if (found := re.match(rf"{re.escape(drawn.name)} after ([1-9]\d*): ", text))]
        pairs = [line for line in drawn.read_text().splitlines() if line.startswith("gemm")]
        count = min(ended, default=len(pairs))
        for line in pairs[:count]:
            if of(line) not in answered:
                yield f"bench/results/{folder} has no row of '{line.split('#')[0].strip()}', which {drawn.name} drew"
        if answered & {of(line) for line in pairs[count:]} - {of(line) for line in pairs[:count]}:
            yield f"bench/results/{folder} has rows of {drawn.name} past the {count} after which left_out says that it ended"


def of_problems(folder, run):
    """Each problem of the list has a row, or a reason in left_out."""
    for name in run.files:
        if name not in PROBLEMS or not (digests.ROOT / "bench/problems" / PROBLEMS[name]).is_file():
            continue
        answered = [set((row.get("op", "") + " " + row.get("asked", row.get("problem", ""))).split()) for of, row in rows_of(folder, run) if of == name]
        for line in (digests.ROOT / "bench/problems" / PROBLEMS[name]).read_text().splitlines():
            asked = line.split("#")[0].strip()
            if asked and not any(set(asked.split()) <= each for each in answered) and not any(reason.startswith(asked + ":") for reason in run.left_out):
                yield f"bench/results/{folder}/{name} has no row of '{asked}' (bench/problems/{PROBLEMS[name]}), and left_out no reason"


def of_prose(document, text):
    """Figures outside of tables and of spans that bench/tables.py writes."""
    for number, line in enumerate(SPAN.sub(lambda found: "\n" * found[0].count("\n"), text).split("\n"), 1):
        if found := FIGURE.search(line):
            yield f"{document}:{number}: the figure '{found[0]}' stands in prose; name it by <!-- figure: NAME --> of bench/tables.py, or leave it to the table"


def of_table(document, name, shown):
    if "Not measured yet" in shown or not re.search(r"\w", shown):
        yield f"{document}: table {name} is empty"
    lines = [line for line in shown.splitlines() if line.startswith("|")]
    if lines and len(lines) < 3:
        yield f"{document}: table {name} has no line"
