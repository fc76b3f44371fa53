"""What an op gives, by its arguments' shapes alone: what torch.compile traces. No size is compared, so that one graph serves all."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from . import expression
from .signature import Signature

DTYPES = {
    "bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32, "f64": torch.float64, "e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2,
    "i8": torch.int8, "u8": torch.uint8, "i32": torch.int32, "i64": torch.int64,
}
_NAMES = {dtype: name for name, dtype in DTYPES.items()} | {torch.bool: "u8"}
_OPERATIONS = {**expression.OPERATIONS, "min": torch.sym_min, "max": torch.sym_max}


def fake_of(signature: Signature) -> Callable[..., Any]:
    from .signature import TYPES

    names = [each.name for each in signature.arguments]
    lead = signature.arguments[0]

    def fake(*given: Any, **named: Any) -> Any:
        values = dict(zip(names, given)) | named
        first = values[lead.name]
        axes = {each.name: values[each.name] for each in signature.arguments if each.kind == "axis"}
        for axis, at, dimension, times, plus, over, _ in signature.solves:
            axes[axis] = _solved(_sizes(values[names[at]], signature.arguments[at])[dimension], times, plus, over)
        results = []
        for output in signature.outputs:
            shape = [_evaluate(tokens, axes) for tokens in output.shape]
            if output.flat:
                shape = [*first.shape[: first.dim() - lead.rank + 1], *shape[1:]]
            kind = output.types[TYPES.index(_NAMES[values[names[output.like]].dtype])]
            results.append(first.new_empty(shape, dtype=DTYPES[kind]))
        return tuple(results) if len(results) > 1 else results[0] if results else None

    return fake


def _sizes(tensor: torch.Tensor, argument: Any) -> list[Any]:
    """The tensor's sizes as those of the op's."""
    extra = tensor.dim() - argument.rank if argument.flat else 0
    if extra == 0:
        return list(tensor.shape)
    size: Any = 1
    for each in tensor.shape[: extra + 1]:
        size = size * each
    return [size, *tensor.shape[extra + 1 :]]


def _solved(size: Any, times: int, plus: int, over: int) -> Any:
    size = size - plus if plus else size
    return (size // times if times != 1 else size) * over if over != 1 or times != 1 else size


def _evaluate(tokens: list[str], axes: dict[str, Any]) -> Any:
    stack: list[Any] = []
    for each in tokens:
        if each in _OPERATIONS:
            right, left = stack.pop(), stack.pop()
            stack.append(_OPERATIONS[each](left, right))
        else:
            stack.append(int(each) if each.isdigit() else axes[each])
    return stack[0]
