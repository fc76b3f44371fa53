#!/usr/bin/env python3
"""The tables of the documents, printed from bench/results.

    bench/tables.py NAME...     prints these tables
    bench/tables.py --write     puts each table between its marks, <!-- table: NAME --> and <!-- end -->
    bench/tables.py --check     fails when a table in a document is not what its files give

A caption says where and when the files were measured, and which code has changed since; so a change of code makes --check fail
until --write has put that into the caption. README's table marks such rows with †.
"""
import argparse
import re
import sys

from evidence import attention, blocks, decode, faults, family, hits, products, serving, summary, team, tuner
from evidence.claim import RESULTS, Claim, caption
from evidence.digests import ROOT
from evidence.table import Reader

TABLES = {name: show for module in (summary, tuner, serving, hits, family, products, attention, blocks, decode, faults, team) for name, show in module.TABLES.items()}
DOCUMENTS = ("README.md", "docs/faults.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("performance*.md")))
MARKED = re.compile(r"<!-- table: (\w+) -->\n.*?<!-- end -->", re.S)


def shown(name):
    read = Reader()
    text = TABLES[name](read)
    parts = [text, caption(read.used)] if text or read.used else ["Not measured yet."]
    return "\n".join(part.strip("\n") + "\n" for part in parts if part)


def filled(text):
    return MARKED.sub(lambda mark: f"<!-- table: {mark[1]} -->\n{shown(mark[1])}<!-- end -->", text)


def wrong():
    for folder in sorted(path for path in RESULTS.iterdir() if path.is_dir()):
        if (folder / "claim.toml").is_file():
            yield from Claim.read(folder.name).wrong()
        else:
            yield f"bench/results/{folder.name} has no claim.toml"
    for document in DOCUMENTS:
        text = (ROOT / document).read_text()
        for mark, now in zip(MARKED.finditer(text), MARKED.finditer(filled(text))):
            if mark[0] != now[0]:
                yield f"{document}: table {mark[1]} is not what bench/results and the present code give; run bench/tables.py --write"


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("names", nargs="*", choices=[[], *TABLES], metavar="NAME")
    options.add_argument("--write", action="store_true")
    options.add_argument("--check", action="store_true")
    asked = options.parse_args()
    for name in asked.names:
        print(shown(name))
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
