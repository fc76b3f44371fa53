"""Errors of results beside expected ones. A NaN among them is larger than any limit; Python's max() would hide one that is not first."""
from __future__ import annotations

import math
from collections.abc import Iterable

import torch


def error_of(found: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest error over the largest magnitude. NaN where one of the two alone is NaN."""
    found, expected = found.double(), expected.double()
    both = (found == expected) | (found.isnan() & expected.isnan())
    return (torch.where(both, 0.0, (found - expected).abs()).max() / expected[expected.isfinite()].abs().max().clamp(min=1e-12)).item()


def largest(errors: Iterable[float]) -> float:
    """NaN if any is, for which no comparison with a limit holds. Raises ValueError where there are none."""
    errors = list(errors)
    return math.nan if any(map(math.isnan, errors)) else max(errors)
