"""docs/python.md is true: its Python runs."""
import pathlib
import re

DOCUMENT = pathlib.Path(__file__).resolve().parents[2] / "docs" / "python.md"


def test_the_documents_programs_run(run_program):
    calls, before, configure, *others = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.S)
    for each in others:
        compile(each, DOCUMENT.name, "exec")  # a tune of so many buckets and a launcher's ranks are test_ahead's
    said = run_program(
        'os.environ["KILN_CACHE"] = ""\n' + configure + "make_current()\nx, weight, y = Exchanged([3, 4096]), Exchanged([4096]), Exchanged([3, 4096])\n" + calls + before
    )
    assert "'serves': 'default'" in said and "bucket: rows=256 cols=4096 dtype=bf16" in said and "\n0\n" in said, said
    assert "llama3_8b.kiln' cannot be read" in said  # told to the log


def test_the_stubs_name_what_the_extension_has():
    import ast

    import kiln

    tree = ast.parse((pathlib.Path(kiln.__file__).parent / "_kiln.pyi").read_text())
    named = {each.name: each for each in tree.body if isinstance(each, (ast.FunctionDef, ast.ClassDef))}
    has = {name for name in vars(kiln._kiln) if not name.startswith("_")} - {"version", "table"}
    assert set(named) == has
    for name, each in named.items():
        if isinstance(each, ast.ClassDef):
            members = {part.name if isinstance(part, ast.FunctionDef) else part.target.id for part in each.body}
            assert members - {"__init__", "__call__"} == {part for part in vars(getattr(kiln._kiln, name)) if not part.startswith("_")}
