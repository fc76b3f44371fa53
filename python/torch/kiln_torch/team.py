"""Ops of a team: collectives, and products beside them, over GPUs with a process each.

What gathers has the gradient of what scatters, and the reverse. Sums that all ranks get have none: whether the ranks' losses are one loss or parts of it,
an op cannot tell.
"""
from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

import kiln

from . import _ops  # noqa: F401  defines torch.ops.kiln
from .autograd import applied, needs_gradient

NAMES = ("all_reduce", "all_gather", "reduce_scatter", "all_gather_gemm", "gemm_reduce_scatter", "gemm_all_reduce")
_matmul_tn = torch.ops.kiln.matmul_tn.default
_OPS = {(name, alike): getattr(torch.ops.kiln, name + "_alike" * alike).default for name in NAMES for alike in (False, True)}


def join_team(group: Any = None, **options: Any) -> kiln.Team:
    """Makes a team of the ranks of a process group of torch.distributed, the default one unless given; once, before Kiln's first use. Collective.

    The group carries a name from its rank 0 to every other rank, and nothing later. Each rank's GPU is torch's current one. `options` are kiln.join_team's:
    device, bytes, timeout, launch_timeout.
    """
    import torch.distributed as distributed

    if not distributed.is_initialized():
        raise kiln.Error("kiln.torch.join_team: torch.distributed has no process group; call init_process_group first, or join by kiln.join_team")

    def exchange(name: str | None) -> str:
        names = [name]
        distributed.broadcast_object_list(names, group=group, group_src=0)
        return names[0]  # type: ignore[return-value]

    if "device" not in options:
        options["device"] = torch.cuda.current_device()
    return kiln.join_team(distributed.get_rank(group), distributed.get_world_size(group), exchange=exchange, **options)


def _run(name: str, alike: bool, *tensors: Tensor) -> Tensor:
    world = _world(name)
    return _OPS[name, alike](*tensors) if name.endswith("reduce_scatter") else _OPS[name, alike](*tensors, world)


def _sum(name: str, alike: bool, *tensors: Tensor) -> Tensor:
    if needs_gradient(*tensors):
        raise RuntimeError(f"kiln.torch.{name} has no gradient, and a tensor wants one; call it under torch.no_grad(), or detach the tensor")
    return _run(name, alike, *tensors)


def _gather(x: Tensor, alike: bool) -> Tensor:
    return _run("all_gather", alike, x).flatten(0, 1)


def _scatter(x: Tensor, alike: bool) -> Tensor:
    return _run("reduce_scatter", alike, _parts("reduce_scatter", x))


def _gather_gemm(x: Tensor, weight: Tensor, alike: bool) -> Tensor:
    return _run("all_gather_gemm", alike, x, weight).flatten(0, 1)


def _gemm_scatter(x: Tensor, weight: Tensor, alike: bool) -> Tensor:
    return _run("gemm_reduce_scatter", alike, _parts("gemm_reduce_scatter", x), weight)


@applied
class _AllGather(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, alike: bool) -> Tensor:
        ctx.alike = alike
        return _gather(x, alike)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None]:
        return _scatter(dy.contiguous(), ctx.alike), None


@applied
class _ReduceScatter(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, alike: bool) -> Tensor:
        ctx.alike = alike
        return _scatter(x, alike)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None]:
        return _gather(dy.contiguous(), ctx.alike), None


@applied
class _AllGatherGemm(Function):
    """Its backward gathers x again, rather than that all ranks' rows are kept."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, alike: bool) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.alike = alike
        return _gather_gemm(x, weight, alike)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        (x, weight), dy = ctx.saved_tensors, dy.contiguous()
        dx = _gemm_scatter(dy, weight.t().contiguous(), ctx.alike) if ctx.needs_input_grad[0] else None
        dweight = _matmul_tn(dy, _gather(x, ctx.alike)) if ctx.needs_input_grad[1] else None
        return dx, dweight, None


@applied
class _GemmReduceScatter(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, alike: bool) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.alike = alike
        return _gemm_scatter(x, weight, alike)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        (x, weight), dy = ctx.saved_tensors, dy.contiguous()
        dx = _gather_gemm(dy, weight.t().contiguous(), ctx.alike) if ctx.needs_input_grad[0] else None
        dweight = _matmul_tn(_gather(dy, ctx.alike), x) if ctx.needs_input_grad[1] else None
        return dx, dweight, None


def _world(name: str) -> int:
    if kiln.joined is None:
        raise RuntimeError(f"kiln.torch.{name}: this process is in no team; call kiln.torch.join_team() first")
    return kiln.joined.world


def _parts(name: str, x: Tensor) -> Tensor:
    """[world, rows of a rank, columns], as the ops have what is cut over the ranks."""
    world = _world(name)
    if x.dim() != 2 or x.shape[0] % world:
        raise ValueError(f"kiln.torch.{name}: x is {list(x.shape)}, expected [rows, columns] with a multiple of {world} rows, the team's ranks")
    return x.unflatten(0, (world, x.shape[0] // world))


def all_reduce(x: Tensor, *, alike: bool = False) -> Tensor:
    """The sum of x over the ranks, the same bits on all. No gradient. `alike`, here and below: all ranks have equal sizes, so that NCCL may serve too."""
    return _sum("all_reduce", alike, x)


def all_gather(x: Tensor, *, alike: bool = False) -> Tensor:
    """The rows of all ranks' x [rows, cols], one rank's after another's: [world * rows, cols]. Its gradient is reduce_scatter's."""
    return _AllGather(x, alike) if needs_gradient(x) else _gather(x, alike)


def reduce_scatter(x: Tensor, *, alike: bool = False) -> Tensor:
    """This rank's rows of the sum of x [world * rows, cols] over the ranks: [rows, cols]. Its gradient is all_gather's."""
    return _ReduceScatter(x, alike) if needs_gradient(x) else _scatter(x, alike)


def all_gather_gemm(x: Tensor, weight: Tensor, *, alike: bool = False) -> Tensor:
    """The rows of all ranks' x [rows, k] times weight^T, for a weight [n, k] that is a slice of columns: [world * rows, n]. Its backward
    exchanges too."""
    return _AllGatherGemm(x, weight, alike) if needs_gradient(x, weight) else _gather_gemm(x, weight, alike)


def gemm_reduce_scatter(x: Tensor, weight: Tensor, *, alike: bool = False) -> Tensor:
    """This rank's rows of the sum of x weight^T over the ranks, of x [world * rows, k] and weight [n, k]: [rows, n]. Its backward exchanges
    too."""
    return _GemmReduceScatter(x, weight, alike) if needs_gradient(x, weight) else _gemm_scatter(x, weight, alike)


def gemm_all_reduce(x: Tensor, weight: Tensor, *, alike: bool = False) -> Tensor:
    """The sum of x weight^T over the ranks, the same bits on all: for few rows. No gradient."""
    return _sum("gemm_all_reduce", alike, x, weight)
