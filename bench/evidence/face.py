"""README's tables of ratios: what a reader asks first, one number and its worst a line. Of the first, a figure is left out where its code has changed since; the
other documents have it, with its mark."""
from evidence import decode, torch_ops, turns
from evidence.attention import ratios_of
from evidence.claim import listed
from evidence.digests import ROOT
from evidence.marks import CHANGED
from evidence.products import grouped_ratios as products_of_groups
from evidence.summary import MANY_ROWS, PARTS, STREAM, of_many_rows, slower_by, team_ratios
from evidence.summary import listed as lines_of
from evidence.table import Reader, markdown, mean, quantile, state
from evidence.team import best_of_peers, compared
from evidence.tuner import at


def unmarked(read, told):
    """What `told` makes of a reader; "" where its figure is marked as changed or is too old."""
    text = read.figure(told)
    return "" if CHANGED in text else text


def as_fast(found):
    """How many ratios there are, a peer's time over Kiln's, and the cells 'Kiln is' and 'at its worst'."""
    return f"{len(found)} | {mean(found):.2f} x as fast | {min(found):.2f} x"


def products(read):
    rows = turns.compared(read)
    worst = min(rows, key=lambda row: row["best_over_kiln"])
    return f"{as_fast([row['best_over_kiln'] for row in rows])} at {at(worst)}"


def attention(lists):
    return lambda read: as_fast(turns.ratios_of(read, lists))


def of_decode(read):
    found = decode.shares_of_read(read)
    return as_fast(found) if found else ""


# Runs of teams with peers of known versions, by ranks: problems that were drawn from models or from the lists.
TEAMS = {"two": ("team_again",), "four": ("team4_drawn", "team4_models", "team4_again", "team4_again_2"), "eight": ("team8",)}


def of_teams(read):
    rows = [(row, peers) for runs in TEAMS.values() for run in runs for row, peers in compared(read, run) if peers and not PARTS["attention"](row["asked"])]
    return as_fast([best_of_peers(peers) / row["ns"] for row, peers in rows])


def teams_beside(peer):
    def told(read):
        found = [(ratio, f"`{problem}` of {ranks}") for ranks, runs in TEAMS.items() for run in runs for ratio, problem in team_ratios(read, run, peer)
                 if not PARTS["attention"](problem)]
        return slower_by([ratio for ratio, _ in found], f", at {min(found)[1]}")
    return told


# What is computed, how many problems, the peer, and the figure of a reader.
FACE = [("{} GEMMs of 20 models, by Kiln's kernels or cuBLASLt's, as its tune chose", "cuBLASLt's best algorithm for that length", products),
        ("attention forward of 20 models, {} problems, dense and packed", "the fastest of FlashAttention-3, FlashAttention-4, cuDNN and torch's `varlen_attn` at each", attention((*turns.DENSE, *turns.PACKED))),
        ("attention backward of 20 models, {} dense problems", "the faster of FlashAttention-4 and cuDNN at each", attention(turns.BACKWARD)),
        ("`attention_decode` over caches of 64 MB and more, {} problems", "a plain read of the cache", of_decode),
        ("collectives and GEMMs fused with them, {} problems on two to eight H200", "the faster of NCCL with cuBLAS and torch's fused ops at each, without NVLS", of_teams)]


def face(read):
    told_of = [(what, peer, unmarked(read, told).split(" | ")) for what, peer, told in FACE]
    body = [[what.format(cells[0]), peer, *cells[1:]] for what, peer, cells in told_of if cells != [""]]
    return markdown(["H100, unless said", "beside", "Kiln is", "at its worst"], body)


def own_products(read):
    return slower_by([row["best_over_own"] for row in of_many_rows(turns.compared(read))])


def training(read):
    return slower_by([row["best_over_kiln"] for row in read("training-h100/training.json") if "best_over_kiln" in row])


def attention_beside(peer, lists, counts=lambda row: True):
    return lambda read: slower_by(turns.ratios_of(read, lists, peer, counts))


