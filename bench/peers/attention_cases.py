"""Problems of attention's ops in torch: tensors, and a call for each peer."""
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

TYPES = {"bf16": torch.bfloat16, "f16": torch.float16}
SEED = 20261121  # of bench/throughput.cpp
BACKENDS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}


class Case:
    """Tensors as [sequence, length, head, dim], which lie as Kiln's do."""

    def __init__(self, values, device):
        self.dtype = TYPES[values.get("dtype", "bf16")]
        self.packed = values.get("layout") == "packed"
        self.causal = values.get("mask") == "causal"
        self.batch, self.heads = values["batch"], values["heads"]
        divisor = self.batch if self.packed else 1
        self.queries, self.keys = values["queries"] // divisor, values["keys"] // divisor
        made = lambda length, heads, dim: torch.randn(self.batch, length, heads, dim, device=device, dtype=self.dtype)
        self.q = made(self.queries, self.heads, values["head_dim"])
        self.k = made(self.keys, values["key_heads"], values["head_dim"])
        self.v = made(self.keys, values["key_heads"], values["value_dim"])

    def peers(self):
        return ("varlen",) if self.packed else (*BACKENDS, "flash4")

    def launch(self, peer):
        """A call that gives [sequence, length, head, dim]."""
        if peer == "varlen":
            from torch.nn.attention.varlen import varlen_attn

            offsets = lambda length: torch.arange(self.batch + 1, device=self.q.device, dtype=torch.int32) * length
            q, k, v = (each.flatten(0, 1) for each in (self.q, self.k, self.v))
            at = (offsets(self.queries), offsets(self.keys), self.queries, self.keys)
            mask = {"window_size": (-1, 0)} if self.causal else {}
            return lambda: varlen_attn(q, k, v, *at, **mask).view(self.batch, self.queries, self.heads, -1)
        if peer == "flash4":
            from flash_attn.cute.interface import flash_attn_func

            return lambda: flash_attn_func(self.q, self.k, self.v, causal=self.causal)[0]
        q, k, v = (each.transpose(1, 2) for each in (self.q, self.k, self.v))
        grouped = {"enable_gqa": True} if self.k.shape[2] != self.heads else {}

        def launch():
            with sdpa_kernel(BACKENDS[peer]):
                return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal, **grouped).transpose(1, 2)

        return launch
