"""From torch.ops.kiln to launches on the fake driver, in host memory."""
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

COMPUTED = ["rms_norm", "linear", "linear_gelu", "linear_swiglu", "linear_add", "linear_grouped", "matmul_nn", "matmul_tn", "bmm_nt", "rotary", "rotary_interleaved",
            "softmax", "softmax_causal", "softmax_bias"]  # those that the fake driver has twins of
OPS = "OPS = __import__('pathlib').Path(fake_device.__file__).parents[2] / 'tests/e2e/ops'\n"


def test_an_editable_install_has_its_library_in_a_folder_of_its_own(tmp_path):
    """As scikit-build-core lays it out: the package has two folders, and its sources are in the second."""
    own = pathlib.Path(importlib.util.find_spec("kiln_torch").origin).parent
    shutil.copytree(own, tmp_path / "sources", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    (tmp_path / "library").mkdir()
    shutil.copy(os.environ.get("KILN_TORCH_LIBRARY", own / "libkiln_torch.so"), tmp_path / "library/libkiln_torch.so")
    program = f"""
import importlib.util, sys
folders = [{str(tmp_path / "library")!r}, {str(tmp_path / "sources")!r}]
spec = importlib.util.spec_from_file_location("kiln_torch", folders[1] + "/__init__.py", submodule_search_locations=folders)
sys.modules["kiln_torch"] = package = importlib.util.module_from_spec(spec)
spec.loader.exec_module(package)
print(len(package.ops()))
"""
    without = {name: value for name, value in os.environ.items() if name != "KILN_TORCH_LIBRARY"}
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, env=without)
    assert ran.returncode == 0 and int(ran.stdout) > 100, ran.stderr


def test_ops_compute(run_program):
    said = run_program(f"NAMES = {COMPUTED!r}\n" + """
import reference, samples
given = samples.samples("cpu", torch.float32)
for name in NAMES:
    expected = reference.references()[name](*given[name])
    op = getattr(torch.ops.kiln, name).default
    found = op(*(on(each) if torch.is_tensor(each) else each for each in given[name]))
    synchronise()
    for one, wanted in zip(*((each,) if torch.is_tensor(each) else each for each in (found, expected))):
        torch.testing.assert_close(one, wanted, rtol=1e-3, atol=1e-3)
    print(name)
""")
    assert said.split() == COMPUTED


def test_layouts_that_no_kernel_takes_are_copied_and_others_are_not(run_program):
    said = run_program("""
weight = on(torch.randn(64))
expected = lambda x: torch.nn.functional.rms_norm(x, (64,), weight, 1e-6)
def check(x):
    y = torch.ops.kiln.rms_norm(x, weight, 1e-6)
    synchronise()
    torch.testing.assert_close(y, expected(x))
    assert y.is_contiguous()
check(on(torch.randn(6, 128))[:, :64])          # rows apart
check(on(torch.randn(2, 3, 128))[..., 64:])     # and several dimensions of them
check(on(torch.randn(64)))                      # one row without its dimension
rows, columns = on(torch.randn(8, 64)), on(torch.randn(16, 64))
for scale in (on(torch.tensor([[2.0]])), on(torch.tensor([2.0])), on(torch.tensor(2.0))):  # one element in whichever dimensions
    y = torch.ops.kiln.linear_scaled_tensor(rows, columns, scale, scale)
    synchronise()
    torch.testing.assert_close(y, 4 * rows @ columns.t(), rtol=1e-4, atol=1e-4)
for x in (on(torch.randn(64, 6)).t(), on(torch.randn(3, 2, 64)).transpose(0, 1), on(torch.randn(1, 64)).expand(3, 64)):
    check(x)
print("done")
""")
    assert said == "done\n"


def test_a_batch_of_no_rows_gives_no_rows_and_gradients_of_0(run_program):
    said = run_program("""
x, weight = torch.empty(0, 64), on(torch.ones(64))
before = fake_device.query("launches ")
print(torch.ops.kiln.rms_norm(x, weight).shape, torch.ops.kiln.linear(x.view(2, 0, 64), on(torch.ones(8, 64))).shape)
dx, dweight = torch.ops.kiln.rms_norm_backward(x, weight, x)
print(dx.shape, dweight.abs().max().item(), torch.ops.kiln.matmul_tn(torch.empty(0, 8), x).abs().max().item())
print(fake_device.query("launches ") - before)
""")
    assert said == "torch.Size([0, 64]) torch.Size([2, 0, 8])\ntorch.Size([0, 64]) 0.0 0.0\n0\n"


