"""Tensor parallelism of a patched model, by two processes of the CPU with formulas in the kernels' place: all checks that two GPUs run."""
from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")


def test_a_patched_model_computes_the_same_under_a_parallel_plan():
    script = pathlib.Path(__file__).with_name("tensor_parallel.py")
    ran = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", script, "cpu"], capture_output=True, text=True,
                         timeout=600, env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""})
    rows = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    assert [row for row in rows if not row["ok"]] == [] and ran.returncode == 0, ran.stderr[-3000:]
    assert len(rows) == 11
