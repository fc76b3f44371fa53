"""Makes a wheel of tuned files, which every Kiln of the environment that it is installed in asks:

    python -m kiln.wheel acme-kernels-h200 llama3_8b.kiln --version 1.0 --output dist

Files with machine code and files of records alone are packed the same way. A file is read where it is installed, and never written.
"""
from __future__ import annotations

import argparse
import base64
import csv
import hashlib
import io
import os
import re
import sys
import zipfile

# The module that the entry point names, then what makes it a wheel.
_MODULE = '''"""Tuned files for Kiln."""
import os

_FOLDER = os.path.dirname(os.path.abspath(__file__))


def files():
    return [os.path.join(_FOLDER, name) for name in {names!r}]
'''
_METADATA = "Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nSummary: Tuned files for kiln-kernels\nRequires-Dist: kiln-kernels\n"
_WHEEL = "Wheel-Version: 1.0\nGenerator: kiln.wheel\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_ENTRY_POINTS = "[kiln.bases]\n{module} = {module}:files\n"
_OURS = {"kiln", "kiln_kernels", "kiln_kernels_torch", "kiln_torch"}  # an install would put the files in the place of Kiln itself


def make(name: str, files: list[str], version: str, folder: str) -> str:
    """Writes the wheel into `folder` and gives its path. `name` is the distribution's; the files keep theirs, and their order."""
    names = [os.path.basename(each) for each in files]
    if not re.fullmatch(r"[A-Za-z]([A-Za-z0-9._-]*[A-Za-z0-9])?", name):
        raise ValueError(f"the name {name!r} is no distribution's; expected letters, digits, '.', '_' and '-'")
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)*((a|b|rc|\.post|\.dev)[0-9]+)?", version):
        raise ValueError(f"the version {version!r} is none; expected one such as 1.0")
    if not names or len(set(names)) != len(names):
        raise ValueError(f"the files are called {', '.join(names) or 'nothing'}; expected one at least, and each name once")
    for each in names:
        if not each.endswith((".kiln", ".jsonl")):
            raise ValueError(f"the file {each!r} is no tuned file by its name; expected NAME.kiln or NAME.jsonl, as kiln prewarm or kiln cache export writes it")
    module = re.sub(r"[-_.]+", "_", name).lower()
    if module in _OURS:
        raise ValueError(f"the name {name!r} is of Kiln's own packages; expected another, such as acme-kernels-h200")
    texts = {
        f"{module}/__init__.py": _MODULE.format(names=names),
        f"{module}-{version}.dist-info/METADATA": _METADATA.format(name=name, version=version),
        f"{module}-{version}.dist-info/WHEEL": _WHEEL,
        f"{module}-{version}.dist-info/entry_points.txt": _ENTRY_POINTS.format(module=module),
    }
    contents = []
    for each in files:
        with open(each, "rb") as file:
            contents.append(file.read())
        if not contents[-1]:
            raise ValueError(f"the file {each!r} is empty; expected one that kiln prewarm or kiln cache export wrote")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"{module}-{version}-py3-none-any.whl")
    record = f"{module}-{version}.dist-info/RECORD"
    lines = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for inside, content in zip(names, contents):
            lines.append(_add(wheel, f"{module}/{inside}", content))
        for inside, text in texts.items():
            lines.append(_add(wheel, inside, text.encode()))
        _add(wheel, record, "".join([*lines, _line(record, "", "")]).encode())
    return path


def _add(wheel: zipfile.ZipFile, inside: str, content: bytes) -> str:
    """Adds a file with a date of its own, so that equal files make equal wheels. Gives its line of RECORD."""
    entry = zipfile.ZipInfo(inside, (1980, 1, 1, 0, 0, 0))
    entry.external_attr = 0o644 << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    wheel.writestr(entry, content)
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return _line(inside, f"sha256={digest}", len(content))


def _line(*fields: str | int) -> str:
    """Of RECORD, which quotes a name that has a comma."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(fields)
    return text.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m kiln.wheel", description="Makes a wheel of tuned files, which every Kiln of its environment asks.")
    parser.add_argument("name", help="the distribution's name, such as acme-kernels-h200")
    parser.add_argument("files", nargs="+", metavar="FILE", help="as kiln prewarm or kiln cache export writes it; asked in this order")
    parser.add_argument("--version", default="1.0")
    parser.add_argument("--output", default=".", metavar="FOLDER")
    given = parser.parse_args()
    try:
        print(make(given.name, given.files, given.version, given.output))
    except (OSError, ValueError) as error:
        sys.exit(f"kiln.wheel: {error}")


if __name__ == "__main__":
    main()