def test_a_sum_over_nothing_is_0_and_what_follows_it_is_added(run_program):
    said = run_program("""
kt, ops, functional = kiln.torch, torch.ops.kiln, torch.nn.functional
def same(found, expected):
    synchronise()
    torch.testing.assert_close(found, expected)
x, w, bias, residual = torch.empty(3, 0), torch.empty(4, 0), on(torch.randn(4)), on(torch.randn(3, 4))
same(kt.linear(x, w, bias), functional.linear(x, w, bias))
same(kt.linear(x.view(3, 1, 0), w, bias), functional.linear(x.view(3, 1, 0), w, bias))
for name in ("relu", "gelu", "silu"):
    same(kt.linear(x, w, bias, name), getattr(functional, name)(bias.expand(3, 4)))
same(kt.linear(x, w, bias, "swiglu"), (functional.silu(bias[0::2]) * bias[1::2]).expand(3, 2))
same(kt.linear(x, w, residual=residual), residual)
same(kt.linear(x, w, bias, residual=residual), residual + bias)
offsets, biases = on(torch.tensor([0, 1, 3], dtype=torch.int32)), on(torch.randn(2, 4))
same(ops.linear_grouped(x, torch.empty(2, 4, 0), offsets, biases), biases[[0, 1, 1]])
before = fake_device.query("launches ")
same(kt.linear(x, w), torch.zeros(3, 4))
same(ops.bmm_nt(torch.empty(2, 3, 0), torch.empty(2, 4, 0)), torch.zeros(2, 3, 4))
half = torch.bfloat16
q, k = on(torch.randn(2, 3, 4, 64).to(half)), torch.empty(2, 0, 2, 64, dtype=half)
starts, none = (on(torch.tensor(each, dtype=torch.int32)) for each in ([0, 1, 3], [0, 0, 0]))
one = on(torch.randn(2, 1, 4, 64).to(half))
pool, table = on(torch.randn(5, 16, 2, 64).to(half)), on(torch.zeros(2, 0, dtype=torch.int32))
for out, lse in (kt.attention(q, k, k, return_lse=True), kt.attention(q[0], k[0], k[0], query_offsets=starts, key_offsets=none, return_lse=True),
                 ops.attention_decode_contiguous(one, k, k, none[:2]), kt.attention_paged(q[0], pool, pool, starts, none[:2], table, return_lse=True),
                 kt.attention_paged(q[0], pool, pool, starts[:1], none[:0], table.view(0, 1), return_lse=True)):
    print(out.unique().tolist(), lse.unique().tolist(), lse.dim())
print([each.abs().sum().item() for each in ops.attention_dense_backward(q, k, k, q, on(torch.zeros(2, 4, 3)), q)])
print(kt.quantise(torch.empty(0, 64))[1].tolist(), fake_device.query("launches ") - before)
try:
    kt.attention(q, on(torch.randn(2, 5, 2, 64).to(half)), torch.empty(2, 5, 2, 0, dtype=half))
except RuntimeError as error:
    print(str(error).splitlines()[0])
""")
    assert said.splitlines() == ["[0.0] [-inf] 3", "[0.0] [-inf] 2", "[0.0] [-inf] 3", "[0.0] [-inf] 2", "[0.0] [-inf] 2", "[0.0, 0.0, 0.0]", "[1.0] 0",
                                 "kiln::attention_dense: axis 'value_dim' is 0, expected at least 1, because a result has elements"]


