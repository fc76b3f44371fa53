"""All figures at a glance, each with its own mark and its worst case."""
import re
from statistics import median

from evidence.attention import MODELS_PEERS, ratios_of
from evidence.blocks import BLOCKS, of, over_kiln, rows_of
from evidence.claim import listed as listed_words, runs_of
from evidence.decode import shares_of_read
from evidence.family import in_class, ratios, rows_and_peers
from evidence.hits import FOLDERS
from evidence.table import Reader, markdown, mean, quantile, state, words
from evidence.team import best_of_peers, compared
from evidence.tuner import DEVICES, TYPES, agreement_seconds, at, folder, measured, regrets, sizes

MANY_ROWS = 64  # up to here a product is bound by reading its weights


def and_worst(found):
    """'1.02, worst 0.91 (200)' of ratios."""
    return f"{mean(found):.2f}, worst {min(found):.2f} ({len(found)})"


def of_types(read, device, told):
    """What `told` makes of each type's pairs on a device, each with its mark."""
    said = [read.figure(lambda r, dtype=dtype: told(dtype, measured(r, device, dtype))) for dtype in TYPES]
    return f"{device}: " + ", ".join(each for each in said if each) if any(said) else ""


def gemm(read, device):
    """Mean, worst and who served."""
    def told(dtype, rows):
        worst = min(rows, key=lambda row: row["best_over_kiln"])
        served = sum(row["implementation"] == "cublaslt" for row in rows)
        many = [row["best_over_kiln"] for row in rows if sizes(row)[0] > MANY_ROWS]
        return f"{dtype} {mean(row['best_over_kiln'] for row in rows):.3f}, {mean(many):.3f} above {MANY_ROWS} rows, worst {worst['best_over_kiln']:.3f} at {at(worst)} ({len(rows)} pairs, {served} served by cuBLASLt)"
    return of_types(read, device, told)


def of_many_rows(rows):
    return [row for row in rows if sizes(row)[0] > MANY_ROWS]


def cores(read, device):
    """The cores of the machines on which a device's pairs were measured."""
    machines = [run.machine for _, run in runs_of([name for name in read.used if name.startswith(f"{folder(device)}/pairs_")])]
    return " and ".join(sorted({word for machine in machines for word in re.findall(r"\d+ cores", machine)}))


def tunes(read, device):
    def told(r):
        seconds = {dtype: [row["ready_ms"] / 1000 for row in measured(r, device, dtype) if row["tunes"]] for dtype in TYPES}
        medians = [f"{dtype} {quantile(each, 0.5):.1f}" for dtype, each in seconds.items() if each]
        longest = max([second for each in seconds.values() for second in each] + agreement_seconds(r, device))
        return f"{device}, {cores(r, device)}: median {', '.join(medians)} s, worst {longest:.1f} s"
    return read.figure(told)


def regret(read, device):
    def told(r):
        rows = [(row, op) for of, op, row in regrets(r) if of == device]
        row, op = max(rows, key=lambda each: each[0]["worst"])
        medians = [each["median"] for each, _ in rows]
        return f"{device}, {len(rows)} ops: median {min(medians):.1%} to {max(medians):.1%}, worst {row['worst']:.0%} (`{op}`)"
    return read.figure(told)


def untuned(read, device):
    def told(r):
        slower = {dtype: [row["stand_in_over_kiln"] - 1 for row in measured(r, device, dtype) if row.get("stand_in_origin") in ("nearest", "model", "default")] for dtype in TYPES}
        medians = [f"{dtype} {quantile(each, 0.5):.1%} ({len(each)})" for dtype, each in slower.items() if each]
        return f"{device}: median {', '.join(medians)}, worst {max(max(each) for each in slower.values() if each):.0%}"
    return read.figure(told)


def hot(read):
    def told(folder, name, which):
        def over_bare(r):
            rows = [row for row in r(f"{folder}/hit_latency.json") if row["bench"] == "hit_latency" and row["threads"] == 1 and
                    row["way"] in ("Op::launch, hot", "Plan::launch") and which(row)]
            found = [row["over_bare_ns"] for row in rows]
            return f"{name} {min(found)} to {max(found)} ns", rows
        return read.figure(over_bare)
    wide = lambda row: (row["op"], row["implementation"]) == ("gemm", "wgmma")
    return "; ".join([told(FOLDERS[0], "`rms_norm`, `gemm` of few rows (H100)", lambda row: not wide(row)),
                      told(FOLDERS[0], "`gemm` by `wgmma` (H100)", wide), told(FOLDERS[1], "an op with TMA (H100)", lambda row: row["op"] == "tile_scale"), told(FOLDERS[1], "`attention_forward` (H100)", lambda row: row["op"] == "attention_forward")])


def stream(read):
    def told(r):
        [row], [verified] = r("stream-h100/replay.json"), r("stream-h100/replay_verified.json")[-1:]
        return f"{row['tunes']} tunes, {row['compiles']} compiles; {verified['wrong']} wrong in a pass of their own, verified with NVRTC"
    return read.figure(told)


