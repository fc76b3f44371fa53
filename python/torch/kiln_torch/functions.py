"""Ops with gradients and autocast. Gradients are autograd.Functions around the ops, which cost less a call than gradients of the ops would.

Under autocast, products and attention take its type, as torch's do. Norms and SwiGLU keep the type of x: they compute in f32 whatever it is.
"""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from . import _ops  # noqa: F401  defines torch.ops.kiln
from .autograd import applied, needs_gradient, refuse_gradient

_kiln = torch.ops.kiln
_LINEAR = {each: getattr(_kiln, f"linear_{each}").default for each in ("relu", "gelu", "silu", "swiglu")}
_linear, _linear_add, _matmul_nn, _matmul_tn = (getattr(_kiln, each).default for each in ("linear", "linear_add", "matmul_nn", "matmul_tn"))
_rms_norm, _rms_norm_backward, _rms_norm_add, _rms_norm_add_backward = (
    getattr(_kiln, f"rms_norm{each}").default for each in ("", "_backward", "_add", "_add_backward"))
_layer_norm, _layer_norm_backward, _layer_norm_add, _layer_norm_add_backward = (
    getattr(_kiln, f"layer_norm{each}").default for each in ("", "_backward", "_add", "_add_backward"))
_swiglu, _swiglu_backward = (getattr(_kiln, each).default for each in ("swiglu", "swiglu_backward"))


def autocast(*tensors: Tensor | None) -> tuple[Tensor | None, ...]:
    """Tensors in autocast's type where it is on; f64 stays, as in torch. ValueError for integers, and for types of 8 bits, which would lose their scales."""
    if not torch.is_autocast_enabled("cuda"):
        return tensors
    dtype = torch.get_autocast_dtype("cuda")
    return tuple(_cast(each, dtype) for each in tensors)