def test_what_does_not_fit_is_refused_in_a_sentence(run_program):
    said = run_program("""
x, weight = on(torch.randn(3, 64)), on(torch.ones(64))
def refused(function, *given):
    try:
        function(*given)
        print("no")
    except RuntimeError as error:
        print(str(error).splitlines()[0])
ops = torch.ops.kiln
refused(ops.rms_norm, x, weight[:32])
refused(ops.rms_norm, x.double(), weight)
refused(ops.rms_norm, x, weight.half())
refused(ops.rms_norm, x.to(torch.complex64), weight)
refused(ops.rms_norm, on(torch.tensor(1.0)), weight)
refused(ops.linear, x, weight.view(1, 1, 64))
refused(ops.rms_norm, x.view(*[1] * 16, 3, 64), weight)
refused(ops.attention_dense, x, x, x)
wide, w, heads, tables = on(torch.randn(2, 3, 64)), on(torch.randn(8, 64)), on(torch.randn(1, 5, 2, 8)), on(torch.rand(9, 4))
for shape in ((3, 2, 8), (6, 8), (2, 1, 8), (8,)):
    refused(ops.linear_add, wide, w, on(torch.zeros(shape)))
refused(ops.rms_norm_add, wide, on(torch.zeros(3, 2, 64)), weight)
refused(ops.swiglu, wide, on(torch.zeros(6, 64)))
refused(ops.matmul_tn, wide, on(torch.zeros(3, 2, 8)))
refused(ops.rotary, heads, tables, tables, on(torch.zeros(5, 1, dtype=torch.int32)))
assert ops.rotary(heads, tables, tables, on(torch.zeros(5, dtype=torch.int32))).shape == heads.shape
q, pool, (offsets, lengths, table) = on(torch.zeros(7, 4, 64).half()), on(torch.zeros(5, 16, 2, 64).half()), (on(torch.zeros(each).int()) for each in ((3,), (2,), (2, 2)))
refused(kiln.torch.attention_paged, q, pool, pool.view(10, 8, 2, 64), offsets, lengths, table)
refused(lambda: kiln.torch.attention_paged(q, pool, pool, offsets, lengths, table, keys=16))
refused(kiln.torch.attention_paged, q, on(torch.zeros(5, 16, 64, 2).half()).transpose(2, 3), pool, offsets, lengths, table)
refused(kiln.torch.attention_paged, q, pool, pool, offsets[:2], lengths, table)
""").splitlines()
    for line, sentence in zip(said, (
        "rms_norm: tensor 'weight' of shape [cols] has 32 in dimension 0, expected cols = 64 as in 'x'",
        "rms_norm: tensor 'x' is f64, expected", "rms_norm: tensor 'weight' is f16, expected dtype = f32", "tensor 'x' has elements of a type that Kiln has not",
        "kiln::rms_norm: tensor 'x' has 0 dimensions, expected 2 or more", "gemm: tensor 'w' has 3 dimensions, expected 2",
        "kiln::rms_norm: tensor 'x' has 18 dimensions, expected at most 16",
        "kiln::attention_dense: tensor 'q' has 2 dimensions, expected 4 or more",
        *(f"kiln::linear_add: tensor 'residual_in' has shape {shape}, expected the first dimensions of 'x', [2, 3]" for shape in ("[3, 2, 8]", "[6, 8]", "[2, 1, 8]", "[8]")),
        "kiln::rms_norm_add: tensor 'residual_in' has shape [3, 2, 64], expected the first dimensions of 'x', [2, 3]",
        "kiln::swiglu: tensor 'up' has shape [6, 64], expected the first dimensions of 'gate', [2, 3]",
        "kiln::matmul_tn: tensor 'w' has shape [3, 2, 8], expected the first dimensions of 'x', [2, 3]",
        "kiln::rotary: tensor 'positions' has shape [5, 1], expected the first dimensions of 'x', [1, 5]",
        "attention_paged: tensor 'v' of shape [pages, page_size, key_heads, value_dim] has 10 in dimension 0, expected pages = 5",
        "attention_paged: tensor 'block_table' of shape [batch, ceil_div(keys, page_size)] has 2 in dimension 1, expected ceil_div(keys, page_size) = 1",
        "attention_paged: tensor 'k' has stride 2 in dimension 3, expected 1",
        "attention_paged: tensor 'key_lengths' of shape [batch] has 2 in dimension 0, expected batch = 1 as in 'query_offsets'"), strict=True):
        assert sentence in line, said


def test_a_user_op_is_registered_from_its_manifest(run_program):
    said = run_program(OPS + """
scale = kiln.torch.register(OPS, "scale")
print(scale._schema)
x = on(torch.randn(3, 8))
y = torch.ops.kiln_user.scale(x, 2.0)
synchronise()
assert torch.equal(y, 2 * x)
compiled = torch.compile(lambda x: torch.ops.kiln_user.scale(x, 3.0), fullgraph=True, backend="aot_eager")
y = compiled(x)
synchronise()
assert torch.equal(y, 3 * x)
kiln.torch.register(OPS, "scale", torch_name="scale_with_gradient",
                    setup_context=lambda ctx, inputs, output: setattr(ctx, "factor", inputs[1]), backward=lambda ctx, dy: (dy * ctx.factor, None))
x.requires_grad_()
torch.ops.kiln_user.scale_with_gradient(x, 2.0).sum().backward()
print(x.grad.unique().tolist())
try:
    kiln.torch.register(OPS, "scale", shape="round")
except kiln.Error as error:
    print(error)
""")
    lines = said.splitlines()
    assert lines[0].startswith("kiln_user::scale(Tensor x, ") and lines[1] == "[2.0]" and "shape = round is no choice of it" in lines[2], said


