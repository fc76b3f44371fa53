"""Imports, forks, exits, and what the package finds around itself."""
import csv
import os
import shutil
import subprocess
import sys
import zipfile

import pytest

import kiln.wheel

SETUP = """
kiln.configure(overlay="", on_miss="nearest", isolation="in_process", compile_workers=1)
make_current()
norm = kiln.op("rms_norm")
given = {"x": Exchanged([3, 64], values=[1.0] * 192), "weight": Exchanged([64], values=[1.0] * 64), "y": Exchanged([3, 64])}
"""


def test_an_import_opens_neither_cuda_nor_nvrtc_and_costs_little(run_program):
    said = run_program(
        """
        norm, mine = kiln.op("rms_norm"), kiln.op("mine", folder="ops")
        repr(norm), kiln.stats(), kiln.warnings()
        maps = open("/proc/self/maps").read()
        print("opened" if "libcuda" in maps or "nvrtc" in maps.lower() else "nothing")
        print(sorted({"numpy", "torch", "logging", "json"} & set(sys.modules)))
        """
    )
    assert said == "nothing\n[]\n"


def test_without_a_driver_the_error_says_so(run_program):
    said = run_program(
        """
        try:
            kiln.op("rms_norm").contract
        except kiln.Error as error:
            print(error.kind)
        """,
        KILN_CUDA_LIBRARY="/nowhere/libcuda.so.1",
    )
    assert said == "no_driver\n"


def test_a_forked_child_is_refused_and_its_parent_goes_on(run_program):
    said = run_program(
        SETUP
        + """
norm(**given)
child = os.fork()
if child == 0:
    try:
        norm(**given)
    except kiln.Error as error:
        os._exit(7 if "does not survive a fork" in str(error) and error.kind == "driver_failed" else 1)
    os._exit(2)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
norm(**given)
child = os.fork()
if child == 0:
    sys.exit(0)  # with all that Python does at its end
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print("done")
"""
    )
    assert said == "done\n"


