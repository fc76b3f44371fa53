"""What the tables share: reading lines of JSON with their marks, means and quantiles, and Markdown."""
import json
import math

from evidence import claim
from evidence.marks import State, is_too_old

_state = None


def state():
    """Of the present code; made once."""
    global _state
    _state = _state or State()
    return _state


class Row(dict):
    """A line of a file. `mark`: that of its own kernels, "" where they are as they were measured."""
    mark = ""


class Reader:
    """Reads files of bench/results by "CLAIM/NAME", and remembers which: a table's caption and a figure's mark speak of these."""

    def __init__(self):
        self.used, self.figures = [], []

    def text(self, name):
        """The file's text, "" where it is not there."""
        path = claim.RESULTS / name
        if not path.exists():
            return ""
        self.used.append(name)
        return path.read_text()

    @staticmethod
    def matching(pattern):
        """The names of files that match."""
        return sorted(path.relative_to(claim.RESULTS).as_posix() for path in claim.RESULTS.glob(pattern))

    def __call__(self, name):
        """The objects of the file, one a line."""
        rows = [Row(json.loads(line)) for line in self.text(name).splitlines() if line.startswith("{")]
        folder, file = name.split("/", 1)
        for row in rows:
            row.mark = state().mark_of_row(folder, file, row)
        return rows

    def figure(self, told):
        """What `told` makes of a reader, with the mark of the files that it read; "" where that is nothing, or one of them is too old or has no build to be
        shown. `told` may return a text and the rows that it is of: then their marks count, not those of the others."""
        read, rows = Reader(), None
        text = told(read)
        if isinstance(text, tuple):
            text, rows = text
        self.used += read.used
        if not text:
            return ""
        if is_too_old(read.used):
            self.figures.append(None)
            return ""
        mark = state().mark(read.used, rows)
        self.figures.append(mark)
        return text + (f" {mark}" if text and mark else "")


def markdown(head, body):
    rows = ["| " + " | ".join(map(str, line)) + " |\n" for line in [head, *body]]
    return "".join([rows[0].replace("|  |", "| |"), "|" + "---|" * len(head) + "\n", *rows[1:]]) if body else ""


def words(text):
    """'gemm m=1 n=2' -> {'m': '1', 'n': '2'}"""
    return dict(word.split("=", 1) for word in text.split() if "=" in word)


def mean(values):
    """The geometric mean, None of nothing."""
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None


def quantile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def number(value, form=".2f"):
    return format(value, form) if value is not None else "-"


def us(row, field="ns"):
    """Microseconds of a row, with the mark of its kernels."""
    return f"{row[field] / 1000:.1f}" + (f" {row.mark}" if getattr(row, "mark", "") else "")