def memory_bound(read):
    def told(r):
        rows, peers, names = rows_and_peers(r)
        large = in_class(rows, "0.7 to 1.4 GB")
        of_copy = [row["of_copy"] for row in large]
        beside = [f"{title} {and_worst(found)}" for peer, title in (("compile", "`torch.compile`"), ("liger", "Liger")) if peer in names and (found := ratios(large, peers, peer))]
        return f"{mean(of_copy):.2f} of a device copy's rate, worst {min(of_copy):.2f} ({len(large)} kernels); {'; '.join(beside)}"
    return read.figure(told)


def dense_attention(read, kind):
    said = []
    for name, title in ((f"attention{kind}{'_forward' if kind else ''}", "forward"), (f"attention{kind}_backward", "backward")):
        said.append(read.figure(lambda r, name=name, title=title: f"{title} cuDNN {and_worst(ratios_of(r, name, 'cudnn'))}, FlashAttention-2 {mean(ratios_of(r, name, 'flash')):.2f}"))
    return "; ".join(each for each in said if each)


def attention_of_models(read):
    return read.figure(lambda r: "; ".join(f"{title.split(' / ')[0]} {and_worst(ratios_of(r, 'attention_models', peer))}" for peer, title in MODELS_PEERS.items()))


def decode(read):
    def told(r):
        shares = shares_of_read(r)
        return f"{mean(shares):.2f}, worst {min(shares):.2f} ({len(shares)} problems)"
    return read.figure(told)


def packed(read):
    def told(r, name):
        peers = {row["asked"]: row["ns"] for row in r(f"packed-h100/{name}_peers.json") if row["peer"] == "varlen" and row.get("right")}
        return and_worst([peers[row["asked"]] / row["ns"] for row in r(f"packed-h100/{name}.json") if row["asked"] in peers])
    return f"forward {read.figure(lambda r: told(r, 'packed'))}; gradients {read.figure(lambda r: told(r, 'packed_backward'))}"


PARTS = {"collectives": lambda asked: "gemm" not in asked and "attention" not in asked, "products": lambda asked: "gemm" in asked, "attention": lambda asked: "attention" in asked}


def on_two_gpus(read):
    def told(r, name):
        rows = [(row, peers) for row, peers in compared(r) if PARTS[name](row["asked"]) and peers]
        found = [best_of_peers(peers) / row["ns"] for row, peers in rows]
        fused = [(row, peers) for row, peers in rows if "fused" in peers]
        slower = sum(peers["fused"]["ns"] < row["ns"] for row, peers in fused)
        return f"{name} {and_worst(found)}" + (f", torch's fused op is faster at {slower} of {len(fused)}" if fused else "")
    return "; ".join(read.figure(lambda r, name=name: told(r, name)) for name in PARTS)


def layers_on_two_gpus(read):
    def told(r, stack, title):
        batches = {side: {row["tokens"]: row["ms"] for row in r(f"team-h200/team_layers_{side}{stack}.json") if row["phase"] == "steady"} for side in ("", "peers_", "alone_")}
        found = [min(batches[side][tokens] for side in ("peers_", "alone_")) / ms for tokens, ms in batches[""].items()]
        return f"{title} {and_worst(found)}"
    return "; ".join(read.figure(lambda r, stack=stack, title=title: told(r, stack, title)) for stack, title in (("llama", "80 layers of Llama 70B's MLP"), ("flux", "57 blocks of Flux")))


def whole_blocks(read):
    said = []
    for block, title in BLOCKS.items():
        def told(r, block=block, title=title):
            rows = rows_of(r, block, ("", "peers"))
            forward, both = ([ratio for ratio, _ in over_kiln(rows, "compile", key)] for key in ("infer_ns", "train_ns"))
            return f"{title} {median(forward):.2f}, worst {min(forward):.2f}; with gradients {median(both):.2f}, worst {min(both):.2f} ({len(both)} lengths)"
        said.append(read.figure(told))
    return ". ".join(said)


def first_batches(read):
    block = next(iter(BLOCKS))
    def seconds(side):
        def told(r):
            row = of(rows_of(r, block, (side[1],)), "first", side[0])[0]
            return f"{side[2]} {(row['infer_ms'] + row['train_ms']) / 1000:.{1 if row['infer_ms'] > 1000 else 2}f} s"
        return read.figure(told)
    return ", ".join(seconds(side) for side in (("kiln, a prewarmed file", "prewarmed", "a prewarmed file"), ("kiln, records that ship", "shipped", "records that ship, on 16 cores"),
                                                ("kiln, no file", "cold", "no file"), ("compile", "peers", "`torch.compile` from its cache"), ("compile, no cache", "peers", "without")))


