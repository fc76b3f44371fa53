"""README's table of results: the figures that a reader asks for first. A † marks rows whose code has changed since."""
import re
from statistics import median

from evidence.attention import ratios_of
from evidence.blocks import BLOCKS, of, over_kiln, rows_of
from evidence.claim import is_older, runs_of
from evidence.decode import shares_of_read
from evidence.family import in_class, ratios, rows_and_peers
from evidence.hits import FOLDERS
from evidence.table import Reader, markdown, mean, quantile
from evidence.team import compared, over, tuned
from evidence.tuner import DEVICES, TYPES, at, folder, measured, regrets


def by_type(read, device="H200"):
    """The pairs of each type that was measured on a device."""
    return {dtype: rows for dtype in TYPES if (rows := measured(read, device, dtype))}


def gemm(read):
    return f"{gemm_means(read)}; {worst(read)}"


def gemm_means(read):
    said = [f"{device}{dtype} {mean(row['best_over_kiln'] for row in rows):.3f} ({len(rows)} pairs)" for device, name in (("", "H200"), ("H100 ", "H100"))
            for dtype, rows in by_type(read, name).items()]
    return f"geometric mean {', '.join(said)}"


def worst(read):
    rows = [(row["best_over_kiln"], row, dtype, device) for device in DEVICES for dtype, of in by_type(read, device).items() for row in of]
    ratio, row, dtype, device = min(rows, key=lambda each: each[0])
    return f"worst {ratio:.3f} at {at(row)}, {dtype}, {device}; {sum(each[0] < 0.97 for each in rows)} of {len(rows)} pairs under 0.97"


def cores(read, device):
    """The cores of the machines on which a device's pairs were measured."""
    machines = [run.machine for _, run in runs_of([name for name in read.used if name.startswith(f"{folder(device)}/pairs_")])]
    return " and ".join(sorted({word for machine in machines for word in re.findall(r"\d+ cores", machine)}))


def tunes(read):
    said = []
    for device in DEVICES:
        seconds = {dtype: [row["ready_ms"] / 1000 for row in rows if row["tunes"]] for dtype, rows in by_type(read, device).items()}
        medians = [f"{dtype} {quantile(each, 0.5):.1f}" for dtype, each in seconds.items()]
        said.append(f"{device}, {cores(read, device)}: median {', '.join(medians)} s, worst {max(max(each) for each in seconds.values()):.1f} s")
    return "; ".join(said)


def regret(read):
    said = []
    for device in DEVICES:
        rows = [(row, op) for of, op, row in regrets(read) if of == device]
        row, op = max(rows, key=lambda each: each[0]["worst"])
        medians = [each["median"] for each, _ in rows]
        said.append(f"{device}, {len(rows)} ops: median {min(medians):.1%} to {max(medians):.1%}, worst {row['worst']:.0%} (`{op}`)")
    return "; ".join(said)


def untuned(read):
    said = []
    for device in DEVICES:
        slower = {dtype: [row["stand_in_over_kiln"] - 1 for row in rows if row.get("stand_in_origin") in ("nearest", "model", "default")]
                  for dtype, rows in by_type(read, device).items()}
        medians = [f"{dtype} {quantile(each, 0.5):.1%} ({len(each)})" for dtype, each in slower.items() if each]
        said.append(f"{device} median {', '.join(medians)}, worst {max(max(each) for each in slower.values() if each):.0%}")
    return "; ".join(said)


def hot(read):
    rows = [row for folder in FOLDERS for row in read(f"{folder}/hit_latency.json") if row["bench"] == "hit_latency" and row["threads"] == 1 and
            row["way"] in ("Op::launch, hot", "Plan::launch")]
    attention, others = ([row["over_bare_ns"] for row in rows if (row["op"] == "attention_forward") == which] for which in (True, False))
    return f"{min(others)} to {max(others)} ns (H100), `attention_forward` {max(attention)} ns (H200)"


def stream(read):
    [row], [verified] = read("stream-h200/replay.json"), read("stream-h200/replay_verified.json")[-1:]
    return f"{row['tunes']} tunes, {row['compiles']} compiles; {verified['wrong']} wrong in a pass of their own, verified with NVRTC"


def memory_bound(read):
    rows, peers, names = rows_and_peers(read)
    large = in_class(rows, "0.7 to 1.4 GB")
    said = {"torch": "eager torch takes {:.2f} times as long", "compile": "`torch.compile` {:.2f}", "liger": "Liger {:.2f} where it has the kernel"}
    told = [said[name].format(mean(ratios(large, peers, name))) for name in names if name in said]
    return f"{len(large)} kernels: {mean(row['of_copy'] for row in large):.2f} of a device copy's rate; {', '.join(told)}"