def test_more_variants_of_a_shipped_op_are_made_on_demand(run_program):
    said = run_program("""
made = kiln.torch.op("gemm", layout="tt", omit=("bias", "y_scale"), values=())
print(made._schema, made is kiln.torch.op("gemm", layout="tt", omit=("bias", "y_scale"), values=()))
x, w = on(torch.randn(16, 8)), on(torch.randn(4, 16))
y = made(x, w)
synchronise()
torch.testing.assert_close(y, (w @ x).t())
made = kiln.torch.op("rms_norm", lengths=("rows",))
print(made._schema)
x, weight, rows = on(torch.randn(6, 64)), on(torch.ones(64)), on(torch.tensor(2, dtype=torch.int32))
y = made(x, weight, rows)
synchronise()
torch.testing.assert_close(y[:2], torch.nn.functional.rms_norm(x, (64,), weight, 1e-6)[:2])
""")
    assert said == ("kiln::gemm_layout_tt_without_bias_y_scale_with_no_values(Tensor x, Tensor w) -> Tensor True\n"
                    "kiln::rms_norm_rows_on_device(Tensor x, Tensor weight, Tensor rows, float epsilon=9.9999999999999995e-07) -> Tensor\n")


def test_a_tensor_that_an_op_changes_has_another_version(run_program):
    said = run_program("""
mine = kiln.torch.op("gemm", layout="tn", out="f32", accumulate="yes", omit=("bias",), values=("scale",), torch_name="mine")
shipped = torch.ops.kiln.matmul_tn_accumulate
a, b = on(torch.randn(6, 8)), on(torch.randn(6, 4))
for op in (shipped, mine, lambda a, b, y: shipped(a, b, y=y)):
    y, w = on(torch.ones(8, 4)), torch.ones(8, 4, requires_grad=True)
    z = (w * y).sum()
    op(a, b, y)
    synchronise()
    torch.testing.assert_close(y, 1 + a.t() @ b)
    try:
        z.backward()
    except RuntimeError as error:
        print("modified by an inplace operation" in str(error))
for op in (shipped, mine):
    leaf = on(torch.ones(8, 4)).requires_grad_()
    for each in (leaf, leaf * 1):
        try:
            op(a, b, each)
        except RuntimeError as error:
            print(error)
    with torch.no_grad():
        op(a, b, leaf)
    synchronise()
    torch.testing.assert_close(leaf.detach(), 1 + a.t() @ b)
    with torch.inference_mode():
        y = leaf.detach().view(8, 4)
        op(a, b, y)
        op(a, b, on(torch.ones(8, 4)))
        synchronise()
    y = on(torch.ones(8, 4))
    op(a.requires_grad_(), b, y)  # which has no gradient, as other ops below kiln.torch's functions
    a.requires_grad_(False)
    synchronise()
""")
    refused = "{} y requires a gradient, and this op changes it without one; detach it, or call the op under torch.no_grad()"
    assert said.splitlines() == 3 * ["True"] + [refused.format(name) for name in 2 * ["kiln::matmul_tn_accumulate:"] + 2 * ["kiln::mine:"]]


def test_names_that_an_op_does_not_have_are_refused(run_program):
    said = run_program("""
for name, named in (("gemm", dict(omit="bias")), ("rms_norm", dict(lengths="rows")), ("rms_norm", dict(values="epsilon")), ("gemm", dict(omit=("nonsense",))),
                    ("rms_norm", dict(lengths=("columns",)))):
    try:
        print(kiln.torch.op(name, **named)._schema)
    except kiln.Error as error:
        print(error)
""")
    assert said.splitlines() == [
        "kiln.torch.op: omit is the string 'bias', expected a tuple of names, such as ('bias',)",
        "kiln.torch.op: lengths is the string 'rows', expected a tuple of names, such as ('rows',)",
        "kiln.torch.op: values is the string 'epsilon', expected a tuple of names, such as ('epsilon',)",
        "gemm: 'nonsense' is no optional tensor of it; it has bias, y_scale", "rms_norm: 'columns' is no axis with a length in device memory of it; it has rows"]


