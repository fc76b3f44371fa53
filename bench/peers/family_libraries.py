"""The family's problems by public kernels: Liger-Kernel (Triton) and quack (CuTe DSL), their own functions called without autograd.

Each function takes a Case and gives what launches it; one that its library has no kernel for raises Unsupported with the reason.
"""
import importlib

import family_cases

QUERY_HEADS = 4 / 5  # of the heads of Llama 3 8B's queries and keys together


class Unsupported(Exception):
    """A library has no kernel for a problem."""


def plain(case, **usual):
    """Refuses what only a composition of kernels could do: any other value of a choice than the usual one."""
    for choice, value in usual.items():
        if case.given(choice, value) != value:
            raise Unsupported(f"no kernel with {choice}={case.given(choice)}")


class Liger:
    """In place where its autograd functions are by default."""

    def __init__(self):
        names = ("fused_add_rms_norm", "layer_norm", "rms_norm", "rope", "softmax", "swiglu")
        self.ops = {name: importlib.import_module(f"liger_kernel.ops.{name}") for name in names}

    def rms_norm(self, case):
        plain(case, quantise="none")
        x, weight = case.inputs["x"], case.inputs["weight"]
        if "residual" not in case.inputs:
            forward = self.ops["rms_norm"].rms_norm_forward
            return lambda: forward(x, weight, 1e-6, 0.0, "llama", None)[:1]
        fused, residual = self.ops["fused_add_rms_norm"].fused_add_rms_norm_forward, case.inputs["residual"]
        return lambda: fused(x, residual, weight, 1e-6, 0.0, "llama")[1::-1]

    def rms_norm_backward(self, case):
        x, weight, (*d_sum, dy) = case.inputs["x"].detach(), case.inputs["weight"].detach(), case.gradients
        if d_sum:
            ops = self.ops["fused_add_rms_norm"]
            _, total, *rest = ops.fused_add_rms_norm_forward(x, case.inputs["residual"], weight, 1e-6, 0.0, "llama")
            rstd, block, warps, stages, casting = rest
            return lambda: ops.fused_add_rms_norm_backward(dy, *d_sum, total, weight, rstd, 0.0, casting, block, warps, stages, False)[1:]
        _, x, rstd, block, warps, casting = self.ops["rms_norm"].rms_norm_forward(x, weight, 1e-6, 0.0, "llama", None)
        backward = self.ops["rms_norm"].rms_norm_backward
        return lambda: backward(dy, x, weight, rstd, 0.0, casting, block, warps, True, None)

    def layer_norm(self, case):
        plain(case, residual="none", quantise="none")
        forward = self.ops["layer_norm"].layer_norm_forward
        return lambda: forward(*(case.inputs[name] for name in ("x", "weight", "bias")), 1e-5)[:1]

    def layer_norm_backward(self, case):
        plain(case, residual="none")
        x, weight, bias = (case.inputs[name].detach() for name in ("x", "weight", "bias"))
        _, x, mean, rstd, _, _ = self.ops["layer_norm"].layer_norm_forward(x, weight, bias, 1e-5)
        backward = self.ops["layer_norm"].layer_norm_backward
        return lambda: backward(*case.gradients, x, weight, bias, mean, rstd)

    def softmax(self, case):
        plain(case, mask="none", scale="1")
        return lambda: self.ops["softmax"]._softmax_forward(case.inputs["x"])[:1]

    def softmax_backward(self, case):
        plain(case, mask="none", scale="1")
        y = family_cases.softmax_output(case)
        _, block, warps, multiple = self.ops["softmax"]._softmax_forward(case.inputs["x"].detach())
        return lambda: (self.ops["softmax"]._softmax_backward(*case.gradients, y, block, warps, multiple),)

    def swiglu(self, case):
        plain(case, quantise="none")
        return lambda: self.ops["swiglu"].swiglu_forward(case.inputs["gate"], case.inputs["up"])[2:]

    def swiglu_backward(self, case):
        gate, up = case.inputs["gate"].detach(), case.inputs["up"].detach()
        return lambda: self.ops["swiglu"].swiglu_backward(gate, up, *case.gradients)


    def rotary(self, case):
        """Queries and keys as two tensors, in place."""
        plain(case, layout="half")
        x, tables = (case.gradients or (case.inputs["x"],))[0].unsqueeze(0), (case.inputs["cos"], case.inputs["sin"])
        queries = round(x.shape[2] * QUERY_HEADS)
        parts = [part.contiguous().transpose(1, 2) for part in x.split([queries, x.shape[2] - queries], dim=2)]
        turn = self.ops["rope"].rope_backward if case.gradients else self.ops["rope"].rope_forward
        return lambda: [part.transpose(1, 2).squeeze(0) for part in turn(*parts, *tables)[:2]]


class Quack:
    """With the configurations of its heuristics; layer_norm's weights in f32, as it wants them."""

    def __init__(self):
        self.norms, self.softmaxes, self.rotaries = (importlib.import_module(f"quack.{name}") for name in ("rmsnorm", "softmax", "rotary"))

    def rms_norm(self, case):
        plain(case, quantise="none")
        x, weight, residual = case.inputs["x"], case.inputs["weight"], case.inputs.get("residual")
        if residual is None:
            return lambda: self.norms.rmsnorm_fwd(x, weight, eps=1e-6)[:1]
        return lambda: self.norms.rmsnorm_fwd(x, weight, residual=residual, eps=1e-6)[1::-1]

    def rms_norm_backward(self, case):
        x, weight, (*d_sum, dy) = case.inputs["x"].detach(), case.inputs["weight"].detach(), case.gradients
        _, x, rstd = self.norms.rmsnorm_fwd(x, weight, residual=case.inputs.get("residual"), eps=1e-6, store_rstd=True)
        return lambda: self.norms.rmsnorm_bwd(x, weight, dy, rstd, *d_sum)[:2]

    def layer_norm(self, case):
        plain(case, residual="none", quantise="none")
        x, weight, bias = case.inputs["x"], case.inputs["weight"].float(), case.inputs["bias"].float()
        return lambda: (self.norms.layernorm_fwd(x, weight, bias, eps=1e-5),)

    def layer_norm_backward(self, case):
        plain(case, residual="none")
        x, weight, bias = (case.inputs[name].detach() for name in ("x", "weight", "bias"))
        weight, bias = weight.float(), bias.float()
        _, rstd, mean = self.norms.layernorm_fwd(x, weight, bias, eps=1e-5, return_rstd=True, return_mean=True)
        return lambda: self.norms.layernorm_bwd(x, weight, *case.gradients, rstd, mean)

    def softmax(self, case):
        plain(case, mask="none", scale="1")
        return lambda: (self.softmaxes.softmax_fwd(case.inputs["x"]),)

    def softmax_backward(self, case):
        plain(case, mask="none", scale="1")
        y = family_cases.softmax_output(case)
        return lambda: (self.softmaxes.softmax_bwd(*case.gradients, y),)


    def rotary(self, case):
        x, half = (case.gradients or (case.inputs["x"],))[0].unsqueeze(0), case.given("layout", "half") == "half"
        cos, sin = (case.inputs[name][:, : x.shape[3] // 2] if half else case.inputs[name][:, ::2].contiguous() for name in ("cos", "sin"))
        return lambda: self.rotaries.apply_rotary(x, cos, sin, interleaved=not half, conjugate=bool(case.gradients))


LIBRARIES = {"liger": Liger, "quack": Quack}


def launcher(library, case):
    if not hasattr(library, case.op):
        raise Unsupported(f"no kernel for {case.op}")
    return getattr(library, case.op)(case)