def dense_attention(read):
    said = []
    for kind, where in (("_drawn", "At random lengths"), ("", "Mostly at buckets' upper ends")):
        passes = []
        for name, words in ((f"attention{kind}{'_forward' if kind else ''}", "forward"), (f"attention{kind}_backward", "backward")):
            cudnn, flash = ratios_of(read, name, "cudnn"), ratios_of(read, name, "flash")
            passes.append(f"{words} {mean(cudnn):.2f}, worst {min(cudnn):.2f} ({len(cudnn)} problems), over FlashAttention-2 {mean(flash):.2f}")
        said.append(f"{where}: {'; '.join(passes)}")
    return ". ".join(said) + "; H100"


def served_attention(read):
    shares, peers = shares_of_read(read), {row["asked"]: row["ns"] for row in read("packed-h100/packed_peers.json") if row["peer"] == "varlen" and row.get("right")}
    packed = [peers[row["asked"]] / row["ns"] for row in read("packed-h100/packed.json")]
    return f"{mean(shares):.2f} of a plain read's rate from 64 MB on, worst {min(shares):.2f} ({len(shares)} problems, H100); {mean(packed):.2f} over torch's `varlen_attn` ({len(packed)} batches, H100)"


def all_reduced(read):
    ratios = [ratio for (op, _), sizes in tuned(read).items() if op == "gemm_all_reduce" for ratio, _, _ in sizes.values()]
    return f"{min(ratios):.2f} to {max(ratios):.2f}"


def on_two_gpus(read):
    rows = compared(read)
    parts = {"collectives": [row for row in rows if "gemm" not in row[0]["asked"] and "attention" not in row[0]["asked"]],
             "products": [row for row in rows if "gemm" in row[0]["asked"]], "attention": [row for row in rows if "attention" in row[0]["asked"]]}
    ratios = {name: over(some, "nccl") for name, some in parts.items()}
    return "; ".join(f"{name} {mean(found):.2f}, worst {min(found):.2f} ({len(found)} problems)" for name, found in ratios.items()) + f"; `gemm_all_reduce` beside NCCL in its tune {all_reduced(read)}; two H200"


def layers_on_two_gpus(read):
    seconds = {(side, stack): next(row["seconds"] for row in read(f"team-h200/team_layers_{side}{stack}.json") if row["phase"] == "stream")
               for side in ("", "peers_", "alone_") for stack in ("llama", "flux")}
    return "; ".join(f"{title}: {seconds['', stack]:.1f} s, torch with NCCL {seconds['peers_', stack]:.1f}, torch on one GPU {seconds['alone_', stack]:.1f}"
                     for stack, title in (("llama", "80 layers of Llama 70B's MLP"), ("flux", "57 blocks of Flux"))) + "; two H200"


def whole_blocks(read):
    said = []
    for block, title in BLOCKS.items():
        rows = rows_of(read, block, ("", "peers"))
        ratios = [[ratio for ratio, _ in over_kiln(rows, "compile", key)] for key in ("infer_ns", "train_ns")]
        said.append(f"{title} {median(ratios[0]):.2f} and {median(ratios[1]):.2f}, worst {min(map(min, ratios)):.2f} ({len(ratios[0])} lengths)")
    rows = rows_of(read, next(iter(BLOCKS)), ("prewarmed", "peers"))
    kiln, compiled = (next((row["infer_ms"] + row["train_ms"]) / 1000 for row in of(rows, "first", side)) for side in ("kiln, a prewarmed file", "compile"))
    return f"{'; '.join(said)}. Llama's first batch by a prewarmed file {kiln:.2f} s, `torch.compile` from its cache {compiled:.1f} (H100)"


def start(read):
    [row] = [row for row in read("cold-start-h200/cold_start.json") if row["way"] == "Kiln, shipped file, overlay"]
    return f"{row['result_ms'] - row['until_context_ms']:.1f} ms"


ROWS = {"gemm at random (model shape, length) pairs, cuBLASLt's best for the very length / Kiln": gemm,
        "tuning one bucket of gemm": tunes,
        "inside a bucket, over a config tuned for the very length": regret,
        "served with no tune of that bucket, over tuned": untuned,
        "a hot launch over the driver's bare launch, one thread": hot,
        "10,000 distinct problems from one shipped file without NVRTC": stream,
        "memory-bound kernels at about 1 GB, geometric means": memory_bound,
        "attention, dense, cuDNN / Kiln": dense_attention,
        "attention: decode; packed batches of unlike lengths": served_attention,
        "ops of a team of two, mostly at buckets' upper ends, torch with NCCL (and cuBLAS, cuDNN or FlashAttention) / Kiln": on_two_gpus,
        "a model's block, `torch.compile` / Kiln, medians forward, and forward and backward": whole_blocks,
        "layers of two sets of weights on two GPUs, from process start to the last of a few batches, by the file of an earlier run": layers_on_two_gpus,
        "from a context to the first checked result with a shipped file": start}


def results(_):
    body = []
    for what, figure in ROWS.items():
        read = Reader()
        told = figure(read)
        body.append([what, told + (" †" if is_older(read.used) else "")])
    return markdown(["what", "figure"], body)


TABLES = {"results": results}
