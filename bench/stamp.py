#!/usr/bin/env python3
"""Says in claim.toml which build, machine and command made files of a claim, after they were put into its folder.

    bench/stamp.py CLAIM FILE... --date D [--kind K] [--machine M] [--command C] [--name N] [--code PATH]... [--records PATH]... [--left-out TEXT]... [--claim LINE]

The build is what the rows say; rows of several builds, of a build with changes, or without a build are refused. The run that has the first
FILE is replaced, and what is not given stays as it had it; a new run takes kind, machine, command and code from the options. FILEs leave the
runs that had them. Digests of code and records are those at the build's commit; versions of peers are those of the rows. --code: beside the kernels,
whose code bench/present finds: the stopwatch and the peers' scripts. A canary's code is that of the runs it speaks of. --claim: one line, for a new folder.
"""
import argparse
import subprocess

from evidence import checks, digests, programs
from evidence.claim import KINDS, RESULTS, Claim, Run


DISTRIBUTIONS = {"liger-kernel": "liger", "quack-kernels": "quack"}  # the index's names, and those of bench/peers.lock


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", metavar="CLAIM")
    options.add_argument("files", nargs="+")
    options.add_argument("--kind", choices=list(KINDS))
    for name in ("date", "machine", "command", "name", "claim"):
        options.add_argument(f"--{name}", required=name == "date")
    for name in ("code", "records", "left-out"):
        options.add_argument(f"--{name}", action="append")
    asked = options.parse_args()
    if missing := [name for name in asked.files if not (RESULTS / asked.folder / name).is_file()]:
        options.error(f"bench/results/{asked.folder} has no {', '.join(missing)}")
    claim = Claim.read(asked.folder) if (RESULTS / asked.folder / "claim.toml").exists() else Claim(asked.folder, asked.claim or "", [])
    claim.claim = asked.claim or claim.claim
    had = next((run for run in claim.run if asked.files[0] in run.files), None)
    stays = had or Run([], "", "", "", "", "")
    run = Run(asked.files, *(getattr(asked, field) or getattr(stays, field) for field in ("command", "machine")), asked.date, "",
              digests.of_data([RESULTS / asked.folder / name for name in asked.files]), name=asked.name or stays.name, kind=asked.kind or stays.kind, left_out=asked.left_out or [])
    rows = list(checks.rows_of(asked.folder, run))
    run.commit = commit_of(rows, options)
    run.peers = {name: version for _, row in rows for name, version in versions_of(row)}
    run.code = {path: digests.of_code_at(path, run.commit) for path in asked.code or code_of_canary(rows) or stays.code}
    run.records = {path: digests.of_records(path, run.commit) for path in asked.records or stays.records}
    if not (claim.claim and run.command and run.machine and (run.code or run.records)):
        options.error("a new run needs --machine, --command and --code or --records, and a new folder --claim")
    at = claim.run.index(had) if had else len(claim.run)
    claim.run.insert(at, run)
    for other in claim.run:
        stay = [name for name in other.files if name not in asked.files and (RESULTS / asked.folder / name).exists()]
        if other is not run and stay != other.files:
            other.files, other.data = stay, digests.of_data([RESULTS / asked.folder / name for name in stay])
    claim.run = [each for each in claim.run if each.files]
    claim.write()
    if had and had.commit != run.commit:
        programs.forget(asked.folder, asked.files)


def versions_of(row):
    """Of the peers in a row; bench_gemm says its library's."""
    for name, version in row.get("versions", {}).items():
        yield DISTRIBUTIONS.get(name, name), version
    if row.get("library", "").startswith("cuBLASLt "):
        yield "cublaslt", row["library"].removeprefix("cuBLASLt ")


def code_of_canary(rows):
    """The code of all runs that a canary's rows speak of: it is as the canary's build has it that they held."""
    about = {(row["claim"], name) for _, row in rows if "holds" in row for name in (row["file"], row.get("peers", row["file"]))}
    return dict.fromkeys(path for folder, name in sorted(about) for run in Claim.read(folder).run if name in run.files for path in run.code)


def commit_of(rows, options):
    builds = {row["build"] for _, row in rows if row.get("build")}
    if not builds:
        options.error("no row says its build; measure by bench/run")
    commit = checks.name_of(next(iter(builds)))
    if problem := checks.why_not(builds, commit):
        options.error(problem)
    return subprocess.run(["git", "rev-parse", "--short", commit], cwd=digests.ROOT, capture_output=True, text=True, check=True).stdout.strip()


main()
