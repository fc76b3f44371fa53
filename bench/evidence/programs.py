"""Which machine code the figures speak of.

A line of bench/results/CLAIM/programs.jsonl names a program of a row, and its code when it was measured:

    {"file": "attention.json", "op", "problem", "implementation", "config", "source", "options", "ptx", "code", "compiler"}

source: digest of the tokens of all sources and of the name expressions. options: what NVRTC was given. ptx: digest of what the NVRTC build
`compiler` made of them, without the names that it makes up. code: digest of the machine code without the places of parameters, there where
the PTX has changed since. kernels: of its kernels sorted, since their order says nothing. bench/results/present.jsonl has the same of the
present code, for each program once. The code is the same where options are equal, and sources are, or one compiler made equal PTX or machine
code of both, as in bench/restamp. bench_programs prints all; bench/present writes the second file and compares machine code, and CI compares what it wrote with the code.
"""
import json

from evidence import claim

IDENTITY = ("op", "problem", "implementation", "config")


def programs_of(row):
    """The programs of a row: (op, problem, implementation, config) each. Rows without a config have none; a library's kernels are not ours."""
    asked = row.get("asked", "").split(" ")[0]
    op = row.get("op") or (asked if "=" not in asked and "config" in row else "") or ("gemm" if row.get("bench") == "gemm" else "")
    found = [(op, row["problem"], row[implementation], row[config]) for implementation, config in (("implementation", "config"), ("own_implementation", "own_config"))
             if op and {"problem", implementation, config} <= row.keys()]
    return list(dict.fromkeys(each for each in found if each[2] not in ("cublaslt", "nccl")))


def lines(name):
    path = claim.RESULTS / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def forget(folder, files):
    """Takes out the machine code of files that are measured again: it is of the build before."""
    path = claim.RESULTS / folder / "programs.jsonl"
    if path.is_file():
        path.write_text("".join(json.dumps(row) + "\n" for row in lines(f"{folder}/programs.jsonl") if row["file"] not in files))


def identity(row):
    return tuple(row[field] for field in IDENTITY)


class Programs:
    """What is known of all programs; read once."""

    def __init__(self):
        self.present = {identity(row): row for row in lines("present.jsonl")}
        self.measured = {}

    def of(self, folder):
        if folder not in self.measured:
            self.measured[folder] = {(row["file"], *identity(row)): row for row in lines(f"{folder}/programs.jsonl")}
        return self.measured[folder]

    def knows(self, folder, file):
        return any(name == file for name, *_ in self.of(folder))

    def changed(self, folder, file, row):
        """Whether a program of the row is other machine code now. Nothing where none is known."""
        known = self.of(folder)
        verdicts = [is_other(known[file, *each], self.present.get(each)) for each in programs_of(row) if (file, *each) in known]
        return any(verdicts) if verdicts else None


def is_other(then, now):
    if now is None or "error" in now or "error" in then:
        return True
    if then["options"] != now["options"]:
        return True
    if then["source"] == now["source"]:
        return False
    return then.get("compiler") != now.get("compiler") or not any(then.get(field) and then[field] == now.get(field) for field in ("ptx", "code", "kernels"))
