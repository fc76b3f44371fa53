"""Digests of code and of data, by which a table says whether the code has changed since it was measured."""
import hashlib
import io
import pathlib
import re
import subprocess
import tarfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
C_FAMILY = {".cpp", ".hpp", ".h", ".cu", ".cuh"}
# A string or a character as it stands, or a comment.
LITERAL_OR_COMMENT = re.compile(rb"""("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])')|//[^\n]*|/\*.*?\*/""", re.S)


def bare(name, content):
    """Without comments and white space: a change of these alone is no change of code."""
    if pathlib.Path(name).suffix in C_FAMILY:
        content = LITERAL_OR_COMMENT.sub(lambda found: found[1] or b"", content)
    else:
        content = re.sub(rb"(?m)^\s*#.*$", b"", content)
    return re.sub(rb"\s+", b"", content)


def digest(files):
    """`files`: pairs of a path and its content. 16 hexadecimal digits, "" for no files."""
    hasher, count = hashlib.sha256(), 0
    for name, content in sorted(files):
        hasher.update(name.encode() + b"\0" + content + b"\0")
        count += 1
    return hasher.hexdigest()[:16] if count else ""


def of_code(path):
    """The digest of a folder or file of the present tree, documents left out. Needs no git."""
    top = ROOT / path
    found = [each.relative_to(ROOT).as_posix() for each in ([top] if top.is_file() else top.rglob("*")) if each.is_file()]
    return digest((name, bare(name, (ROOT / name).read_bytes())) for name in found if is_code(name))


def of_code_at(path, commit):
    """The digest of the same folder or file at a commit."""
    listed = subprocess.run(["git", "ls-tree", commit, path], cwd=ROOT, capture_output=True, check=True).stdout
    if not listed:
        return ""
    archive = subprocess.run(["git", "archive", commit, path], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        return digest([(each.name, bare(each.name, tar.extractfile(each).read())) for each in tar if each.isfile() and is_code(each.name)])


def of_data(paths):
    return digest([(path.name, path.read_bytes()) for path in paths])


def is_code(name):
    return not name.endswith((".md", ".pyc"))
