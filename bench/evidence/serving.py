"""What a program meets around its launches: a stream of lengths, the start of a process, its first batches, the file."""
from evidence.summary import COLD_START, FIRST_BATCHES, STREAM
from evidence.table import markdown


def stream(read):
    body = []
    [verified] = read(f"{STREAM}/replay_verified.json")[-1:]
    for name, what in {"replay": "one prewarmed file, policy `error`, NVRTC hidden", "replay_new_process": "the same in a new process"}.items():
        [row] = read(f"{STREAM}/{name}.json")
        origin = row["by_origin"]
        fallbacks = sum(origin[each]["launches"] for each in ("nearest", "model", "default") if each in origin)
        body.append([what, f"{row['distinct']:,}", row["buckets"], row["tunes"], row["compiles"], fallbacks, f"{origin['hot']['host_median_ns'] / 1000:.2f}",
                     f"{(row['host_ns'] - row['stall_ns']) / 1e9:.2f}", f"{row['stall_ns'] / 1e9:.2f}", f"{row['device_ns'] / 1e9:.2f}"])
    return markdown(["", "distinct problems", "buckets", "tunes", "compiles", "fallbacks", "host us a hot launch, median", "host s, without first loads",
                     "s of first loads", "device s"], body) + f"\nWrong results in a third pass: {verified['wrong']} of {verified['verified']:,}.\n"


def cold_start(read):
    body = []
    for row in read(f"{COLD_START}/cold_start.json"):
        if "failed" not in row:
            body.append([row["way"], row["runs"], f"{row['result_ms'] - row['until_context_ms']:.2f}", f"{row['result_ms']:.0f}"])
    return markdown(["to the first rms_norm", "processes", "ms from when the context is there (aim 5)", "ms from the process's start"], body)


def first_batches(read):
    ways = {"nothing": "nothing", "records": "the records that ship", "prewarmed": "a prewarmed file"}
    [waiting] = read(f"{FIRST_BATCHES}/waiting.json")
    body = []
    for what, row in [("nothing, each launch waits for its compile", waiting), *((ways[row["way"]], row) for file in ("first_batches", "records", "prewarmed") for row in read(f"{FIRST_BATCHES}/{file}.json"))]:
        body.append([what, *(f"{row[name] / 1000:.2f}" for name in ("after_1_ms", "after_10_ms", "all_ms", "second_pass_ms")), row["waited_compiles"], row["compiles_at_end"]])
    return markdown(["starting state", "s to the end of batch 1", "batch 10", "batch 58", "all again", "compiles that a launch waited for", "compiles in all"], body)


def cache_file(read):
    rows = {row["what"]: row for row in read("cache-file/cache_file.jsonl")}
    shown = lambda us: f"{us / 1e6:.2f} s" if us >= 1e5 else f"{us:.0f} us"
    times = lambda what: f"{shown(rows[what]['median_us'])}, 95th percentile {shown(rows[what]['p95_us'])}"
    merge = lambda what: f"{rows[what]['seconds']:.1f} s, {rows[what]['peak_mib']} MiB at the peak"
    kilobytes = lambda what: f"{rows[what]['bytes'] / 1000:.2f} kB"
    return markdown(["a file of 100,000 records", "Kiln, every byte verified", "peer, nothing verified"], [
        ["first look-up of a record and its cubin", times("record and cubin, first look-up of each"), times("the same content from plain files, nothing verified") + ": plain files"],
        ["merge of two such files", merge("merge"), merge("merge by plain SQL, nothing verified") + ": plain SQL, the first stays"],
        ["opening it as a sealed base, once a process", times("open a sealed base"), "-"],
        ["a record alone; with its candidates; with its cubin", "; ".join(map(kilobytes, ("record alone", "record with candidates", "record with candidates and cubin"))), "-"],
        ["a cubin in the file; as NVRTC made it", f"{rows['cubin']['compressed'] / 1000:.2f} kB; {kilobytes('cubin')}", "-"]])


TABLES = {"stream": stream, "cold_start": cold_start, "first_batches": first_batches, "cache_file": cache_file}
