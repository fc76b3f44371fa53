"""Digests of code and of data, by which a table says whether the code has changed since it was measured.

Code is named by a folder or file of the tree, by functions and constants of a file ("src/cuda/gate.cpp#close,open"), by a file without some functions
("src/tune/tune_bucket.cpp!publish"), or by a group of GROUPS.
"""
import ast
import hashlib
import io
import json
import pathlib
import posixpath
import re
import subprocess
import tarfile
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
C_FAMILY = {".cpp", ".hpp", ".h", ".cu", ".cuh"}
# A string or a character as it stands, or a comment.
LITERAL_OR_COMMENT = re.compile(rb"""("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])')|//[^\n]*|/\*.*?\*/""", re.S)
TOML_STRING_OR_COMMENT = re.compile(rb"""("(?:\\.|[^"\\\n])*"|'[^'\n]*')|#[^\n]*""")

INCLUDE = re.compile(rb'^\s*#\s*include\s+"([^"]+)"', re.M)

NAMESPACE = re.compile(rb"""("(?:\\.|[^"\\\n])*")|\busing\s+namespace\s+[\w:]+;|(?<=\bnamespace)\s+[\w:]+|\b[a-z]\w*::(?=\w)""")

SEARCH = {"answer": "guess model near_index neighbours portfolio prior throughput timed_sizes",
          "tune": "candidates conclusion exhaustive forecast intervals last_comparison launch_choice racing scoreboard relative_times search trials"}
GROUPS = {
    # What a time is measured by.
    "the stopwatch": ["src/tune/measure.cpp#slots,flush_ns,flush_threads,flush_blocks,piece_bytes,longest_batch_ns,unnoticed_ns,short_ns,beyond_help_ns,rest_per_run,in_batches,flush,enqueue,hold,sample",
                      "src/cuda/gate.cpp#close,open"],
    # What a choice follows from, beside times: neither workers, nor verification, nor where machine code comes from.
    "the search": [f"src/{module}/{name}.{kind}" for module, names in SEARCH.items() for name in names.split() for kind in ("cpp", "hpp")] + [f"src/{module}/tolerances.hpp" for module in SEARCH]
                  + [f"src/tune/tune_bucket.{kind}!publish,add_row" for kind in ("cpp", "hpp")]  # which store what was chosen
                  + ["src/answer/slowdown.hpp", "src/answer/slowdown.cpp!benchmarked_slowdown"],  # which says what the pairs found
}


def bare(name, content):
    """Without comments, docstrings and white space: a change of these alone is no change of code. Nor are names that say where C++ lies: of included files, and of namespaces."""
    if pathlib.Path(name).suffix in C_FAMILY:
        content = INCLUDE.sub(b"", LITERAL_OR_COMMENT.sub(lambda found: found[1] or b"", content))
        content = NAMESPACE.sub(lambda found: found[1] or b"", content)
    elif pathlib.Path(name).suffix == ".toml":
        content = TOML_STRING_OR_COMMENT.sub(lambda found: found[1] or b"", content)
    else:
        content = re.sub(rb"(?m)^\s*#.*$", b"", without_docstrings(content) if name.endswith(".py") else content)
    return re.sub(rb"\s+", b"", content)


