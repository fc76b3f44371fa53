"""What gpu.py checks of steps of one query over a cache."""
from __future__ import annotations

import kiln
import kiln.torch as kt
import reference
import torch
import torch.nn.functional as F
from errors import error_of, largest

LENGTHS = ([512, 1, 300], [7, 512, 16], [1, 1, 1], [511, 17, 3], [512, 512, 512])


def replayed(layout: str):
    """Of a captured step over a cache of e4m3: what each replay gave and the reference, and the compiles meanwhile. Lengths, keys, values and their
    scales change between replays."""
    def drawn():
        return torch.randn(96, 16, 2, 64, device="cuda").to(torch.float8_e4m3fn)  # pages

    q, pages = torch.randn(3, 1, 8, 64, device="cuda", dtype=torch.bfloat16), (drawn(), drawn())
    lengths, scales = torch.tensor(LENGTHS[0], dtype=torch.int32, device="cuda"), [torch.rand(2, device="cuda") + 0.5 for _ in range(2)]
    table = torch.randperm(96, device="cuda").int().view(3, 32) if layout == "paged" else None
    k, v = pages if layout == "paged" else (each.view(3, 512, 2, 64) for each in pages)

    def step():
        return kt.attention_decode(q, k, v, lengths, block_table=table, k_scale=scales[0], v_scale=scales[1])

    step()
    kiln.wait_for_tunes(120)
    before, graph = kiln.stats()["compiles"], torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = step()
    found, expected = [], []
    for own in LENGTHS:
        lengths.copy_(torch.tensor(own))
        for each in pages:
            each.copy_(drawn())
        for each in scales:
            each.uniform_(0.25, 4)
        if own == LENGTHS[-1]:
            scales[0].neg_()  # which weighs all keys equally, as a scale of 0
        graph.replay()
        torch.cuda.synchronize()
        found.append(out.clone())
        given = (lengths,) if table is None else (lengths, table, 512)
        expected.append(reference.of_bytes(reference.decode(layout))(q, k, v, scales[0].clamp(min=0), scales[1], *given, None)[0])
    return found, expected, kiln.stats()["compiles"] - before


def timed(keys: int) -> dict:
    """Of one query over a cache as a model keeps it: errors against torch's, and microseconds, by attention, by attention_decode and by torch."""
    q = torch.randn(1, 32, 1, 128, device="cuda", dtype=torch.bfloat16)
    k, v = (torch.randn(1, 8, keys, 128, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    module = torch.nn.Module()
    ways = {"attention": lambda: kt.attention(*(each.transpose(1, 2) for each in (q, k, v)), causal=True),
            "decode": lambda: kt.huggingface_attention(module, q, k, v, None)[0],
            "torch": lambda: F.scaled_dot_product_attention(q, k, v, enable_gqa=True).transpose(1, 2)}
    results, microseconds = {name: way() for name, way in ways.items()}, {}
    kiln.wait_for_tunes(120)
    for name, way in ways.items():
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        for _ in range(5):
            way()
        begin.record()
        for _ in range(50):
            way()
        end.record()
        torch.cuda.synchronize()
        microseconds[f"{name}_us"] = round(begin.elapsed_time(end) / 50 * 1e3, 1)
    errors = [error_of(results[name], results["torch"]) for name in ("attention", "decode")]
    return {"ok": largest(errors) < 2e-2, "errors": errors, **microseconds}
