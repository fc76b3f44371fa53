"""Kiln's CUDA kernels: specialised at run time, tuned once, kept in one file.

    import kiln

    norm = kiln.op("rms_norm")
    norm(x=x, weight=weight, y=y, epsilon=1e-6)

Tensors are objects of any library that speaks DLPack or the CUDA array interface. Nothing is opened before the first use.
"""
from __future__ import annotations

import operator as _operator
import os as _os
from collections.abc import Iterable as _Iterable
from itertools import islice as _islice

from ._extension import kept as _kept  # first: it says why, if the extension cannot be imported
from . import _files, _kiln
from ._files import shipped_records

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Literal, Union
    Path = Union[str, _os.PathLike[str]]

__all__ = [
    "Coverage", "Error", "Op", "Team", "Tuner", "check", "configure", "coverage", "explain", "join_team", "op", "prepare", "record",
    "shipped_records", "stats", "wait_for_tunes", "warnings",
]
__version__: str = _kiln.version


@_kept
class Error(RuntimeError):
    """What Kiln refuses, in a sentence: what was asked, what was found, and what to do.

    `kind` is "bad_input", "no_driver", "no_nvrtc", "not_tuned" or another name of kiln/kiln.h's statuses, in lower case.
    """

    kind: str

    def __init__(self, sentence: str, kind: str = "bad_input") -> None:
        super().__init__(sentence)
        self.kind = kind

    def __reduce__(self) -> tuple[type[Error], tuple[str, str]]:
        return type(self), (str(self), self.kind)


@_kept
class Op(_kiln.Op):
    """An op, which kiln.op() gives. Call it with tensors and values by their names in the op's contract; see `contract` and help(OP).

    Tensors give sizes, types and strides, which are checked. Keywords give what no tensor shows: axes, choices, run-time values. An axis may also
    be a tensor of one i32 in device memory, which the launch reads when it runs. None stands for a tensor that is absent.

    `stream` is an int (0 is the default stream) or an object with `__cuda_stream__`, `cuda_stream` or `ptr`. Left out, it is the current stream of
    the tensors' library, where that tells it by DLPack's C exchange, as torch does.

    The call returns once the kernel is enqueued. On a miss it may compile or tune, as kiln.configure(on_miss=...) says; Ctrl-C ends a tune.
    """

    __slots__ = ()

    @property
    def contract(self) -> str:
        """What the op computes, its tensors with shapes and types, and its values, as text."""
        from ._contract import contract_of

        return contract_of(self.describe())

    def describe(self, **problem: int | str) -> dict[str, Any]:
        """All that `kiln ops OP --json` prints; with sizes, types and choices also what holds at that problem."""
        import json

        described: dict[str, Any] = json.loads(_kiln.describe(self, problem or None, -1))
        return described

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        try:
            return self.contract
        except Error as error:
            return f"The contract of {self.name} could not be read: {error}"

    def __reduce__(self) -> tuple[type[Op], tuple[str, str]]:
        return type(self), (self.name, self.folder)

    def __repr__(self) -> str:
        return f"kiln.op({self.name!r})" if not self.folder else f"kiln.op({self.name!r}, folder={self.folder!r})"


def _whole(what: str, text: str) -> str:
    """The text, where C takes it as it is."""
    try:
        text.encode()
        if "\0" not in text:
            return text
    except UnicodeEncodeError:
        pass
    raise Error(f"{what} is {text!r}, expected text in UTF-8 without null characters")


def _path(what: str, path: Path) -> str:
    try:
        return _whole(what, _os.fsdecode(path))
    except TypeError:
        raise Error(f"{what} is a {type(path).__name__}, expected a path: a str or an os.PathLike") from None


def _named(what: str, path: Path) -> str:
    """The path from the working directory of this moment, which the program may change; as given where that directory is no UTF-8."""
    given = _path(what, path)
    if not given or _os.path.isabs(given):
        return given
    try:
        full = _os.path.join(_os.getcwd(), given)
        full.encode()
    except OSError:
        raise Error(f"{what} is '{given}', in a working directory that was removed; name its full path") from None
    except UnicodeEncodeError:
        return given
    return full


