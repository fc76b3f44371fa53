"""Digests of code and of data, by which a table says whether the code has changed since it was measured."""
import hashlib
import io
import json
import pathlib
import posixpath
import re
import subprocess
import tarfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
C_FAMILY = {".cpp", ".hpp", ".h", ".cu", ".cuh"}
# A string or a character as it stands, or a comment.
LITERAL_OR_COMMENT = re.compile(rb"""("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])')|//[^\n]*|/\*.*?\*/""", re.S)
TOML_STRING_OR_COMMENT = re.compile(rb"""("(?:\\.|[^"\\\n])*"|'[^'\n]*')|#[^\n]*""")

INCLUDE = re.compile(rb'^\s*#\s*include\s+"([^"]+)"', re.M)


def bare(name, content):
    """Without comments and white space: a change of these alone is no change of code. Nor is an include of C++, which names a file that may move."""
    if pathlib.Path(name).suffix in C_FAMILY:
        content = INCLUDE.sub(b"", LITERAL_OR_COMMENT.sub(lambda found: found[1] or b"", content))
    elif pathlib.Path(name).suffix == ".toml":
        content = TOML_STRING_OR_COMMENT.sub(lambda found: found[1] or b"", content)
    else:
        content = re.sub(rb"(?m)^\s*#.*$", b"", content)
    return re.sub(rb"\s+", b"", content)


def short(content):
    return hashlib.sha256(content).hexdigest()[:16]


def digest(contents):
    """16 hexadecimal digits for contents in any order, "" for none. Names do not count: a file that only moved is the same code."""
    each = sorted(hashlib.sha256(content).digest() for content in contents)
    return short(b"".join(each)) if each else ""


def of_code(path):
    """The digest of a folder or file of the present tree, documents left out. An op's templates count with what they include. Needs no git."""
    return of_tree(path, {each.relative_to(ROOT).as_posix(): each.read_bytes() for each in (ROOT / read_for(path)).rglob("*") if each.is_file()}
                   if (ROOT / read_for(path)).is_dir() else {path: (ROOT / path).read_bytes()} if (ROOT / path).is_file() else {})


def of_code_at(path, commit):
    """The digest of the same folder or file at a commit."""
    listed = subprocess.run(["git", "ls-tree", commit, path], cwd=ROOT, capture_output=True, check=True).stdout
    if not listed:
        return ""
    archive = subprocess.run(["git", "archive", commit, read_for(path)], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return of_tree(path, {each.name: tar.extractfile(each).read() for each in tar if each.isfile()})


def read_for(path):
    return "templates" if path.startswith("templates/") else path


def of_tree(path, tree):
    """`tree`: names and contents of the files that `path` may need."""
    pending = [name for name in tree if is_code(name) and (name == path or name.startswith(path + "/"))]
    found = set(pending)
    while pending:
        name = pending.pop()
        for included in INCLUDE.findall(tree[name]) if name.endswith(".cuh") else ():
            beside, common = (posixpath.normpath(posixpath.join(folder, included.decode())) for folder in (posixpath.dirname(name), "templates"))
            for needed in {beside if beside in tree else common} & tree.keys() - found:
                found.add(needed)
                pending.append(needed)
    return digest(bare(name, tree[name]) for name in found)


def of_data(paths):
    """The digest of result files, whose names count."""
    return short(b"".join(path.name.encode() + b"\0" + path.read_bytes() + b"\0" for path in sorted(paths))) if paths else ""


def of_records(name):
    """The digest of the records that a file of cache/ ships: what each bucket launches, without times, provenance and digests of sources."""
    served = []
    for line in (ROOT / name).read_text().splitlines():
        record = json.loads(line)
        served.append([record["key"], [[choice.get(field) for field in ("role", "sizes", "implementation", "config")] for choice in record["choices"]]])
    return short(json.dumps(sorted(served)).encode())


def is_code(name):
    return not name.endswith((".md", ".pyc"))
