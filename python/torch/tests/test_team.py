"""Ops of teams: two processes on the fake driver, which meet by torch.distributed. Of Kiln's exchanges it has a twin of all_gather's; the fake NCCL
has the others, for ranks that met at an address."""
import os
import pathlib
import socket
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

HERE = pathlib.Path(__file__).resolve().parent
TESTS = HERE.parents[1] / "tests"
BEGIN = """
import ctypes, sys, fake_device, torch, kiln, kiln.torch as kt
import torch.distributed as distributed
fake_device.make_current()
kiln.configure(overlay="", on_miss="nearest", isolation="in_process", compile_workers=1)
distributed.init_process_group("gloo", init_method="file://" + sys.argv[1], rank=int(sys.argv[2]), world_size=2)
synchronise = ctypes.CDLL(__import__("os").environ["LD_PRELOAD"]).pretend_synchronise
def on(tensor):
    memory = (ctypes.c_char * tensor.nbytes).from_address(fake_device._allocate(tensor.nbytes))
    return torch.frombuffer(memory, dtype=tensor.dtype, count=tensor.numel()).view(tensor.shape).copy_(tensor)
def of(rank, *shape, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(rank)).to(dtype)
def same(found, expected, **limits):
    synchronise()
    torch.testing.assert_close(found.float(), expected.float(), **limits)
"""
TEAM = 'team = kt.join_team(device=0, bytes=16 << 20, address=sys.argv[3] or None)\n'


@pytest.fixture
def run_ranks(pretended, tmp_path):
    """Runs a program as two ranks; gives what each printed."""

    def run(program: str, address: str = "", **environment: str) -> list[str]:
        nccl = pathlib.Path(os.environ["KILN_CUDA_LIBRARY"]).parents[2] / "fake_nccl/libnccl.so"
        paths = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
        started = [subprocess.Popen([sys.executable, "-c", BEGIN + program, str(tmp_path / "met"), str(rank), address], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                    text=True, cwd=HERE, env={**os.environ, "PYTHONPATH": paths, "LD_PRELOAD": pretended, "KILN_NCCL_LIBRARY": str(nccl), **environment})
                   for rank in range(2)]
        ended = [each.communicate(timeout=200) for each in started]
        assert [each.returncode for each in started] == [0, 0], ended
        return [out for out, _ in ended]

    return run


def free_address() -> str:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{found.getsockname()[1]}"


def test_ranks_gather_each_others_rows(run_ranks):
    said = run_ranks(TEAM + """
parts = [of(rank, 6, 64) for rank in range(2)]
y = kt.all_gather(on(parts[team.rank]))
same(y, torch.cat(parts), rtol=0, atol=0)
print(team.world, tuple(y.shape))
""")
    assert said == ["2 (12, 64)\n"] * 2


def test_sums_and_products_are_those_of_all_ranks(run_ranks):
    said = run_ranks(TEAM + """
half = torch.float16
x, w = [of(rank, 8, 64, dtype=half) for rank in range(2)], [of(7 + rank, 32, 64, dtype=half) for rank in range(2)]
mine = on(x[team.rank]), on(w[team.rank])
near = {"rtol": 1e-2, "atol": 6e-2}
total, products = x[0].float() + x[1].float(), x[0].float() @ w[0].float().t() + x[1].float() @ w[1].float().t()
same(kt.all_reduce(mine[0].view(2, 4, 64), alike=True), total.view(2, 4, 64), **near)
same(kt.reduce_scatter(mine[0], alike=True), total[4 * team.rank :][:4], **near)
same(kt.all_gather(mine[0], alike=True), torch.cat(x))
same(kt.all_gather_gemm(*mine, alike=True), torch.cat(x).float() @ w[team.rank].float().t(), **near)
same(kt.gemm_reduce_scatter(*mine, alike=True), products[4 * team.rank :][:4], **near)
same(kt.gemm_all_reduce(*mine, alike=True), products, **near)
compiled = torch.compile(lambda x: kt.all_reduce(x, alike=True) * 2, fullgraph=True, backend="aot_eager")
same(compiled(mine[0]), 2 * total, **near)
print("done")
""", free_address(), FAKE_CUDA="sm 80")  # whose products have twins
    assert said == ["done\n"] * 2


