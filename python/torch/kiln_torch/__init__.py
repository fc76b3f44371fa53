"""Kiln's ops for PyTorch: for torch.compile, autograd, autocast and CUDA graphs. Import it as kiln.torch.

    import kiln.torch

    y = kiln.torch.rms_norm(x, weight)                      # with gradients
    y = kiln.torch.linear(x, weight, activation="gelu")
    out = kiln.torch.attention(q, k, v, causal=True)
    kiln.torch.patch(model)                                 # Llama and Qwen of Hugging Face

The ops themselves are torch.ops.kiln.rms_norm and others, without gradients; `ops()` lists them.
"""
from __future__ import annotations

import torch as _torch

if tuple(int("".join(filter(str.isdigit, each)) or 0) for each in _torch.__version__.split("+")[0].split(".")[:2]) < (2, 11):
    raise ImportError(f"kiln.torch needs torch 2.11 or newer, and {_torch.__version__} is installed; pip install 'torch>=2.11'")

from ._ops import op, ops, register  # noqa: E402
from .attention import attention, attention_decode, attention_paged  # noqa: E402
from .functions import layer_norm, linear, quantise, rms_norm, rotary, softmax, swiglu  # noqa: E402
from .huggingface import huggingface_attention, huggingface_mask  # noqa: E402
from .patch import patch, unpatch  # noqa: E402
from .team import all_gather, all_gather_gemm, all_reduce, gemm_all_reduce, gemm_reduce_scatter, join_team, reduce_scatter  # noqa: E402

__all__ = [
    "all_gather", "all_gather_gemm", "all_reduce", "attention", "attention_decode", "attention_paged", "gemm_all_reduce", "gemm_reduce_scatter",
    "huggingface_attention", "huggingface_mask", "join_team", "layer_norm", "linear", "op", "ops", "patch", "quantise", "reduce_scatter", "register",
    "rms_norm", "rotary", "softmax", "swiglu", "unpatch",
]