def without_docstrings(content):
    lines = content.splitlines(keepends=True)
    for node in ast.walk(ast.parse(content)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and ast.get_docstring(node, clean=False) is not None:
            said = node.body[0]
            for at in range(said.lineno - 1, said.end_lineno):
                begin, end = (said.col_offset if at == said.lineno - 1 else 0), (said.end_col_offset if at == said.end_lineno - 1 else len(lines[at]))
                lines[at] = lines[at][:begin] + lines[at][end:]
    return b"".join(lines)


def short(content):
    return hashlib.sha256(content).hexdigest()[:16]


def digest(contents):
    """16 hexadecimal digits for contents in any order, "" for none. Names do not count: a file that only moved is the same code."""
    each = sorted(hashlib.sha256(content).digest() for content in contents)
    return short(b"".join(each)) if each else ""


def defined(name, content, names):
    """The definitions of functions and constants in a file, all overloads, in the file's order."""
    text = content.decode()
    if name.endswith(".py"):
        parts = [node for node in ast.parse(text).body if {getattr(node, "name", ""), *(each.id for target in getattr(node, "targets", []) for each in ast.walk(target) if isinstance(each, ast.Name))} & names]
        return [ast.get_source_segment(text, node).encode() for node in parts]
    text = LITERAL_OR_COMMENT.sub(lambda found: found[1] or b"", content).decode()
    either = "|".join(sorted(names))
    starts = re.compile(rf"^[^\n;{{}}=#]*\b(?:\w+::)*(?:{either})\([^;{{}}\[]*\)(?:\s|const|noexcept|override)*(?P<body>\{{)|^[^\n(){{}};#]*\b(?:{either})\b *(?:=|\{{)", re.M)
    return [text[found.start():end_of(text, found.start("body")) if found["body"] else text.index(";", found.start())].encode() for found in starts.finditer(text)]


def end_of(text, brace):
    """Past the brace that closes this one."""
    depth = 0
    for at in range(brace, len(text)):
        depth += (text[at] == "{") - (text[at] == "}")
        if depth == 0:
            return at + 1
    return len(text)


def without(content, names):
    """A file of C++ without the definitions and declarations of some functions."""
    text = LITERAL_OR_COMMENT.sub(lambda found: found[1] or b"", content).decode()
    for part in defined(".cpp", content, names):
        text = text.replace(part.decode(), "")
    either = "|".join(sorted(names))  # a declaration has its type before the name; a call has nothing, or a `return`
    return re.sub(rf"^(?!\s*(?:return|co_return|throw)\b)[^\n;{{}}=#()]*[\w>&*\]]\s+[&*]?(?:{either})\([^;{{}}]*\);", "", text, flags=re.M).encode()


def of_part(path, read):
    """The digest of a path with # or !; `read` gives the content of a file, b"" where it is not there."""
    if "!" in path:
        name, names = path.split("!")
        return digest([bare(name, without(read(name), set(names.split(","))))] if read(name) else [])
    name, names = path.split("#")
    return digest(bare(name, part) for part in defined(name, read(name), set(names.split(","))))


def of_code(path):
    """The digest of code of the present tree, documents left out. An op's templates count with what they include. Needs no git."""
    if path in GROUPS:
        return digest(of_code(part).encode() for part in GROUPS[path])
    if "#" in path or "!" in path:
        return of_part(path, lambda name: (ROOT / name).read_bytes() if (ROOT / name).is_file() else b"")
    return of_tree(path, {each.relative_to(ROOT).as_posix(): each.read_bytes() for each in (ROOT / read_for(path)).rglob("*") if each.is_file()}
                   if (ROOT / read_for(path)).is_dir() else {path: (ROOT / path).read_bytes()} if (ROOT / path).is_file() else {})


def of_code_at(path, commit):
    """The digest of the same code at a commit."""
    if path in GROUPS:
        return digest(of_code_at(part, commit).encode() for part in GROUPS[path])
    if "#" in path or "!" in path:
        return of_part(path, lambda name: subprocess.run(["git", "show", f"{commit}:{name}"], cwd=ROOT, capture_output=True, check=False).stdout)
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
        for included in INCLUDE.findall(tree[name]) if name.endswith(".cuh") else parts_of(tree[name]) if name.endswith(".toml") else ():
            beside, common = (posixpath.normpath(posixpath.join(folder, included.decode())) for folder in (posixpath.dirname(name), "templates"))
            for needed in {beside if beside in tree else common} & tree.keys() - found:
                found.add(needed)
                pending.append(needed)
    return digest(bare(name, tree[name]) for name in found)


def parts_of(manifest):
    """What a manifest of an op includes."""
    return [each.encode() for each in tomllib.loads(manifest.decode()).get("include", [])]


def of_data(paths):
    """The digest of result files, whose names count."""
    return short(b"".join(path.name.encode() + b"\0" + path.read_bytes() + b"\0" for path in sorted(paths))) if paths else ""


def of_records(path, commit=None):
    """The digest of the records that a file of cache/ ships: what each bucket launches, without times, provenance and digests of sources. Of some ops
    alone: "cache/h100.jsonl#gemm"; of the buckets that a workload lists, as kiln.record writes it: "cache/h100.jsonl@bench/results/python/llama.toml".
    With `commit`: of the records that it had."""
    served, workload, ops = [], path.partition("@")[2], path.partition("@")[0].partition("#")[2]
    entries = tomllib.loads((ROOT / workload).read_text())["workload"] if workload else None
    name = file_of(path)
    text = subprocess.run(["git", "show", f"{commit}:{name}"], cwd=ROOT, capture_output=True, check=True).stdout if commit else (ROOT / name).read_bytes()
    for record in map(json.loads, text.splitlines()):
        if (ops and record["op"] not in ops.split(",")) or (workload and not any(is_listed(record, entry) for entry in entries)):
            continue
        served.append([record["key"], [[choice.get(field) for field in ("role", "sizes", "implementation", "config")] for choice in record["choices"]]])
    return short(json.dumps(sorted(served)).encode())


def file_of(records):
    """The file that a name of records, as of_records takes it, begins with."""
    return re.split("[#@]", records)[0]


def is_listed(record, entry):
    """Whether an entry of a workload lists the record's bucket. What the entry does not name may have any value."""
    bucket = dict(word.split("=") for word in record["bucket"].split())
    wanted = {name: value if isinstance(value, list) else [value] for name, value in {**entry["axes"], **entry.get("types", {})}.items()}
    if any(".." in str(each) for values in wanted.values() for each in values):
        raise ValueError(f"a workload of records lists buckets one by one, and {entry} has a range")
    return record["op"] == entry["op"] and all(bucket.get(name) in map(str, values) for name, values in wanted.items())


def is_code(name):
    return not name.endswith((".md", ".pyc"))