def test_a_child_that_was_forked_before_the_first_use_works(run_program):
    said = run_program(
        """
child = os.fork()
if child == 0:
"""
        + "".join(f"    {line}\n" for line in SETUP.splitlines())
        + """
    norm(**given)
    os._exit(0 if given["y"].values[0] > 0.9 else 1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    )
    assert said == "0\n"


def test_the_end_comes_while_threads_launch(run_program):
    said = run_program(
        SETUP
        + """
import threading
def work():
    make_current()
    while True:
        norm(**given)
norm(**given)
for _ in range(3):
    threading.Thread(target=work, daemon=True).start()
import time
time.sleep(0.2)
print("end")
"""
    )
    assert said.startswith("end\n")


def test_a_tune_is_ended_by_ctrl_c_and_told_to_the_log(run_program):
    said = run_program(
        """
import logging, signal, threading
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(name)s %(message)s")
kiln.configure(overlay="", on_miss="tune", isolation="in_process", compile_workers=1)
make_current()
scale = kiln.op("scale", folder=OPS)
given = {"x": Exchanged([4, 64], values=[1.0] * 256), "y": Exchanged([4, 64]), "factor": 2.0}
control("kernel interrupt scale_tiled; pause 3000")  # so that the tune takes longer than signals wait
try:
    scale(**given)
    print("served")
except KeyboardInterrupt:
    print("interrupted", kiln.stats()["tunes"])
control("heal; pause 0")
scale(**given)
print(given["y"].values[0], kiln.stats()["tunes"])
""")
    assert "interrupted 0\n" in said and "2.0 1\n" in said, said
    assert "kiln scale rows=4 cols=64 dtype=f32: its tune begins\n" in said and "threads=" in said, said


def test_a_logging_handler_that_raises_ends_no_call(run_program):
    """The kernel has been launched by then: a second call would run it again."""
    said = run_program(
        """
import logging
class Raising(logging.Handler):
    def emit(self, record):
        raise RuntimeError("there is no room for a line")
logging.getLogger("kiln").addHandler(Raising())
logging.getLogger("kiln").setLevel(logging.DEBUG)
kiln.configure(overlay="", bases=["/nowhere/of.kiln"], on_miss="nearest", isolation="in_process", compile_workers=1)
make_current()
scale = kiln.op("scale", folder=OPS)
given = {"x": Exchanged([4, 64], values=[1.0] * 256), "y": Exchanged([4, 64]), "factor": 2.0}
scale(**given)
print(given["y"].values[0])
""")
    assert "2.0\n" in said and "RuntimeError: there is no room for a line" in said, said


def test_counts_are_written_at_exit(run_program, tmp_path):
    overlay = tmp_path / "overlay.kiln"
    run_program(SETUP.replace('overlay=""', f"overlay={str(overlay)!r}, histogram=True") + "for _ in range(64): norm(**given)\n")
    command = os.path.join(os.path.dirname(sys.executable), "kiln")
    shown = subprocess.run([command, "cache", "stats", str(overlay)], capture_output=True, text=True, check=True).stdout
    assert "rms_norm" in shown, shown


def test_the_command_and_the_worker_are_found(run_program):
    command = os.path.join(os.path.dirname(sys.executable), "kiln")
    assert subprocess.run([command, "--version"], capture_output=True, text=True, check=True).stdout
    unwrapped = {**os.environ, "COLUMNS": ""}  # a path is in one line then
    said = subprocess.run([command, "doctor"], capture_output=True, text=True, env=unwrapped).stdout
    folder = run_program("print(os.path.dirname(kiln.__file__))").strip()
    assert os.path.join(folder, "kiln-worker") in said, said


def test_the_command_is_found_where_the_sources_lie_elsewhere(run_program, tmp_path):
    """As pip install -e has it: the sources in a checkout, what was built in the environment."""
    built = run_program("print(os.path.dirname(kiln.__file__))").strip()
    shutil.copytree(built, tmp_path / "kiln", ignore=lambda folder, names: [name for name in names if not name.endswith(".py")])
    program = f"""
import importlib.util, sys
found = importlib.util.spec_from_file_location("kiln", {str(tmp_path / "kiln" / "__init__.py")!r}, submodule_search_locations=[{str(tmp_path / "kiln")!r}, {built!r}])
sys.modules["kiln"] = importlib.util.module_from_spec(found)
found.loader.exec_module(sys.modules["kiln"])
from kiln._command import main
sys.argv = ["kiln", "--version"]
main()
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.returncode == 0 and ran.stdout.startswith("kiln "), ran.stderr


def test_a_tune_runs_in_the_packages_own_worker(run_program):
    said = run_program(
        """
kiln.configure(overlay="", on_miss="tune", isolation="worker", compile_workers=1, search_trials=1)
make_current()
scale = kiln.op("scale", folder=OPS)
y = Exchanged([4, 64])
scale(x=Exchanged([4, 64], values=[1.0] * 256), y=y, factor=2.0)
print(y.values[0], kiln.stats()["tunes"], kiln.warnings())
""")
    assert said == "2.0 1 []\n"


def test_bases_of_installed_packages_are_asked(run_program, tmp_path):
    package = tmp_path / "records-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: records\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[kiln.bases]\nours = records:files\nworse = no_such_module:files\n")
    (tmp_path / "records.py").write_text("def files():\n    return ['/nowhere/ours.kiln']\n")
    said = run_program(
        f"sys.path.insert(0, {str(tmp_path)!r})\n" + SETUP + "norm.contract\nprint([line for line in kiln.warnings() if 'ours.kiln' in line] != [])\n"
    )
    assert "True" in said and "no_such_module" in said, said


def test_tuned_files_come_from_a_wheel(run_program, tmp_path):
    tuned = tmp_path / "tuned.kiln"
    configured = "kiln.configure(overlay={!r}, on_miss={!r}, isolation='in_process', compile_workers=1)\n"
    program = """
make_current()
scale = kiln.op("scale", folder=OPS)
given = {"x": Exchanged([4, 64], values=[1.0] * 256), "y": Exchanged([4, 64]), "factor": 2.0}
scale(**given)
print(given["y"].values[0], kiln.stats()["base"], kiln.warnings())
"""
    run_program(configured.format(str(tuned), "tune") + program)
    make = [sys.executable, "-m", "kiln.wheel", "acme-kernels", str(tuned), "--output", str(tmp_path)]
    wheel = subprocess.run(make, capture_output=True, text=True, check=True).stdout.strip()
    assert wheel.endswith("acme_kernels-1.0-py3-none-any.whl")
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(tmp_path / "site"), wheel], check=True)
    said = run_program(f"sys.path.insert(0, {str(tmp_path / 'site')!r})\n" + configured.format("", "error") + program, KILN_NVRTC_LIBRARY="none")
    assert said == "2.0 1 []\n"
    records = tmp_path / "records.jsonl"  # without machine code, by the same command
    subprocess.run([os.path.join(os.path.dirname(sys.executable), "kiln"), "cache", "export", str(tuned), "--text", "-o", str(records)], check=True)
    wheel = subprocess.run([*make[:3], "acme-records", str(records), "--output", str(tmp_path)], capture_output=True, text=True, check=True).stdout.strip()
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(tmp_path / "records")
    said = run_program(f"sys.path.insert(0, {str(tmp_path / 'records')!r})\n" + configured.format("", "error") + program)
    assert said == "2.0 1 []\n"
    refused = subprocess.run([*make, "/nowhere/absent.kiln", "--version", "2.0"], capture_output=True, text=True)
    assert refused.returncode != 0 and not list(tmp_path.glob("*-2.0-*"))


