"""torch beside bench_throughput: attention_forward, from standard input, one problem a line.

    python3 bench/peers/attention.py [--peers cudnn,flash,varlen] [--check] < bench/problems/attention.txt

cudnn and flash are backends of scaled_dot_product_attention, for dense batches; varlen is torch's varlen_attn, for packed ones, whose
sequences are as long as each other, as those that Kiln times. Each result is compared with float64 on a sample of queries before it is timed.
One JSON object a problem and peer: nanoseconds with L2 flushed, or the reason why there are none. --check compares and times nothing.
"""
import argparse
import sys

import torch

from attention_cases import SEED, Case
from common import device_ns, emit, parse

TOLERANCE = {torch.bfloat16: 2e-2, torch.float16: 4e-3}  # of the root mean square: P is rounded to the type, and so is the result
SAMPLED = 32  # queries, over all sequences


def judged(case, out):
    """Whether sampled queries, the last one among them, are within the tolerance, and their largest error over the root mean square."""
    worst, group = 0.0, case.heads // case.k.shape[2]
    for draw in range(SAMPLED):
        sequence, head = draw % case.batch, draw % case.heads
        query = case.queries - 1 if draw == 0 else int(torch.randint(case.queries, ()))
        seen = max(0, query + 1 + case.keys - case.queries) if case.causal else case.keys
        k, v = (each[sequence, :seen, head // group].double() for each in (case.k, case.v))
        weights = torch.softmax(k @ case.q[sequence, query, head].double() / k.shape[1] ** 0.5, 0)
        wanted = weights @ v
        error = (out[sequence, query, head].double() - wanted).abs().max() / wanted.square().mean().sqrt()
        worst = max(worst, error.item())
    right = worst <= TOLERANCE[case.dtype] and not out.isnan().any().item()
    return {"right": right, "worst_error": round(worst, 6)}


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--peers", default="cudnn,flash,varlen")
    options.add_argument("--check", action="store_true", help="compare results, time nothing")
    asked = options.parse_args()
    torch.manual_seed(SEED)
    for line in sys.stdin:
        op, values = parse(line)
        if op != "attention_forward":
            continue
        case = Case(values, "cuda")
        for peer in (each for each in case.peers() if each in asked.peers.split(",")):
            try:
                with torch.no_grad():
                    launch = case.launch(peer)
                    row = judged(case, launch())
                    if not asked.check:
                        row["ns"] = round(device_ns(launch, 25))
            except Exception as error:  # whatever a peer may raise: it then has no figure here
                row = {"reason": f"{type(error).__name__}: {error}".splitlines()[0]}
            emit(bench="attention", op=op, peer=peer, asked=" ".join(line.split("#")[0].split()[1:]), **row)
        del case


main()
