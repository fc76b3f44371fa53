"""Claims: the folders of bench/results. Each holds the present run of one claim and claim.toml, which says what was run.

    claim = "one line"                 what is claimed
    [[run]]
    name = "torch"                     optional: of whom, where a claim has several runs
    files = ["family_peers.json"]      what the run wrote: every file of the folder is of one run
    command = "bench/run BUILD OUT family_peers"
    machine = "one NVIDIA H200, driver 580.159.04, 16 cores"
    date = "2026-11-21"
    commit = "98789df"                 the build that was measured, "" where nobody wrote it down
    data = "0123456789abcdef"          digest of the files
    [run.code]                         the code that the figures speak of, and its digests at that commit
    "src/tune" = "0123456789abcdef"

bench/stamp.py writes the fields of a run.
"""
import dataclasses
import tomllib

from evidence import digests

RESULTS = digests.ROOT / "bench/results"


@dataclasses.dataclass
class Run:
    files: list
    command: str
    machine: str
    date: str
    commit: str
    data: str
    code: dict
    name: str = ""

    def changed(self):
        """Which of the code has changed since."""
        return [path for path, digest in self.code.items() if not self.commit or digests.of_code(path) != digest]


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
            text += ["", "[[run]]", *([f"name = {quoted(run.name)}"] if run.name else []), f"files = [{', '.join(map(quoted, run.files))}]"]
            text += [f"{field} = {quoted(getattr(run, field))}" for field in ("command", "machine", "date", "commit", "data")]
            text += ["[run.code]", *(f"{quoted(path)} = {quoted(digest)}" for path, digest in run.code.items())]
        (RESULTS / self.folder / "claim.toml").write_text("\n".join(text) + "\n")

    def wrong(self):
        """Sentences about files that no run names, or that are not those which a run speaks of."""
        there = {path.name for path in (RESULTS / self.folder).iterdir()} - {"claim.toml", "README.md"}
        named = {name for run in self.run for name in run.files}
        for name in sorted(there - named):
            yield f"bench/results/{self.folder}/{name} is of no run in claim.toml: delete the file, or name its run by bench/stamp.py"
        for name in sorted(named - there):
            yield f"bench/results/{self.folder}/claim.toml names {name}, which is not there"
        for run in self.run:
            if set(run.files) <= there and run.data != digests.of_data([RESULTS / self.folder / name for name in run.files]):
                yield f"bench/results/{self.folder}: {', '.join(run.files)} changed after claim.toml: bench/stamp.py says which build was measured"


def quoted(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def listed(words):
    words = list(words)
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def runs_of(files):
    """The folder and run of each of `files` ("CLAIM/NAME"), once."""
    for folder in dict.fromkeys(name.split("/")[0] for name in files):
        for run in Claim.read(folder).run:
            if any(f"{folder}/{name}" in files for name in run.files):
                yield folder, run


def is_older(files):
    """Whether code that `files` speak of has changed since."""
    return any(run.changed() for _, run in runs_of(files))


def caption(files):
    """Where and when `files` were measured, and which code has changed since."""
    runs, sentences = list(runs_of(files)), []
    for folder, run in runs:
        who = f"{run.name}: m" if run.name and len(runs) > 1 else "M"
        build = f", build {run.commit}" if run.commit else ""
        said = f"{who}easured on {run.machine}, {run.date}{build} ([{folder}](../bench/results/{folder}))."
        if not run.commit:
            said += "\nThe build was not written down, so its code counts as changed."
        elif changed := run.changed():
            said += f"\n{listed(changed)} {'has' if len(changed) == 1 else 'have'} changed since."
        sentences.append(said)
    return "\n".join(dict.fromkeys(sentences))
