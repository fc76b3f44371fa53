#!/usr/bin/env python3
"""Says in claim.toml which build, machine and command made files of a claim, after they were put into its folder.

    bench/stamp.py CLAIM FILE... --commit C --date D [--machine M] [--command C] [--name N] [--code PATH]... [--claim LINE]

The run that has the first FILE is replaced, and what is not given stays as it had it; a new run takes machine, command and code
from the options. FILEs leave the runs that had them. The code's digests are those at the commit. --claim: one line, for a folder
that has no claim.toml yet.
"""
import argparse
import subprocess

from evidence import digests
from evidence.claim import RESULTS, Claim, Run


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", metavar="CLAIM")
    options.add_argument("files", nargs="+")
    for name in ("commit", "date", "machine", "command", "name", "claim"):
        options.add_argument(f"--{name}", required=name in ("commit", "date"))
    options.add_argument("--code", action="append")
    asked = options.parse_args()
    if missing := [name for name in asked.files if not (RESULTS / asked.folder / name).is_file()]:
        options.error(f"bench/results/{asked.folder} has no {', '.join(missing)}")
    if asked.commit:
        asked.commit = subprocess.run(["git", "rev-parse", "--short", asked.commit], cwd=digests.ROOT, capture_output=True, text=True, check=True).stdout.strip()
    claim = Claim.read(asked.folder) if (RESULTS / asked.folder / "claim.toml").exists() else Claim(asked.folder, asked.claim or "", [])
    claim.claim = asked.claim or claim.claim
    had = next((run for run in claim.run if asked.files[0] in run.files), None)
    stays = had or Run([], "", "", "", "", "", {})
    run = Run(asked.files, *(getattr(asked, field) or getattr(stays, field) for field in ("command", "machine")), asked.date, asked.commit,
              digests.of_data([RESULTS / asked.folder / name for name in asked.files]),
              {path: digests.of_code_at(path, asked.commit) if asked.commit else "" for path in asked.code or stays.code}, asked.name or stays.name)
    if not (claim.claim and run.command and run.machine and run.code):
        options.error("a new run needs --machine, --command and --code, and a new folder --claim")
    at = claim.run.index(had) if had else len(claim.run)
    claim.run.insert(at, run)
    for other in claim.run:
        stay = [name for name in other.files if name not in asked.files and (RESULTS / asked.folder / name).exists()]
        if other is not run and stay != other.files:
            other.files, other.data = stay, digests.of_data([RESULTS / asked.folder / name for name in stay])
    claim.run = [each for each in claim.run if each.files]
    claim.write()


main()
