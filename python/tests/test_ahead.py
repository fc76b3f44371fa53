"""Before the first request: tuners, and teams of ranks."""
import os
import subprocess
import sys

import pytest

import kiln
from conftest import HERE, OPS

TUNER = """
kiln.configure(overlay="", isolation="in_process", compile_workers=1, on_miss="error")
make_current()
scale = kiln.op("scale", folder=OPS)
tuner = kiln.Tuner()
tuner.add(scale, rows=[4, 8], cols=64, dtype="f32")
given = {"x": Exchanged([4, 64], values=[1.0] * 256), "y": Exchanged([4, 64]), "factor": 2.0}
"""


def test_a_tuner_tunes_compiles_and_deploys_what_it_was_given(run_program, tmp_path):
    said = run_program(
        TUNER
        + f"""
report = tuner.tune()
print(report["wanted"], report["interrupted"], [each["outcome"] for each in report["buckets"]])
print([each["outcome"] for each in tuner.tune(retune="all")["buckets"]])
print(tuner.compile()[0]["missing"])
print(tuner.deploy({str(tmp_path / "out.kiln")!r})["missing"])
scale(**given)
print(given["y"].values[0])
open({str(tmp_path / "mine.kiln")!r}, "w").write("mine")
try:
    tuner.deploy({str(tmp_path / "mine.kiln")!r})
except kiln.Error as error:
    print("refused", error.kind)
print(tuner.deploy({str(tmp_path / "mine.kiln")!r}, replace=True)["missing"])
"""
    )
    lines = said.splitlines()
    assert lines[:2] == ["2 False ['tuned', 'tuned']", "['tuned', 'tuned']"], said
    assert lines[2:] == ["[]", "[]", "2.0", "refused bad_input", "[]"], said


def test_ctrl_c_ends_a_tuner(run_program):
    said = run_program(
        TUNER
        + """
control("kernel interrupt scale_tiled; pause 3000")
try:
    tuner.tune()
    print("tuned")
except KeyboardInterrupt:
    print("interrupted")
control("heal; pause 0")
print([each["outcome"] for each in tuner.tune()["buckets"]][0])
"""
    )
    assert said == "interrupted\ntuned\n", said


def test_the_end_comes_while_a_tuner_is_alive(run_program, tmp_path):
    overlay = tmp_path / "overlay.kiln"
    run_program(TUNER.replace('overlay=""', f"overlay={str(overlay)!r}") + "tuner.tune()\n")
    assert overlay.exists()


def test_what_a_tuner_cannot_take_is_refused(kiln_on_fake, norm):
    tuner = kiln_on_fake.Tuner()
    for refused, sentence in [
        (tuner.tune, "no problems were added"),
        (lambda: tuner.tune(retune="some"), "retune is 'some', expected one of: none, stale, all"),
        (lambda: tuner.add("rms_norm", rows=1), "an op is expected, as kiln.op\\(\\) gives it, and a str is given"),
        (lambda: tuner.add(norm, rows=["a"], cols=64), "sizes of 'rows' are no ints"),
        (lambda: tuner.add(norm, rows=[1 << 70], cols=64), "64 bits"),
        (lambda: kiln_on_fake.Tuner(device=-3), "device is -3, expected the ordinal"),
    ]:
        with pytest.raises(kiln.Error, match=sentence):
            refused()
    tuner.add(norm, rows=1, cols=64, dtype="f32")
    with pytest.raises(kiln.Error, match="a tuner has ops of one folder"):
        tuner.add(kiln_on_fake.op("scale", folder=OPS), rows=1, cols=64, dtype="f32")


RANK = """
rank, folder = int(os.environ["RANK_OF_TEST"]), os.environ["FOLDER_OF_TEST"]
def exchange(name):
    import time
    path = os.path.join(folder, "name")
    if name is not None:
        with open(path + ".part", "w") as file: file.write(name)
        os.rename(path + ".part", path)
    while not os.path.exists(path): time.sleep(0.01)
    return open(path).read()
kiln.configure(overlay="", isolation="in_process", compile_workers=1)
make_current()
"""


