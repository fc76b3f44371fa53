"""What the ops' autograd.Functions share: how they are called, and what they refuse. They have first derivatives, in reverse mode."""
from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, is_grad_enabled
from torch._C import _are_functorch_transforms_active as are_transformed
from torch.autograd import Function, forward_ad
from torch.compiler import is_dynamo_compiling

_functorch = torch._C._functorch


def applied(function: type[Function]) -> Callable[..., Any]:
    """The class's `apply`, without Function.apply between, which takes a fifth of the time of a call with gradients. torch.compile still goes there.
    The transforms of torch.func are refused, and so is a derivative of the backward.
    """
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", function.__name__.lstrip("_")).lower()
    function.backward = staticmethod(_of_first_order(function.backward, name))
    direct = super(Function, function).apply

    def apply(*given: Any) -> Any:
        if is_dynamo_compiling():
            return function.apply(*_apart(given))
        if are_transformed():
            raise RuntimeError(f"kiln.torch: {name} of a tensor that requires a gradient is called under a transform of torch.func, such as grad or vmap, "
                               "which Kiln's gradients do not have; take backward() or torch.autograd.grad. vmap alone works under torch.no_grad()")
        return direct(*given)

    return apply


def _apart(given: tuple[Any, ...]) -> list[Any]:
    """With a view in place of a tensor that is given twice, which torch.compile of torch 2.15 refuses."""
    apart: list[Any] = []
    for each in given:
        is_twice = False
        if isinstance(each, Tensor):
            for other in apart:
                is_twice = is_twice or each is other
        apart.append(each.view_as(each) if is_twice else each)
    return apart


def needs_gradient(*tensors: Tensor | None) -> bool:
    if forward_ad._current_level >= 0:
        refuse_tangents(*tensors)
    if is_grad_enabled():
        for each in tensors:  # any() of a generator takes twice as long
            if each is not None and each.requires_grad:
                return True
    return False


def refuse_gradient(function: str, **named: Any) -> None:
    """Of arguments that have none; without this it would be lost in silence."""
    for name, each in named.items():
        if isinstance(each, Tensor) and needs_gradient(each):
            raise RuntimeError(f"kiln.torch.{function}: {name} requires a gradient, which this function does not have; detach it, or compute this part by "
                               "torch's own functions")


def refuse_tangents(*tensors: Tensor | None) -> None:
    """Torch calls an op without a formula for tangents as if there were none."""
    if forward_ad._current_level >= 0 and any(each is not None and _has_tangent(each) for each in tensors):
        raise NotImplementedError("kiln.torch: a tensor has a forward-mode tangent, and Kiln's ops have no forward mode; take backward() or "
                                  "torch.autograd.grad, or compute this part by torch's own functions")


def _has_tangent(tensor: Tensor) -> bool:
    """At the level of torch.func that runs, or one around it."""
    if forward_ad.unpack_dual(tensor).tangent is not None:
        return True
    if not are_transformed():
        return False
    from torch._functorch.pyfunctorch import retrieve_current_functorch_interpreter, temporarily_pop_interpreter_stack

    if _functorch.maybe_get_level(tensor) == retrieve_current_functorch_interpreter().level():
        tensor = _functorch.get_unwrapped(tensor)
    with temporarily_pop_interpreter_stack():
        return _has_tangent(tensor)


class _Refused(Function):
    """Gradients as they are; their own gradients, by what they were computed from, are an error."""

    @staticmethod
    def forward(ctx: Any, name: str, gradients: tuple[Tensor | None, ...], *_: Tensor) -> tuple[Tensor | None, ...]:
        ctx.name = name
        return gradients

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        raise RuntimeError(f"kiln.torch: the gradient of {ctx.name} has no gradient of its own; compute this part by torch's own functions where "
                           "second derivatives are wanted")


def _of_first_order(backward: Callable[..., Any], name: str) -> Callable[..., Any]:
    """torch's once_differentiable misses a second derivative where the incoming gradients need none, such as that of a sum."""

    def run(ctx: Any, *given: Any) -> Any:
        if is_dynamo_compiling() or not is_grad_enabled():  # compiled graphs have no second derivative, and say so
            return backward(ctx, *given)
        with torch.no_grad():
            found = backward(ctx, *given)
        sources = [each for each in (*ctx.saved_tensors, *given) if each is not None and each.requires_grad]
        gradients = found if isinstance(found, tuple) else (found,)
        return _Refused.apply(name, gradients, *sources) if sources else found

    return run
