"""Arguments for each shipped op."""
from __future__ import annotations

import itertools

import torch

F8 = torch.float8_e4m3fn
DENSE, PACKED = (2, 40, 4, 2, 64), (70, 4, 2, 64)
OFFSETS = [0, 33, 33, 70]


def samples(device: str, dtype: torch.dtype = torch.bfloat16) -> dict[str, tuple]:
    generator = torch.Generator().manual_seed(0)

    def normal(*shape, kind=dtype, scale=1.0):
        return (torch.randn(shape, generator=generator) * scale).to(kind).to(device)

    def uniform(*shape):
        return (torch.rand(shape, generator=generator) + 0.1).to(device)

    def eighth(*shape):
        return normal(*shape, kind=torch.float32).to(F8)

    def integers(values, kind=torch.int32):
        return torch.tensor(values, dtype=kind, device=device)

    x, weight, bias, scale = normal(2, 17, 256), normal(256), normal(256), uniform(1) / 64
    found = {}
    for name in ("rms_norm", "layer_norm"):
        tail = (bias,) if name == "layer_norm" else ()
        found |= {
            name: (x, weight, *tail), f"{name}_quantise": (x, weight, scale, *tail), f"{name}_quantise_block": (x, weight, *tail),
            f"{name}_add": (x, normal(2, 17, 256), weight, *tail), f"{name}_add_quantise": (x, normal(2, 17, 256), weight, scale, *tail),
            f"{name}_add_quantise_block": (x, normal(2, 17, 256), weight, *tail), f"{name}_backward": (x, weight, normal(2, 17, 256)),
            f"{name}_add_backward": (x, weight, normal(2, 17, 256), normal(2, 17, 256)),
        }
    w, wide_bias = normal(96, 256, scale=0.1), normal(96)
    found |= {f"linear{each}": (x, w, wide_bias) for each in ("", "_f32", "_relu", "_gelu", "_silu", "_swiglu")}
    found["linear_f32"] = (x, w)
    found["linear_add"] = (x, w, normal(2, 17, 96), wide_bias)
    rows, columns = eighth(34, 256), eighth(256, 256)
    found |= {
        "linear_scaled_tensor": (rows, columns, uniform(1), uniform(1)), "linear_scaled_row": (rows, columns, uniform(34, 1), uniform(256, 1)),
        "linear_scaled_block": (rows, columns, uniform(34, 2), uniform(2, 2)),
        "matmul_nn": (normal(2, 17, 96), w), "matmul_tn": (normal(2, 17, 96), x),
        "matmul_tn_accumulate": (normal(2, 17, 96), x, normal(96, 256, kind=torch.float32)),
        "bmm_nt": (normal(3, 17, 64), normal(3, 32, 64), 0.5), "bmm_nn": (normal(3, 17, 64), normal(3, 64, 32), 0.5),
        "bmm_tn": (normal(3, 64, 16), normal(3, 64, 32), 0.5),
        "linear_grouped": (normal(40, 64), normal(3, 32, 64, scale=0.1), integers([0, 9, 9, 40]), normal(3, 32)),
        "matmul_grouped": (normal(40, 64), normal(3, 64, 32, scale=0.1), integers([0, 9, 9, 40])),
        "swiglu": (x, normal(2, 17, 256)), "swiglu_quantise": (x, normal(2, 17, 256), scale), "swiglu_quantise_block": (x, normal(2, 17, 256)),
        "swiglu_backward": (x, normal(2, 17, 256), normal(2, 17, 256)),
    }
    cos, sin, positions = uniform(50, 32), uniform(50, 32), integers([[*range(17)], [*range(20, 37)]])
    for name in ("rotary", "rotary_backward", "rotary_interleaved", "rotary_interleaved_backward"):
        found[name] = (normal(2, 17, 4, 80), cos, sin, positions)
    scores = normal(2, 9, 40)
    keep = (torch.rand((9, 40), generator=generator) < 0.5).to(device)
    found |= {
        "softmax": (scores, 0.5), "softmax_causal": (scores, 0.5, 9), "softmax_bias": (scores, normal(9, 40), 0.5), "softmax_keep": (scores, keep, 0.5),
        "softmax_backward": (torch.softmax(scores.float(), -1).to(dtype), normal(2, 9, 40), 0.5),
        "quantise": (x, scale), "quantise_block": (x,), "quantise_dynamic": (x,),
    }
    return found | _attention(normal, integers, eighth, uniform)


def _attention(normal, integers, eighth, uniform) -> dict[str, tuple]:
    found = {}
    batch, rows, heads, key_heads, dim = DENSE
    tokens = PACKED[0]
    offsets = integers(OFFSETS)
    tensors = {
        "dense": (normal(batch, rows, heads, dim), normal(batch, rows + 8, key_heads, dim), normal(batch, rows + 8, key_heads, dim)),
        "packed": (normal(tokens, heads, dim), normal(tokens, key_heads, dim), normal(tokens, key_heads, dim)),
    }
    extras = (("", (), ()), ("_softcap", (), (2.0,)), ("_sinks", (normal(heads, kind=torch.float32),), ()))  # their tensors and values
    for layout, (q, k, v) in tensors.items():
        for (extra, sinks, cap), mask in itertools.product(extras, ("", "_causal", "_window")):
            name = f"attention_{layout}{mask}{extra}"
            ending = (*sinks, *((offsets, offsets) if layout == "packed" else ()), None, *cap, *((16, 0) if mask == "_window" else ()))
            found[name] = (q, k, v, *ending)
            for backward in ("_backward", "_backward_deterministic"):
                found[name + backward] = (q, k, v, None, None, normal(*q.shape), *ending)  # out and lse: the forward pass's
    q, lengths = normal(3, 1, heads, dim), integers([5, 64, 33])
    pages, scales = (13, 16, key_heads, dim), (uniform(key_heads), uniform(key_heads))
    table = integers([[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 12]])
    indices = integers([[(7 * key + 3 * i) % 80 for key in range(64)] for i in range(3)])
    for (extra, sinks, cap), mask in itertools.product(extras, ("", "_causal", "_window")):
        values = (None, *cap, *((16,) if mask == "_window" else ()))
        packed = (offsets, integers([40, 20, 64]), table, *sinks, 64, *values)
        found[f"attention_paged{mask}{extra}"] = (normal(tokens, heads, dim), normal(*pages), normal(*pages), *packed)
        found[f"attention_paged{mask}{extra}_e4m3"] = (normal(tokens, heads, dim), eighth(*pages), eighth(*pages), *scales, *packed)
        if mask == "_causal":
            continue
        for layout, cache, rest in (("contiguous", (3, 64, key_heads, dim), (lengths, *sinks)), ("paged", pages, (lengths, table, *sinks, 64)),
                                    ("indexed", (3, 80, key_heads, dim), (lengths, indices, *sinks))):
            found[f"attention_decode_{layout}{mask}{extra}"] = (q, normal(*cache), normal(*cache), *rest, *values)
            found[f"attention_decode_{layout}{mask}{extra}_e4m3"] = (q, eighth(*cache), eighth(*cache), *scales, *rest, *values)
    return found


def complete(name: str, given: tuple, run) -> tuple:
    """With the forward pass's results where a backward pass takes them; `run` is the op of a name."""
    forward, backward, _ = name.partition("_backward")
    if not (forward.startswith("attention") and backward):
        return given
    out, lse = run(forward)(*given[:3], *given[6:])
    return *given[:3], out, lse, *given[5:]
