"""docs/python.md is true: its Python runs."""
import pathlib
import re

DOCUMENT = pathlib.Path(__file__).resolve().parents[2] / "docs" / "python.md"
DEPLOYS = """
kiln.configure(overlay="", isolation="in_process", compile_workers=1)
make_current()
tuner = kiln.Tuner()
tuner.add(kiln.op("rms_norm"), rows=3, cols=4096, dtype="bf16")
tuner.tune()
tuner.deploy("service.kiln")
"""
TENSORS = """
make_current()
x, weight, y = (Exchanged(shape, "bf16") for shape in ([3, 4096], [4096], [3, 4096]))
"""


def test_the_documents_programs_run(run_program, tmp_path):
    calls, before, configure, *others = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.S)
    for each in others:
        compile(each, DOCUMENT.name, "exec")  # a tune of so many buckets and a launcher's ranks are test_ahead's
    program = 'os.environ["KILN_CACHE"] = ""\n' + configure + TENSORS + calls + before
    said = run_program(program, status=1, folder=tmp_path)
    assert "service.kiln' cannot be read" in said, said
    run_program(DEPLOYS, folder=tmp_path)
    said = run_program(program, folder=tmp_path)
    assert said.startswith("2 [{"), said  # rows 3 and 4 of the range, whose bucket was deployed
    assert "bucket: rows=256 cols=4096 dtype=bf16" in said and "service.kiln has it: no compile" in said and said.endswith("\n0\n"), said


def test_the_stubs_name_what_the_extension_has():
    import ast

    import kiln

    tree = ast.parse((pathlib.Path(kiln.__file__).parent / "_kiln.pyi").read_text())
    named = {each.name: each for each in tree.body if isinstance(each, (ast.FunctionDef, ast.ClassDef))}
    has = {name for name in vars(kiln._kiln) if not name.startswith("_")} - {"version", "table", "kept"}
    assert set(named) == has
    for name, each in named.items():
        if isinstance(each, ast.ClassDef):
            members = {part.name if isinstance(part, ast.FunctionDef) else part.target.id for part in each.body}
            assert members - {"__init__", "__call__"} == {part for part in vars(getattr(kiln._kiln, name)) if not part.startswith("_")}
