"""The family's problems as torch users write them: tensors, a forward function, and gradients where the problem is a backward pass.

The same functions on f32 copies of the tensors are what every peer's results are compared with, but where a backward pass is given what its
forward pass has rounded.
"""
import dataclasses
from typing import Callable

import torch
import torch.nn.functional as F

TYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}
E4M3_LARGEST = 448.0
BLOCK = 128


@dataclasses.dataclass
class Case:
    op: str
    values: dict  # axes, types and choices, as the problem's line has them
    inputs: dict  # tensors by name; those that require gradients are what a backward pass differentiates by
    forward: Callable  # of the inputs, by name; a tuple of outputs
    gradients: tuple = ()  # of the outputs: the problem is then the backward pass
    tolerance: tuple = (2e-2, 2e-2)  # relative to the element, relative to the root mean square
    rounded: Callable = None  # of the case: its results in f32 where the function on f32 copies would not round what the problem is given rounded

    def given(self, name, default="none"):
        return self.values.get(name, default)

    def copy(self, dtype=None):
        """With tensors of its own, floating ones in `dtype` where one is given."""
        def own(tensor):
            return tensor.detach().clone().to(dtype if dtype and tensor.is_floating_point() else tensor.dtype).requires_grad_(tensor.requires_grad)

        return dataclasses.replace(self, inputs={name: own(each) for name, each in self.inputs.items()}, gradients=tuple(map(own, self.gradients)))

    def leaves(self):
        return [each for each in self.inputs.values() if each.requires_grad]

    def launcher(self, forward):
        """The problem through `forward`: itself, or its backward pass through autograd, whose forward pass is made here, once."""
        if not self.gradients:
            return lambda: forward(**self.inputs)
        outputs = forward(**self.inputs)
        return lambda: torch.autograd.grad(outputs, self.leaves(), self.gradients, retain_graph=True)

    def wanted(self):
        """The results in f32."""
        if self.rounded:
            return self.rounded(self)
        wide = self.copy(torch.float32)
        return wide.launcher(wide.forward)()


def normal(*shape, dtype, device, scale=1.0, mean=0.0, grad=False):
    return (torch.randn(*shape, device=device, dtype=torch.float32) * scale + mean).to(dtype).requires_grad_(grad)


def quantised(y, how, scale=None):
    """Stored as e4m3 under a scale that is given, or of the whole, or of 128 neighbours: what is stored times its scale is the value."""
    if how == "none":
        return (y,)
    if how == "tensor":
        return ((y.float() / scale).clamp(-E4M3_LARGEST, E4M3_LARGEST).to(torch.float8_e4m3fn),)
    blocks = y.float().unflatten(-1, (-1, BLOCK)) if how == "block" else y.float()
    scale = (blocks.abs().amax(-1, keepdim=True) if how == "block" else blocks.abs().amax()).clamp(min=1e-10) / E4M3_LARGEST
    return (blocks / scale).to(torch.float8_e4m3fn).view(y.shape), scale.squeeze(-1)


def dequantised(outputs):
    """Outputs as tensors that can be compared: an e4m3 one with the scales that follow it, if any do."""
    if outputs[-1].dtype == torch.float8_e4m3fn:
        return *outputs[:-1], outputs[-1].float()
    if len(outputs) < 2 or outputs[-2].dtype != torch.float8_e4m3fn:
        return outputs
    *others, stored, scale = outputs
    blocks = stored.float().unflatten(-1, (-1, BLOCK)) if scale.dim() else stored.float()
    return *others, (blocks * (scale.unsqueeze(-1) if scale.dim() else scale)).view(stored.shape)


def norm(op, values, dtype, device):
    """rms_norm and layer_norm, their residual adds, their quantised outputs, their backward passes."""
    backward, layer = op.endswith("_backward"), op.startswith("layer")
    rows, cols = values["rows"], values["cols"]
    residual, how = values.get("residual", "none") != "none", values.get("quantise", "none")

    def forward(x, weight, bias=None, residual=None, y_scale=None):
        total = x if residual is None else x + residual
        y = F.layer_norm(total, (cols,), weight, bias, 1e-5) if layer else F.rms_norm(total, (cols,), weight, 1e-6)
        return (() if residual is None else (total,)) + quantised(y, how, y_scale)

    inputs = {"x": normal(rows, cols, dtype=dtype, device=device, grad=backward),
              "weight": normal(cols, dtype=dtype, device=device, scale=0.1, mean=1.0, grad=backward)}
    if layer:
        inputs["bias"] = normal(cols, dtype=dtype, device=device, scale=0.1, grad=backward)
    if residual:
        inputs["residual"] = normal(rows, cols, dtype=dtype, device=device)
    if how == "tensor":
        inputs["y_scale"] = torch.full((), 1 / 64, device=device)
    gradients = tuple(normal(rows, cols, dtype=dtype, device=device) for _ in range(1 + residual)) if backward else ()
    return Case(op, values, inputs, forward, gradients)


