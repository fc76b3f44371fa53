"""What the tables share: reading lines of JSON, means and quantiles, and Markdown."""
import json
import math

from evidence.claim import RESULTS


class Reader:
    """Reads files of bench/results by "CLAIM/NAME", and remembers which: a table's caption speaks of these."""

    def __init__(self):
        self.used = []

    def text(self, name):
        """The file's text, "" where it is not there."""
        path = RESULTS / name
        if not path.exists():
            return ""
        self.used.append(name)
        return path.read_text()

    @staticmethod
    def matching(pattern):
        """The names of files that match."""
        return sorted(path.relative_to(RESULTS).as_posix() for path in RESULTS.glob(pattern))

    def __call__(self, name):
        """The objects of the file, one a line."""
        return [json.loads(line) for line in self.text(name).splitlines() if line.startswith("{")]


def markdown(head, body):
    rows = ["| " + " | ".join(map(str, line)) + " |\n" for line in [head, *body]]
    return "".join([rows[0].replace("|  |", "| |"), "|" + "---|" * len(head) + "\n", *rows[1:]])


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
