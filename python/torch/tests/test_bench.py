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
