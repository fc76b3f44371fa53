"""Schemas and fakes are those that manifests give. Needs no torch."""
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import types

import pytest

HERE = pathlib.Path(__file__).resolve().parent
KILN = os.path.join(os.path.dirname(sys.executable), "kiln")
if importlib.util.find_spec("torch") is None:
    sys.modules["kiln_torch"] = types.ModuleType("kiln_torch")  # without its __init__, which needs torch
    sys.modules["kiln_torch"].__path__ = [str(HERE.parent / "kiln_torch")]

from kiln_torch import expression, signature  # noqa: E402


def described(op, *folder):
    return json.loads(subprocess.run([KILN, "ops", op, "--json", *folder], capture_output=True, text=True, check=True).stdout)


def made(op, *folder, name="made", **words):
    named = {each: words.pop(each) for each in ("omit", "lengths", "values") if each in words}
    return signature.signature_of(described(op, *folder), name, words, **named)


def test_the_table_of_ops_is_what_the_manifests_give():
    ran = subprocess.run([sys.executable, str(HERE.parent / "make_signatures"), KILN, "--check"], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def test_choices_leave_out_the_tensors_of_others():
    assert made("rms_norm").schema == "made(Tensor x, Tensor weight, float epsilon=1e-06) -> Tensor"
    assert made("rms_norm", residual="add", quantise="block").schema == (
        "made(Tensor x, Tensor residual_in, Tensor weight, float epsilon=1e-06) -> (Tensor, Tensor, Tensor)")


def test_what_depends_on_a_type_is_there_where_the_type_is_given():
    assert "q_scale" not in made("attention_forward").schema
    assert "Tensor q_scale, Tensor k_scale, Tensor v_scale" in made("attention_forward", dtype="e4m3").schema


def test_results_have_their_shapes_and_types():
    swiglu = made("gemm", activation="swiglu", out="f32", values=())
    assert [(each.shape, set(each.types)) for each in swiglu.outputs] == [([["m"], ["n", "2", "/"]], {"f32"})]
    (y,) = made("gemm").outputs
    assert dict(zip(signature.TYPES, y.types))["e4m3"] == "bf16" and dict(zip(signature.TYPES, y.types))["f16"] == "f16"
    scales = made("quantise", scaling="block").outputs[1]
    assert scales.shape == [["rows"], ["cols", "128", "ceil_div"]] and set(scales.types) == {"f32"}


def test_a_sum_that_is_added_to_is_an_argument():
    assert made("gemm", layout="tn", accumulate="yes", values=(), omit=("bias",)).schema == "made(Tensor x, Tensor w, Tensor(a!) y) -> ()"


def test_sizes_come_from_tensors_where_they_show_them():
    rotary = made("rotary")
    assert ["rotary_dim", 1, 1, 1, 0, 2, True] in rotary.solves and rotary.sizes == [["table_rows", 1, 0]]
    assert ["batch", 3, 0, 1, 1, 1, False] in made("attention_forward", layout="packed").solves  # of offsets, which are one more
    assert "SymInt keys, " in made("attention_decode", layout="paged").schema
    paged = made("attention_paged")
    assert "SymInt keys, " in paged.schema and [each[0] for each in paged.sizes] == ["pages", "page_size"]
    assert [each.name for each in paged.arguments if each.flat] == ["q"]  # [tokens, heads, dim] stands for one batch of them


def test_lengths_in_device_memory_are_arguments():
    assert made("rms_norm", lengths=("rows",)).schema == "made(Tensor x, Tensor weight, Tensor rows, float epsilon=1e-06) -> Tensor"


def test_gradients_lie_as_their_inputs():
    backward = made("attention_backward")
    assert [each.name for each in backward.arguments if each.dense] == ["q", "k", "v"]


def test_a_users_op_is_read(tmp_path):
    scale = made("scale", "--templates", str(HERE.parents[2] / "tests/e2e/ops"))
    assert scale.schema == "made(Tensor x, float factor, Tensor? bias=None) -> Tensor"
    assert scale.spec("/somewhere/ops").startswith("op scale\nfolder /somewhere/ops\ntensor x 0 2 1 0 0\nreal factor 0\ntensor bias 1 1 0 0 0\nsolve rows 0 0 ")
    assert signature.Signature.of_json(json.loads(json.dumps(scale.as_json()))) == scale


def test_what_an_op_does_not_have_is_refused_by_name():
    with pytest.raises(ValueError, match="rms_norm: residual = twice is no choice of it; it has .*residual: none, add"):
        made("rms_norm", residual="twice")
    with pytest.raises(ValueError, match="'eps' is no run-time value of it; it has epsilon"):
        made("rms_norm", values=("eps",))
    for name in ("nonsense", "w", "y"):
        with pytest.raises(ValueError, match=f"gemm: '{name}' is no optional tensor of it; it has bias, y_scale"):
            made("gemm", omit=(name,))
    with pytest.raises(ValueError, match="rms_norm: 'x' is no optional tensor of it; it has none"):
        made("rms_norm", omit=("x",))
    for name in ("columns", "cols"):
        with pytest.raises(ValueError, match=f"rms_norm: '{name}' is no axis with a length in device memory of it; it has rows"):
            made("rms_norm", lengths=(name,))
    with pytest.raises(ValueError, match="rms_norm: lengths names 'rows' twice"):
        made("rms_norm", lengths=("rows", "rows"))


@pytest.mark.parametrize(("text", "expected"), [
    ("a + 2 * 3", ["a", "6", "+"]), ("(a + 2) * 3", ["a", "2", "+", "3", "*"]), ("ceil_div(a, 128)", ["a", "128", "ceil_div"]),
    ('word == "x" ? a : b', ["a"]), ('word != "x" || other == "y" ? a : b', None), ("min(a, b, 3)", ["a", "b", "min", "3", "min"]),
    ('word == "x" && !(1 > 2) ? sizeof(bf16) : 7', ["2"]), ("-1 + 3 == 2 ? a : b", ["a"]),
])
def test_expressions_are_folded(text, expected):
    tree = expression.fold(expression.parse(text), {"word": "x"})
    if expected is not None:
        assert expression.postfix(tree) == expected
    else:
        with pytest.raises(ValueError):
            expression.postfix(tree)


def test_what_is_not_installed_is_named():
    for absent, sentence in (("kiln_torch", "pip install kiln-kernels-torch"), ("torch", "pip install 'torch>=2.11'")):
        program = f"import sys\nsys.modules[{absent!r}] = None\nimport kiln.torch\n"
        paths = os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])
        ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": paths})
        assert ran.returncode == 1 and sentence in ran.stderr, ran.stderr
