"""kiln.torch: Kiln's ops for PyTorch, which are the package kiln-kernels-torch. Importing it needs torch 2.11 or newer."""
from __future__ import annotations

import importlib
import sys

try:
    _found = importlib.import_module("kiln_torch")
except ModuleNotFoundError as error:
    if error.name == "kiln_torch":
        raise ImportError("kiln.torch is a package of its own, which is not installed; pip install kiln-kernels-torch", name="kiln_torch") from None
    if error.name == "torch":
        raise ImportError("kiln.torch needs torch 2.11 or newer, which is not installed; pip install 'torch>=2.11'", name="torch") from None
    raise
sys.modules[__name__] = _found
