"""The programs of bench/python, small and on the CPU, with the references in the kernels' place."""
import json
import os
import pathlib
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

HERE = pathlib.Path(__file__).resolve().parent
BENCH = HERE.parents[2] / "bench/python"
PROGRAM = """
import runpy, sys
import kiln.torch, reference
keep = reference.install_on_cpu()
runpy.run_path(sys.argv[0], run_name="__main__")
"""


PEERS = HERE.parents[2] / "bench/peers"
EXTRAS = """
import runpy, sys
import kiln.torch, reference
keep, attention = reference.install_on_cpu(), kiln.torch.attention
change = eval(sys.argv.pop())
kiln.torch.attention = lambda *tensors, **named: attention(*tensors, **named | change(named))
sys.path.insert(0, sys.argv[1])
sys.argv[1:] = ["--check", "--ways", "kiln,flash3,cudnn"]
runpy.run_path(sys.path[0] + "/attention_extras.py", run_name="__main__")
"""
PAGED = """
import runpy, sys, types
import torch
import kiln.torch, reference
keep = reference.install_on_cpu()

class Wrapper:
    def __init__(self, workspace, layout):
        assert layout == "NHD"

    def plan(self, offsets, page_offsets, pages, last, heads, key_heads, head_dim, page_size, head_dim_vo=None, *, causal, window_left, q_data_type, kv_data_type):
        counts = page_offsets.diff()
        self.lengths = (counts - 1) * page_size + last
        self.table = torch.nn.utils.rnn.pad_sequence(pages.split(counts.tolist()), batch_first=True)
        self.offsets, self.left, self.mask = offsets, window_left, "none" if not causal else "causal" if window_left < 0 else "window"
        self.sizes = (heads, head_dim), (page_size, key_heads, head_dim), (page_size, key_heads, head_dim_vo or head_dim)
        self.types = q_data_type, kv_data_type, kv_data_type

    def run(self, q, pools, k_scale, v_scale, out):
        assert ((q.dtype, *(each.dtype for each in pools)), tuple(each.shape[1:] for each in (q, *pools))) == (self.types, self.sizes)
        scales = [torch.full(pools[0].shape[2:3], each) for each in (k_scale, v_scale)]
        values = [None, *([self.left] if self.mask == "window" else [])]
        right = reference.of_bytes(reference.paged(self.mask))(q, *pools, *scales, self.offsets, self.lengths, self.table, 0, *values)[0]
        return out.copy_(right if has == "right" else right.flip(0))

has = sys.argv.pop()
if has != "none":
    sys.modules["flashinfer"] = types.ModuleType("flashinfer")
    sys.modules["flashinfer"].BatchPrefillWithPagedKVCacheWrapper = Wrapper
sys.path.insert(0, sys.argv[1])
sys.argv[1:] = ["--check", *sys.argv[2:]]
runpy.run_path(sys.path[0] + "/attention_paged_e4m3.py", run_name="__main__")
"""
PAGED_PROBLEMS = ["batch=3 queries=150 keys=100 heads=8 key_heads=2 head_dim=64 value_dim=64 mask=causal lengths=100,20,30 key_lengths=100,57,64",
                  "batch=2 queries=120 keys=150 heads=4 key_heads=4 head_dim=192 value_dim=128 mask=causal lengths=100,20 key_lengths=150,20",
                  "batch=2 queries=120 keys=150 heads=4 key_heads=2 head_dim=64 value_dim=64 mask=window window_left=31 lengths=100,20 key_lengths=150,20"]
PROBLEMS = ["attention_forward batch=2 queries=200 keys=200 mask=causal",
            "attention_forward batch=3 queries=300 keys=300 layout=packed lengths=100,20,180 mask=causal",
            "attention_forward batch=1 queries=180 keys=180 mask=window window_left=99 window_right=0",
            "attention_backward batch=2 queries=180 keys=180 mask=causal",
            "attention_backward batch=2 queries=220 keys=220 layout=packed lengths=40,180 mask=window window_left=99 window_right=0"]
WORDS = {"sinks": "heads=8 key_heads=2 head_dim=64 value_dim=64 sinks=head", "cap": "heads=4 key_heads=2 head_dim=128 value_dim=128 soft_cap=tanh cap=50"}


