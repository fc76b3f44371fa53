"""What Kiln launches for a problem in this process, as kiln.explain says it."""


def launched(op, **words):
    """The problem in full, the implementation and its config, and which file had the record ("" where none has)."""
    import kiln

    return read(op, kiln.explain(kiln.op(op), **{"dtype": "bf16"} | words))


def read(op, text):
    said = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    answer, _, origin = said["answer"].rpartition(", from ")
    implementation, _, config = answer.partition(" ")
    return {"problem": said["problem"].removeprefix(f"{op} "), "implementation": implementation, "config": config,
            "origin": origin, "because": said.get("because", "")}
