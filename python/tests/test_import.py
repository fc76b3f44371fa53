"""A second import of the package, another interpreter's, and one that finds no extension."""
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile

import pytest

from test_process import SETUP

REMOVED = "for name in [name for name in sys.modules if name.partition('.')[0] == 'kiln']: del sys.modules[name]\nimport kiln\n"
RELOADED = "import importlib\nkiln = importlib.reload(kiln)\n"


@pytest.mark.parametrize("again", [REMOVED, RELOADED], ids=["removed", "reloaded"])
def test_a_second_import_goes_on_where_the_first_was(run_program, again):
    said = run_program(
        SETUP
        + f"""
import pickle
norm(**given)
Op, Error = kiln.Op, kiln.Error
{again}
assert kiln.stats()["hot"] + kiln.stats()["model"] + kiln.stats()["default"] == 1, kiln.stats()
norm(**given)
kiln.op("rms_norm")(**given)
assert isinstance(norm, kiln.Op) and kiln.Op is Op and repr(pickle.loads(pickle.dumps(norm))) == repr(norm)
print(kiln.coverage(norm, rows=3, cols=64).total, given["y"].values[0] > 0.9)
try:
    kiln.op("no_such_op").contract
except Error as error:
    print(error.kind)
"""
    )
    assert said == "1 True\nbad_input\n", said


def test_another_interpreter_is_refused_and_the_first_goes_on(run_program):
    said = run_program(
        SETUP
        + """
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
norm(**given)
other = interpreters.create("legacy") if sys.version_info >= (3, 13) else interpreters.create(isolated=False)
told = "try:\\n    import kiln\\nexcept ImportError as error:\\n    print(error, flush=True)"
interpreters.run_string(other, told)
interpreters.destroy(other)
norm(**given)
print(given["y"].values[0] > 0.9, kiln.op("softmax").contract[:7])
"""
    )
    assert said == "the package kiln-kernels cannot load its extension: another interpreter of this process has imported kiln, which serves one; " \
        "import it in one interpreter alone, or start a process for each\nTrue softmax\n", said


def test_an_extension_that_is_absent_is_told(run_program, tmp_path):
    """In the sources of a checkout, and in a zip file, from which Python loads none."""
    package = run_program("print(os.path.dirname(kiln.__file__))").strip()
    with zipfile.ZipFile(tmp_path / "site.zip", "w") as packed:
        for each in sorted(os.listdir(package)):
            if each.endswith(".py"):
                packed.write(os.path.join(package, each), f"kiln/{each}")
    packed = str(tmp_path / "site.zip")
    zipfile.ZipFile(packed).extractall(tmp_path / "sources")
    for place in (packed, str(tmp_path / "sources")):
        ran = subprocess.run([sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {place!r}); import kiln"], capture_output=True, text=True)
        assert f"kiln was imported from {place}/kiln, which has no extension for this Python; install the package" in ran.stderr, ran.stderr


def test_a_library_that_is_absent_is_told(run_program, tmp_path):
    package = run_program("print(os.path.dirname(kiln.__file__))").strip()
    shutil.copytree(package, tmp_path / "kiln", ignore=shutil.ignore_patterns("libkiln_kernels*", "share", "kiln-worker"))
    ran = subprocess.run([sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import kiln"], capture_output=True, text=True)
    assert "the package kiln-kernels cannot load its extension: libkiln_kernels.so" in ran.stderr, ran.stderr


EMBEDDING = """
#include <Python.h>
int main(void) {
  for (int round = 0; round < 2; ++round) {
    Py_Initialize();
    PyRun_SimpleString("import sys; sys.path[:0] = PATHS\\n"
                       "try:\\n    import kiln; print(kiln.op('rms_norm').contract[:8], flush=True)\\n"
                       "except ImportError as error: print(error, flush=True)");
    Py_FinalizeEx();
  }
  return 0;
}
"""


def test_a_second_interpreter_of_an_embedding_program_is_refused(tmp_path):
    library = sysconfig.get_config_var("LIBDIR")
    source, program = tmp_path / "embedding.c", tmp_path / "embedding"
    source.write_text(EMBEDDING.replace("PATHS", repr(sys.path).replace('"', "'")))
    built = subprocess.run(["cc", source, f"-I{sysconfig.get_path('include')}", f"-L{library}", f"-Wl,-rpath,{library}", f"-lpython{sysconfig.get_python_version()}",
                            "-o", program], capture_output=True, text=True)
    if built.returncode != 0:
        pytest.skip("this Python cannot be embedded: " + built.stderr)
    ran = subprocess.run([program], capture_output=True, text=True)
    assert ran.returncode == 0 and ran.stdout.startswith("rms_norm\n") and "import it in one interpreter alone" in ran.stdout, ran.stdout + ran.stderr
