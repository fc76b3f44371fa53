"""Claims: the folders of bench/results. Each holds the present run of one claim and claim.toml, which says what was run.

    claim = "one line"                 what is claimed
    [[run]]
    name = "torch"                     optional: what ran, where a claim has several runs
    kind = "kernel"                    what its figures rest on: a key of KINDS
    files = ["family_peers.json"]      what the run wrote: every file of the folder belongs to one run
    command = "bench/run BUILD OUT family_peers"
    machine = "one NVIDIA H200, driver 580.159.04, 16 cores"
    date = "2026-11-21"
    commit = "98789df"                 the build that was measured, "" where nobody wrote it down
    data = "0123456789abcdef"          digest of the files
    left_out = ["gemm m=1: its limit ended it"]    optional: problems that were asked and have no row, with the reason
    [run.code]                         code that the figures speak of beside their kernels, and its digests at that commit
    "the stopwatch" = "0123456789abcdef"
    [run.records]                      files of cache/ that it ran by, and the digests of what they serve; rows that say their configs count alone
    "cache/h200.jsonl" = "0123456789abcdef"
    [run.peers]                        versions of the peers, as their rows have them
    torch = "2.11.0"

programs.jsonl of a folder says what machine code the rows of a file speak of (evidence/programs.py). bench/stamp.py writes a run's fields.
"""
import dataclasses
import tomllib

from evidence import digests

RESULTS = digests.ROOT / "bench/results"
KINDS = {"kernel": "the time of given configs", "choice": "what a search chose", "records": "what the records that ship launch", "host": "the host's cost",
         "function": "what a test shows", "peer": "what another library does"}
BESIDE = {"claim.toml", "README.md", "programs.jsonl", "instructions.json"}  # of no run's data


@dataclasses.dataclass
class Run:
    files: list
    command: str
    machine: str
    date: str
    commit: str
    data: str
    code: dict = dataclasses.field(default_factory=dict)
    name: str = ""
    kind: str = "kernel"
    records: dict = dataclasses.field(default_factory=dict)
    peers: dict = dataclasses.field(default_factory=dict)
    left_out: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Claim:
    folder: str
    claim: str
    run: list

    @staticmethod
    def read(folder):
        told = tomllib.loads((RESULTS / folder / "claim.toml").read_text())
        return Claim(folder, told["claim"], [Run(**each) for each in told.get("run", [])])

    def write(self):
        text = [f"claim = {quoted(self.claim)}"]
        for run in self.run:
            text += ["", "[[run]]", *([f"name = {quoted(run.name)}"] if run.name else []), f"kind = {quoted(run.kind)}", f"files = {list_of(run.files)}"]
            text += [f"{field} = {quoted(getattr(run, field))}" for field in ("command", "machine", "date", "commit", "data")]
            text += [f"left_out = {list_of(run.left_out)}"] if run.left_out else []
            for table in ("code", "records", "peers"):
                if named := getattr(run, table):
                    text += [f"[run.{table}]", *(f"{quoted(name)} = {quoted(value)}" for name, value in named.items())]
        (RESULTS / self.folder).mkdir(parents=True, exist_ok=True)
        (RESULTS / self.folder / "claim.toml").write_text("\n".join(text) + "\n")

    def wrong(self):
        """Sentences about files that no run names, or that are not those which a run speaks of."""
        there = {path.name for path in (RESULTS / self.folder).iterdir()} - BESIDE
        named = {name for run in self.run for name in run.files}
        for name in sorted(there - named):
            yield f"bench/results/{self.folder}/{name} is of no run in claim.toml: delete the file, or name its run by bench/stamp.py"
        for name in sorted(named - there):
            yield f"bench/results/{self.folder}/claim.toml names {name}, which is not there"
        for run in self.run:
            if run.kind not in KINDS:
                yield f"bench/results/{self.folder}/claim.toml has a run of kind {run.kind}, expected one of {', '.join(KINDS)}"
            if set(run.files) <= there and run.data != digests.of_data([RESULTS / self.folder / name for name in run.files]):
                yield f"bench/results/{self.folder}: {', '.join(run.files)} changed after claim.toml: bench/stamp.py says which build was measured"


def quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def list_of(texts):
    return f"[{', '.join(map(quoted, texts))}]"


def listed(words):
    words = list(words)
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def folders():
    return sorted(path.name for path in RESULTS.iterdir() if (path / "claim.toml").is_file())


def runs_of(files):
    """The folder and run of each of `files` ("CLAIM/NAME"), once."""
    for folder in dict.fromkeys(name.split("/")[0] for name in files):
        for run in Claim.read(folder).run:
            if any(f"{folder}/{name}" in files for name in run.files):
                yield folder, run