def start(read):
    def told(r):
        rows = {row["way"]: row["result_ms"] - row["until_context_ms"] for row in r("cold-start-h100/cold_start.json") if "failed" not in row}
        return f"{rows['Kiln, shipped file, overlay']:.1f} ms without NVRTC, {rows['Kiln, shipped file, overlay, NVRTC installed']:.1f} ms where it is installed, {rows['Kiln through NVRTC, nothing shipped']:.0f} ms with nothing shipped"
    return read.figure(told)


def by_device(told):
    return lambda read: "; ".join(each for device in DEVICES if (each := told(read, device)))


ROWS = {"`gemm` at random lengths of models' products: cuBLASLt's best algorithm at the same length": by_device(gemm),
        "attention at random lengths, H100; gradients with models' heads": lambda read: f"{dense_attention(read, '_drawn')}; models' heads: {attention_of_models(read)}",
        "packed batches: torch's `varlen_attn`; decode from 64 MB on: a plain read; H100": lambda read: f"{packed(read)}; decode {decode(read)}",
        "memory-bound kernels at about 1 GB, H100": memory_bound,
        "two H200: the faster of torch with NCCL and torch's fused ops; layers: of NCCL and one GPU, steady": lambda read: f"{on_two_gpus(read)}; {layers_on_two_gpus(read)}",
        "a model's block: `torch.compile`, medians": lambda read: f"{whole_blocks(read)}. Llama's first batch, H100: {first_batches(read)}",
        "tuning one bucket of `gemm`": by_device(tunes),
        "time lost inside a bucket by its record, to a config tuned for the length; by a stand-in without a record, to the tuned config":
            lambda read: f"record: {by_device(regret)(read)}; stand-in: {by_device(untuned)(read)}",
        "a hot launch, over the driver's bare launch": hot,
        "one shipped file, H100: 10,000 distinct problems without NVRTC; from a context to the first checked result": lambda read: f"{stream(read)}; {start(read)}"}


def longer(found):
    """'3 % longer, worst 24 %': how much longer Kiln takes than a peer, by ratios of the peer's time over Kiln's."""
    more = 1 / mean(found) - 1
    return f"{abs(more):.0%} {'longer' if more >= 0 else 'less'}, worst {1 / min(found) - 1:.0%} longer ({len(found)})"


def own_kernels(read, device):
    return of_types(read, device, lambda dtype, rows: f"{dtype} {longer([row['best_over_own'] for row in of_many_rows(rows) if 'best_over_own' in row])}")


def training(read):
    return read.figure(lambda r: longer([row["best_over_kiln"] for row in r("training-h100/training.json") if "best_over_kiln" in row]))


def heads_of(read, dim):
    def told(r):
        found = ratios_of(r, "attention_models", "flash4", lambda row: words(row["asked"])["head_dim"] == str(dim))
        return f"heads of {dim}: slower at {sum(ratio < 1 for ratio in found)} of {len(found)}, worst {1 / min(found) - 1:.0%} longer"
    return read.figure(told)


def slower_team(read, run, peer, title):
    def told(r):
        found = [(peers[peer]["ns"] / row["ns"], row["asked"]) for row, peers in compared(r, run) if peer in peers]
        ratio, asked = min(found)
        return f"{title} is faster at {sum(ratio < 1 for ratio, _ in found)} of {len(found)}" + (f", worst {1 / ratio - 1:.0%} longer at `{asked.removesuffix(' dtype=bf16')}`" if ratio < 1 else "")
    return read.figure(told)


def slower_blocks(read):
    def told(r, block, title):
        rows = rows_of(r, block, ("", "peers"))
        found = [ratio for key in ("infer_ns", "train_ns") for ratio, _ in over_kiln(rows, "compile", key)]
        return f"{title}: slower in {sum(ratio < 1 for ratio in found)} of {len(found)} passes, worst {1 / min(found) - 1:.0%} longer"
    return "; ".join(read.figure(lambda r, block=block, title=title: told(r, block, title)) for block, title in BLOCKS.items())


SLOWER = {"`gemm` above 64 rows by Kiln's own kernels; products of a training step by the records that ship: cuBLASLt's best algorithm":
              lambda read: f"{by_device(own_kernels)(read)}; training, H100: {training(read)}",
          "gradients of attention with models' heads, H100: FlashAttention-4": lambda read: "; ".join(heads_of(read, dim) for dim in (64, 128)),
          "ops on two and on four H200": lambda read: "; ".join(["two: " + slower_team(read, "team", "fused", "torch's fused op"), "four: " + slower_team(read, "team4", "nccl", "NCCL"), slower_team(read, "team4", "fused", "torch's fused op")]),
          "a model's block: `torch.compile`": slower_blocks}


def listed(read, rows, heads):
    return markdown(heads, [[what, told] for what, figure in rows.items() if (told := figure(read).strip("; ,."))])


def results(read):
    return listed(read, ROWS, ["Ratios are a peer's time over Kiln's", "figure"])


def slower(read):
    return listed(read, SLOWER, ["where", "Kiln takes"])


TABLES = {"results": results, "slower": slower}