def test_a_wheel_of_tuned_files_takes_any_file_and_no_name_of_kilns_own(tmp_path):
    tuned = tmp_path / 'of "h200", new.kiln'
    tuned.write_bytes(b"tuned")
    with zipfile.ZipFile(kiln.wheel.make("acme-kernels", [str(tuned)], "1.0", str(tmp_path))) as packed:
        record = packed.read("acme_kernels-1.0.dist-info/RECORD").decode()
        assert sorted(line[0] for line in csv.reader(record.splitlines())) == sorted(packed.namelist())
    for other in ("__init__.py", "workload.toml", "empty.kiln"):  # the first would take the place of the module that names the files
        (tmp_path / other).write_bytes(b"" if other == "empty.kiln" else b"tuned")
        with pytest.raises(ValueError, match=f"{other}' is (no tuned file|empty)"):
            kiln.wheel.make("acme-kernels", [str(tuned), str(tmp_path / other)], "2.0", str(tmp_path))
    assert not list(tmp_path.glob("*-2.0-*"))
    for name in ("kiln", "Kiln.Kernels", "kiln-kernels-torch", "kiln_torch"):
        with pytest.raises(ValueError, match="of Kiln's own packages"):
            kiln.wheel.make(name, [str(tuned)], "1.0", str(tmp_path))


TUNE = """
kiln.configure(overlay="", on_miss="MISS", isolation="ISOLATION", compile_workers=1)
make_current()
scale = kiln.op("scale", folder=OPS)
given = {"x": Exchanged([4, 64], values=[1.0] * 256), "y": Exchanged([4, 64]), "factor": 2.0}
"""


def test_the_end_stops_a_tune_of_a_thread(run_program):
    said = run_program(  # which waits less long than the whole tune takes
        TUNE.replace("MISS", "tune").replace("ISOLATION", "in_process")
        + """
control("pause 100000")
import threading, time
def work():
    make_current()
    scale(**given)
thread = threading.Thread(target=work, daemon=True)
thread.start()
while query("launches scale_") == 0: time.sleep(0.01)
print(thread.is_alive())
""")
    assert said.startswith("True\n"), said


def test_the_end_stops_a_tune_in_the_background(run_program):
    said = run_program(
        TUNE.replace("MISS", "background").replace("ISOLATION", "worker") + "scale(**given)\nprint(given['y'].values[0], kiln.stats()['waiting'])\n",
        FAKE_CUDA="pause 20000",
    )
    assert said.startswith("2.0 1\n"), said


def test_without_nvrtc_the_error_says_so(run_program):
    said = run_program(
        TUNE.replace("MISS", "tune").replace("ISOLATION", "in_process")
        + """
try:
    scale(**given)
except kiln.Error as error:
    print(error.kind)
""",
        KILN_NVRTC_LIBRARY="none",
    )
    assert said.endswith("no_nvrtc\n"), said


def test_a_home_that_is_absent_costs_the_overlay_alone(run_program):
    program = SETUP.replace('overlay="", ', "") + "norm(**given)\nprint(given['y'].values[0] > 0.9, len(kiln.warnings()))\n"
    said = run_program(program, HOME="/dev/null/nobody", XDG_CACHE_HOME="")
    assert "True 1\n" in said, said


