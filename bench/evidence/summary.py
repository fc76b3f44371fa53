"""All figures at a glance: a figure, its worst case and its own mark a line."""
import re

from evidence import torch_ops, turns
from evidence.attention import MODELS_PEERS, ratios_of
from evidence.claim import runs_of
from evidence.decode import over_flashinfer, shares_of_read
from evidence.family import in_class, ratios, rows_and_peers
from evidence.products import grouped_ratios
from evidence.table import markdown, mean, quantile, words
from evidence.team import best_of_peers, compared
from evidence.tuner import DEVICES, TYPES, at, folder, measured, regrets, sizes

MANY_ROWS = 64  # up to here a product is bound by reading its weights


def as_fast(found, of_worst=""):
    """The cells 'Kiln is', 'at its worst' and 'problems' of ratios, a peer's time over Kiln's."""
    return f"{mean(found):.2f} x as fast | {min(found):.2f} x{of_worst} | {len(found)}"


def slower_by(found, of_worst=""):
    """The cells 'Kiln is slower at', 'its median time' and 'at worst' of such ratios; nothing where Kiln is slower at none."""
    if min(found) >= 1:
        return ""
    more = 1 / quantile(found, 0.5) - 1
    middle = f"under 1% {'longer' if more >= 0 else 'shorter'}" if f"{abs(more):.0%}" == "0%" else f"{abs(more):.0%} {'longer' if more >= 0 else 'shorter'}"
    return f"{sum(ratio < 1 for ratio in found)} of {len(found)} | {middle} | {1 / min(found) - 1:.0%} longer{of_worst}"


def listed(read, heads, lines):
    """Of each line (titles, told): the titles, then the cells that `told` makes of a reader, the mark behind the first. Lines that are too old are left out."""
    body = []
    for *titles, told in lines:
        if not (text := read.figure(told)):
            continue
        mark = re.search(r"( [†‡]+)?$", text)[0]
        first, *more = text.removesuffix(mark).split(" | ")
        body.append([*titles, first + mark, *more])
    return markdown(heads, body)


def products():
    """Random pairs of a product and a length, of each device and type."""
    for device in DEVICES:
        for dtype in TYPES:
            def told(read, device=device, dtype=dtype):
                rows = measured(read, device, dtype)
                worst = rows and min(rows, key=lambda row: row["best_over_kiln"])
                return as_fast([row["best_over_kiln"] for row in rows], f" at {at(worst)}") if rows else ""
            yield f"`gemm` at random lengths of models' products, {dtype}", device, "cuBLASLt's best algorithm at that length", told


def attention():
    def peer(titles, name):
        return titles[name].split(" / ")[0]

    for which in MODELS_PEERS:
        yield "attention backward, with models' heads", "H100", peer(MODELS_PEERS, which), lambda read, which=which: as_fast(ratios_of(read, "attention_models", which))
    yield "`attention_decode`, from 64 MB on", "H100", "a plain read of the cache", lambda read: as_fast(shares_of_read(read))
    for dtype in ("bf16", "e4m3"):
        yield f"`attention_decode` of single tokens over pages in {dtype}", "H100", "FlashInfer", lambda read, dtype=dtype: as_fast(found) if (found := over_flashinfer(read, dtype)) else ""


def in_turns():
    for lengths, title in (("log", "log-uniform"), ("served", "as served")):
        yield f"`gemm` of 20 models, rows {title}, bf16", "H100", "cuBLASLt's best algorithm at that length", lambda read, lengths=lengths: as_fast(
            [row["best_over_kiln"] for row in turns.compared(read, (lengths,))])
    for lists, title, device in ((turns.LOG, "attention forward of 20 models, lengths log-uniform", "H100"), (turns.SERVED, "attention forward of 20 models, lengths as served", "H100"),
                                 (turns.PACKED, "attention forward of models, packed batches", "H100"), (turns.BACKWARD, "attention backward of models", "H100"),
                                 (turns.FORWARD_H200, "attention forward of 20 models, dense and packed", "H200"), (turns.BACKWARD_H200, "attention backward of models", "H200"), (turns.PAGED_H200, "`attention_paged` of 14 models, pages of 16 keys", "H200"),
                                 (turns.EXTRAS_H200, "attention with a soft cap or sinks, both passes", "H200"),
                                 ((f"{turns.FOLDER}/family_turns",), "norms, softmax, SwiGLU and gradients at 0.5 to 1.2 GB", "H100")):
        yield title, device, "the fastest of its peers at each", lambda read, lists=lists: as_fast(turns.ratios_of(read, lists))
    for title, is_long in (("sequences below 1,000 tokens", False), ("sequences from 1,000 tokens on", True)):
        yield f"attention backward of models, {title}", "H100", "the fastest of its peers at each", lambda read, is_long=is_long: as_fast(
            turns.ratios_of(read, turns.BACKWARD, counts=lambda row: turns.is_short(row) != is_long))


