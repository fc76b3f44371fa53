"""Kiln's ops in PyTorch on a GPU: what passed, and the host's cost of a call. The logs are those of python/torch/tests/gpu.py."""
import collections

from evidence.table import markdown

CHECKS, MODELS = "torch-h100/checks.jsonl", "torch-h100/models.jsonl"
SHOWS = {"values": "ops beside formulas in torch", "opcheck": "torch.library.opcheck, with sizes that vary", "gradients": "gradients beside f64",
         "autocast": "autocast", "inputs": "empty, strided and refused inputs", "graph": "CUDA graphs beside eager", "300 lengths": "300 lengths through torch.compile",
         "patch": "Llama, Qwen2 and Qwen3 after `patch`, beside f64"}


def torch_checks(read):
    passed, failed = collections.Counter(), collections.defaultdict(list)
    for row in read(CHECKS) + read(MODELS):
        if row["ok"]:
            passed[row["check"]] += 1
        elif row["ok"] is False and row["check"] != "end":
            failed[row["check"]].append(f"{row['case']}: {row['error']}")
    return markdown(["what", "passed", "failed"], [[what, passed[check], "; ".join(failed[check]) or 0] for check, what in SHOWS.items()])


def torch_lengths(read):
    body = [["with" if row["case"] == "gradients=True" else "without", row["graphs"], row["tunes"], row["compiles"], row["prewarm_s"], row["lengths_s"]]
            for row in read(CHECKS) if row["check"] == "300 lengths"]
    return markdown(["gradients", "graphs", "tunes", "compiles", "12 first lengths, s", "300 lengths, s"], body)


def torch_host(read):
    body = [[row["case"], row["us"]] for row in read(MODELS) if row["check"] == "host cost" and "met" not in row]
    return markdown(["host's cost of a call", "us"], body)


TABLES = {"torch_checks": torch_checks, "torch_lengths": torch_lengths, "torch_host": torch_host}
