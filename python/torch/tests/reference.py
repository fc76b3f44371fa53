"""What the ops compute, in torch's own ops and f64: for comparison on a GPU, and in the kernels' place where there is none."""
from __future__ import annotations

import concurrent.futures
import math
import warnings

import torch

F8 = torch.float8_e4m3fn


def wide(*tensors):
    return tuple(None if each is None else each.double() if each.is_floating_point() else each for each in tensors)


def _norm(x, weight, bias, epsilon, centred):
    x = x - x.mean(-1, keepdim=True) if centred else x
    y = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + epsilon) * weight
    return y if bias is None else y + bias


def _gradients(function, inputs, douts):
    """Of inputs by autograd of a formula. In a thread of its own: within an op's kernel torch records nothing."""

    def run():
        with torch.enable_grad():
            leaves = [each.detach().requires_grad_() for each in inputs]
            return torch.autograd.grad((function(*leaves),), leaves, douts)

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(run).result()


def _scaled(y, scale):
    return (y / scale).clamp(-448, 448).to(F8)


def _block_scales(y):
    """By 128 neighbours of a row."""
    count = -(-y.shape[-1] // 128)
    padded = torch.nn.functional.pad(y, (0, count * 128 - y.shape[-1])).unflatten(-1, (count, 128))
    scales = padded.abs().amax(-1) / 448
    spread = torch.where(scales == 0, 1.0, scales).repeat_interleave(128, -1)[..., : y.shape[-1]]
    return _scaled(y, spread), scales.float()


def norm(centred, residual, quantise):
    def run(x, *rest):
        rest = list(rest)
        residual_in = rest.pop(0) if residual else None
        weight = rest.pop(0)
        y_scale = rest.pop(0) if quantise == "tensor" else None
        bias = rest.pop(0) if centred and rest else None
        epsilon = rest.pop(0) if rest else (1e-5 if centred else 1e-6)
        total = x if residual_in is None else (x.double() + residual_in.double()).to(x.dtype)
        y = _norm(*wide(total, weight, bias), epsilon, centred)
        results = [total] if residual else []
        if quantise == "none":
            results.append(y.to(x.dtype))
        elif quantise == "tensor":
            results.append(_scaled(y, y_scale.double()))
        else:
            results += _block_scales(y)
        return tuple(results) if len(results) > 1 else results[0]

    return run


def norm_backward(centred, residual):
    def run(x, weight, dy, *rest):
        rest = list(rest)
        d_sum = rest.pop(0) if residual else None
        epsilon = rest.pop(0) if rest else (1e-5 if centred else 1e-6)
        inputs = wide(x, weight) + ((torch.zeros_like(weight, dtype=torch.float64),) if centred else ())
        found = list(_gradients(lambda x, w, b=None: _norm(x, w, b, epsilon, centred), inputs, (dy.double(),)))
        if residual:
            found[0] = found[0] + d_sum.double()
        return tuple(each.to(x.dtype) for each in found)

    return run


def _activate(z, activation):
    if activation == "swiglu":
        return torch.nn.functional.silu(z[..., 0::2][..., : z.shape[-1] // 2]) * z[..., 1::2]
    return z if activation == "none" else getattr(torch.nn.functional, activation)(z)


def product(activation="none", residual=False, scaling="none", out=None):
    def run(x, w, *rest):
        rest = list(rest)
        x_wide, w_wide = x.double(), w.double()
        residual_in = rest.pop(0) if residual else None
        if scaling != "none":
            x_scale, w_scale = rest.pop(0).double(), rest.pop(0).double()
            if scaling == "block":
                x_scale = x_scale.repeat_interleave(128, -1)[..., : x.shape[-1]]
                w_scale = w_scale.repeat_interleave(128, 0)[: w.shape[0]].repeat_interleave(128, 1)[:, : w.shape[1]]
            x_wide, w_wide = x_wide * x_scale, w_wide * w_scale
        z = x_wide @ w_wide.transpose(-1, -2)
        if rest and rest[0] is not None:
            z = z + rest[0].double()
        z = _activate(z, activation)
        if residual:
            z = z + residual_in.double()
        return z.to(out or (torch.bfloat16 if x.dtype == F8 else x.dtype))

    return run


def _bmm(layout):
    def run(x, w, scale=1.0):
        x_wide, w_wide = wide(x, w)
        x_wide = x_wide.transpose(1, 2) if layout[0] == "t" else x_wide
        w_wide = w_wide.transpose(1, 2) if layout[1] == "t" else w_wide
        return (scale * x_wide @ w_wide).to(x.dtype)

    return run


def _product_tn(x, w):
    return x.double().reshape(-1, x.shape[-1]).t() @ w.double().reshape(-1, w.shape[-1])


def matmul_tn(x, w):
    return _product_tn(x, w).to(x.dtype)


def matmul_tn_accumulate(x, w, y):
    y += _product_tn(x, w).to(y.dtype)


def _grouped(transposed):
    def run(x, w, offsets, bias=None):
        y = torch.zeros(x.shape[0], w.shape[1 if transposed else 2], dtype=torch.float64, device=x.device)
        for group, (begin, end) in enumerate(zip(offsets.tolist(), offsets.tolist()[1:])):
            matrix = w[group].double()
            y[begin:end] = x[begin:end].double() @ (matrix.t() if transposed else matrix) + (0 if bias is None else bias[group].double())
        return y.to(x.dtype)

    return run


def _swiglu(gate, up):
    return torch.nn.functional.silu(gate) * up


def _rotate(layout, direction):
    def run(x, cos, sin, positions):
        cos, sin = cos.double()[positions][..., None, :], sin.double()[positions][..., None, :]
        sin = sin if direction == "forward" else -sin
        half = cos.shape[-1]
        turned, rest = x.double()[..., : 2 * half], x.double()[..., 2 * half :]
        first, second = (turned[..., :half], turned[..., half:]) if layout == "half" else (turned[..., 0::2], turned[..., 1::2])
        pair = first * cos - second * sin, second * cos + first * sin
        turned = torch.cat(pair, -1) if layout == "half" else torch.stack(pair, -1).flatten(-2)
        return torch.cat((turned, rest), -1).to(x.dtype)

    return run


def _softmax(mask):
    def run(x, *rest):
        rest = list(rest)
        z = x.double().reshape(-1, x.shape[-1])
        given = rest.pop(0) if mask in ("additive", "boolean") else None
        z = z * (rest.pop(0) if rest else 1.0)
        rows = torch.arange(z.shape[0], device=x.device)
        if mask == "causal":
            queries = rest.pop(0) if rest and rest[0] is not None else min(z.shape)
            seen = rows[:, None] % queries + z.shape[1] - queries
            z = z.masked_fill(torch.arange(z.shape[1], device=x.device) > seen, -math.inf)
        elif mask == "additive":
            z = z + given.double()[rows % given.shape[0]]
        elif mask == "boolean":
            z = z.masked_fill(given[rows % given.shape[0]] == 0, -math.inf)
        return torch.softmax(z, -1).nan_to_num(0.0).reshape(x.shape).to(x.dtype)

    return run


def softmax_backward(y, dy, scale=1.0):
    y_wide, dy_wide = wide(y, dy)
    return (scale * y_wide * (dy_wide - (dy_wide * y_wide).sum(-1, keepdim=True))).to(y.dtype)


def _dense(q, k, v, mask, scale, left=None, right=0, cap=None, sinks=None):
    """[batch, rows, heads, dim] in f64; gives out and lse."""
    shared = q.shape[2] // k.shape[2]
    k, v = (each.repeat_interleave(shared, 2) for each in (k, v))
    logits = torch.einsum("bihd,bjhd->bhij", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    logits = logits if cap is None else cap * torch.tanh(logits / cap)
    queries, keys = logits.shape[-2:]
    distance = torch.arange(keys, device=q.device) - torch.arange(queries, device=q.device)[:, None] - (keys - queries)
    if mask != "none":
        logits = logits.masked_fill(distance > (right if mask == "window" else 0), -math.inf)
    if mask == "window" and left is not None:
        logits = logits.masked_fill(distance < -left, -math.inf)
    with_sinks = logits if sinks is None else torch.cat([logits, sinks.double()[None, :, None, None].expand(*logits.shape[:-1], 1)], -1)
    lse = torch.logsumexp(with_sinks, -1)
    weights = torch.exp(logits - lse.masked_fill(lse == -math.inf, 0)[..., None])
    return torch.einsum("bhij,bjhd->bihd", weights, v), lse


def _form(mask, extra, values):
    """What _dense() takes, of an op's values."""
    scale, *values = values or (None,)
    cap = (values.pop(0) if values else 30.0) if extra == "_softcap" else None
    left, right = [*values, *(None, 0)[len(values) :]][:2] if mask == "window" else (None, 0)  # torch gives no defaults, and caches have no right
    return {"mask": mask, "scale": scale, "left": left, "right": right, "cap": cap}


def _sinks_of(extra, rest):
    return (rest[0], rest[1:]) if extra == "_sinks" else (None, rest)


def attention(layout, mask, extra=""):
    def run(q, k, v, *rest):
        sinks, rest = _sinks_of(extra, rest)
        offsets, values = (rest[:2], rest[2:]) if layout == "packed" else (None, rest)
        form = _form(mask, extra, values)
        if layout == "dense":
            out, lse = _dense(*wide(q, k, v), **form, sinks=sinks)
            return out.to(q.dtype), lse.float()
        out = torch.zeros(*q.shape[:-1], v.shape[-1], dtype=torch.float64, device=q.device)
        lse = torch.zeros(*q.shape[:-3], q.shape[-2], q.shape[-3], dtype=torch.float64, device=q.device)
        for rows, columns in _ranges(offsets):
            parts = [each[..., part, :, :].double().reshape(1, -1, *each.shape[-2:]) for each, part in ((q, rows), (k, columns), (v, columns))]
            part_out, part_lse = _dense(*parts, **form, sinks=sinks)
            out[..., rows, :, :], lse[..., rows] = part_out.reshape(out[..., rows, :, :].shape), part_lse.reshape(lse[..., rows].shape)
        return out.to(q.dtype), lse.float()

    return run


def _ranges(offsets):
    queries, keys = (each.tolist() for each in offsets)
    return [(slice(a, b), slice(c, d)) for a, b, c, d in zip(queries, queries[1:], keys, keys[1:])]


def attention_backward(layout, mask, extra=""):
    forward = attention(layout, mask, extra)

    def run(q, k, v, out, lse, dout, *rest):
        sinks, rest = _sinks_of(extra, rest)
        found = _gradients(lambda *each: forward(*each, *rest)[0], wide(q, k, v, *(() if sinks is None else (sinks,))), (dout.double(),))
        return *(each.to(q.dtype) for each in found[:3]), *(each.float() for each in found[3:])

    return run


def decode(layout, mask="causal", extra=""):
    def run(q, k, v, lengths, *rest):
        table, rest = (rest[0], rest[1:]) if layout != "contiguous" else (None, rest)
        sinks, rest = _sinks_of(extra, rest)
        form = _form(mask, extra, rest[1:] if layout == "paged" else rest)  # without `keys`
        outs, lses = [], []
        for i, length in enumerate(lengths.tolist()):
            own = [each[table[i]].flatten(0, 1) if layout == "paged" else each[i] if table is None else each[i][table[i, :length]] for each in (k, v)]
            out, lse = _dense(*wide(q[i : i + 1], own[0][None, :length], own[1][None, :length]), **form, sinks=sinks)
            outs.append(out)
            lses.append(lse)
        return torch.cat(outs).to(q.dtype), torch.cat(lses).float()

    return run


def of_bytes(run):
    """The op over keys and values of 8 bits with their scales, of one over wide ones."""
    return lambda q, k, v, k_scale, v_scale, *rest: run(q, k.double() * k_scale.double()[:, None], v.double() * v_scale.double()[:, None], *rest)


def paged(mask, extra=""):
    def run(q, k, v, offsets, lengths, table, *rest):
        sinks, (keys, *values) = _sinks_of(extra, rest)
        form = _form(mask, extra, values[: 1 + (extra == "_softcap") + (mask == "window")])  # without longest_query
        out = torch.zeros(*q.shape[:-1], v.shape[-1], dtype=torch.float64, device=q.device)
        lse = torch.zeros(*q.shape[:-3], q.shape[-2], q.shape[-3], dtype=torch.float64, device=q.device)
        begins = offsets.tolist()
        for i, length in enumerate(lengths.tolist()):
            rows = slice(begins[i], begins[i + 1])
            own = [each[table[i]].flatten(0, 1)[None, :length] for each in (k, v)]
            part_out, part_lse = _dense(*wide(q[..., rows, :, :].reshape(1, -1, *q.shape[-2:]), *own), **form, sinks=sinks)
            out[..., rows, :, :], lse[..., rows] = part_out.reshape(out[..., rows, :, :].shape), part_lse.reshape(lse[..., rows].shape)
        return out.to(q.dtype), lse.float()

    return run


def quantise_dynamic(x):
    scale = x.double().abs().amax() / 448
    return _scaled(x.double(), torch.where(scale == 0, 1.0, scale)), scale.float().reshape(1)


def references():
    found = {}
    for name, centred in (("rms_norm", False), ("layer_norm", True)):
        for residual, suffix in ((False, ""), (True, "_add")):
            for quantise, ending in (("none", ""), ("tensor", "_quantise"), ("block", "_quantise_block")):
                found[name + suffix + ending] = norm(centred, residual, quantise)
            found[f"{name}{suffix}_backward"] = norm_backward(centred, residual)
    found["linear"], found["linear_f32"], found["linear_add"] = product(), product(out=torch.float32), product(residual=True)
    found |= {f"linear_{each}": product(each) for each in ("relu", "gelu", "silu", "swiglu")}
    found |= {f"linear_scaled_{each}": product(scaling=each) for each in ("tensor", "row", "block")}
    found |= {f"bmm_{each}": _bmm(each) for each in ("nt", "nn", "tn")}
    found["matmul_nn"] = lambda x, w: (x.double() @ w.double()).to(x.dtype)
    found["matmul_tn"], found["matmul_tn_accumulate"] = matmul_tn, matmul_tn_accumulate
    found["linear_grouped"], found["matmul_grouped"] = _grouped(True), _grouped(False)
    found["swiglu"] = lambda gate, up: _swiglu(*wide(gate, up)).to(gate.dtype)
    found["swiglu_quantise"] = lambda gate, up, scale: _scaled(_swiglu(*wide(gate, up)), scale.double())
    found["swiglu_quantise_block"] = lambda gate, up: _block_scales(_swiglu(*wide(gate, up)))
    found["swiglu_backward"] = lambda gate, up, dy: tuple(each.to(gate.dtype) for each in _gradients(_swiglu, wide(gate, up), (dy.double(),)))
    for layout, suffix in (("half", ""), ("interleaved", "_interleaved")):
        for direction, ending in (("forward", ""), ("backward", "_backward")):
            found["rotary" + suffix + ending] = _rotate(layout, direction)
    for mask, suffix in (("none", ""), ("causal", "_causal"), ("additive", "_bias"), ("boolean", "_keep")):
        found["softmax" + suffix] = _softmax(mask)
    found["softmax_backward"] = softmax_backward
    found["quantise"] = lambda x, scale: _scaled(x.double(), scale.double())
    found["quantise_block"], found["quantise_dynamic"] = lambda x: _block_scales(x.double()), quantise_dynamic
    for extra in ("", "_softcap", "_sinks"):
        for mask in ("none", "causal", "window"):
            ending = ("" if mask == "none" else f"_{mask}") + extra
            for layout in ("dense", "packed"):
                name = f"attention_{layout}{ending}"
                found[name], found[f"{name}_backward"] = attention(layout, mask, extra), attention_backward(layout, mask, extra)
                found[f"{name}_backward_deterministic"] = found[f"{name}_backward"]
            found[f"attention_paged{ending}"], found[f"attention_paged{ending}_e4m3"] = paged(mask, extra), of_bytes(paged(mask, extra))
            if mask != "none":
                for layout in ("contiguous", "paged", "indexed"):
                    name = f"attention_decode_{layout}" + ending.removeprefix("_causal")
                    found[name], found[f"{name}_e4m3"] = decode(layout, mask, extra), of_bytes(decode(layout, mask, extra))
    return found


def install_on_cpu():
    """The ops of tensors of the CPU are the references from now on."""
    library = torch.library.Library("kiln", "IMPL", "CPU")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, function in references().items():
            library.impl(name, _fresh(function), allow_override=True)
    return library


def _fresh(function):
    """Results in memory of their own, dense, as the ops give them."""
    def run(*given, **named):
        results = function(*given, **named)
        if isinstance(results, tuple):
            return tuple(each.detach().clone(memory_format=torch.contiguous_format) for each in results)
        return None if results is None else results.detach().clone(memory_format=torch.contiguous_format)

    return run
