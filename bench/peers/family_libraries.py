"""The family's problems by public kernels: Liger-Kernel (Triton) and quack (CuTe DSL), their own functions called without autograd.

Each function takes a Case and gives what launches it; one that its library has no kernel for raises Unsupported with the reason.
"""
import importlib


class Unsupported(Exception):
    """A library has no kernel for a problem."""


def plain(case, *choices):
    """Refuses what only a composition of kernels could do."""
    for choice in choices:
        if case.given(choice) != "none":
            raise Unsupported(f"no kernel with {choice}={case.given(choice)}")


class Liger:
    """In place where its autograd functions are by default."""

    def __init__(self):
        names = ("fused_add_rms_norm", "layer_norm", "rms_norm", "rope", "softmax", "swiglu")
        self.ops = {name: importlib.import_module(f"liger_kernel.ops.{name}") for name in names}

    def rms_norm(self, case):
        plain(case, "quantise")
        x, weight = case.inputs["x"], case.inputs["weight"]
        if "residual" not in case.inputs:
            forward = self.ops["rms_norm"].rms_norm_forward
            return lambda: forward(x, weight, 1e-6, 0.0, "llama", None)[:1]
        fused, residual = self.ops["fused_add_rms_norm"].fused_add_rms_norm_forward, case.inputs["residual"]
        return lambda: fused(x, residual, weight, 1e-6, 0.0, "llama")[1::-1]

    def rms_norm_backward(self, case):
        plain(case, "residual")
        x, weight, (dy,) = case.inputs["x"].detach(), case.inputs["weight"].detach(), case.gradients
        _, x, rstd, block, warps, casting = self.ops["rms_norm"].rms_norm_forward(x, weight, 1e-6, 0.0, "llama", None)
        backward = self.ops["rms_norm"].rms_norm_backward
        return lambda: backward(dy, x, weight, rstd, 0.0, casting, block, warps, True, None)

    def layer_norm(self, case):
        plain(case, "residual", "quantise")
        forward = self.ops["layer_norm"].layer_norm_forward
        return lambda: forward(*(case.inputs[name] for name in ("x", "weight", "bias")), 1e-5)[:1]

    def layer_norm_backward(self, case):
        plain(case, "residual")
        x, weight, bias = (case.inputs[name].detach() for name in ("x", "weight", "bias"))
        _, x, mean, rstd, _, _ = self.ops["layer_norm"].layer_norm_forward(x, weight, bias, 1e-5)
        backward = self.ops["layer_norm"].layer_norm_backward
        return lambda: backward(*case.gradients, x, weight, bias, mean, rstd)

    def softmax(self, case):
        plain(case, "mask")
        return lambda: self.ops["softmax"]._softmax_forward(case.inputs["x"])[:1]

    def softmax_backward(self, case):
        plain(case, "mask")
        y, block, warps, multiple = self.ops["softmax"]._softmax_forward(case.inputs["x"].detach())
        return lambda: (self.ops["softmax"]._softmax_backward(*case.gradients, y, block, warps, multiple),)

    def swiglu(self, case):
        plain(case, "quantise")
        return lambda: self.ops["swiglu"].swiglu_forward(case.inputs["gate"], case.inputs["up"])[2:]

    def swiglu_backward(self, case):
        gate, up = case.inputs["gate"].detach(), case.inputs["up"].detach()
        return lambda: self.ops["swiglu"].swiglu_backward(gate, up, *case.gradients)


class Quack:
    """With the configurations of its heuristics; layer_norm's weights in f32, as it wants them."""

    def __init__(self):
        self.norms, self.softmaxes, self.rotaries = (importlib.import_module(f"quack.{name}") for name in ("rmsnorm", "softmax", "rotary"))

    def rms_norm(self, case):
        plain(case, "quantise")
        x, weight, residual = case.inputs["x"], case.inputs["weight"], case.inputs.get("residual")
        if residual is None:
            return lambda: self.norms.rmsnorm_fwd(x, weight, eps=1e-6)[:1]
        return lambda: self.norms.rmsnorm_fwd(x, weight, residual=residual, eps=1e-6)[1::-1]

    def rms_norm_backward(self, case):
        plain(case, "residual")
        x, weight, (dy,) = case.inputs["x"].detach(), case.inputs["weight"].detach(), case.gradients
        rstd = self.norms.rmsnorm_fwd(x, weight, eps=1e-6, store_rstd=True)[2]
        return lambda: self.norms.rmsnorm_bwd(x, weight, dy, rstd)[:2]

    def layer_norm(self, case):
        plain(case, "residual", "quantise")
        x, weight, bias = case.inputs["x"], case.inputs["weight"].float(), case.inputs["bias"].float()
        return lambda: (self.norms.layernorm_fwd(x, weight, bias, eps=1e-5),)

    def layer_norm_backward(self, case):
        plain(case, "residual")
        x, weight, bias = (case.inputs[name].detach() for name in ("x", "weight", "bias"))
        weight, bias = weight.float(), bias.float()
        _, rstd, mean = self.norms.layernorm_fwd(x, weight, bias, eps=1e-5, return_rstd=True, return_mean=True)
        return lambda: self.norms.layernorm_bwd(x, weight, *case.gradients, rstd, mean)

    def softmax(self, case):
        plain(case, "mask")
        return lambda: (self.softmaxes.softmax_fwd(case.inputs["x"]),)

    def softmax_backward(self, case):
        plain(case, "mask")
        y = self.softmaxes.softmax_fwd(case.inputs["x"].detach())
        return lambda: (self.softmaxes.softmax_bwd(*case.gradients, y),)


LIBRARIES = {"liger": Liger, "quack": Quack}


def launcher(library, case):
    if not hasattr(library, case.op):
        raise Unsupported(f"no kernel for {case.op}")
    return getattr(library, case.op)(case)