def op(name: str, *, folder: Path | None = None) -> Op:
    """The op of this name, such as "rms_norm"; `folder` holds the user's own ops, each in a folder of its name.

    Opens nothing: the op's manifest is read at its first use, where an unknown name is refused.
    """
    if not isinstance(name, str):
        raise Error(f"an op's name is a {type(name).__name__}, expected a str")
    if folder is None:
        return Op(_whole("an op's name", name), "")
    return Op(_whole("an op's name", name), _os.path.normpath(_named("the folder of ops", "." if folder in ("", b"") else folder)))


@_kept
class Coverage:
    """What kiln.prepare() and kiln.coverage() found: a launch hits for `hits` of `total` problems. `gaps` has the reason for each other problem, and what serves it.

    `capturable`: whether a capture of a CUDA graph could launch all of them now."""

    __slots__ = ("total", "hits", "capturable", "gaps")

    def __init__(self, total: int, hits: int, capturable: bool, gaps: list[dict[str, Any]]) -> None:
        self.total, self.hits, self.capturable, self.gaps = total, hits, capturable, gaps

    def __repr__(self) -> str:
        return f"Coverage(total={self.total}, hits={self.hits}, capturable={self.capturable}, gaps={self.gaps!r})"


def _ordinal(device: int | None) -> int:
    if device is None:
        return -1
    try:
        ordinal = -1 if isinstance(device, bool) else _operator.index(device)
    except TypeError:
        ordinal = -1
    if not 0 <= ordinal < 1024:
        raise Error(f"device is {device!r}, expected the ordinal of a CUDA device, from 0 on")
    return ordinal


def _split(op: Op, problem: dict[str, Any]) -> tuple[dict[str, int | str], dict[str, list[int]]]:
    """What each problem has, with the first size of each axis that has several; and all sizes of those axes."""
    if not isinstance(op, _kiln.Op):  # also where this module was loaded anew
        raise Error(f"an op is expected, as kiln.op() gives it, and a {type(op).__name__} is given")
    settings: dict[str, int | str] = {}
    sizes: dict[str, list[int]] = {}
    for name, value in problem.items():
        if isinstance(value, (str, bytes)) or not isinstance(value, _Iterable):
            settings[name] = value
            continue
        try:
            sizes[name] = list(map(_operator.index, _islice(value, _MOST_SIZES + 1)))
        except TypeError as error:
            raise Error(f"{op.name}: the sizes of '{name}' are no ints: {error}") from None
        if not sizes[name]:
            raise Error(f"{op.name}: '{name}' has no sizes, expected one at least")
        if len(sizes[name]) > _MOST_SIZES:
            raise Error(f"{op.name}: '{name}' has more sizes than Kiln lists, expected 1 to {_MOST_SIZES}; a bucket holds many, and one of them is enough")
        settings[name] = sizes[name][0]
    return settings, sizes


def _cover(op: Op, stream: object, device: int | None, only_looks: bool, problem: dict[str, Any]) -> Coverage:
    import json

    settings, sizes = _split(op, problem)
    total, hits, capturable, text = _kiln.prepare(op, settings, sizes, stream, _ordinal(device), only_looks)
    return Coverage(total, hits, capturable, json.loads(text)["gaps"])


def prepare(op: Op, *, stream: object = None, device: int | None = None, **problem: int | str | _Iterable[int]) -> Coverage:
    """Makes problems ready, so that launches and captures of CUDA graphs on `stream` miss nothing. Blocks: it looks up, compiles or tunes.

    Each size is an int or several, such as rows=range(1, 8193); several of two axes mean each with each. `device` is an ordinal; left out, it is
    that of the current CUDA context, else 0. A bucket that fails is a gap, not an error.
    """
    return _cover(op, stream, device, False, problem)


def coverage(op: Op, *, stream: object = None, device: int | None = None, **problem: int | str | _Iterable[int]) -> Coverage:
    """The same as prepare(), but makes nothing ready: it tells what launches would meet now."""
    return _cover(op, stream, device, True, problem)


def explain(op: Op, *, device: int | None = None, **problem: int | str) -> str:
    """Which config serves a problem and why: bucket, key, each file that was asked, expected times."""
    settings, sizes = _split(op, problem)
    if sizes:
        raise Error(f"{op.name}: one problem is explained, and several sizes are given for '{next(iter(sizes))}'")
    return _kiln.explain(op, settings, _ordinal(device))


