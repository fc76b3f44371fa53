"""torch's memory-efficient attention backward with its default number of splits of keys, and with one: what a frozen default costs.

    python3 bench/peers/attention_splits.py [--check] < bench/problems/attention_splits.txt

A problem is one of attention_backward, dense; each line gives a peer `default` and a peer `one`. Each result is compared with gradients in float32
before it is timed. One JSON object a problem and peer: nanoseconds with L2 flushed, or the reason why there are none. --check compares and
times nothing. The ops are torch.ops.aten's, which take num_splits_key; nothing public of torch does.
"""
import argparse
import sys

import torch

from attention_cases import SEED, Case
from common import device_ns, emit, parse

TOLERANCE = {torch.bfloat16: 4e-2, torch.float16: 6e-3}  # of the root mean square, as bench/peers/attention_backward.py
SPLITS = {"default": None, "one": 1}
CAUSAL = 2  # its mask whose diagonal joins the last query and the last key
AT_ONCE = 1024  # queries


def wanted(case, dout):
    """Gradients of q, k and v in float32, head by head."""
    result = [torch.zeros_like(each, dtype=torch.float32) for each in (case.q, case.k, case.v)]
    for sequence in range(case.batch):
        for head in range(case.heads):
            q, k, v, gradient = (each[sequence, :, head].float() for each in (case.q, case.k, case.v, dout))
            dq, dk, dv = (each[sequence, :, head] for each in result)
            for some in torch.arange(case.queries, device=q.device).split(AT_ONCE):
                scores = q[some] @ k.T / q.shape[1] ** 0.5
                if case.causal:
                    seen = torch.arange(case.keys, device=q.device)[None] <= some[:, None] + case.keys - case.queries
                    scores.masked_fill_(~seen, -torch.inf)
                weights = torch.softmax(scores, 1).nan_to_num(0)
                of_weights = gradient[some] @ v.T
                changes = weights * (of_weights - (weights * of_weights).sum(1, keepdim=True)) / q.shape[1] ** 0.5
                dq[some] = changes @ k
                dk += changes.T @ q[some]
                dv += weights.T @ gradient[some]
    return result


def launch_of(case, dout, splits):
    mask = CAUSAL if case.causal else 0
    out, lse, seed, offset, most_queries, most_keys = torch.ops.aten._efficient_attention_forward(
        case.q, case.k, case.v, None, None, None, None, None, 0.0, mask, True)
    return lambda: torch.ops.aten._efficient_attention_backward(
        dout, case.q, case.k, case.v, None, out, None, None, most_queries, most_keys, lse, 0.0, seed, offset, mask, False, num_splits_key=splits)[:3]


def judged(case, gradients, right):
    errors = [((got.float() - each).abs().max() / each.square().mean().sqrt()).item() for got, each in zip(gradients, right)]
    return {"right": all(error <= TOLERANCE[case.dtype] for error in errors), "worst_error": round(max(errors), 6)}


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--check", action="store_true", help="compare results, time nothing")
    asked = options.parse_args()
    torch.manual_seed(SEED)
    torch.backends.cuda.matmul.allow_tf32 = False
    for line in sys.stdin:
        op, values = parse(line)
        if op != "attention_backward":
            continue
        case = Case(values, "cuda")
        dout = torch.randn(case.batch, case.queries, case.heads, values["value_dim"], device="cuda", dtype=case.dtype)
        right = wanted(case, dout)
        for peer, splits in SPLITS.items():
            try:
                launch = launch_of(case, dout, splits)
                row = judged(case, launch(), right)
                if not asked.check:
                    row["ns"] = round(device_ns(launch, 25))
            except Exception as error:  # whatever a peer may raise: it then has no figure here
                row = {"reason": f"{type(error).__name__}: {error}".splitlines()[0]}
            emit(bench="attention_splits", op=op, peer=peer, asked=" ".join(line.split("#")[0].split()[1:]), **row)
        del case, right


main()
