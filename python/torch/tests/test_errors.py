"""What the programs for GPUs say of errors: a NaN fails wherever it stands."""
from __future__ import annotations

import ast
import math
import pathlib

import pytest

torch = pytest.importorskip("torch")

from errors import error_of, largest  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent


@pytest.mark.parametrize("place", range(3))
def test_a_nan_fails_wherever_it_stands(place):
    errors = [0.0, 1e-3, 2e-3]
    assert largest(iter(errors)) < 1e-2
    errors[place] = math.nan
    assert not largest(iter(errors)) < 1e-2
    expected = torch.tensor([1.0, -2.0, 4.0])
    found = expected.clone()
    assert error_of(found, expected) == 0
    found[place] = math.nan
    assert math.isnan(error_of(found, expected)) and math.isnan(error_of(expected, found))
    found[place] = math.inf
    assert error_of(found, expected) == math.inf


def test_no_errors_at_all_do_not_pass():
    with pytest.raises(ValueError):
        largest([])


@pytest.mark.parametrize("program", ["gpu.py", "decode.py", "paged.py", "ranks.py"])
def test_the_programs_take_no_other_maximum_of_errors(program):
    calls = [each for each in ast.walk(ast.parse((HERE / program).read_text())) if isinstance(each, ast.Call) and isinstance(each.func, ast.Name)]
    assert not [ast.unparse(each) for each in calls if each.func.id in ("max", "min", "sorted") and "error" in ast.unparse(each)]
