"""attention.py with FlashAttention-3 (fa3-fwd) among its peers: flash3."""
import runpy

import attention_cases


class Case(attention_cases.Case):
    def peers(self):
        return super().peers() if self.packed else (*super().peers(), "flash3")

    def launch(self, peer):
        if peer != "flash3":
            return super().launch(peer)
        from fa3_fwd_interface import flash_attn_func

        return lambda: flash_attn_func(self.q, self.k, self.v, causal=self.causal)


attention_cases.Case = Case
runpy.run_module("attention", run_name="__main__")
