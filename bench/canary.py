#!/usr/bin/env python3
"""Times a tenth of the evidence again, by default commands: whether figures still hold on this build, driver and board.

    bench/canary.py BUILD OUT --device h100 [--seed S] [--share 0.1] [--only FILE...]

Draws problems of each file that FILES names, by the seed (the commit unless given), at least two a file; times them and their peers by the programs that
made the file; writes OUT/canary.jsonl, a line a problem and peer, with what Kiln launched. `was` and `now` are ratios of the peer's time over Kiln's, as the tables show them. A line holds
where they differ by 3 % at most. bench/stamp.py canary FILE... puts that file among the claims; evidence/marks.py lifts marks by it.
"""
import argparse
import dataclasses
import hashlib
import json
import math
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench"))
APART = 0.03


@dataclasses.dataclass
class File:
    claim: str
    name: str
    peers: str = ""     # file of the peers' rows
    script: str = ""    # that made it, reading problems
    words: tuple = ()   # of its command line
    partner: tuple = () # the problem beside which a row stands, as a replacement of text
    world: int = 0      # ranks of a team


FILES = [File("attention-h100", "attention", "attention_peers", "attention.py"),
         File("attention-h100", "attention_backward", "attention_backward_peers", "attention_backward.py"),
         File("attention-h100", "attention_models", "attention_models_peers", "attention_backward.py", ("--peers", "cudnn,flash4")),
         File("attention-h100", "attention_heads_backward", "attention_heads_backward_peers", "attention_backward.py", ("--peers", "cudnn")),
         File("attention-h100", "attention_e4m3", partner=("dtype=e4m3", "dtype=bf16")),
         File("decode-h100", "decode", "decode_peers", "attention_decode.py"),
         File("products-h100", "products", "products_peers", "products.py"),
         File("team-h200", "team", "team_peers", "team.py", world=2),
         File("team-h200", "team_skew", "team_skew_peers", "team.py", ("--skew",), world=2),
         File("team-h200", "team4", "team4_peers", "team.py", world=4),
         *(File("tuner-h100", f"pairs_{dtype}") for dtype in ("f16", "e4m3"))]


