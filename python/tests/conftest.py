"""One process has one Kiln: all tests share it. What needs another runs a program of its own: see `run_program`."""
import os
import pathlib
import signal
import subprocess
import sys
import textwrap

import pytest

import fake_device
import kiln

HERE = pathlib.Path(__file__).resolve().parent
OPS = str(HERE.parents[1] / "tests" / "e2e" / "ops")


@pytest.fixture(scope="session")
def kiln_on_fake():
    kiln.configure(overlay="", on_miss="nearest", isolation="in_process", compile_workers=1)
    fake_device.make_current()
    return kiln


@pytest.fixture(scope="session")
def norm(kiln_on_fake):
    return kiln_on_fake.op("rms_norm")


@pytest.fixture
def run_program():
    """Runs a program in a Python of its own, on the fake driver; gives what it printed."""

    def run(text: str, status: int = 0, folder=HERE, **environment: str) -> str:
        begin = "import fake_device, kiln, sys, os\nfrom fake_device import *\nOPS = " + repr(OPS) + "\n"
        there = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]), **environment}
        heed_ctrl_c = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # where who runs the tests ignores it
        ran = subprocess.run([sys.executable, "-W", "ignore::DeprecationWarning", "-c", begin + textwrap.dedent(text)], capture_output=True, text=True, timeout=120,
                             cwd=folder, env=there, preexec_fn=heed_ctrl_c)
        assert ran.returncode == status, ran.stderr
        return ran.stdout + ran.stderr

    return run
