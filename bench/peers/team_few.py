"""NCCL and torch's all-reduces over symmetric memory beside bench_team, of few bytes, from standard input, one problem a line.

    python3 bench/peers/team_few.py [--world 2] [--seconds S] [--check] < bench/problems/team_few.txt

nccl is torch.distributed's all-reduce. one_shot and two_shot are torch.ops.symm_mem's, of an x that lies in symmetric memory already. For
all_reduce_norm each is followed by a sum with the residual and torch's rms_norm, in the type of x. All else is as team.py has it: it times them.
"""
import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symmetric_memory

import team
from team import drawn


class FewBytes(team.Case):
    def all_reduce(self, values, dtype):
        self.sums(values, dtype, lambda reduced: reduced)

    def all_reduce_norm(self, values, dtype):
        rows, cols = values["rows"], values["cols"]
        residual, weight = drawn(100, rows, cols, dtype=dtype), drawn(101, cols, dtype=dtype)

        def norm(reduced):
            kind = reduced.dtype
            return torch.nn.functional.rms_norm(reduced + residual.to(kind), (cols,), weight.to(kind), 1e-6)

        self.sums(values, dtype, norm)

    def sums(self, values, dtype, finish):
        """Those in place go on adding up what they left, so that their results are right once."""
        all_x = self.parts(values["rows"], values["cols"], dtype=dtype)
        own, group = all_x[self.rank].clone(), dist.group.WORLD.group_name
        shared = [symmetric_memory.empty(own.shape, dtype=dtype, device="cuda").copy_(own) for _ in range(2)]
        for each in shared:
            symmetric_memory.rendezvous(each, dist.group.WORLD)
        self.wanted = finish(sum(x.float() for x in all_x))
        self.peers = {"nccl": lambda: (dist.all_reduce(own), finish(own))[1],
                      "one_shot": lambda: finish(torch.ops.symm_mem.one_shot_all_reduce(shared[0], "sum", group)),
                      "two_shot": lambda: finish(torch.ops.symm_mem.two_shot_all_reduce_(shared[1], "sum", group))}


team.Case = FewBytes  # in each rank's process too, which imports this first
if __name__ == "__main__":
    team.main()
