#!/usr/bin/env python3
"""The tables of the documents, printed from bench/results.

    bench/tables.py NAME...     prints these tables
    bench/tables.py --write     puts each table between its marks, <!-- table: NAME --> and <!-- end -->, and each figure after <!-- figure: NAME -->
    bench/tables.py --check     fails when a document shows something else, when a table is empty, a problem has no row, prose has a figure of its own
    bench/tables.py --shares    how many figures of README, and how many runs, have no mark

† and ‡: see evidence/marks.py. A caption says where and when the files were measured, and what has changed since.
"""
import argparse
import re
import sys

from evidence import attention, checks, decode, face, faults, family, hits, products, serving, shared, summary, team, torch_ops, tuner, turns
from evidence.claim import Claim, folders
from evidence.digests import ROOT
from evidence.marks import caption
from evidence.table import Reader, state

TABLES = {name: show for module in (face, summary, tuner, serving, hits, family, products, attention, decode, faults, shared, team, torch_ops, turns) for name, show in module.TABLES.items()}
FIGURES = {name: show for module in (face, torch_ops) for name, show in module.FIGURES.items()}
UNCAPTIONED = {"face", "losses", "contest", "results", "costs", "slower"}
DOCUMENTS = ("README.md", "docs/faults.md", "docs/sharing.md", "docs/torch.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("performance*.md")))
MARKED = re.compile(r"<!-- table: (\w+) -->\n.*?<!-- end -->", re.S)
FIGURE = re.compile(r"<!-- figure: (\w+) -->.*?<!-- end -->", re.S)


def shown(name):
    read = Reader()
    text = TABLES[name](read)
    said = "" if name in UNCAPTIONED else caption(read.used, state())
    return "\n".join(part.strip("\n") + "\n" for part in (text, said) if part)


def filled(text):
    text = MARKED.sub(lambda mark: f"<!-- table: {mark[1]} -->\n{shown(mark[1])}<!-- end -->", text)
    return FIGURE.sub(lambda mark: f"<!-- figure: {mark[1]} -->{FIGURES[mark[1]](Reader())}<!-- end -->", text)


def wrong():
    yield from checks.of_claims()
    for document in DOCUMENTS:
        text = (ROOT / document).read_text()
        now = filled(text)
        for pattern in (MARKED, FIGURE):
            for mark, present in zip(pattern.finditer(text), pattern.finditer(now)):
                if mark[0] != present[0]:
                    yield f"{document}: {mark[1]} is not what bench/results and the present code give; run bench/tables.py --write"
        for mark in MARKED.finditer(now):
            yield from checks.of_table(document, mark[1], mark[0].split("-->", 1)[1].rsplit("<!--", 1)[0])
        yield from checks.of_prose(document, text)


def shares():
    runs = [(folder, run) for folder in folders() for run in Claim.read(folder).run]
    marks = [state().mark_of_run(folder, run) or "†" * bool(state().kernels_changed(folder, run)[0]) for folder, run in runs]
    readme = (ROOT / "README.md").read_text()
    others = [TABLES[name] for name in MARKED.findall(readme) if name not in face.TABLES] + [FIGURES[name] for name in FIGURE.findall(readme)]
    plain, marked, left_out = face.shares(others)
    return f"README: {plain} of {plain + marked} figures without a mark, {left_out} left out for their age or want of a build\nruns: {marks.count('')} of {len(runs)} without a mark"


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("names", nargs="*", choices=[[], *TABLES], metavar="NAME")
    for name in ("write", "check", "shares"):
        options.add_argument(f"--{name}", action="store_true")
    asked = options.parse_args()
    for name in asked.names:
        print(shown(name))
    if asked.shares:
        print(shares())
    if asked.write:
        for document in DOCUMENTS:
            path = ROOT / document
            path.write_text(filled(path.read_text()))
    if asked.write or asked.check:
        sentences = list(wrong())
        print("\n".join(sentences), file=sys.stderr, end="\n" if sentences else "")
        return bool(sentences)
    return 0


if __name__ == "__main__":
    sys.exit(main())