LOSSES = [(f"GEMMs above {MANY_ROWS} rows, by Kiln's own kernels alone", "cuBLASLt's best algorithm", own_products),
          ("GEMMs of a training step, by the records that ship", "cuBLASLt's best algorithm", training),
          ("`gemm_grouped`, the experts of models", "the faster of torch's `_grouped_mm` and cuBLAS in a loop", lambda read: slower_by(products_of_groups(read))),
          ("one CUDA graph for all lengths of a norm, a GEMM and SwiGLU on an H200", "torch's graph of each length", lambda read: slower_by(torch_ops.length_ratios(read))),
          ("attention forward of 20 models, dense and packed", "the fastest of its peers at each", attention_beside(None, (*turns.DENSE, *turns.PACKED))),
          ("attention forward of 20 models on an H200, dense and packed", "the fastest of its peers at each", attention_beside(None, turns.FORWARD_H200)),
          ("attention backward of 20 models, sequences below 1,000 tokens", "the faster of FlashAttention-4 and cuDNN", attention_beside(None, turns.BACKWARD, turns.is_short)),
          ("attention backward of 20 models, sequences from 1,000 tokens on", "the faster of FlashAttention-4 and cuDNN", attention_beside(None, turns.BACKWARD, lambda row: not turns.is_short(row))),
          ("attention backward of the same models on an H200", "FlashAttention-4", attention_beside("flash4", turns.BACKWARD_H200)),
          ("attention with a soft cap or sinks on an H200, both passes", "the faster of FlashAttention-3 and FlashAttention-4", attention_beside(None, turns.EXTRAS_H200)),
          ("attention forward, heads of 40 to 224 that do not fill their tiles", "FlashAttention-3", lambda read: slower_by(ratios_of(read, "attention_heads_forward", "flash3"))),
          ("`attention_decode` of single tokens over pages in bf16", "FlashInfer, on another H100", lambda read: slower_by(decode.over_flashinfer(read, "bf16"))),
          ("GEMMs fused with collectives, two to eight H200", "torch's fused ops, without NVLS", teams_beside("fused")),
          ("collectives and GEMMs, two to eight H200", "NCCL without NVLS, with cuBLAS", teams_beside("nccl"))]


def if_longer(told):
    """What `told` makes of a reader; nothing where Kiln's median time is the shorter one."""
    return lambda read: text if (text := told(read)) and text.split(" | ")[1].endswith("longer") else ""


def losses(read):
    """A loss stays where the code has changed since, with its mark."""
    return lines_of(read, ["bf16; H100, unless said", "beside", "Kiln is slower at", "its median time", "at worst"], [(what, peer, if_longer(told)) for what, peer, told in LOSSES])


def stream(read):
    def told(r):
        [row] = r(f"{STREAM}/replay.json")
        return f"{row['tunes']} tunes and {row['compiles']} compiles"
    return read.figure(told)


def over_bare(way):
    """What a hot launch costs the host over a bare one."""
    def told(r):
        rows = [row for row in r("hits-h100/hit_latency.json") if row["bench"] == "hit_latency" and row["threads"] == 1 and row["way"] == way]
        found = [row["over_bare_ns"] for row in rows]
        return f"{min(found)} to {max(found)} ns", rows
    return lambda read: read.figure(told)


HOT = {"hot": over_bare("Op::launch, hot"), "hot_bound": over_bare("Op::bind, Op::launch")}


def tune_seconds(r):
    return [row["ready_ms"] / 1000 for name in ("log", "served") for row in r(f"{turns.FOLDER}/products_models_{name}.json") if row.get("tunes")]


def tune_median(read):
    return read.figure(lambda r: f"{quantile(tune_seconds(r), 0.5):.1f} s")


def tune_worst(read):
    return read.figure(lambda r: f"{max(tune_seconds(r)):.1f} s")


def shares(others):
    """Figures of README without a mark, with one, and those that it leaves out: of `face`, all that the code has changed since. `others` are what else it shows."""
    tables, shown_always = Reader(), Reader()
    face(tables)
    for show in (losses, *others):
        show(shown_always)
    shown = [mark for mark in tables.figures if mark is not None and CHANGED not in mark] + [mark for mark in shown_always.figures if mark is not None]
    return sum(mark == "" for mark in shown), sum(bool(mark) for mark in shown), len(tables.figures) + len(shown_always.figures) - len(shown)


def paged_e4m3(read):
    """The time over pages in e4m3, in times of that over pages in bf16."""
    return read.figure(lambda r: f"{1 / mean(ratios):.2f} times as long, {1 / min(ratios):.2f} times at worst," if (ratios := turns.ratios_of(r, turns.PAGED_E4M3_H200, "bf16")) else "")


def newer(_):
    """Which peers have a newer release than the one that figures stand beside."""
    return listed(name for name, peer in state().locked.items() if isinstance(peer, dict) and peer["newest"] != peer["version"])


def records(_):
    """How many buckets the records that ship answer."""
    count = {device: len((ROOT / f"cache/{device}.jsonl").read_text().splitlines()) for device in ("h100", "h200")}
    return f"{count['h100']:,} buckets on the H100 and {count['h200']:,} on the H200"


TABLES = {"face": face, "losses": losses}
FIGURES = {"newer": newer, "paged_e4m3": paged_e4m3, "stream": stream, **HOT, "records": records, "tune_median": tune_median, "tune_worst": tune_worst}
