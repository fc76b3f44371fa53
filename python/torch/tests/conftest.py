"""Tests of kiln.torch. What needs torch is not collected without it, and its number is told."""
import importlib.util
import os
import pathlib
import re
import subprocess
import sys
import textwrap

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
NEEDS_TORCH = [path.name for path in sorted(HERE.glob("test_*.py")) if 'importorskip("torch")' in path.read_text()]
HAS_TORCH = importlib.util.find_spec("torch") is not None
collect_ignore = [] if HAS_TORCH else NEEDS_TORCH
sys.path.insert(0, str(HERE))
if importlib.util.find_spec("kiln_torch") is None:  # not installed: what needs no torch is tested where it lies
    sys.path.insert(0, str(HERE.parent))


def pytest_terminal_summary(terminalreporter):
    if not HAS_TORCH:
        count = sum(len(re.findall(r"^def test_", (HERE / name).read_text(), re.M)) for name in NEEDS_TORCH)
        terminalreporter.write_line(f"{count} tests of kiln.torch need torch 2.11, which is not installed, and are not run")


@pytest.fixture(scope="session")
def pretended(tmp_path_factory):
    library = tmp_path_factory.mktemp("pretend") / "libpretend_cuda.so"
    subprocess.run(["c++", "-shared", "-fPIC", "-std=c++20", "-o", library, HERE / "pretend_cuda.cpp", "-ldl"], check=True)
    return str(library)


@pytest.fixture
def run_program(pretended):
    """Runs a program in a Python of its own, where tensors on() the fake driver's device are those of CUDA; gives what it printed."""

    def run(text: str, **environment: str) -> str:
        begin = """
import ctypes, os, sys, fake_device, torch, kiln, kiln.torch
kiln.configure(overlay="", on_miss="nearest", isolation="in_process", compile_workers=1)
fake_device.make_current()
synchronise = ctypes.CDLL(os.environ["LD_PRELOAD"]).pretend_synchronise
def on(tensor):
    count = max(tensor.numel() * tensor.element_size(), 1)
    memory = (ctypes.c_char * count).from_address(fake_device._allocate(count))
    made = torch.frombuffer(memory, dtype=tensor.dtype, count=tensor.numel()).view(tensor.shape) if tensor.numel() else torch.empty_like(tensor)
    return made.copy_(tensor)
"""
        paths = os.pathsep.join([str(ROOT / "python/tests"), str(HERE), os.environ.get("PYTHONPATH", "")])
        ran = subprocess.run([sys.executable, "-c", begin + textwrap.dedent(text)], capture_output=True, text=True, timeout=300, cwd=HERE,
                             env={**os.environ, "PYTHONPATH": paths, "LD_PRELOAD": pretended, **environment})
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    return run
