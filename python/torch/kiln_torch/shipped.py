"""The ops of torch that kiln.torch defines when it is imported: each an op of Kiln with its choices. signatures.json is made of them.

More are defined on demand, by kiln.torch.op() and kiln.torch.register().
"""
from __future__ import annotations

from typing import NamedTuple


class Shipped(NamedTuple):
    name: str
    op: str
    words: dict[str, str]
    omit: tuple[str, ...] = ()
    values: tuple[str, ...] | None = None


def _all() -> list[Shipped]:
    ops = []
    for norm in ("rms_norm", "layer_norm"):
        for residual, suffix in (("none", ""), ("add", "_add")):
            for quantise, ending in (("none", ""), ("tensor", "_quantise"), ("block", "_quantise_block")):
                ops.append(Shipped(norm + suffix + ending, norm, {"residual": residual, "quantise": quantise}))
            ops.append(Shipped(f"{norm}{suffix}_backward", f"{norm}_backward", {"residual": residual}))
    ops += _products()
    for quantise, ending in (("none", ""), ("tensor", "_quantise"), ("block", "_quantise_block")):
        ops.append(Shipped("swiglu" + ending, "swiglu", {"quantise": quantise}))
    ops.append(Shipped("swiglu_backward", "swiglu_backward", {}))
    for layout, suffix in (("half", ""), ("interleaved", "_interleaved")):
        for direction, ending in (("forward", ""), ("backward", "_backward")):
            ops.append(Shipped("rotary" + suffix + ending, "rotary", {"layout": layout, "direction": direction}))
    for mask, suffix in (("none", ""), ("causal", "_causal"), ("additive", "_bias"), ("boolean", "_keep")):
        ops.append(Shipped("softmax" + suffix, "softmax", {"mask": mask}, values=("scale", "queries") if mask == "causal" else ("scale",)))
    ops.append(Shipped("softmax_backward", "softmax_backward", {}))
    for scaling, suffix in (("tensor", ""), ("block", "_block"), ("dynamic", "_dynamic")):
        ops.append(Shipped("quantise" + suffix, "quantise", {"scaling": scaling}))
    return ops + _attention() + _team()


def _products() -> list[Shipped]:
    """linear is y = x w^T + bias; matmul_nn and matmul_tn are its gradients' products."""
    plain = {"values": (), "omit": ("y_scale",)}
    ops = [Shipped("linear", "gemm", {"layout": "nt"}, **plain), Shipped("linear_f32", "gemm", {"layout": "nt", "out": "f32"}, **plain)]
    for activation in ("relu", "gelu", "silu", "swiglu"):
        ops.append(Shipped(f"linear_{activation}", "gemm", {"layout": "nt", "activation": activation}, **plain))
    ops.append(Shipped("linear_add", "gemm", {"layout": "nt", "residual": "add"}, **plain))
    for scaling in ("tensor", "row", "block"):
        ops.append(Shipped(f"linear_scaled_{scaling}", "gemm", {"layout": "nt", "scaling": scaling}, **plain))
    bare = {"values": (), "omit": ("bias", "y_scale")}
    for layout in ("nn", "tn"):
        ops.append(Shipped(f"matmul_{layout}", "gemm", {"layout": layout}, **bare))
    ops.append(Shipped("matmul_tn_accumulate", "gemm", {"layout": "tn", "out": "f32", "accumulate": "yes"}, **bare))
    for layout in ("nt", "nn", "tn"):
        ops.append(Shipped(f"bmm_{layout}", "gemm_batched", {"layout": layout}, values=("scale",), omit=("bias", "y_scale")))
    ops.append(Shipped("linear_grouped", "gemm_grouped", {"layout": "nt"}, **plain))
    ops.append(Shipped("matmul_grouped", "gemm_grouped", {"layout": "nn"}, **bare))
    return ops


def _attention() -> list[Shipped]:
    """With `softcap` and `sinks` apart from each other: no known model has both."""
    ops = []
    for extra, choice in (("", {}), ("_softcap", {"soft_cap": "tanh"}), ("_sinks", {"sinks": "head"})):
        scale = ("scale", "cap") if extra == "_softcap" else ("scale",)
        for mask, left, right in (("none", (), ()), ("causal", (), ()), ("window", ("window_left",), ("window_right",))):
            ending = ("" if mask == "none" else f"_{mask}") + extra
            values = (*scale, *left, *right)
            for layout in ("dense", "packed"):
                name, words = f"attention_{layout}{ending}", {"layout": layout, "mask": mask, **choice}
                forward = (*values, "longest_query") if layout == "packed" else values
                ops.append(Shipped(name, "attention_forward", words, values=forward))
                ops.append(Shipped(f"{name}_backward", "attention_backward", words, values=values))
                ops.append(Shipped(f"{name}_backward_deterministic", "attention_backward", {**words, "deterministic": "yes"}, values=values))
            for of_bytes, cache in (("", {}), ("_e4m3", {"cache_dtype": "e4m3"})):
                ops.append(Shipped(f"attention_paged{ending}{of_bytes}", "attention_paged", {"mask": mask, **choice, **cache}, values=(*scale, *left, "longest_query")))
                for layout in ("contiguous", "paged", "indexed") if mask != "none" else ():
                    name = f"attention_decode_{layout}" + ending.removeprefix("_causal") + of_bytes
                    ops.append(Shipped(name, "attention_decode", {"layout": layout, "mask": mask, **choice, **cache}, values=(*scale, *left)))
    return ops


def _team() -> list[Shipped]:
    """With `alike` all ranks launch with equal sizes, so that NCCL may serve."""
    ops = []
    for name, omit in (("all_reduce", ()), ("all_gather", ("counts",)), ("reduce_scatter", ("counts",)), ("all_gather_gemm", ("gathered",)),
                       ("gemm_reduce_scatter", ("counts",)), ("gemm_all_reduce", ())):
        ops += [Shipped(name + ending, name, {"ranks": ranks}, omit, ()) for ranks, ending in (("any", ""), ("alike", "_alike"))]
    return ops


SHIPPED = _all()