def memory_bound():
    def of_copy(read):
        return as_fast([row["of_copy"] for row in in_class(rows_and_peers(read)[0], "0.7 to 1.4 GB")])

    def over(peer):
        def told(read):
            rows, peers, _ = rows_and_peers(read)
            return as_fast(ratios(in_class(rows, "0.7 to 1.4 GB"), peers, peer))
        return told
    what = "memory-bound kernels at about 1 GB"
    yield from [(what, "H100", "a device copy", of_copy), (what, "H100", "`torch.compile`", over("compile")), (what, "H100", "Liger", over("liger"))]


PARTS = {"collectives": lambda asked: "gemm" not in asked and "attention" not in asked, "products": lambda asked: "gemm" in asked, "attention": lambda asked: "attention" in asked}


def on_two_gpus():
    for name, title in (("collectives", "collectives"), ("products", "products fused with collectives"), ("attention", "attention over a split sequence")):
        yield title, "two H200", "the faster of torch with NCCL and torch's fused ops, without NVLS", lambda read, name=name: as_fast(
            [best_of_peers(peers) / row["ns"] for row, peers in compared(read) if PARTS[name](row["asked"]) and peers])
    yield "collectives and products of teams, drawn from models", "four H200", "the faster of NCCL with cuBLAS and torch's fused ops, without NVLS", lambda read: as_fast(
        [best_of_peers(peers) / row["ns"] for run in ("team4_drawn", "team4_models") for row, peers in compared(read, run) if peers])


def results(read):
    return listed(read, ["what", "on", "beside", "Kiln is", "at its worst", "problems"], [*products(), *in_turns(), *attention(), *memory_bound(), *on_two_gpus()])


def cores(read, device):
    """The cores of the machines on which a device's pairs were measured."""
    machines = [run.machine for _, run in runs_of([name for name in read.used if name.startswith(f"{folder(device)}/pairs_")])]
    return " and ".join(sorted({word for machine in machines for word in re.findall(r"\d+ cores", machine)}))


def tunes():
    for device in DEVICES:
        for dtype in TYPES:
            def told(read, device=device, dtype=dtype):
                seconds = [row["ready_ms"] / 1000 for row in measured(read, device, dtype) if row["tunes"]]
                return f"{quantile(seconds, 0.5):.1f} s, median, {cores(read, device)} | {max(seconds):.1f} s" if seconds else ""
            yield f"a tune of one bucket of `gemm`, {dtype}", device, told


def losses_inside():
    """What a bucket's record loses to configs tuned for the length, and what a stand-in loses to the tuned config."""
    for device in DEVICES:
        def told(read, device=device):
            rows = [(row, op) for of_device, op, row in regrets(read) if of_device == device]
            if not rows:
                return ""
            row, op = max(rows, key=lambda each: each[0]["worst"])
            medians = [each["median"] for each, _ in rows]
            return f"{min(medians):.1%} to {max(medians):.1%}, medians of {len(rows)} ops | {row['worst']:.0%}, `{op}`"
        yield "time lost by a record, to a config tuned for the length alone", device, told
    for device in DEVICES:
        for dtype in TYPES:
            def stand_in(read, device=device, dtype=dtype):
                slower = [row["stand_in_over_kiln"] - 1 for row in measured(read, device, dtype) if row.get("stand_in_origin") in ("nearest", "model", "default")]
                return f"{quantile(slower, 0.5):.1%}, median of {len(slower)} | {max(slower):.0%}" if slower else ""
            yield f"time lost by a fallback, to the tuned config, `gemm` {dtype}", device, stand_in