def rows_of(file, name):
    path = ROOT / "bench/results" / file.claim / f"{name}.json"
    return [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")] if path.is_file() else []


def line_of(row):
    """The problem of a row, as a list of bench/problems has it."""
    asked = row.get("asked") or row.get("problem") or " ".join(f"{axis}={row[axis]}" for axis in ("groups", "batch", "m", "n", "k", "layout") if axis in row)
    return asked if "=" not in asked.split()[0] else f"{row.get('op', 'gemm')} {asked}"


def drawn(file, rows, seed, share):
    """A tenth of the problems, by the digest of each."""
    asked = sorted({line_of(row) for row in rows if "ns" in row or "best_over_kiln" in row}, key=lambda line: hashlib.sha256(f"{seed} {file.claim} {line}".encode()).digest())
    return asked[:max(2, math.ceil(share * len(asked)))]


def ratios(rows, peers):
    """By problem and peer, the peer's time over Kiln's."""
    own = {line_of(row): row["ns"] for row in rows if "ns" in row}
    return {(line_of(row), row["peer"]): row["ns"] / own[line_of(row)] for row in peers if row.get("right", True) and "ns" in row and line_of(row) in own}


def pair_ratios(rows):
    return {(line_of(row), "cublaslt"): row["best_over_kiln"] for row in rows if "best_over_kiln" in row}


def partner_ratios(file, rows):
    own = {line_of(row): row["ns"] for row in rows if "ns" in row}
    return {(line, "bf16"): own[line.replace(*file.partner)] / ns for line, ns in own.items() if file.partner[0] in line and line.replace(*file.partner) in own}


class Canary:
    def __init__(self, asked):
        self.asked, self.out = asked, pathlib.Path(asked.out)
        self.out.mkdir(parents=True, exist_ok=True)
        said = subprocess.run([f"{asked.build}/src/cli/kiln", "--version"], capture_output=True, text=True, check=True).stdout
        self.build = said.split(", build ")[1].split()[0]
        self.environment = os.environ | {"KILN_WORKER": f"{asked.build}/src/cli/kiln-worker", "KILN_BENCH_BUILD": self.build}

    def run(self, name, command, lines):
        """The rows that a command prints of these problems, which it reads from a file or, without {}, from standard input."""
        problems, log = self.out / f"{name}.txt", self.out / f"{name}.json"
        problems.write_text("".join(f"{line}\n" for line in lines))
        with problems.open() as given, log.open("w") as printed, (self.out / f"{name}.err").open("w") as errors:
            try:
                subprocess.run([word.replace("{}", str(problems)) for word in command], stdin=given, stdout=printed, stderr=errors, env=self.environment, cwd=ROOT, timeout=self.asked.limit, check=False)
            except subprocess.TimeoutExpired as late:  # what was printed counts
                print(f"{name}: {late}", file=sys.stderr)
        return [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{") and line.endswith("}")]

    def kiln(self, program, name, lines, *words):
        shipped = f"cache/{self.asked.device}.jsonl"
        return self.run(name, [f"{self.asked.build}/bench/{program}", *(("--base", shipped) if program == "bench_throughput" else ()), "--overlay", str(self.out / "canary.kiln"), "--problems", "{}", *words], lines)

    def of(self, file):
        """The canary's lines of a file."""
        was, versions = rows_of(file, file.name), {}
        lines = drawn(file, was, self.asked.seed, self.asked.share)
        name = f"{file.claim}_{file.name}"
        if file.name.startswith("pairs_"):
            dtype = file.name.split("_")[1]
            lines = [" ".join(word for word in line.split() if word.split("=")[0] in ("gemm", "m", "n", "k")) for line in lines]
            now = self.kiln("bench_gemm", name, lines, f"dtype={dtype}", *(["scaling=tensor"] if dtype == "e4m3" else []))
            versions = {"cublaslt": row["library"].removeprefix("cuBLASLt ") for row in now if "library" in row}
            before, after = ({(self.sizes(line), peer): ratio for (line, peer), ratio in pair_ratios(rows).items()} for rows in (was, now))
        elif file.partner:
            lines = [line for line in lines if file.partner[0] in line] or lines[:1]
            now = self.kiln("bench_throughput", name, lines + [line.replace(*file.partner) for line in lines])
            before, after = (partner_ratios(file, rows) for rows in (was, now))
        else:
            ranks = ["--world", str(file.world)] if file.world else []
            now = self.kiln("bench_team", name, lines, *ranks, *file.words) if ranks else self.kiln("bench_throughput", name, lines)
            peers = self.run(f"{name}_peers", ["python3", f"bench/peers/{file.script}", *ranks, *file.words], lines)
            before, after = ratios(was, rows_of(file, file.peers)), ratios(now, peers)
            versions = {name: version for row in peers for name, version in row.get("versions", {}).items()}
        for key, ratio in after.items():
            if key in before:
                timed = next((row for row in now if line_of(row) == key[0]), {})
                yield {**{field: timed[field] for field in ("op", "problem", "implementation", "config") if field in timed}, "claim": file.claim, "file": f"{file.name}.json", **({"peers": f"{file.peers}.json"} if file.peers else {}), "asked": key[0], "peer": key[1], "was": round(before[key], 4), "now": round(ratio, 4),
                       "holds": abs(ratio / before[key] - 1) <= APART, "build": self.build, "versions": versions}
        missing = {line for line in lines} - {key[0] for key in after} if not file.name.startswith("pairs_") and not file.partner else set()
        for line in sorted(missing):
            print(f"{file.claim}/{file.name}: no answer for {line}", file=sys.stderr)

    @staticmethod
    def sizes(line):
        return " ".join(word for word in line.split() if word.split("=")[0] in ("gemm", "m", "n", "k"))


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("build")
    options.add_argument("out")
    options.add_argument("--device", required=True, choices=("h100", "h200"))
    options.add_argument("--seed", default="")
    options.add_argument("--share", type=float, default=0.1)
    options.add_argument("--limit", type=int, default=120, help="seconds a command; the problems that it reached count")
    options.add_argument("--only", nargs="*", default=[])
    asked = options.parse_args()
    asked.seed = asked.seed or subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    canary = Canary(asked)
    with (canary.out / "canary.jsonl").open("w") as told:
        for file in FILES:
            if file.claim.endswith(asked.device) and (not asked.only or file.name in asked.only):
                for row in canary.of(file):
                    print(json.dumps(row), file=told, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