def test_ops_that_are_made_have_a_name_for_each_choice(run_program):
    said = run_program(OPS + """
import threading
kt = kiln.torch
def made(*given, **named):
    try:
        return kt.op(*given, **named)
    except kiln.Error as error:
        print(error)
gemm = [dict(layout="tt"), dict(layout="tt", omit=("y_scale",)), dict(layout="tt", values=()), dict(layout="tt", values=("scale",)), dict(layout="tt", out="f32"), dict(out="f32")]
ops = [made("gemm", **each) for each in gemm] + [made("attention_forward", sinks="none"), made("attention_forward", alibi="none"), made("rms_norm")]
print(len({str(each) for each in ops}), ops == [made("gemm", **dict(reversed(each.items()))) for each in gemm] + ops[6:])
print(made("gemm", omit=("bias", "y_scale")) is made("gemm", omit=("y_scale", "bias")), made("gemm", layout="tt", torch_name="mine") is made("gemm", layout="tt", torch_name="mine"))
made("gemm", torch_name="mine")
made("gemm", torch_name="linear")
together, found = threading.Barrier(8), []
def race():
    together.wait()
    found.append(made("layer_norm", lengths=("rows",)))
threads = [threading.Thread(target=race) for _ in range(8)]
for each in threads:
    each.start()
for each in threads:
    each.join()
print(len(found), len(set(found)))
gradient = dict(setup_context=lambda ctx, inputs, output: None, backward=lambda ctx, dy: (dy, None))
scale = kt.register(OPS, "scale")
print(all(kt.register(OPS, "scale", **each) is scale for each in (gradient, gradient, {})))
try:
    kt.register(OPS, "scale", backward=lambda ctx, dy: None)
except kiln.Error as error:
    print(error)
""")
    assert said.splitlines() == [
        "9 True", "True True",
        "kiln.torch: torch.ops.kiln.mine is gemm(layout='tt'), and gemm() is asked for under that name; give another torch_name",
        "kiln.torch: torch.ops.kiln.linear is shipped, and gemm() is asked for under that name; give another torch_name", "8 1", "True",
        "kiln.torch.register: kiln_user.scale.default has another backward already, which torch keeps as long as the process; give another torch_name"]


def test_workspaces_come_from_torchs_allocator(run_program):
    said = run_program(OPS + """
library = ctypes.CDLL(os.environ["LD_PRELOAD"])
kiln.configure(overlay="", on_miss="tune", isolation="in_process", compile_workers=1)
fake_device.control("kernel wrong scale_tiled")  # so that the implementation with a workspace is left
scale = kiln.torch.register(OPS, "scale")
print(library.pretend_workspaces())
scale(on(torch.randn(3, 8)), 2.0)
print(library.pretend_workspaces() > 0)
print(library.pretend_workspaces_of_main_thread())  # whose pool would be that of a graph which torch.compile warms up
""")
    assert said == "0\nTrue\n0\n"


def test_a_workspace_leaves_another_threads_capture_whole(run_program):
    """Its memory is allocated by a thread of its own, to which the capture mode of the launching one does not extend."""
    said = run_program(OPS + """
kiln.configure(overlay="", on_miss="tune", isolation="in_process", compile_workers=1)
fake_device.control("kernel wrong scale_tiled")
scale, driver, x = kiln.torch.register(OPS, "scale"), fake_device.driver(), on(torch.randn(3, 8))
stream, graph = ctypes.c_void_p(), ctypes.c_void_p()
made = driver.cuStreamCreate(ctypes.byref(stream), 1), driver.cuStreamBeginCapture_v2(stream, 0)  # CU_STREAM_CAPTURE_MODE_GLOBAL
before = ctypes.CDLL(os.environ["LD_PRELOAD"]).pretend_workspaces()
y = scale(x, 2.0)
print(made, ctypes.CDLL(os.environ["LD_PRELOAD"]).pretend_workspaces() > before, driver.cuStreamEndCapture(stream, ctypes.byref(graph)))
""")
    assert said == "(0, 0) True 0\n"


def test_tensors_of_the_cpu_are_refused_with_what_to_do():
    program = "import torch, kiln.torch\ntorch.ops.kiln.rms_norm(torch.randn(3, 64), torch.ones(64))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "tensor 'x' lies in host memory, expected memory of a CUDA device; move it with .cuda()" in ran.stderr, ran.stderr
