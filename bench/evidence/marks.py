"""The mark of a figure: † where what was measured and what the code does now differ, ‡ where a peer has another version than bench/peers.lock.

What counts depends on the kind of the run (evidence/claim.py): machine code of its rows, code, records, instructions, versions. A canary
(bench/canary.py) times a tenth of a file's problems again; where these hold, code that has not changed since the canary counts as unchanged.

A bench's own code changes also where it times as before: a type of its set-up has another name, a row another field. bench/results/equal.toml has such
changes, each with both digests and the reason, for a reader to compare with the commits that it names. The next change marks again.
"""
import dataclasses
import datetime
import json
import tomllib

from evidence import answers, claim, digests
from evidence.claim import Claim, listed, runs_of
from evidence.programs import Programs, lines

CHANGED, NEWER = "†", "‡"
INSTRUCTIONS = 0.02  # a hot launch's count may differ by this share
AGE_DAYS = 30
# Which count of bench/callgrind-hit stands for a launch that was timed.
LAUNCHES = {("rms_norm", "block_row"): "plain (rms_norm)", ("gemm", "stream"): "expressions (gemm)", ("tile_scale", "tma"): "TMA descriptor (tile_scale)",
            ("gemm", "wgmma"): "three TMA descriptors (gemm, wgmma)", ("attention_forward", "wgmma"): "five strided tensors (attention_forward, mma)"}
HOLDS = 0.9  # of a canary's rows
DRAWN = 0.1  # of a file's problems, at least: fewer say nothing of it
EQUAL = "equal.toml"


@dataclasses.dataclass
class Change:
    mark: str
    what: str  # a noun: "src/tune"
    lifted: str = ""  # "confirmed DATE BUILD", where a canary held


class State:
    """All that marks are judged by; digests of the present code are taken once."""

    def __init__(self):
        self.programs, self.code, self.canaries = Programs(), {}, None
        lock = digests.ROOT / "bench/peers.lock"
        self.locked = tomllib.loads(lock.read_text()) if lock.is_file() else {}
        equal = claim.RESULTS / EQUAL
        self.equal = {(each["code"], each["was"], each["is"]) for each in tomllib.loads(equal.read_text())["equal"]} if equal.is_file() else set()
        self.lock = {name: peer["version"] for name, peer in self.locked.items() if isinstance(peer, dict)}

    def of_code(self, path):
        if path not in self.code:
            self.code[path] = digests.of_code(path)
        return self.code[path]

    def is_as(self, path, was):
        """Whether code is as it was, or differs by what bench/results/equal.toml has a reason for."""
        return self.of_code(path) == was or (path, was, self.of_code(path)) in self.equal

    def rows(self, folder, name):
        return [json.loads(line) for line in (claim.RESULTS / folder / name).read_text().splitlines() if line.startswith("{")] if name.endswith((".json", ".jsonl")) else []

    def changes(self, folder, run):
        """Why figures of the run are marked, row by row apart."""
        found = []
        if not run.commit:
            found.append(Change(CHANGED, "the build, which was not written down,"))
        found += [Change(CHANGED, path) for path, digest in run.code.items() if run.commit and not self.is_as(path, digest)]
        found += [Change(CHANGED, path) for path, digest in run.records.items()
                  if digests.of_records(path) != digest and not answers.are_those_of([row for name in run.files for row in self.rows(folder, name)], path)]
        if run.kind == "host" and counts_of(f"{folder}/instructions.json"):  # these decide, launch by launch
            found = [change for change in found if not change.what.startswith("src/")]
        found += [Change(NEWER, f"{name} ({version or 'version not written down'})") for name, version in run.peers.items() if self.lock.get(name) != version or not version]
        for change in found:
            change.lifted = self.confirmed(folder, run, change)
        return found

    def confirmed(self, folder, run, change):
        """The canary that held for this run's files and since which what `change` names is as now."""
        for canary, rows in self.canaries_that_held(folder, run):
            if change.mark == NEWER:
                covers = all(canary.peers.get(name) == self.lock.get(name) for name in run.peers)
            else:
                covers = canary.code.get(change.what) == self.of_code(change.what)
            if covers:
                return f"{len({row['asked'] for row in rows})} of its problems held when they were timed again ({canary.date}, build {canary.commit})"
        return ""

    def canaries_that_held(self, folder, run):
        """Each canary that timed a tenth of the problems of the run's files again, of which enough held, with its rows."""
        if self.canaries is None:
            self.canaries = Claim.read("canary").run if (claim.RESULTS / "canary/claim.toml").is_file() else []
        for canary in self.canaries:
            rows = [row | {"canary": name} for name in canary.files for row in self.rows("canary", name) if row["claim"] == folder and {row["file"], row.get("peers")} & set(run.files)]
            problems = {row.get("asked") or row.get("problem") for name in run.files for row in self.rows(folder, name)}
            if len({row["asked"] for row in rows}) >= DRAWN * len(problems - {None}) and rows and sum(row["holds"] for row in rows) >= HOLDS * len(rows):
                yield canary, rows

    def present_kernels_held(self, folder, run):
        """Whether a canary held whose kernels are the present ones."""
        return any(all(self.row_changed("canary", row["canary"], row) is False for row in rows) for _, rows in self.canaries_that_held(folder, run))

    def row_changed(self, folder, file, row):
        """Whether a row's machine code is other now, or the instructions of its launch more than a little; nothing where neither is known."""
        verdict = self.programs.changed(folder, file, row)
        if verdict is None and (kind := LAUNCHES.get((row.get("op"), row.get("implementation")))):
            then, now = counts_of(f"{folder}/instructions.json").get(kind), counts_of("hit-instructions/callgrind_hit.json").get(kind)
            return is_other_launch(then, now) if then and now else None
        return verdict

    def mark_of_run(self, folder, run):
        return "".join(sorted({change.mark for change in self.changes(folder, run) if not change.lifted}))

    def mark_of_row(self, folder, file, row):
        if not self.row_changed(folder, file, row):
            return ""
        run = next(run for run in Claim.read(folder).run if file in run.files)
        return "" if self.present_kernels_held(folder, run) else CHANGED

    def kernels_changed(self, folder, run):
        """How many rows of the run have other machine code now, and how many were looked at. None where a canary of the present kernels held."""
        counted = run.kind == "host" and counts_of(f"{folder}/instructions.json")
        verdicts = [self.row_changed(folder, name, row) for name in run.files if counted or self.programs.knows(folder, name) for row in self.rows(folder, name)]
        verdicts = [each for each in verdicts if each is not None]
        return 0 if any(verdicts) and self.present_kernels_held(folder, run) else sum(verdicts), len(verdicts)

    def mark(self, files, rows=None):
        """The mark of a figure that all rows of `files` ("CLAIM/NAME") go into, or `rows` of them alone."""
        if rows is not None:
            return joined([*(self.mark_of_run(folder, run) for folder, run in runs_of(files)), *(row.mark for row in rows)])
        return joined([*(self.mark_of_run(folder, run) for folder, run in runs_of(files)),
                       *(CHANGED for folder, run in runs_of(files) if self.kernels_changed(folder, run)[0])])