def test_a_worker_that_strangers_may_write_is_passed_over(run_program):
    folder = run_program("print(os.path.dirname(kiln.__file__))").strip()
    mode = os.stat(folder).st_mode & 0o7777
    os.chmod(folder, 0o777)
    try:
        said = run_program(TUNE.replace("MISS", "tune").replace("ISOLATION", "automatic") + "scale(**given)\nprint(given['y'].values[0], kiln.warnings())\n")
    finally:
        os.chmod(folder, mode)
    assert said.startswith("2.0 ") and "kiln-worker' is not run" in said, said


def test_memory_that_was_freed_behind_a_tensor_is_an_error_of_a_later_call(run_program):
    said = run_program(
        SETUP
        + """
import ctypes
norm(**given)
assert driver().cuMemFree_v2(ctypes.c_uint64(given["x"].address)) == 0
try:
    for _ in range(2): norm(**given)
except kiln.Error as error:
    print(error.kind, error)
"""
    )
    assert said.startswith("driver_failed ") and "illegal memory access" in said, said


def test_a_machine_without_a_gpu_is_told(run_program):
    said = run_program(
        """
try:
    kiln.op("rms_norm").contract
except kiln.Error as error:
    print(error.kind, error)
""",
        FAKE_CUDA="devices 0",
    )
    assert said.startswith("no_device ") and len(said) > 30, said


def test_a_worker_that_is_demanded_and_absent_is_told(run_program):
    said = run_program(
        TUNE.replace("MISS", "tune").replace("ISOLATION", "worker")
        + """
try:
    scale(**given)
except kiln.Error as error:
    print(error.kind, error)
""",
        KILN_WORKER="none",
    )
    assert "kiln-worker" in said and said.split()[0] in ("io", "bad_input", "no_permission"), said


def test_a_read_only_home_costs_the_overlay_alone(run_program):
    program = SETUP.replace('overlay="", ', "") + "norm(**given)\nprint(given['y'].values[0] > 0.9, kiln.warnings())\n"
    said = run_program(program, HOME="/proc/1/net", XDG_CACHE_HOME="")  # where root may not write either
    assert said.startswith("True [") and "/proc/1/net" in said, said


def test_site_packages_that_a_group_may_write_cost_the_worker_alone(run_program):
    folder = run_program("print(os.path.dirname(kiln.__file__))").strip()
    mode = os.stat(folder).st_mode & 0o7777
    program = TUNE.replace("MISS", "tune").replace("ISOLATION", "automatic") + "scale(**given)\nprint(given['y'].values[0], kiln.warnings())\n"
    os.chmod(folder, 0o775)
    try:
        said = run_program(program)
    finally:
        os.chmod(folder, mode)
    assert said.startswith("2.0 ") and "run: chmod go-w" in said, said


def test_a_child_that_was_forked_in_mid_tune_is_refused_and_ends(run_program):
    said = run_program(
        TUNE.replace("MISS", "tune").replace("ISOLATION", "in_process")
        + """
control("pause 20000")
import threading, time
def work():
    make_current()
    scale(**given)
thread = threading.Thread(target=work)
thread.start()
while query("launches scale_") == 0: time.sleep(0.01)
child = os.fork()
if child == 0:
    try:
        scale(**given)
    except kiln.Error as error:
        print(error.kind, flush=True)
    sys.exit(3)  # with all that Python does at its end
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), thread.is_alive(), flush=True)
control("pause 0")
thread.join()
print(given["y"].values[0])
""")
    assert said == "driver_failed\n3 True\n2.0\n", said


def test_spawned_processes_share_one_file(run_program, tmp_path):
    overlay = str(tmp_path / "overlay.kiln")
    program = TUNE.replace('overlay=""', f"overlay={overlay!r}").replace("MISS", "tune").replace("ISOLATION", "in_process")
    said = run_program(
        f"""
import subprocess
begin = "import fake_device, kiln, sys, os\\nfrom fake_device import *\\nOPS = " + repr(OPS)
one = [sys.executable, "-c", begin + {program!r} + "scale(**given)\\nprint(given['y'].values[0], kiln.stats()['tunes'])"]
started = [subprocess.Popen(one, stdout=subprocess.PIPE, text=True) for _ in range(3)]
print(sorted(each.communicate()[0].strip() for each in started))
"""
    )
    assert said == "['2.0 0', '2.0 0', '2.0 1']\n", said


