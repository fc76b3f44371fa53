"""Arguments of kiln.torch's functions that are taken or refused, with the references in the kernels' place."""
from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import kiln.torch as kt  # noqa: E402
import reference  # noqa: E402

KEEP = reference.install_on_cpu()


@pytest.mark.parametrize("more", [{}, {"block": True}, {"scale": torch.ones(1)}])
def test_quantise_refuses_a_tensor_that_requires_a_gradient(more):
    x = torch.randn(4, 256, requires_grad=True)
    with pytest.raises(RuntimeError, match="kiln.torch.quantise: x requires a gradient, which this function does not have"):
        kt.quantise(x, **more)
    with torch.no_grad():
        kt.quantise(x, **more)
    kt.quantise(x.detach(), **more)


def test_scales_that_require_a_gradient_are_refused():
    scale = torch.ones(1, requires_grad=True)
    with pytest.raises(RuntimeError, match="kiln.torch.quantise: scale requires a gradient"):
        kt.quantise(torch.randn(4, 256), scale=scale)
    q, k, lengths = torch.randn(2, 1, 4, 16), torch.randn(2, 9, 2, 16).to(torch.float8_e4m3fn), torch.tensor([5, 9], dtype=torch.int32)
    for name in ("k_scale", "v_scale"):
        with pytest.raises(RuntimeError, match=f"kiln.torch.attention_decode: {name} requires a gradient"):
            kt.attention_decode(q, k, k, lengths, **{name: scale})
