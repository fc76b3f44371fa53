"""Small models of Hugging Face for tests of patch(), with the references in the kernels' place."""
from __future__ import annotations

import copy

import kiln.torch
import torch
import transformers

import reference
from torch.utils._python_dispatch import TorchDispatchMode

KEEP = reference.install_on_cpu()
FAMILIES = ("Llama", "Qwen2", "Qwen3")
SIZES = dict(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
             max_position_embeddings=128)
TOKENS = torch.randint(64, (2, 11), generator=torch.Generator().manual_seed(1))


def model_of(family, **more):
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**{**SIZES, **more})
    config._attn_implementation = "eager"
    model = getattr(transformers, f"{family}ForCausalLM")(config)
    with torch.no_grad():
        for name, each in model.named_parameters():
            if name.endswith("bias") or "norm" in name:
                each.normal_(1 if "norm" in name else 0, 0.2)
            else:
                each.mul_(10)  # each weight counts
    return model.eval()


def with_kiln(model):
    """Its attention alone is Kiln's."""
    transformers.AttentionInterface.register("kiln", kiln.torch.huggingface_attention)
    transformers.masking_utils.AttentionMaskInterface.register("kiln", kiln.torch.huggingface_mask)
    bare = copy.deepcopy(model)
    bare.set_attn_implementation("kiln")
    return bare


class Launched(TorchDispatchMode):
    """Names of Kiln's ops that have `part` in theirs, in order."""

    def __init__(self, part="attention"):
        super().__init__()
        self.part, self.names = part, []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "kiln" and self.part in func.__name__:
            self.names.append(func.__name__.removesuffix(".default"))
        return func(*args, **(kwargs or {}))
