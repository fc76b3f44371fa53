"""What gpu.py checks of attention_paged: many queries over pages, beside f64. What no query sees is NaN, and entries of its pages are none."""
from __future__ import annotations

import functools

import kiln
import kiln.torch as kt
import reference
import torch

LEFT, CAP = 50, 2.0  # of a window, of a soft cap
# (queries, keys) of each sequence: a chunk after a prefix, a prompt, none, one token, queries without keys, more queries than keys.
BATCHES = ([(33, 200), (70, 70), (0, 90), (1, 129), (5, 0), (0, 0), (20, 8)], [(1, 1), (0, 0), (64, 256), (3, 7), (0, 5), (17, 255), (40, 41)],
           [(100, 256), (0, 0), (0, 0), (0, 0), (0, 0), (0, 0), (0, 0)], [(9, 90), (8, 80), (7, 70), (6, 60), (5, 50), (4, 40), (3, 30)])
TOKENS, KEYS = 136, 256  # at most
MASKS = {"causal": {}, "none": {"causal": False}, "window": {"window": LEFT}}


def pools_of(kind: str, pages: int, page_size: int, dtype: torch.dtype) -> list[torch.Tensor]:
    """k and v, [pages, page_size, 2, 128 and 64]: each a tensor, or both in one as services have them, or with heads outermost."""
    shapes = [(pages, page_size, 2, dim) for dim in (128, 64)]
    if kind == "interleaved":
        both = torch.empty(pages, 2, page_size, 2, 128, device="cuda", dtype=dtype)
        return [both[:, 0], both[:, 1, ..., :64]]
    if kind == "heads outermost":
        return [torch.empty(pages, 2, page_size, dim, device="cuda", dtype=dtype).transpose(1, 2) for *_, dim in shapes]
    return [torch.empty(shape, device="cuda", dtype=dtype) for shape in shapes]


