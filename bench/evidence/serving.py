"""What a program meets around its launches: a stream of lengths, the start of a process, plans, tunes beside a service, compiles, the file."""
from evidence.table import markdown


def stream(read):
    body = []
    [verified] = read("stream-h100/replay_verified.json")[-1:]
    for name, what in {"replay": "one shipped file, policy `error`, NVRTC hidden", "replay_new_process": "the same in a new process"}.items():
        [row] = read(f"stream-h100/{name}.json")
        origin = row["by_origin"]
        fallbacks = sum(origin[each]["launches"] for each in ("nearest", "model", "default") if each in origin)
        body.append([what, f"{row['distinct']:,}", row["buckets"], row["tunes"], row["compiles"], fallbacks, f"{origin['hot']['host_median_ns'] / 1000:.2f}",
                     f"{(row['host_ns'] - row['stall_ns']) / 1e9:.2f}", f"{row['stall_ns'] / 1e9:.2f}", f"{row['device_ns'] / 1e9:.2f}"])
    return markdown(["", "distinct problems", "buckets", "tunes", "compiles", "fallbacks", "host us a hot launch, median", "host s, without first loads",
                     "s of first loads", "device s"], body) + f"\nWrong results in a third pass: {verified['wrong']} of {verified['verified']:,}.\n"


def triton_autotune(read):
    seconds = [row["seconds"] for row in read("stream-h200/triton_autotune.json")]
    return markdown(["", "lengths", "s", "s a length"], [["Triton's autotune of the stream's first lengths of gemm", len(seconds), f"{sum(seconds):.1f}",
                                                         f"{sum(seconds) / len(seconds):.2f}"]])


def cold_start(read):
    """Peers count from after their imports and the context."""
    body = []
    for row in read("cold-start-h100/cold_start.json"):
        if "failed" not in row:
            body.append([row["way"], row["runs"], f"{row['result_ms'] - row['until_context_ms']:.2f}", f"{row['result_ms']:.0f}"])
    for row in read("cold-start-h200/cold_start_peers.json"):
        body.append([row["way"], row["runs"], f"{row['after_imports_and_context_ms']:.2f}", f"{row['result_ms']:.0f}"])
    return markdown(["to the first rms_norm", "processes", "ms from when the context is there (aim 5)", "ms from the process's start"], body)


def first_batches(read):
    ways = {"nothing": "nothing", "records": "the records that ship", "prewarmed": "a prewarmed file"}
    [waiting] = read("first-batches-h100/waiting.json")
    body = []
    for what, row in [("nothing, each launch waits for its compile", waiting), *((ways[row["way"]], row) for file in ("first_batches", "prewarmed") for row in read(f"first-batches-h100/{file}.json"))]:
        body.append([what, *(f"{row[name] / 1000:.2f}" for name in ("after_1_ms", "after_10_ms", "all_ms", "second_pass_ms")), row["waited_compiles"], row["compiles_at_end"]])
    return markdown(["of what the process has", "s to the end of batch 1", "batch 10", "batch 58", "all again", "compiles that a launch waited for", "compiles in all"], body)


def plans(read):
    body = [[row["loading"], row["CUDA_MODULE_LOADING"], f"{row['all_ns'] / 1e6:.0f}", f"{row['ops_ns'] / 1e6:.0f}", f"{row['plan_p50_ns'] / 1000:.1f}",
             f"{row['plan_p99_ns'] / 1000:.1f}", f"{row['resident_bytes'] / 2**20:.0f}", f"{row['device_bytes'] / 2**20:.0f}"]
            for row in read("cold-start-h200/plans.json") if "failed" not in row]
    return markdown(["1,000 plans of 256 kernels: `Loading`", "CUDA_MODULE_LOADING", "ms in all", "ms in `Engine::op`", "us a plan, median", "99th percentile", "host MiB",
                     "device MiB"], body)


def background(read):
    body = []
    for row in read("background-h200/background.json"):
        share, tuned = row["share"], row["all_tuned_s"]
        after = "-" if not share else f"{tuned:.1f} s" if tuned else f"{row['tunes']} of {row['tunes'] + row['waiting']} in {row['seconds']:.0f} s"
        body.append([row["way"], share or "-", row["p50_us"], row["p99_us"], row["p99.9_us"], f"{row['tuner_share']:.1%}" if share else "-", after])
    return markdown(["2,000 requests a second", "share asked", "median us", "99th percentile", "99.9th percentile", "share taken", "all tuned after"], body)


def compile_rate(read):
    rates = {}
    for row in read("compile-rate/compile_rate.json"):
        rates.setdefault((row["source"], row["in"]), {})[row["workers"]] = row["per_second"]
    counts = sorted({workers for each in rates.values() for workers in each})
    return markdown(["compiles a second", "in", *counts], [[*key, *(each.get(count, "-") for count in counts)] for key, each in rates.items()])


def cache_file(read):
    rows = {row["what"]: row for row in read("cache-file/cache_file.jsonl")}
    times = lambda what: f"{rows[what]['median_us']:.0f} us, 95th percentile {rows[what]['p95_us']:.0f} us"
    merge = lambda what: f"{rows[what]['seconds']:.1f} s, {rows[what]['peak_mib']} MiB at the peak"
    kilobytes = lambda what: f"{rows[what]['bytes'] / 1000:.2f} kB"
    return markdown(["a file of 100,000 records", "Kiln, every byte verified", "peer, nothing verified"], [
        ["first look-up of a record and its cubin", times("record and cubin, first look-up of each"), times("the same content from plain files, nothing verified") + ": plain files"],
        ["merge of two such files", merge("merge"), merge("merge by plain SQL, nothing verified") + ": plain SQL, the first stays"],
        ["opening it as a sealed base, once a process", times("open a sealed base"), "-"],
        ["a record alone; with its candidates; with its cubin", "; ".join(map(kilobytes, ("record alone", "record with candidates", "record with candidates and cubin"))), "-"],
        ["a cubin in the file; as NVRTC made it", f"{rows['cubin']['compressed'] / 1000:.2f} kB; {kilobytes('cubin')}", "-"]])


TABLES = {"stream": stream, "triton_autotune": triton_autotune, "cold_start": cold_start, "first_batches": first_batches, "plans": plans, "background": background, "compile_rate": compile_rate,
          "cache_file": cache_file}
