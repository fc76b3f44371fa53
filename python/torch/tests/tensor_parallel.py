#!/usr/bin/env python3
"""Tensor parallelism on two GPUs of one host: torchrun --nproc-per-node 2 python/torch/tests/tensor_parallel.py [cpu]

A patched Llama under torch's parallel plan and under transformers' own: logits, loss and gradients beside the same plan without patch(), beside the whole
model on one GPU, and beside that in f32. cpu: two processes without a GPU, with formulas in the kernels' place. Rank 0 prints an object a check, and ends
with 1 where one failed.
"""
from __future__ import annotations

import datetime
import os
import sys
import tempfile
import traceback
from collections.abc import Callable

import torch
import torch.distributed as distributed
import transformers
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module
from torch.utils._python_dispatch import TorchDispatchMode

import kiln
import kiln.torch as kt
import ranks
import reference
from devices import small_llama
from errors import error_of, largest
from ranks import of_all, row

DEVICE = "cpu" if sys.argv[1:] == ["cpu"] else "cuda"
LIMIT = 5e-2  # of errors beside the same model without patch, as in training.py
WRITTEN = 16  # tokens
KERNELS = {"rms_norm", "rms_norm_add", "rotary", "swiglu", "attention_dense_causal", "attention_decode_contiguous"}
Model = torch.nn.Module


class Launched(TorchDispatchMode):
    """Names of Kiln's ops, and the heads of queries that its attention was given."""

    def __init__(self):
        super().__init__()
        self.names, self.heads = set(), set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "kiln":
            self.names.add(func.__name__.removesuffix(".default"))
            if func.__name__.startswith("attention"):
                self.heads.add(args[0].shape[-2])
        return func(*args, **(kwargs or {}))


def plain() -> Model:
    return small_llama().to(DEVICE)


def planned(model: Model, norms: bool = False) -> Model:
    """Heads and the columns of the MLP divided among the ranks. norms: their tokens too."""
    mesh = init_device_mesh(DEVICE, (distributed.get_world_size(),))
    plan = {name: ColwiseParallel() for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj")}
    plan |= {name: RowwiseParallel() for name in ("self_attn.o_proj", "mlp.down_proj")}
    plan |= {"input_layernorm": SequenceParallel()} if norms else {}
    for layer in model.model.layers:
        parallelize_module(layer, mesh, plan)
    return model


def loaded(folder: str) -> Model:
    """By transformers' own plan, which from_pretrained(tp_plan="auto") is short for up to 5.17."""
    from transformers.distributed import DistributedConfig

    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, distributed_config=DistributedConfig(tp_plan="auto")).eval()


def tokens() -> torch.Tensor:
    return torch.randint(1000, (2, 97), generator=torch.Generator().manual_seed(7)).to(DEVICE)


def step_of(model: Model) -> dict[str, dict[str, torch.Tensor]]:
    """Logits, loss and gradients, whole, of tokens that all ranks have."""
    out = model(input_ids=tokens(), labels=tokens(), use_cache=False)
    out.loss.backward()
    found = {name.removeprefix("_orig_mod."): each.grad for name, each in model.named_parameters() if each.grad is not None}
    gradients = {name: (each.full_tensor() if hasattr(each, "full_tensor") else each).float() for name, each in found.items()}
    return {"logits": {"": out.logits.detach().float()}, "loss": {"": out.loss.detach().float()}, "gradients": gradients}


def errors_of(found: dict, expected: dict) -> dict[str, float]:
    """The largest of each kind, and infinity where a gradient is missing."""
    missing = float("inf")
    return {kind: largest(error_of(found[kind][name], each) if name in found[kind] else missing for name, each in tensors.items()) for kind, tensors in expected.items()}


def prompt_and_steps(model: Model) -> list[torch.Tensor]:
    """Logits of a prompt, and of three steps of one token over its cache."""
    out = model(input_ids=tokens(), use_cache=True)
    return [out.logits, *(model(input_ids=tokens()[:, each : each + 1], past_key_values=out.past_key_values).logits for each in range(3))]


def state_of(model: Model) -> list[tuple]:
    """What patch() may change."""
    modules = [(name, type(each), len(each._forward_pre_hooks)) for name, each in model.named_modules()]
    return [(model.config._attn_implementation,), *modules, *((name, type(each), each.requires_grad) for name, each in model.named_parameters())]


