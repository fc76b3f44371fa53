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