def run_ranks(program: str, tmp_path, **environment) -> list:
    begin = f"import fake_device, kiln, sys, os\nfrom fake_device import *\nOPS = {OPS!r}\n" + RANK
    started = [
        subprocess.Popen([sys.executable, "-c", begin + program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=HERE,
                         env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]),
                              "RANK_OF_TEST": str(rank), "FOLDER_OF_TEST": str(tmp_path), "LOCAL_RANK": "0", **environment})
        for rank in range(2)
    ]
    ended = [each.communicate(timeout=120) for each in started]
    assert [each.returncode for each in started] == [0, 0], ended
    return [out for out, _ in ended]


GATHER = """
print(team, len(team.name) > 8)
gather = kiln.op("all_gather")
x = Exchanged([100, 64], values=[rank + 1.0] * 6400)
y = Exchanged([2, 100, 64], values=[0.0] * 12800)
gather(x=x, y=y, rank_stride=100)
print(y.values[0], y.values[-1], kiln.stats()["tunes"])
team.close()
"""


def test_ranks_meet_by_an_exchange_and_tune_once_in_all(tmp_path):
    said = run_ranks("team = kiln.join_team(rank, 2, exchange=exchange, device=0, bytes=4 << 20)\n" + GATHER, tmp_path)
    assert said[0].splitlines() == ["kiln.Team(rank=0, world=2, device=0) True", "1.0 2.0 1"]
    assert said[1].splitlines() == ["kiln.Team(rank=1, world=2, device=0) True", "1.0 2.0 0"]


def test_what_makes_no_team_is_refused(run_program):
    said = run_program(
        """
make_current()
for given in [{"rank": 0}, {"name": "ours"}, {"rank": 0, "world": 2}, {"rank": 0, "world": 2, "name": "a", "exchange": print},
              {"rank": 0, "world": 2, "exchange": print}, {"rank": 3, "world": 2, "name": "a"}, {"rank": 0, "world": 1, "timeout": -1},
              {"rank": 0, "world": 2, "address": "nowhere", "device": 0}, {}]:
    try:
        print(kiln.join_team(**given))
    except kiln.Error as error:
        print(error.kind, error)
kiln.join_team(0, 1, device=0, bytes=1 << 20)
try:
    kiln.join_team(0, 1, device=0)
except kiln.Error as error:
    print(error)
kiln.configure(overlay="", on_miss="nearest", isolation="in_process", compile_workers=1)
kiln.op("all_gather")(x=Exchanged([4, 64]), y=Exchanged([1, 4, 64]), rank_stride=4)
print("done")
"""
    )
    lines = [line for line in said.splitlines() if line != "None" and not line.startswith("kiln/")]
    expected = ["given together", "need rank and world", "do not know each other", "both given", "exchange gave a NoneType", "rank", "timeout", "nowhere",
                "RANK", "was called before", "done"]
    assert len(lines) == len(expected) and all(part in line for part, line in zip(expected, lines)), said


def test_a_record_goes_where_a_link_points_to_and_into_a_pipe(run_program, tmp_path):
    target, link, pipe = tmp_path / "ran.toml", tmp_path / "link.toml", tmp_path / "pipe"
    link.symlink_to(target)
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    run_program(TUNER + f"""
tuner.tune()
scale(**given)
for path in ({str(link)!r}, {str(pipe)!r}, os.devnull):
    kiln.record(path)
""")
    assert link.is_symlink() and "scale" in target.read_text()
    assert pipe.is_fifo() and b"scale" in os.read(reader, 1 << 16)
    assert not os.path.isfile(os.devnull)
    os.close(reader)


def test_a_record_of_what_was_launched_is_a_workload_that_replaces_a_file_whole(run_program, tmp_path):
    path = tmp_path / "ran.toml"
    path.write_text("[[workload]]\nop = \"old\"\n" * 100)
    said = run_program(
        TUNER
        + f"""
tuner.tune()
scale(**given)
text = kiln.record({str(path)!r})
print('op    = "scale"' in text or 'op = "scale"' in text)
try:
    kiln.record("/no/such/folder/ran.toml")
except OSError as error:
    print("refused", error.strerror)
"""
    )
    assert "True\n" in said and "refused No such file or directory" in said, said
    written = path.read_text()
    assert "scale" in written and "old" not in written and list(tmp_path.glob("ran.toml.*")) == [], written