class Checks:
    def __init__(self, rank: int, folder: str):
        self.rank, self.folder = rank, folder
        self.wide, self.whole = step_of(plain().float()), step_of(plain())
        self.plans: dict[str, Callable[[], Model]] = {"torch's plan": lambda: planned(plain()), "transformers' plan": lambda: loaded(folder)}
        self.steps = {name: step_of(made()) for name, made in self.plans.items()}

    def trains(self, name: str, plan: str, made: Callable[[], Model]) -> None:
        found = step_of(made())
        ours, theirs = (errors_of(each, self.wide) for each in (found, self.steps[plan]))
        beside = {"the same plan": errors_of(found, self.steps[plan]), "one device": errors_of(found, self.whole)}
        as_near = all(ours[kind] <= 2 * theirs[kind] + 1e-2 for kind in ours)
        near = as_near and largest(each for errors in beside.values() for each in errors.values()) < LIMIT
        row(self.rank, name, all(of_all(near)), errors=of_all(ours), errors_without_patch=theirs, beside=beside, gradients=len(found["gradients"]))

    @torch.no_grad()
    def serves(self, name: str, plan: str, made: Callable[[], Model]) -> None:
        """A prompt, steps over its cache, and tokens that generate() writes: as many on each rank, or one would wait for the other one's products."""
        model, theirs = made(), self.plans[plan]()
        with Launched() as launched:
            errors = [error_of(one, other) for one, other in zip(prompt_and_steps(model), prompt_and_steps(plain()), strict=True)]
        options = dict(max_new_tokens=WRITTEN, min_new_tokens=WRITTEN, do_sample=False, pad_token_id=0)
        own, expected = (each.generate(tokens(), **options)[:, -WRITTEN:] for each in (model, theirs))
        heads = model.config.num_attention_heads // distributed.get_world_size()
        ok = largest(errors) < LIMIT and own.shape == expected.shape and launched.names >= KERNELS and launched.heads == {heads}
        row(self.rank, name, all(of_all(ok)), errors=of_all(errors), ops=sorted(launched.names), heads=sorted(launched.heads),
            share_of_tokens_without_patch=(own == expected).float().mean().item(), same_tokens_on_all_ranks=len(set(of_all(str(own.tolist())))) == 1)

    @torch.no_grad()
    def refuses_joined_products(self, name: str, plan: str) -> None:
        """patch(inference=True) of a model under a plan raises ValueError, and the model is as before."""
        model, said = self.plans[plan](), ""
        before, logits = state_of(model), model(input_ids=tokens(), use_cache=False).logits
        try:
            kt.patch(model, inference=True)
        except ValueError as error:
            said = str(error)
        after = model(input_ids=tokens(), use_cache=False).logits
        ok = "has hooks or an adapter at q_proj" in said and state_of(model) == before and torch.equal(logits, after)
        row(self.rank, name, all(of_all(ok)), said=said)

    def refuses_distributed_activations(self, name: str) -> None:
        """Activations that are distributed tensors, such as those of sequence parallelism, have no rule for Kiln's ops."""
        said = ""
        try:
            step_of(planned(kt.patch(plain()), norms=True))
        except NotImplementedError as error:
            said = str(error)
        row(self.rank, name, all(of_all("kiln.rms_norm" in said and "sharding strategy" in said)), said=said.splitlines()[:1])

    def all_of_them(self) -> dict[str, Callable[[str], None]]:
        compiled = lambda: torch.compile(planned(kt.patch(plain())), backend="inductor" if DEVICE == "cuda" else "aot_eager")
        return {
            "training: patch, then torch's plan": lambda name: self.trains(name, "torch's plan", lambda: planned(kt.patch(plain()))),
            "training: torch's plan, then patch": lambda name: self.trains(name, "torch's plan", lambda: kt.patch(planned(plain()))),
            "training: transformers' plan, then patch": lambda name: self.trains(name, "transformers' plan", lambda: kt.patch(loaded(self.folder))),
            "serving: patch, then torch's plan": lambda name: self.serves(name, "torch's plan", lambda: planned(kt.patch(plain()))),
            "serving: patch with inference=True, then torch's plan": lambda name: self.serves(name, "torch's plan", lambda: planned(kt.patch(plain(), inference=True))),
            "serving: transformers' plan, then patch": lambda name: self.serves(name, "transformers' plan", lambda: kt.patch(loaded(self.folder))),
            "torch's plan, then patch with inference=True, is refused": lambda name: self.refuses_joined_products(name, "torch's plan"),
            "transformers' plan, then patch with inference=True, is refused": lambda name: self.refuses_joined_products(name, "transformers' plan"),
            "norms of distributed tensors are refused": self.refuses_distributed_activations,
            "training: patch, then torch's plan, and torch.compile": lambda name: self.trains(name, "torch's plan", compiled),
        }


def meet() -> int:
    """A rank that fails alone ends the other one after the time limit."""
    limit = datetime.timedelta(seconds=180)
    if DEVICE == "cpu":
        distributed.init_process_group("gloo", timeout=limit)
    else:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        distributed.init_process_group("nccl", device_id=torch.device("cuda", torch.cuda.current_device()), timeout=limit)
    return distributed.get_rank()


def main() -> int:
    rank = meet()
    formulas = reference.install_on_cpu() if DEVICE == "cpu" else None
    kiln.configure(overlay="", on_miss="nearest")
    with tempfile.TemporaryDirectory() as own:
        shared = [own]
        distributed.broadcast_object_list(shared)
        if rank == 0:
            plain().save_pretrained(own)
        distributed.barrier()
        checks = Checks(rank, shared[0])
        for name, check in checks.all_of_them().items():
            try:
                check(name)
            except Exception as error:
                row(rank, name, False, error=f"{type(error).__name__}: {error}"[:900], where=traceback.format_exc().splitlines()[-6:])
        distributed.barrier()
    del formulas
    row(rank, "machine", True, device=torch.cuda.get_device_name() if DEVICE == "cuda" else "cpu", ranks=distributed.get_world_size(), torch=torch.__version__,
        transformers=transformers.__version__)
    distributed.destroy_process_group()
    return 1 if ranks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
