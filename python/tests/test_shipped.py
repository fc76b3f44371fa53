"""The records and workloads that come with the package, found away from a checkout by Python and by the command."""
import os
import subprocess
import sys

import kiln

COMMAND = os.path.join(os.path.dirname(sys.executable), "kiln")
EXPLAINED = """
kiln.configure(overlay="", on_miss="nearest", bases=BASES)
make_current()
said = kiln.explain(kiln.op("rms_norm"), rows=137, cols=4096, dtype="bf16")
print("the same bucket's of sm_90" in said, kiln.warnings())
"""


def run_command(tmp_path, *arguments: str) -> subprocess.CompletedProcess:
    there = {**os.environ, "COLUMNS": "", "KILN_CACHE": ""}
    return subprocess.run([COMMAND, *arguments], capture_output=True, text=True, cwd=tmp_path, env=there)


def test_the_records_are_listed_by_full_paths():
    records = kiln.shipped_records()
    assert [os.path.basename(each) for each in records] == ["h100.kiln", "h200.kiln"]
    assert all(os.path.isabs(each) and os.path.isfile(each) for each in records)


def test_the_command_takes_records_and_workloads_by_bare_names(tmp_path):
    covered = run_command(tmp_path, "coverage", "llama3_8b.toml", "--base", "h200.kiln", "--device-class", "H200", "--require", "100")
    assert covered.returncode == 0, covered.stderr
    assert "installed are h100.kiln, h200.kiln" in run_command(tmp_path, "doctor").stdout
    replayed = run_command(tmp_path, "replay", "stream.trace", "--base", "h200.kiln", "--device-class", "H200", "--dry-run")
    assert "200 problems" in replayed.stdout, replayed.stderr  # status 1: the records hold no machine code
    for each in kiln.shipped_records():
        verified = run_command(tmp_path, "cache", "verify", each)
        assert verified.returncode == 0, verified.stderr


def test_configure_takes_the_bare_name_of_shipped_records(run_program):
    for bases in ('["h100.kiln", "h200.kiln"]', "kiln.shipped_records()", '[b"h200.kiln"]'):
        assert run_program(EXPLAINED.replace("BASES", bases)) == "True []\n"


def test_a_file_of_the_working_directory_comes_before_shipped_records(run_program, tmp_path):
    (tmp_path / "h200.kiln").write_text("mine")
    said = run_program(f"os.chdir({str(tmp_path)!r})\n" + EXPLAINED.replace("BASES", '["h200.kiln", "./h100.kiln"]'))
    assert said.startswith("False [") and f"{tmp_path / 'h200.kiln'}" in said and f"{tmp_path / 'h100.kiln'}" in said, said


def test_records_in_site_packages_that_a_group_may_write_are_asked(run_program):
    """They hold no machine code, so there is nothing to trust them for, and nothing to warn about."""
    file = kiln.shipped_records()[1]
    folder = os.path.dirname(file)
    modes = {each: os.stat(each).st_mode & 0o7777 for each in (file, folder)}
    try:
        os.chmod(folder, 0o775), os.chmod(file, 0o664)
        said = run_program(EXPLAINED.replace("BASES", '["h200.kiln"], require_bases=True'))
    finally:
        for each, mode in modes.items():
            os.chmod(each, mode)
    assert said == "True []\n", said