def hot_launches():
    def told(kernels):
        def over_bare(read):
            rows = [row for row in read("hits-h100/hit_latency.json") if row["bench"] == "hit_latency" and row["threads"] == 1 and
                    row["way"] in ("Op::launch, hot", "Plan::launch") and (row["op"], row["implementation"]) in kernels]
            found = [row["over_bare_ns"] for row in rows]
            return f"{min(found)} ns at best | {max(found)} ns", rows
        return over_bare
    parts = {"`rms_norm`, or `gemm` of few rows": (("rms_norm", "block_row"), ("gemm", "stream")), "`gemm` by `wgmma`": (("gemm", "wgmma"),), "an op with TMA": (("tile_scale", "tma"),),
             "`attention_forward` by `wgmma`": (("attention_forward", "wgmma"),)}
    for title, kernels in parts.items():
        yield f"host time of a hot launch over the driver's: {title}", "H100", told(kernels)


def first_batches():
    for way, title in (("prewarmed", "a prewarmed file"), ("records", "the records that ship"), ("nothing", "no file")):
        def told(read, way=way):
            row = next(row for name in ("prewarmed", "records", "first_batches") for row in read(f"{FIRST_BATCHES}/{name}.json") if row["way"] == way)
            return f"{row['after_1_ms'] / 1000:.2f} s | {row['all_ms'] / 1000:.2f} s for all 58"
        yield f"the first batch of a layer of Llama, 16 cores: {title}", chip(FIRST_BATCHES), told


def chip(folder):
    """The GPU that a claim's folder is named after."""
    return folder.rsplit("-", 1)[1].upper()


STREAM, COLD_START, FIRST_BATCHES = "stream-h200", "cold-start-h200", "first-batches-h100"


def starts():
    def stream(read):
        [row], [verified] = read(f"{STREAM}/replay.json"), read(f"{STREAM}/replay_verified.json")[-1:]
        return f"{row['tunes']} tunes, {row['compiles']} compiles, {verified['wrong']} wrong in a pass that NVRTC verified | -"
    yield "one prewarmed file, 10,000 distinct problems, without NVRTC", chip(STREAM), stream
    for way, title in (("Kiln, shipped file, overlay", "without NVRTC"), ("Kiln, shipped file, overlay, NVRTC installed", "NVRTC installed"), ("Kiln through NVRTC, nothing shipped", "nothing shipped")):
        def told(read, way=way):
            rows = {row["way"]: row["result_ms"] - row["until_context_ms"] for row in read(f"{COLD_START}/cold_start.json") if "failed" not in row}
            return f"{rows[way]:.{0 if rows[way] > 100 else 1}f} ms | -"
        yield f"from a context to the first checked result: {title}", chip(COLD_START), told


def costs(read):
    return listed(read, ["what", "on", "figure", "at worst"], [*starts(), *hot_launches(), *first_batches(), *tunes(), *losses_inside()])


def of_many_rows(rows):
    return [row for row in rows if sizes(row)[0] > MANY_ROWS]


RENEWED = {"team": ("team_again",), "team4": ("team4_few", "team4_again", "team4_again_2")}  # later runs, which compared some of an earlier one's problems again


def team_ratios(read, run, peer):
    """A peer's time over Kiln's and the problem in short, of each op that a run compared, or the later run of the same problem."""
    later = {row["asked"]: (row, peers) for renewed in RENEWED.get(run, ()) for row, peers in compared(read, renewed)}
    latest = [later.get(row["asked"], (row, peers)) for row, peers in compared(read, run)]
    return [(peers[peer]["ns"] / row["ns"], row["asked"].removesuffix(" dtype=bf16").removesuffix(" ranks=alike").removesuffix(" dtype=bf16")) for row, peers in latest if peer in peers]


def team(read, runs, peer):
    """By ranks of each run, or by one run's name. Nothing where Kiln loses at none."""
    of_runs = {"": runs} if isinstance(runs, str) else runs
    found = [(ratio, f"`{problem}`{ranks and f' of {ranks}'}") for ranks, run in of_runs.items() for ratio, problem in team_ratios(read, run, peer)]
    return slower_by([ratio for ratio, _ in found], f", at {min(found)[1]}") if found else ""