def test_another_libkiln_of_the_process_takes_no_part(run_program, tmp_path):
    source, script, other = tmp_path / "other.c", tmp_path / "other.map", tmp_path / "libkiln.so.0"
    names = ["kiln_engine_create", "kiln_engine_op", "kiln_bind", "kiln_launch", "kiln_last_error", "kiln_version"]
    source.write_text("".join(f"long {name}(void) {{ __builtin_trap(); }}\n" for name in names))
    script.write_text("KILN_0 { global: kiln_*; local: *; };\n")  # as cmake/exports.map names them
    subprocess.run(["cc", "-shared", "-fPIC", f"-Wl,--version-script={script}", "-Wl,-soname,libkiln.so.0", "-o", other, source], check=True)
    said = run_program(SETUP + "norm(**given)\nprint(given['y'].values[0] > 0.9)\n", LD_PRELOAD=str(other))
    assert said == "True\n", said


def test_two_copies_of_the_library_serve_in_one_process(run_program, tmp_path):
    folder = run_program("print(os.path.dirname(kiln.__file__))").strip()
    other = tmp_path / "libkiln_other.so"
    shutil.copy(os.path.join(folder, "libkiln_kernels.so"), other)
    said = run_program(
        SETUP
        + f"""
import ctypes
norm(**given)
other = ctypes.CDLL({str(other)!r}, os.RTLD_GLOBAL | os.RTLD_NOW)
engine, names = ctypes.c_void_p(), ctypes.c_char_p()
assert other.kiln_engine_create(None, ctypes.byref(engine)) == 0
assert other.kiln_engine_ops(engine, ctypes.byref(names)) == 0 and b"rms_norm" in names.value
norm(**given)
other.kiln_engine_destroy(engine)
norm(**given)
print(given["y"].values[0] > 0.9)
""",
        KILN_CACHE=str(tmp_path / "other.kiln"),
    )
    assert said == "True\n", said


def test_relative_paths_need_a_working_directory(run_program, tmp_path):
    said = run_program(f"""
    os.mkdir({str(tmp_path / "gone")!r}), os.chdir({str(tmp_path / "gone")!r}), os.rmdir({str(tmp_path / "gone")!r})
    for use in (lambda: kiln.op("mine", folder="ops"), lambda: kiln.record("workload.toml")):
        try:
            use()
        except kiln.Error as error:
            print(error)
    """)
    removed = ", in a working directory that was removed; name its full path\n"
    assert said == f"the folder of ops is 'ops'{removed}the file to record to is 'workload.toml'{removed}", said


def test_relative_paths_are_of_the_directory_in_which_they_were_given(run_program, tmp_path):
    (tmp_path / "to").mkdir()
    begin = f"os.chdir({str(tmp_path)!r})\n" + SETUP.replace('overlay=""', 'overlay="overlay.kiln", histogram=True, bases=["base.kiln"]')
    said = run_program(begin.replace("make_current()", "os.chdir('to')\nmake_current()") + "for _ in range(64): norm(**given)\nprint(os.getcwd(), kiln.warnings())\n")
    assert f"{tmp_path / 'to'} " in said and f"'{tmp_path / 'base.kiln'}'" in said, said
    assert (tmp_path / "overlay.kiln").exists() and not list((tmp_path / "to").iterdir())


def test_relative_paths_serve_in_a_directory_with_a_name_that_is_no_utf_8(run_program, tmp_path):
    odd = os.fsencode(tmp_path) + b"/caf\xe9"
    os.mkdir(odd)
    program = f"os.chdir({odd!r})\n" + SETUP.replace('overlay=""', 'overlay="overlay.kiln", histogram=True')
    said = run_program(program + "for _ in range(64): norm(**given)\nprint(given['y'].values[0] > 0.9)\n")
    assert "True\n" in said, said
    assert os.path.exists(odd + b"/overlay.kiln")


def test_texts_that_name_a_file_by_no_utf_8_are_readable(run_program, tmp_path):
    odd = os.fsencode(tmp_path) + b"/caf\xe9"
    os.mkdir(odd)
    os.chmod(odd, 0o777)  # so that a warning names it
    program = SETUP.replace('overlay="", ', "") + "norm(**given)\nprint(given['y'].values[0] > 0.9, 'caf\ufffd' in kiln.warnings()[0], 'caf\ufffd' in kiln.explain(norm, rows=3, cols=64))\n"
    said = run_program(program, KILN_CACHE=os.fsdecode(odd + b"/overlay.kiln"))
    assert "True True True\n" in said, said