def joined(marks):
    return "".join(sorted(set("".join(marks))))


def is_other_launch(then, now):
    """Whether two counts of a launch, of bench/callgrind-hit, differ by more than a little or in their calls of the driver."""
    return abs(now["instructions"] / then["instructions"] - 1) > INSTRUCTIONS or now["driver_calls"] != then["driver_calls"]


def counts_of(name):
    """What callgrind counted of a hot launch, by its kind; none where nobody counted."""
    return {row["op"]: row["Op::launch"] for row in lines(name)}


def newest():
    return max(run.date for folder in claim.folders() for run in Claim.read(folder).run)


def is_too_old(files):
    """Whether a figure must leave README: no build, or more than 30 days older than the newest run."""
    limit = datetime.date.fromisoformat(newest()) - datetime.timedelta(days=AGE_DAYS)
    return any(not run.commit or datetime.date.fromisoformat(run.date) < limit for _, run in runs_of(files))


def caption(files, state):
    """Where and when `files` were measured, and what has changed since."""
    runs, sentences = list(runs_of(files)), []
    for folder, run in runs:
        who = f"{run.name}: m" if run.name and len(runs) > 1 else "M"
        build = f", build {run.commit}" if run.commit else ""
        said = f"{who}easured on {run.machine}, {run.date}{build} ([{folder}](../bench/results/{folder}))."
        changes = state.changes(folder, run)
        kernels, of = state.kernels_changed(folder, run)
        for mark in (CHANGED, NEWER):
            names = [change.what.split("#")[0] for change in changes if change.mark == mark and not change.lifted]
            names += [f"the {'count of instructions' if run.kind == 'host' else 'machine code'} of {kernels} of {of} rows"] if mark == CHANGED and kernels else []
            if names:
                verb = ("has" if len(names) == 1 else "have") + " changed since" if mark == CHANGED else ("is" if len(names) == 1 else "are") + " not of the version in bench/peers.lock"
                said += f"\n{mark} {listed(names)} {verb}.".replace(",  ", ", ")
        if lifted := list(dict.fromkeys(change.lifted for change in changes if change.lifted)):
            said += f"\n{listed(lifted)}."
        sentences.append(said)
    return "\n".join(dict.fromkeys(sentences))