def contest(*options: str) -> list[dict]:
    program = PROGRAM.replace("sys.argv[0]", repr(str(BENCH / "llama.py")))
    ran = subprocess.run([sys.executable, "-c", program, *options, "--device", "cpu", "--layers", "1", "--width", "256", "--batches", "2"], capture_output=True, text=True,
                         env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])})
    assert ran.returncode == 0, ran.stderr
    return [json.loads(line) for line in ran.stdout.splitlines()]


@pytest.mark.parametrize("option", [[], ["--train"]])
def test_contenders_compute_the_same_of_the_same_batches(option):
    theirs, ours = contest("eager", "--flash", *option), contest("kiln", "--name", "ours", *option)
    assert [row["batches"] for row in ours] == [1, 2, 2] and ours[-1]["end"] and ours[-1]["contender"] == "ours"
    assert ours[-1]["tokens"] == theirs[-1]["tokens"] and ours[-1]["first_results"] == pytest.approx(theirs[-1]["first_results"], rel=2e-2)
    assert all(0 < row["seconds"] <= ours[-1]["seconds"] for row in ours)


def test_the_empty_op_of_the_host_cost_is_made():
    program = f"import sys; sys.path.insert(0, {str(BENCH)!r}); import torch, host; host.load_empty_op(); print(torch.ops.kiln_bench.empty_norm.default._schema)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.stdout == "kiln_bench::empty_norm(Tensor x, Tensor weight, float epsilon) -> Tensor\n", ran.stderr


def extras(problems: list[str], change: str = "lambda named: {}") -> list[dict]:
    """What bench/peers/attention_extras.py finds. Kiln is called with the words that `change` returns in place of its own."""
    ran = subprocess.run([sys.executable, "-c", EXTRAS, PEERS, change], input="".join(f"{each} # small\n" for each in problems), capture_output=True, text=True,
                         env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])})
    assert ran.returncode == 0, ran.stderr
    return [json.loads(line)["ways"] for line in ran.stdout.splitlines()]


def test_a_soft_cap_and_sinks_are_right_by_the_bench_s_reference():
    rows = extras([f"{problem} {words}" for words in WORDS.values() for problem in PROBLEMS])
    assert [row["kiln"].get("right") for row in rows] == [True] * 2 * len(PROBLEMS)
    assert all("no soft cap and no sinks" in row["cudnn"]["reason"] for row in rows)
    assert all("no sinks and no windows" in row["flash3"]["reason"] for row in rows[:len(PROBLEMS)])


@pytest.mark.parametrize(("words", "change"), [("sinks", "{'sinks': named['sinks'] * 0}"), ("sinks", "{'sinks': named['sinks'].flip(0)}"),
                                               ("cap", "{'softcap': None}"), ("cap", "{'softcap': 30.0}")])
def test_a_wrong_soft_cap_and_wrong_sinks_are_found(words, change):
    rows = extras([f"{problem} {WORDS[words]}" for problem in PROBLEMS], f"lambda named: {change}")
    assert [row["kiln"].get("right") for row in rows] == [False] * len(PROBLEMS)


def paged(has: str, *options: str) -> subprocess.CompletedProcess:
    """What bench/peers/attention_paged_e4m3.py finds where FlashInfer is as `has` says."""
    problems = "".join(f"attention_paged {each} page_size=16 # small\n" for each in PAGED_PROBLEMS)
    ran = subprocess.run([sys.executable, "-c", PAGED, PEERS, *options, has], input=problems, capture_output=True, text=True,
                         env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])})
    assert ran.returncode == 0, ran.stderr
    return ran


@pytest.mark.parametrize("has", ["right", "wrong", "none"])
def test_prompts_over_pages_in_e4m3_are_right_by_each_way(has):
    rows = [json.loads(line)["ways"] for line in paged(has).stdout.splitlines()]
    assert [(row["kiln"].get("right"), row["bf16"].get("right")) for row in rows] == [(True, True)] * len(PAGED_PROBLEMS)
    said = [row["flashinfer"].get("right", row["flashinfer"].get("reason")) for row in rows]
    if has == "none":
        assert said == ["ModuleNotFoundError: No module named 'flashinfer'"] * len(PAGED_PROBLEMS)
    else:
        assert [said[0], said[2]] == [has == "right"] * 2 and "wrong for e4m3 and 192 numbers a head" in said[1]


def test_problems_that_time_leaves_out_are_named():
    ran = paged("none", "--seconds", "-1")
    assert (ran.stdout, ran.stderr.count("left out after -1 s: attention_paged")) == ("", len(PAGED_PROBLEMS))
