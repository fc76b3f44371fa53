"""The table of docs/faults.md, from what the fault tests counted.

    KILN_FAULT_TALLY=$PWD/bench/results/faults/tally.tsv ctest --preset debug -R faults

Each line of the tally is "ROW<TAB>CASES<TAB>WHAT", written by a test that passed its checks up to there; a test that fails is ctest's to report.
"""
import collections

from evidence.table import markdown

FAULTS = {
    1: "kill -9 during a commit", 2: "EIO, ENOSPC or a torn write at the Nth system call", 3: "loss of power", 4: "disk full",
    5: "file-size limit", 6: "read-only folder, no HOME, unwritable overlay", 7: "a base in WAL mode", 8: "a base copied while half-written",
    9: "any bit of a file flipped", 10: "truncated or empty file", 11: "a foreign SQLite file", 12: "a newer format",
    13: "8 processes want one key at once", 14: "the tuning process dies or is stopped", 15: "a read that would become a write",
    16: "fork after open", 17: "overlay replaced or deleted while open", 18: "links, or others may write", 19: "network file systems",
    20: "the clock jumps ten years", 21: "all mtimes zero", 22: "sizes that overflow", 23: "a winner's constraint breaks at the real size",
    24: "impossible costs, configs outside the space", 25: "a cubin moved under another key", 26: "other device, driver or NVRTC",
    27: "the driver refuses a valid cubin", 28: "SQL metacharacters, NUL, newlines, 1 MB names", 29: "paths that look like URIs",
    30: "templates that reach for files", 31: "code smuggled through names", 32: "views, triggers, extra tables", 33: "oversized blobs, compression bombs",
    34: "hostile or reordered merges", 35: "a candidate that hangs or faults", 36: "a compile that fails or throws", 37: "out of device memory while tuning",
    38: "Ctrl-C in a pre-warm", 39: "an overlay that keeps nothing", 40: "an export of nothing over a release", 41: "standard error closed, full or unread",
    42: "standard output closed, full or unread", 43: "writers with equal process ids", 44: "killed writers, again and again",
    45: "a stranger's journal beside a file", 46: "outputs named as links, devices or others' files", 47: "the holder of a lease or a lock is stopped",
    48: "export and merge beside writers", 49: "keys and lists without end in a manifest", 50: "the 65th signature", 51: "terminal escapes in names and texts",
    52: "bases behind links", 53: "texts that are pipes, devices or one endless line", 54: "fork after an engine was made",
    55: "traces of mixed types, launches that fault", 56: "args that are not the kernel's parameters",
    57: "an overlay that may only be read", 58: "what doctor must call broken", 59: "an overlay that was named and is refused",
    60: "outputs named like another kind of file", 61: "callbacks of a tune that ask for a tune", 62: "callbacks that throw",
    63: "the last handle of an engine let go in a callback", 64: "limits and times that make no sense", 65: "traces with a byte order mark; samplers that never finish",
    66: "streams and threads that come and go with work on them", 67: "more streams than are kept",
    68: "threads and processes that the system refuses", 88: "engines made in a child of fork", 91: "device times that are no times",
    75: "libraries without a descriptor", 86: "the environment of programs with raised rights", 87: "a worker that another user planted",
    92: "workers that lie", 93: "workers that do not read", 96: "descriptors that a worker might inherit", 100: "workers that are killed",
    69: "indices in device memory outside of their tables", 70: "scales that are 0, negative, NaN or infinite",
    80: "gradients of a few keys with logits far under 0", 81: "sizes of 0 on the host",
    71: "an output that exists", 72: "a base with unused machine code", 73: "an implementation that is wrong throughout",
    76: "a GPU in exclusive-process mode", 77: "an NVRTC newer than the driver", 78: "an NVRTC without its builtins", 79: "launches that block",
    94: "coverage of very many missing buckets", 97: "a link-local address with its scope", 98: "memory that fails while a command reads its options",
    101: "overlay paths that are empty", 102: "two commands with one output",
    103: "a machine that dies inside an operation on a shared folder", 104: "a shared folder with calls that fail and names that come late",
    105: "launches while a shared folder stops", 106: "hostile values in a shared store",
    107: "a candidate of a team that hangs or faults", 108: "two copies of Kiln in one process",
    109: "exits while an engine tunes", 110: "a program that changes its directory",
    111: "a program that has SQLite share caches",
    74: "an overlay locked at its opening",
    82: "a file overwritten in place while it is opened",
    83: "an index that lacks rows", 84: "an overlay with a spoilt page", 85: "revocations of any name and form, or unreadable",
    89: "a NUL in a text", 90: "a file that counts keep large", 95: "no inodes left", 99: "ops and keys that are open to all",
}


def faults(read):
    cases = collections.Counter()
    for line in read.text("faults/tally.tsv").splitlines():
        row, count, _ = line.split("\t", 2)
        cases[int(row)] += int(count)
    cells = [[row, FAULTS[row], f"{cases[row]:,}"] for row in sorted(cases)]
    half = (len(cells) + 1) // 2
    right = cells[half:] + [["", "", ""]] * (2 * half - len(cells))
    untried = ", ".join(str(row) for row in sorted(FAULTS) if not cases[row]) or "none"
    return markdown(["", "fault", "cases"] * 2, [a + b for a, b in zip(cells, right)]) + f"\n{sum(cases.values()):,} cases in {len(cells)} classes; not tried: {untried}.\n"


TABLES = {"faults": faults}