def test_gathers_and_scatters_have_each_others_gradients(run_ranks):
    said = run_ranks(TEAM + """
torch.Tensor.contiguous = lambda self, plain=torch.Tensor.contiguous: self if self.is_contiguous() else on(plain(self))  # in the device's memory
half = torch.float16
x, w, dy, dz = ([of(seed + rank, *shape, dtype=half) / 4 for rank in range(2)] for seed, shape in ((0, (8, 64)), (7, (32, 64)), (20, (16, 32)), (30, (4, 32))))
wide, weights = ([each.double().requires_grad_() for each in given] for given in (x, w))
gathered = torch.cat(wide)  # as one process has it
torch.autograd.backward([gathered @ each.t() for each in weights], [each.double() for each in dy])
leaf, weight = (on(each[team.rank]).requires_grad_() for each in (x, w))
near = {"rtol": 2e-2, "atol": 6e-2}
kt.all_gather_gemm(leaf, weight, alike=True).backward(on(dy[team.rank]))
same(leaf.grad, wide[team.rank].grad, **near)
same(weight.grad, weights[team.rank].grad, **near)
for each in (*wide, *weights, leaf, weight):
    each.grad = None
total = sum(one @ other.t() for one, other in zip(wide, weights))
total.backward(torch.cat(dz).double())
kt.gemm_reduce_scatter(leaf, weight, alike=True).backward(on(dz[team.rank]))
same(leaf.grad, wide[team.rank].grad, **near)
same(weight.grad, weights[team.rank].grad, **near)
given = on(torch.cat([of(40 + team.rank, 8, 64, dtype=half)] * 2))
[found] = torch.autograd.grad(kt.all_gather(leaf, alike=True), leaf, given)
same(found, (of(40, 8, 64, dtype=half).float() + of(41, 8, 64, dtype=half).float()), **near)
[found] = torch.autograd.grad(kt.reduce_scatter(leaf, alike=True), leaf, on(dz[team.rank].repeat(1, 2)))
same(found, torch.cat(dz).repeat(1, 2))
for function, *inputs in ((kt.all_gather, leaf), (kt.reduce_scatter, leaf), (kt.all_gather_gemm, leaf, weight), (kt.gemm_reduce_scatter, leaf, weight)):
    y = function(*inputs, alike=True)
    seed = on(torch.ones(y.shape, dtype=half)).requires_grad_()
    try:
        torch.autograd.grad(sum(each.float().sum() for each in torch.autograd.grad(y, inputs, seed, create_graph=True)), inputs + [seed], allow_unused=True)
    except RuntimeError as error:
        assert f"the gradient of {function.__name__} has no gradient of its own" in str(error), error
    else:
        raise AssertionError(function)
print("done")
""", free_address(), FAKE_CUDA="sm 80")
    assert said == ["done\n"] * 2


def test_what_a_team_cannot_do_is_refused_in_a_sentence(run_ranks):
    said = run_ranks(TEAM + """
x = on(of(0, 5, 64))
def refused(function, *given):
    try:
        function(*given)
        print("no")
    except (RuntimeError, ValueError) as error:
        print(str(error).splitlines()[0])
refused(kt.reduce_scatter, x)
refused(kt.all_reduce, x.clone().requires_grad_())
refused(torch.ops.kiln.all_reduce, x, 3)
refused(lambda: kt.join_team(device=0))
kiln.joined = None
refused(kt.all_reduce, x)
""")
    for line, part in zip(said[0].splitlines(), ("x is [5, 64], expected [rows, columns] with a multiple of 2 rows", "kiln.torch.all_reduce has no gradient",
                                                  "world", "join_team was called before", "this process is in no team; call kiln.torch.join_team() first"), strict=True):
        assert part in line, said


def test_ranks_with_one_overlay_tune_each_bucket_once_in_all(run_ranks, tmp_path):
    said = run_ranks(f"""
kiln.configure(overlay={str(tmp_path / "overlay.kiln")!r}, on_miss="tune", isolation="in_process", compile_workers=1)
scale = kt.register({str(HERE.parents[2] / "tests/e2e/ops")!r}, "scale")
results = [scale(on(of(0, rows, 8)), 2.0) for rows in (3, 30, 300)]
synchronise()
""" + """
import hashlib
print(kiln.stats()["tunes"], hashlib.sha256(b"".join(each.numpy().tobytes() for each in results)).hexdigest())
""")
    (tunes, bits), (others, other_bits) = (each.split() for each in said)
    assert bits == other_bits and int(tunes) + int(others) == 3, said
    assert (tmp_path / "overlay.kiln").exists()
