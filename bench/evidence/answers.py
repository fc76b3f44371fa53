"""What the records that ship launch for a problem. A figure whose rows say what they launched speaks of the records of these rows alone."""
import json

from evidence import digests

EDGES = {"pow2": lambda size: 1 << (size - 1).bit_length(), "exact": lambda size: size}


def words_of(text):
    return dict(word.split("=") for word in text.split())


class Answers:
    """The records of a file of cache/, by op."""

    def __init__(self, path):
        self.records = {}
        for record in map(json.loads, (digests.ROOT / digests.file_of(path)).read_text().splitlines()):
            _, axes, types, *_ = record["key"].split(" | ")
            self.records.setdefault(record["op"], []).append((words_of(axes), words_of(types), record["choices"]))

    def of(self, op, problem):
        """(implementation, config) for a problem, "m=822 n=6144 k=4096 dtype=bf16 ..."; nothing where no record is sure to answer it."""
        asked = words_of(problem)
        for axes, types, choices in self.records.get(op, []):
            if asked.keys() == axes.keys() | types.keys() and types.items() <= asked.items() and all(is_of(int(asked[name]), bucket) for name, bucket in axes.items()):
                serving = (choice for choice in choices if choice["role"] == "fastest" and all(is_between(int(asked[name]), span) for name, span in words_of(choice["sizes"]).items()))
                return next(((choice["implementation"], choice["config"]) for choice in serving), None)
        return None


def is_of(size, bucket):
    """Whether a size is of an axis's bucket, "pow2:1024"."""
    policy, edge = bucket.split(":")
    return policy in EDGES and EDGES[policy](size) == int(edge)


def is_between(size, span):
    low, high = span.split("..")
    return int(low) <= size <= int(high)


def are_those_of(rows, path):
    """Whether the records of `path` give each row's problem the config that it was measured with. False where a row does not say its config."""
    answers = Answers(path)
    said = [(row.get("op") or ("gemm" if row.get("bench") == "gemm" else ""), row.get("problem", ""), row.get("implementation"), row.get("config")) for row in rows]
    return bool(said) and all(answers.of(op, problem) == (implementation, config) for op, problem, implementation, config in said)
