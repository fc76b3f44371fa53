"""What gpu.py checks of steps of one query over a cache."""
from __future__ import annotations

import kiln
import kiln.torch as kt
import reference
import torch

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
        expected.append(reference.decode_bytes(q, k, v, scales[0].clamp(min=0), scales[1], *given, None)[0])
    return found, expected, kiln.stats()["compiles"] - before