class Paged:
    """Tensors in device memory, of one shape for all batches."""

    def __init__(self, page_size: int, mask: str, dtype: torch.dtype = torch.bfloat16, pools: str = "apart", extra: str = "", of_bytes: bool = False) -> None:
        sequences, entries = len(BATCHES[0]), -(-KEYS // page_size)
        self.mask, self.extra = mask, extra
        self.q = torch.empty(TOKENS, 8, 128, device="cuda", dtype=dtype)
        self.k, self.v = pools_of(pools, 2 * sequences * entries, page_size, torch.float8_e4m3fn if of_bytes else dtype)
        self.scales = {f"{name}_scale": torch.rand(2, device="cuda") + 0.5 for name in "kv"} if of_bytes else {}
        self.sinks = torch.randn(8, device="cuda") if extra == "_sinks" else None
        self.offsets, self.lengths, self.table = (torch.zeros(shape, device="cuda", dtype=torch.int32) for shape in ((sequences + 1,), (sequences,), (sequences, entries)))

    def given(self) -> tuple:
        return self.q, self.k, self.v, self.offsets, self.lengths, self.table

    def run(self):
        extra = {"sinks": self.sinks, "softcap": CAP if self.extra == "_softcap" else None}
        return kt.attention_paged(*self.given(), return_lse=True, **extra, **self.scales, **MASKS[self.mask])

    def draw(self, batch: list[tuple[int, int]]):
        """Writes a batch; gives its out and lse by f64, of the rows that are some sequence's."""
        pages = torch.randperm(len(self.k), device="cuda")[: self.table.numel()].view(self.table.shape).int()
        is_seen = torch.zeros(*self.k.shape[:2], dtype=torch.bool, device="cuda")
        for i, (queries, keys) in enumerate(batch):
            first = keys if queries == 0 else max(keys - queries - LEFT, 0) if self.mask == "window" else 0
            at = torch.arange(first, keys, device="cuda")
            is_seen[pages[i, at // self.k.shape[1]].long(), at % self.k.shape[1]] = True
        self.q.normal_()
        self.offsets[1:].copy_(torch.tensor([queries for queries, _ in batch]).cumsum(0))
        self.lengths.copy_(torch.tensor([keys for _, keys in batch]))
        values = (None, *((CAP,) if self.extra == "_softcap" else ()), *((LEFT,) if self.mask == "window" else ()))
        pools = [torch.randn(each.shape, device="cuda").to(each.dtype) for each in (self.k, self.v)]
        given = (self.q, *pools, *self.scales.values(), self.offsets, self.lengths, pages, *(() if self.sinks is None else (self.sinks,)))
        wide = reference.paged(self.mask, self.extra)
        expected = (reference.of_bytes(wide) if self.scales else wide)(*given, KEYS, *values)
        for pool, drawn in zip((self.k, self.v), pools):
            pool.copy_(drawn.float().masked_fill(~is_seen[..., None, None], torch.nan).to(pool.dtype))
        self.table.copy_(pages.masked_fill(~is_seen.any(1)[pages.long()], 1 << 30))
        return rows_of(expected, batch)


def rows_of(results, batch):
    """Without the rows past the last offset, which are undefined."""
    out, lse = results
    tokens = sum(queries for queries, _ in batch)
    return out[:tokens].clone(), lse[:, :tokens].clone()


def checks():
    """Kind and name of each check, and a function that gives what Kiln computed for all batches in turn, and what f64 did."""
    for mask in MASKS:
        for page_size in (16, 64):
            for dtype in (torch.bfloat16, torch.float16):
                name = f"attention_paged, {mask}, pages of {page_size}, {str(dtype).removeprefix('torch.')}"
                yield "values", name, functools.partial(eager, page_size, mask, dtype)
        yield "graph", f"attention_paged, {mask}", functools.partial(replayed, 64, mask)
        yield "values", f"attention_paged, {mask}, by torch.compile", functools.partial(compiled, 16, mask)
        for extra in ("_softcap", "_sinks"):
            yield "values", f"attention_paged{extra}, {mask}, pages of 16", functools.partial(eager, 16, mask, torch.bfloat16, "apart", extra)
        yield "values", f"attention_paged, {mask}, over e4m3", functools.partial(eager, 16, mask, torch.float16, "apart", "_sinks", True)
        yield "graph", f"attention_paged, {mask}, over e4m3", functools.partial(replayed, 16, mask, torch.bfloat16, "interleaved", "", True)
    for page_size in (1, 8, 16, 24, 64, 256):
        for pools in ("interleaved", "heads outermost"):
            name = f"attention_paged, causal, pages of {page_size}, {pools}"
            yield "values", name, functools.partial(eager, page_size, "causal", torch.bfloat16, pools)


def eager(page_size: int, mask: str, *more):
    paged = Paged(page_size, mask, *more)
    found, expected = [], []
    for batch in BATCHES:
        expected += paged.draw(batch)
        found += rows_of(paged.run(), batch)
    return found, expected


def replayed(page_size: int, mask: str, *more):
    """One captured graph, which compiles nothing more."""
    paged = Paged(page_size, mask, *more)
    paged.draw(BATCHES[-1])
    paged.run()
    kiln.wait_for_tunes(120)
    before, graph = kiln.stats()["compiles"], torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = paged.run()
    found, expected = [], []
    for batch in BATCHES:
        expected += paged.draw(batch)
        graph.replay()
        torch.cuda.synchronize()
        found += rows_of(results, batch)
    compiles = kiln.stats()["compiles"] - before
    assert compiles == 0, f"{compiles} compiles after the capture"
    return found, expected


def compiled(page_size: int, mask: str):
    """One graph of torch.compile, for as many tokens as each batch has."""
    from torch._dynamo.testing import CompileCounterWithBackend

    torch._dynamo.reset()
    counter = CompileCounterWithBackend("inductor")
    run = torch.compile(lambda *given: kt.attention_paged(*given, return_lse=True, **MASKS[mask]), fullgraph=True, backend=counter)
    paged = Paged(page_size, mask)
    found, expected = [], []
    for batch in BATCHES:
        expected += paged.draw(batch)
        q = paged.q[: sum(queries for queries, _ in batch)].clone()
        torch._dynamo.mark_dynamic(q, 0)
        found += run(q, *paged.given()[1:])
    assert counter.frame_count == 1, f"{counter.frame_count} graphs"
    return found, expected