@_kept
class Tuner:
    """Tunes, compiles or deploys ahead what add() was given: problems of ops of one folder, on one device.

        tuner = kiln.Tuner()
        tuner.add(norm, rows=range(1, 8193), cols=4096, dtype="bf16")
        print(tuner.tune()["buckets"])
        tuner.deploy("norm.kiln")

    Each blocks, for minutes where buckets are many; Ctrl-C ends it, and what was tuned before is kept."""

    __slots__ = ("_tuner",)

    def __init__(self, *, device: int | None = None) -> None:
        self._tuner = _kiln.Tuner(_ordinal(device))

    def add(self, op: Op, **problem: int | str | _Iterable[int]) -> None:
        """Adds the buckets of problems. Sizes are given as to prepare()."""
        self._tuner.add(op, *_split(op, problem))

    def tune(self, retune: Literal["none", "stale", "all"] = "none") -> dict[str, Any]:
        """Tunes buckets without a usable record, and those of `retune`, into the overlay. Gives a report: for each of its "buckets" the "outcome",
        "config", "cost_ns" and the "reason" of a failure, which ends no other bucket's tune."""
        import json

        report: dict[str, Any] = json.loads(self._tuner.tune(_one_of("retune", retune, _RETUNE) or 0))
        return report

    def compile(self) -> list[dict[str, Any]]:
        """Brings all machine code that these buckets can need to the overlay. Gives what was compiled, and what is "missing", an architecture each."""
        import json

        report: list[dict[str, Any]] = json.loads(self._tuner.compile())
        return report

    def deploy(self, path: Path, *, replace: bool = False) -> dict[str, Any]:
        """Writes a file that serves these buckets without NVRTC, for configure(bases=...) or `python -m kiln.wheel`. `replace`: over any file."""
        import json

        report: dict[str, Any] = json.loads(self._tuner.deploy(_path("the file to deploy", path), bool(_flag("replace", replace))))
        return report


@_kept
class Team:
    """This process's part in a team, which join_team() gives: `rank` of `world`, on `device`, with `bytes` of symmetric memory.

    Engines that are made on that device belong to the team, so that ops with a team axis, such as all_reduce, may be called."""

    __slots__ = ("name", "rank", "world", "device", "bytes")

    def __init__(self, name: str, rank: int, world: int, device: int, bytes: int) -> None:
        self.name, self.rank, self.world, self.device, self.bytes = name, rank, world, device, bytes

    def __repr__(self) -> str:
        return f"kiln.Team(rank={self.rank}, world={self.world}, device={self.device})"

    def reset(self) -> None:
        """Collective: the team serves again after an Error of kind "team_failed", where no rank has ended. Streams must be synchronised before."""
        _kiln.reset_team()

    def close(self) -> None:
        """Collective: frees what the ranks share. No kernel of this process may use it any more."""
        _kiln.close_team()


joined: Team | None = _kiln.kept.get("joined")  # this process's


def join_team(
    rank: int | None = None,
    world: int | None = None,
    *,
    exchange: Callable[[str | None], str] | None = None,
    name: str | None = None,
    address: str | None = None,
    device: int | None = None,
    bytes: int | None = None,
    timeout: float | None = None,
    launch_timeout: float | None = None,
) -> Team:
    """Meets the other ranks of a team, a process each; once, before Kiln's first use. Blocks until every rank has come.

    Without `rank` and `world` they are those of torchrun, Open MPI's mpirun or Slurm's srun. With them, the ranks know each other by one of:

    exchange: called with a name on rank 0 and None on every other rank, gives all ranks what rank 0 passed, as mpi4py's comm.bcast does.
    name: the same text for all ranks of the team and for no other team.
    address: "HOST:PORT" where rank 0 listens, for ranks on several hosts, which share no memory; NCCL alone serves them.

    device: ordinal of this rank's GPU; left out, the launcher's local rank, else the only one. bytes: symmetric memory of each rank.
    timeout, launch_timeout: seconds that a rank waits for every other rank, in each collective and in a launch. docs/teams.md says more.
    """
    if (rank is None) != (world is None):
        raise Error("kiln.join_team: rank and world are given together, or both are left to the launcher's variables")
    if rank is None and (exchange is not None or name is not None):
        raise Error("kiln.join_team: exchange and name need rank and world")
    rank, world, bytes = _count("rank", rank), _count("world", world, 1), _count("bytes", bytes, most=(1 << 63) - 1)
    for option, value in (("name", name), ("address", address)):
        if value is not None and not isinstance(value, str):
            raise Error(f"kiln.join_team: {option} is {value!r}, expected a str")
        if value is not None:
            _whole(f"kiln.join_team: {option}", value)
    if exchange is not None and name is not None:
        raise Error("kiln.join_team: exchange and name are both given, expected one")
    if rank is not None and name is None:
        if exchange is not None:
            name = exchange(_kiln.team_name() if rank == 0 else None)
            if not isinstance(name, str):
                raise Error(f"kiln.join_team: exchange gave a {type(name).__name__}, expected the str that rank 0 passed to it")
        elif address is None and world != 1:
            raise Error("kiln.join_team: the ranks do not know each other; give exchange, name or address")
        else:
            name = _kiln.team_name() if address is None else f"kiln at {address}"
    global joined
    joined = _kiln.kept["joined"] = Team(*_kiln.join_team(rank, world or 0, name or "", _ordinal(device), bytes or 0, _milliseconds(timeout), _milliseconds(launch_timeout), address))
    return joined