def _cast(tensor: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    if tensor is None or tensor.dtype in (dtype, torch.float64):
        return tensor
    if tensor.dtype.itemsize == 1:
        raise ValueError(f"kiln.torch: a tensor of {list(tensor.shape)} has {tensor.dtype}, and autocast would cast it without its scale; multiply it by "
                         f"its scale in {dtype} before")
    if not tensor.is_floating_point():
        raise ValueError(f"kiln.torch: a tensor of {list(tensor.shape)} has {tensor.dtype}, and autocast casts floating-point tensors alone; make it "
                         f"{dtype} before")
    return tensor.to(dtype)


def _check_weight(function: str, weight: Any) -> None:
    if not isinstance(weight, Tensor):
        raise ValueError(f"kiln.torch.{function}: weight is a {type(weight).__name__}, expected a tensor of one number a column; give ones for a norm without weights")


def like(x: Tensor, *tensors: Tensor | None) -> tuple[Tensor | None, ...]:
    """Tensors in x's type where autocast is on. What autocast() leaves or refuses, it does too."""
    if not torch.is_autocast_enabled("cuda") or not x.is_floating_point():
        return tensors
    return tuple(_cast(each, x.dtype) for each in tensors)


@applied
class _RmsNorm(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.epsilon = epsilon
        return _rms_norm(x, weight, epsilon)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        return *_rms_norm_backward(x, weight, dy, ctx.epsilon), None


@applied
class _RmsNormAdd(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, residual: Tensor, weight: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
        total, y = _rms_norm_add(x, residual, weight, epsilon)
        ctx.save_for_backward(total, weight)
        ctx.epsilon = epsilon
        return y, total

    @staticmethod
    def backward(ctx: Any, dy: Tensor, dtotal: Tensor) -> tuple[Tensor | None, ...]:
        total, weight = ctx.saved_tensors
        dx, dweight = _rms_norm_add_backward(total, weight, dy, dtotal, ctx.epsilon)
        return dx, dx, dweight, None


def rms_norm(x: Tensor, weight: Tensor, epsilon: float = 1e-6, residual: Tensor | None = None) -> Any:
    """y = s / rms(s) * weight over the last dimension, with s = x. With a residual, s = x + residual, and the result is (y, s)."""
    _check_weight("rms_norm", weight)
    if type(epsilon) is not float:
        refuse_gradient("rms_norm", epsilon=epsilon)
    weight, residual = like(x, weight, residual)
    if residual is None:
        if needs_gradient(x, weight):
            return _RmsNorm(x, weight, epsilon)
        return _rms_norm(x, weight, epsilon)
    if needs_gradient(x, residual, weight):
        return _RmsNormAdd(x, residual, weight, epsilon)
    total, y = _rms_norm_add(x, residual, weight, epsilon)
    return y, total


@applied
class _LayerNorm(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, epsilon: float) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.epsilon, ctx.has_bias = epsilon, bias is not None
        return _layer_norm(x, weight, bias, epsilon)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        dx, dweight, dbias = _layer_norm_backward(x, weight, dy, ctx.epsilon)
        return dx, dweight, dbias if ctx.has_bias else None, None


@applied
class _LayerNormAdd(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor | None, epsilon: float) -> tuple[Tensor, Tensor]:
        total, y = _layer_norm_add(x, residual, weight, bias, epsilon)
        ctx.save_for_backward(total, weight)
        ctx.epsilon, ctx.has_bias = epsilon, bias is not None
        return y, total

    @staticmethod
    def backward(ctx: Any, dy: Tensor, dtotal: Tensor) -> tuple[Tensor | None, ...]:
        total, weight = ctx.saved_tensors
        dx, dweight, dbias = _layer_norm_add_backward(total, weight, dy, dtotal, ctx.epsilon)
        return dx, dx, dweight, dbias if ctx.has_bias else None, None


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor | None = None, epsilon: float = 1e-5, residual: Tensor | None = None) -> Any:
    """Layer normalisation over the last dimension. With a residual, of s = x + residual, and the result is (y, s)."""
    _check_weight("layer_norm", weight)
    if type(epsilon) is not float:
        refuse_gradient("layer_norm", epsilon=epsilon)
    weight, bias, residual = like(x, weight, bias, residual)
    if residual is None:
        if needs_gradient(x, weight, bias):
            return _LayerNorm(x, weight, bias, epsilon)
        return _layer_norm(x, weight, bias, epsilon)
    if needs_gradient(x, residual, weight, bias):
        return _LayerNormAdd(x, residual, weight, bias, epsilon)
    total, y = _layer_norm_add(x, residual, weight, bias, epsilon)
    return y, total


def linear_gradients(ctx: Any, x: Tensor, weight: Tensor, dy: Tensor, has_bias: bool, at: int = 2) -> tuple[Tensor | None, ...]:
    """Of x, weight and bias, which is input `at`."""
    dx = _matmul_nn(dy, weight) if ctx.needs_input_grad[0] else None
    dweight = _matmul_tn(dy, x) if ctx.needs_input_grad[1] else None
    dbias = None
    if has_bias and ctx.needs_input_grad[at]:
        dbias = dy.sum(dim=tuple(range(dy.dim() - 1))) if dy.dim() > 1 else dy  # sum(dim=()) is that of all
    return dx, dweight, dbias


@applied
class _Linear(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.has_bias, ctx.has_residual = bias is not None, residual is not None
        return _linear(x, weight, bias) if residual is None else _linear_add(x, weight, residual, bias)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        return *linear_gradients(ctx, x, weight, dy, ctx.has_bias), dy if ctx.has_residual else None


def _activate(z: Tensor, activation: str) -> Tensor:
    if activation == "swiglu":
        return torch.nn.functional.silu(z[..., 0::2]) * z[..., 1::2]
    return getattr(torch.nn.functional, activation)(z)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, activation: str = "none", residual: Tensor | None = None) -> Tensor:
    """y = activation(x weight^T + bias), or x weight^T + bias + residual.

    Activations: none, relu, gelu (the exact one), silu, and swiglu, which joins neighbouring columns: silu(z[2j]) * z[2j + 1]. They are part of the
    product. Where gradients are wanted they follow it, since their backward needs z.
    """
    x, weight, bias, residual = autocast(x, weight, bias, residual)
    if activation != "none" and activation not in _LINEAR:
        raise ValueError(f"linear: activation is {activation!r}, expected one of: none, {', '.join(_LINEAR)}")
    if activation != "none" and residual is not None:
        raise ValueError("linear: activation and residual are given, expected one of them")
    if activation == "swiglu" and weight.shape[0] % 2:
        raise ValueError(f"linear: swiglu joins neighbouring columns, and the weight has {weight.shape[0]} rows, expected an even number")
    if needs_gradient(x, weight, bias, residual):
        z = _Linear(x, weight, bias, residual)
        return z if activation == "none" else _activate(z, activation)
    if activation != "none":
        return _LINEAR[activation](x, weight, bias)
    return _linear(x, weight, bias) if residual is None else _linear_add(x, weight, residual, bias)


@applied
class _Swiglu(Function):
    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        ctx.save_for_backward(gate, up)
        return _swiglu(gate, up)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, Tensor]:
        return _swiglu_backward(*ctx.saved_tensors, dy)


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) * up. Both may be halves of one tensor."""
    (up,) = like(gate, up)
    return _Swiglu(gate, up) if needs_gradient(gate, up) else _swiglu(gate, up)


_ROTARY = {False: (_kiln.rotary.default, _kiln.rotary_backward.default),
           True: (_kiln.rotary_interleaved.default, _kiln.rotary_interleaved_backward.default)}


@applied
class _Rotary(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor, positions: Tensor, interleaved: bool) -> Tensor:
        ctx.save_for_backward(cos, sin, positions)
        ctx.interleaved = interleaved
        return _ROTARY[interleaved][0](x, cos, sin, positions)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        return _ROTARY[ctx.interleaved][1](dy, *ctx.saved_tensors), None, None, None, None


def rotary(x: Tensor, cos: Tensor, sin: Tensor, positions: Tensor, interleaved: bool = False) -> Tensor:
    """x [..., heads, dim] with the first dimensions of each head turned by the angles of its token's position.

    cos, sin: f32 [positions, turned dimensions / 2]. positions: i32 or i64 [...], rows of these. Tables have no gradients. Those in bf16 or f16, to
    which FSDP's mixed precision casts what it passes on, are converted to f32.
    """
    if cos.requires_grad or sin.requires_grad:
        refuse_gradient("rotary", cos=cos, sin=sin)
    if cos.dtype in (torch.bfloat16, torch.float16):
        cos, sin = cos.float(), sin.float()
    if needs_gradient(x):
        return _Rotary(x, cos, sin, positions, interleaved)
    return _ROTARY[interleaved][0](x, cos, sin, positions)


@applied
class _Softmax(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: float, causal: bool, mask: Tensor | None) -> Tensor:
        y = _softmax(x, scale, causal, mask)
        ctx.save_for_backward(y)
        ctx.scale = scale
        return y

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        return _kiln.softmax_backward.default(*ctx.saved_tensors, dy, ctx.scale), None, None, None


def _softmax(x: Tensor, scale: float, causal: bool, mask: Tensor | None) -> Tensor:
    if causal:
        return _kiln.softmax_causal.default(x, scale, x.shape[-2])
    if mask is None:
        return _kiln.softmax.default(x, scale)
    rows = _rows(mask, x)
    return (_kiln.softmax_keep if mask.dtype in (torch.bool, torch.uint8) else _kiln.softmax_bias).default(x, rows, scale)


def _rows(mask: Tensor, x: Tensor) -> Tensor:
    """The mask as the op has it: [n, cols], where row r of x has row r % n. Broadcasting over outer dimensions of x is that; over inner ones it is a copy."""
    outer = 0
    while outer < mask.dim() - 1 and mask.shape[outer] == 1:
        outer += 1
    inner = mask.shape[outer:]
    wanted = x.shape[x.dim() - max(len(inner), 1) :]
    if mask.dim() > x.dim() or any(size != 1 and size != of for size, of in zip(inner, wanted)):
        raise ValueError(f"softmax: the mask is {list(mask.shape)}, expected a shape that broadcasts to {list(x.shape)}, that of x")
    rows = mask.reshape(inner).expand(wanted)
    return rows.flatten(0, -2) if rows.dim() > 1 else rows[None]


def softmax(x: Tensor, scale: float = 1.0, causal: bool = False, mask: Tensor | None = None) -> Tensor:
    """softmax(scale * x + mask) over the last dimension; a row in which nothing counts gives 0.

    causal: x is [..., queries, keys], and the last query sees all keys. mask: of booleans, which are true for what counts, or of x's type, which is
    added. It broadcasts to x; inner dimensions, such as that of heads, are copied for it. A mask has no gradient.
    """
    if causal and mask is not None:
        raise ValueError("softmax: causal and mask are given, expected one of them")
    if causal and x.dim() < 2:
        raise ValueError(f"softmax: x is {list(x.shape)}, expected [..., queries, keys], since causal is given")
    refuse_gradient("softmax", scale=scale, mask=mask)
    if needs_gradient(x):
        return _Softmax(x, scale, causal, mask)
    return _softmax(x, scale, causal, mask)


def quantise(x: Tensor, scale: Tensor | None = None, block: bool = False) -> tuple[Tensor, Tensor]:
    """(y, scale) with y = x / scale in float8_e4m3fn. The scale is the one given, that of each 128 neighbours of a row (block), or x's own.

    RuntimeError for an x or a scale that requires a gradient: it has none.
    """
    refuse_gradient("quantise", x=x, scale=scale)
    if scale is not None and block:
        raise ValueError("quantise: scale and block are given, expected one of them")
    if scale is not None:
        return _kiln.quantise.default(x, scale), scale
    return (_kiln.quantise_block if block else _kiln.quantise_dynamic).default(x)