def of_heads(read, dim):
    return slower_by(ratios_of(read, "attention_models", "flash4", lambda row: words(row["asked"])["head_dim"] == str(dim)))


def losing():
    for device in DEVICES:
        for dtype in TYPES:
            def own(read, device=device, dtype=dtype):
                found = [row["best_over_own"] for row in of_many_rows(measured(read, device, dtype)) if "best_over_own" in row]
                return slower_by(found) if found else ""
            yield f"`gemm` above {MANY_ROWS} rows by Kiln's own kernels, {dtype}", device, "cuBLASLt's best algorithm", own
    yield f"`gemm` of 20 models above {MANY_ROWS} rows by Kiln's own kernels, bf16", "H100", "cuBLASLt's best algorithm", lambda read: slower_by(
        [row["best_over_own"] for row in of_many_rows(turns.compared(read))])
    yield "products of a training step, by the records that ship", "H100", "cuBLASLt's best algorithm", lambda read: slower_by(
        [row["best_over_kiln"] for row in read("training-h100/training.json") if "best_over_kiln" in row])
    yield "`gemm_grouped`, the experts of models", "H100", "the faster of torch's `_grouped_mm` and cuBLAS in a loop", lambda read: slower_by(grouped_ratios(read))
    for lists, title, peers, device in ((turns.DENSE, "attention forward of 20 models", turns.OF_FORWARD, "H100"), (turns.BACKWARD, "attention backward of models", turns.OF_BACKWARD, "H100"),
                                        (turns.FORWARD_H200, "attention forward of 20 models, dense and packed", turns.OF_FORWARD, "H200"),
                                        (turns.BACKWARD_H200, "attention backward of models", turns.OF_BACKWARD, "H200")):
        for peer in peers:
            yield title, device, turns.ATTENTION[peer], lambda read, lists=lists, peer=peer: slower_by(turns.ratios_of(read, lists, peer))
    for lists, title, device in ((turns.PACKED, "attention forward of models, packed batches", "H100"), (turns.EXTRAS_H200, "attention with a soft cap or sinks, both passes", "H200")):
        yield title, device, "the fastest of its peers at each", lambda read, lists=lists: slower_by(turns.ratios_of(read, lists))
    yield "attention forward, heads of 40 to 224 that do not fill their tiles", "H100", "FlashAttention-3", lambda read: slower_by(ratios_of(read, "attention_heads_forward", "flash3"))
    for dtype in ("bf16", "e4m3"):
        yield f"`attention_decode` of single tokens over pages in {dtype}", "H100", "FlashInfer", lambda read, dtype=dtype: slower_by(found) if (found := over_flashinfer(read, dtype)) else ""
    yield "one CUDA graph for all lengths of a norm, a GEMM and SwiGLU", "H200", "torch's graph of each length", lambda read: slower_by(torch_ops.length_ratios(read))
    for dim in (64, 128):
        yield f"attention backward, models' heads of {dim}", "H100", "FlashAttention-4", lambda read, dim=dim: of_heads(read, dim)
    yield "products fused with collectives", "two H200", "torch's fused ops, without NVLS", lambda read: team(read, "team", "fused")
    yield "products fused with collectives", "four H200", "torch's fused ops, without NVLS", lambda read: team(read, "team4", "fused")
    yield "collectives and products", "four H200", "torch with NCCL, without NVLS", lambda read: team(read, "team4", "nccl")
    yield "products fused with collectives", "eight H200", "torch's fused ops, without NVLS", lambda read: team(read, "team8", "fused")
    yield "collectives and products", "eight H200", "torch with NCCL, without NVLS", lambda read: team(read, "team8", "nccl")
    yield "sums of few bytes, alone and with a norm", "four H200", "the faster of NCCL and torch's two all-reduces at each, without NVLS", lambda read: slower_by(
        [best_of_peers(peers) / row["ns"] for row, peers in compared(read, "team4_few") if peers])


def slower(read):
    return listed(read, ["what", "on", "beside", "Kiln is slower at", "its median time", "at worst"], losing())


TABLES = {"results": results, "costs": costs, "slower": slower}
