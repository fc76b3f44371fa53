"""docs/python.md is true: its Python runs."""
import pathlib
import re

DOCUMENT = pathlib.Path(__file__).resolve().parents[2] / "docs" / "python.md"


def test_the_documents_programs_run(run_program):
    calls, before, configure = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.S)
    said = run_program(
        'os.environ["KILN_CACHE"] = ""\n' + configure + "make_current()\nx, weight, y = Exchanged([3, 4096]), Exchanged([4096]), Exchanged([3, 4096])\n" + calls + before
    )
    assert "'serves': 'default'" in said and "bucket: rows=256 cols=4096 dtype=bf16" in said and "\n0\n" in said, said
    assert "llama3_8b.kiln' cannot be read" in said  # told to the log