def _seconds(what: str, seconds: float) -> float:
    try:
        if not isinstance(seconds, (str, bytes)):
            return float(seconds)
    except (TypeError, ValueError, OverflowError):
        pass
    raise Error(f"{what} is {seconds!r}, expected seconds")


def _milliseconds(seconds: float | None) -> int:
    if seconds is None:
        return 0
    if not 0 < _seconds("kiln.join_team: a timeout", seconds) < 1e9:
        raise Error(f"kiln.join_team: a timeout is {seconds}, expected seconds, more than 0")
    return max(1, round(seconds * 1000))


def record(path: Path | None = None) -> str:
    """What this process has launched, as the text of a workload file, which takes the place of `path` too. `kiln prewarm` and `kiln coverage` read it."""
    text = "\n".join(_kiln.workloads())
    if path is not None:
        _files.replace(_named("the file to record to", path), "# Written by kiln.record: the buckets that a process launched.\n" + text)
    return text


def stats(device: int | None = None) -> dict[str, int | float]:
    """Launches by where their config came from, tunes, compiles and misses by reason, of all devices or of one; `tuning_s` is in seconds."""
    return _kiln.stats(_ordinal(device))


def warnings() -> list[str]:
    """Failures that were worked around, such as a base that is missing. They also go to the logger "kiln"."""
    return [line for text in _kiln.warnings() for line in text.splitlines() if line]


def wait_for_tunes(seconds: float) -> bool:
    """Waits for what is compiled ahead, and for tunes in the background; False where the time passed before."""
    return _kiln.wait_for_tunes(_seconds("wait_for_tunes: the time", seconds))


def check(stream: object = None, device: int | None = None) -> str | None:
    """Waits for `stream`, then returns a length or an index in device memory that was out of its bounds; None where there is none."""
    return _kiln.fault_on(stream, _ordinal(device))


_MOST_SIZES = 1_000_000
_ON_MISS = ("tune", "background", "nearest", "error")
_COMPILE = ("when_needed", "never")
_TRUST = ("default", "owner", "signed")
_ISOLATION = ("automatic", "worker", "in_process")
_RETUNE = ("none", "stale", "all")


def _one_of(name: str, value: str | None, names: tuple[str, ...]) -> int | None:
    if value is not None and value not in names:
        raise Error(f"{name} is {value!r}, expected one of: {', '.join(names)}")
    return None if value is None else names.index(value)


def _count(name: str, value: int | None, least: int = 0, most: int = (1 << 31) - 1) -> int | None:
    if value is None:
        return None
    try:
        number = -2 if isinstance(value, bool) else _operator.index(value)
    except TypeError:
        number = -2
    if least <= number <= most:
        return number
    raise Error(f"{name} is {value!r}, expected an int from {least} to {most}")


def _flag(name: str, value: bool | None) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    raise Error(f"{name} is {value!r}, expected True or False")


