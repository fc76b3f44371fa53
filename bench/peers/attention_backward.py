"""torch beside bench_throughput: attention_backward, from standard input, one problem a line.

    python3 bench/peers/attention_backward.py [--peers cudnn,flash,flash4,varlen] [--check] < bench/problems/attention_backward.txt

Peers are those of attention.py, and flash4, FlashAttention-4 by its own package (flash-attn-4); the backward pass alone is timed, by torch.autograd.grad on a kept graph. Where a problem is deterministic,
flash alone is a peer, under torch.use_deterministic_algorithms. Each result is compared with float64, on a sample of queries and of keys,
before it is timed. One JSON object a problem and peer: nanoseconds with L2 flushed, or the reason why there are none. --check compares
and times nothing.
"""
import argparse
import sys

import torch

from attention_cases import SEED, Case
from common import device_ns, emit, parse

TOLERANCE = {torch.bfloat16: 4e-2, torch.float16: 6e-3}  # of the root mean square: P and dS are rounded to the type, and so is the result
SAMPLED = 4  # pairs of a sequence and a head; of each so many queries and keys
ROWS = 8
AT_ONCE = 2048  # queries


def seen_by(case, queries):
    """[queries, keys]: which keys the causal mask leaves."""
    return torch.arange(case.keys, device=queries.device)[None] <= queries[:, None] + case.keys - case.queries


def rows_of(case, sequence, head, queries, dout):
    """In float64, of some queries of a head: weights and the gradients of scaled products."""
    group = case.heads // case.k.shape[2]
    q, gradient = (each[sequence, queries, head].double() for each in (case.q, dout))
    k, v = (each[sequence, :, head // group].double() for each in (case.k, case.v))
    scores = q @ k.T / q.shape[1] ** 0.5
    if case.causal:
        scores.masked_fill_(~seen_by(case, queries), -torch.inf)
    weights = torch.softmax(scores, 1).nan_to_num(0)
    of_weights = gradient @ v.T
    return weights, weights * (of_weights - (weights * of_weights).sum(1, keepdim=True)) / q.shape[1] ** 0.5


def error_of(got, wanted):
    return ((got.double() - wanted).abs().max() / wanted.square().mean().sqrt()).item()


def judged(case, gradients, dout):
    """Whether sampled queries that see many keys, and keys that many see, are within the tolerance, and the largest error over the root
    mean square."""
    worst, group = 0.0, case.heads // case.k.shape[2]
    dq, dk, dv = gradients
    for draw in range(SAMPLED):
        sequence, key_head = draw % case.batch, draw % case.k.shape[2]
        queries = torch.randint(case.queries // 2, case.queries, (ROWS,), device=dq.device)
        _, changes = rows_of(case, sequence, key_head * group, queries, dout)
        worst = max(worst, error_of(dq[sequence, queries, key_head * group], changes @ case.k[sequence, :, key_head].double()))
        keys = torch.randint(0, max(1, case.keys // 2), (ROWS,), device=dq.device)
        wanted_k, wanted_v = 0, 0
        for head in range(key_head * group, (key_head + 1) * group):
            for some in torch.arange(case.queries, device=dq.device).split(AT_ONCE):
                weights, changes = rows_of(case, sequence, head, some, dout)
                wanted_k = wanted_k + changes[:, keys].T @ case.q[sequence, some, head].double()
                wanted_v = wanted_v + weights[:, keys].T @ dout[sequence, some, head].double()
        worst = max(worst, error_of(dk[sequence, keys, key_head], wanted_k), error_of(dv[sequence, keys, key_head], wanted_v))
    right = worst <= TOLERANCE[case.dtype] and not any(each.isnan().any().item() for each in gradients)
    return {"right": right, "worst_error": round(worst, 6)}


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--peers", default="cudnn,flash,varlen")
    options.add_argument("--check", action="store_true", help="compare results, time nothing")
    asked = options.parse_args()
    torch.manual_seed(SEED)
    for line in sys.stdin:
        op, values = parse(line)
        if op != "attention_backward":
            continue
        case = Case(values, "cuda")
        inputs = tuple(each.requires_grad_() for each in (case.q, case.k, case.v))
        deterministic = values.get("deterministic") == "yes"
        torch.use_deterministic_algorithms(deterministic, warn_only=True)
        for peer in (each for each in case.peers() if each in asked.peers.split(",") and (each == "flash" or not deterministic)):
            try:
                out = case.launch(peer)()
                dout = torch.randn_like(out)
                launch = lambda: torch.autograd.grad(out, inputs, dout, retain_graph=True)
                row = judged(case, [each.detach() for each in launch()], dout)
                if not asked.check:
                    row["ns"] = round(device_ns(launch, 25))
            except Exception as error:  # whatever a peer may raise: it then has no figure here
                row = {"reason": f"{type(error).__name__}: {error}".splitlines()[0]}
            emit(bench="attention_backward", op=op, peer=peer, asked=" ".join(line.split("#")[0].split()[1:]), **row)
            out = launch = None
        del case, inputs


main()