def softmax_output(case):
    """What softmax_backward is given: y as a forward pass stores it, in the type of x."""
    return torch.softmax(case.inputs["x"].detach(), dim=-1)


def softmax_backward(case):
    y, dy = softmax_output(case).float(), case.gradients[0].float()
    return (y * (dy - (y * dy).sum(dim=-1, keepdim=True)),)


def softmax(op, values, dtype, device):
    backward = op.endswith("_backward")
    rows, cols, mask = values["rows"], values["cols"], values.get("mask", "none")
    queries, scale = values.get("queries", rows), float(values.get("scale", 1))

    def forward(x, bias=None, forbidden=None):
        x = x if scale == 1 else x * scale
        x = x if bias is None else x + bias
        if forbidden is not None:
            x = x.view(-1, queries, cols).masked_fill(forbidden, float("-inf")).view(rows, cols)
        return (torch.softmax(x, dim=-1),)

    inputs = {"x": normal(rows, cols, dtype=dtype, device=device, scale=2.0, grad=backward)}
    if mask == "additive":
        inputs["bias"] = normal(rows, cols, dtype=dtype, device=device)
    if mask == "causal":
        inputs["forbidden"] = torch.ones(queries, cols, dtype=torch.bool, device=device).triu(1 + cols - queries)
    gradients = (normal(rows, cols, dtype=dtype, device=device),) if backward else ()
    return Case(op, values, inputs, forward, gradients, rounded=softmax_backward if backward else None)


def swiglu(op, values, dtype, device):
    backward = op.endswith("_backward")
    rows, cols, how = values["rows"], values["cols"], values.get("quantise", "none")

    def forward(gate, up, y_scale=None):
        return quantised(F.silu(gate) * up, how, y_scale)

    inputs = {name: normal(rows, cols, dtype=dtype, device=device, grad=backward) for name in ("gate", "up")}
    if how == "tensor":
        inputs["y_scale"] = torch.full((), 1 / 64, device=device)
    gradients = (normal(rows, cols, dtype=dtype, device=device),) if backward else ()
    return Case(op, values, inputs, forward, gradients)


def quantise(op, values, dtype, device):
    how = values.get("scaling", "tensor")

    def forward(x, y_scale=None):
        return quantised(x, how, y_scale)

    inputs = {"x": normal(values["rows"], values["cols"], dtype=dtype, device=device)}
    if how == "tensor":
        inputs["y_scale"] = torch.full((), 1 / 64, device=device)
    return Case(op, values, inputs, forward)


def rotary(op, values, dtype, device):
    """Half as Hugging Face's Llama has it, interleaved as its GPT-J does: tables as wide as a head, in the type of x."""
    tokens, heads, dim = values["tokens"], values["heads"], values["dim"]
    backward, half = values.get("direction") == "backward", values.get("layout", "half") == "half"

    def turned(x):
        if half:
            return torch.cat((-x[..., dim // 2:], x[..., :dim // 2]), dim=-1)
        return torch.stack((-x[..., 1::2], x[..., ::2]), dim=-1).flatten(-2)

    def forward(x, cos, sin):
        return (x * cos.unsqueeze(1) + turned(x) * sin.unsqueeze(1),)

    angles = torch.outer(torch.arange(tokens, device=device), 1e4 ** -(torch.arange(0, dim, 2, device=device) / dim))
    angles = torch.cat((angles, angles), dim=-1) if half else angles.repeat_interleave(2, dim=-1)
    inputs = {"x": normal(tokens, heads, dim, dtype=dtype, device=device, grad=backward), "cos": angles.cos().to(dtype), "sin": angles.sin().to(dtype)}
    return Case(op, values, inputs, forward, (normal(tokens, heads, dim, dtype=dtype, device=device),) if backward else ())


BUILDERS = {"rotary": rotary, "rms_norm": norm, "layer_norm": norm, "rms_norm_backward": norm,
            "layer_norm_backward": norm, "softmax": softmax, "softmax_backward": softmax, "swiglu": swiglu, "swiglu_backward": swiglu,
            "quantise": quantise}


def build(op, values, device):
    torch.manual_seed(20261121)
    case = BUILDERS[op](op, values, TYPES[values.get("dtype", "bf16")], device)
    e4m3 = case.given("quantise") != "none" or op == "quantise"
    return dataclasses.replace(case, tolerance=(0.13, 2e-2)) if e4m3 else case  # neighbours of three mantissa bits