def configure(
    *,
    bases: _Iterable[Path] = (),
    overlay: Path | None = None,
    on_miss: Literal["tune", "background", "nearest", "error"] | None = None,
    compile: Literal["when_needed", "never"] | None = None,
    require_bases: bool | None = None,
    trust: Literal["default", "owner", "signed"] | None = None,
    trusted_keys: _Iterable[Path] = (),
    worker: Path | None = None,
    nvrtc: Path | None = None,
    remote: str | None = None,
    signing_key: Path | None = None,
    isolation: Literal["automatic", "worker", "in_process"] | None = None,
    compile_workers: int | None = None,
    compile_ahead: int | None = None,
    search_trials: int | None = None,
    search_seconds: float | None = None,
    workspace_limit_bytes: int | None = None,
    overlay_limit_bytes: int | None = None,
    histogram: bool | None = None,
) -> None:
    """Sets how Kiln works in this process; before its first use, and an Error after it. A second call replaces all of the first.
    Relative paths are taken from the working directory of this call.

    bases: tuned files, asked in order after the overlay and before those of installed packages (entry points of the group "kiln.bases").
    The bare name of a file that is not in the working directory may be that of shipped records: "h100.kiln" or "h200.kiln".
    overlay: the file that Kiln writes; "" keeps it in memory; left out, $KILN_CACHE, else the user's cache folder.
    on_miss: what a launch without a record does: tune and wait; tune in the "background"; take what is "nearest"; or an "error".
    compile: "never" keeps NVRTC closed: what no file has machine code for is an error of kind "no_nvrtc".
    remote, signing_key: a store that machines share, and what signs what goes there (docs/sharing.md); left out, $KILN_REMOTE and $KILN_SIGNING_KEY.
    search_trials, search_seconds: limits of one tune. The rest are those of kiln/options.hpp by the same name.
    """
    if isinstance(bases, (str, bytes, _os.PathLike)) or isinstance(trusted_keys, (str, bytes, _os.PathLike)):
        raise Error("kiln.configure: bases and trusted_keys are lists of files or folders, and one name is given; put it into a list")
    for option, files in (("bases", bases), ("trusted_keys", trusted_keys)):
        if not isinstance(files, _Iterable):
            raise Error(f"{option} is {files!r}, expected a list of paths")
    if remote is not None and not isinstance(remote, str):
        raise Error(f"remote is {remote!r}, expected a str")
    if search_seconds is not None and not 0 <= _seconds("search_seconds", search_seconds) < 1e9:
        raise Error(f"search_seconds is {search_seconds}, expected seconds, 0 or more")
    settings = _kiln.Settings()
    settings.bases = [_named("a base", _files.or_shipped(_path("a base", each))) for each in bases]
    settings.trusted_keys = [_named("a folder of trusted keys", each) for each in trusted_keys]
    settings.overlay = None if overlay is None else _named("overlay", overlay)
    settings.worker = None if worker is None else _named("worker", worker)
    settings.on_miss = _one_of("on_miss", on_miss, _ON_MISS)
    settings.nvrtc = None if nvrtc is None else _path("nvrtc", nvrtc)
    if settings.nvrtc and "/" in settings.nvrtc:  # a bare name is the loader's to find
        settings.nvrtc = _named("nvrtc", settings.nvrtc)
    settings.remote = None if remote is None else _whole("remote", remote)
    settings.signing_key = None if signing_key is None else _named("signing_key", signing_key)
    settings.compile = _one_of("compile", compile, _COMPILE)
    settings.trust = _one_of("trust", trust, _TRUST)
    settings.isolation = _one_of("isolation", isolation, _ISOLATION)
    settings.require_bases = _flag("require_bases", require_bases)
    settings.compile_workers = _count("compile_workers", compile_workers)
    settings.compile_ahead = _count("compile_ahead", compile_ahead, least=-1)
    settings.search_trials = _count("search_trials", search_trials)
    settings.search_time_limit_ms = None if search_seconds is None else max(int(search_seconds > 0), round(search_seconds * 1000))
    settings.workspace_limit_bytes = _count("workspace_limit_bytes", workspace_limit_bytes, most=(1 << 63) - 1)
    settings.overlay_limit_bytes = _count("overlay_limit_bytes", overlay_limit_bytes, most=(1 << 63) - 1)
    settings.histogram = _flag("histogram", histogram)
    _kiln.configure(settings)


def _begin() -> list[str]:
    from ._first_use import begin

    return begin(_kiln.end)


def _log(level: int, line: str) -> None:
    import logging

    try:
        logging.getLogger("kiln").log(level, line)
    except Exception:  # of a handler; the call that logs has launched its kernel, and must not raise
        import contextlib
        import traceback

        with contextlib.suppress(Exception):  # of a standard error that is closed
            if logging.raiseExceptions:
                traceback.print_exc()


_kiln.install(Error, _begin, _log)
