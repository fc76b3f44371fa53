#!/usr/bin/env python3
"""Tests what bench/run makes of steps that fail, what bench/tally.py makes of faults, and what rows say of themselves. Needs no GPU and no build."""
import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "bench/peers")]
import canary  # noqa: E402
import hit_counts  # noqa: E402
import launched  # noqa: E402
import rows  # noqa: E402
import tally  # noqa: E402
from evidence import claim  # noqa: E402

GPUS = '#!/bin/sh\ncase "$*" in *clocks.sm*) echo "1980, 1980, 120.50, 700.00"; echo "1755, 1980, [N/A], 700.00" ;; *) echo "NVIDIA H100, 580.1" ;; esac\n'


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name).resolve()

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return path


class Run(Folder):
    def setUp(self):
        super().setUp()
        self.write("bin/nvidia-smi", GPUS)
        self.program("src/cli/kiln", 'if [ "$1" = --version ]; then echo "kiln 0.1.0, build 00000ff-dirty"; fi')
        self.program("bench/bench_cold_start")
        self.program("bench/bench_first_batches")

    def program(self, name, body='echo "{}"'):
        self.write(f"build/{name}", f"#!/bin/sh\n{body}\n")

    def run_steps(self, *steps, **environment):
        path = {"PATH": f"{self.root}/bin:{os.environ['PATH']}", "KILN_BENCH_SCRATCH": f"{self.root}/scratch"}
        return subprocess.run([ROOT / "bench/run", self.root / "build", self.root / "out", *steps], env=dict(os.environ, **path, **environment),
                              capture_output=True, text=True)

    def stamps(self):
        return [json.loads(line) for line in (self.root / "out/steps.jsonl").read_text().splitlines()]

    def test_a_team_of_so_many_ranks_gets_problems_of_models_that_they_share(self):
        self.program("bench/bench_team", 'echo "{\\"words\\": \\"$*\\"}"')
        ran = self.run_steps("team_drawn", KILN_BENCH_WORLD="4", KILN_BENCH_DRAWN="5")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        drawn = (self.root / "out/team_drawn.txt").read_text().splitlines()
        self.assertEqual([sum("gemm" in line for line in part) for part in (drawn[:5], drawn[5:])], [0, 5])
        self.assertIn("--world 4 ", (self.root / "out/team_drawn.json").read_text())

    def test_attention_with_a_soft_cap_or_sinks_runs_once_by_the_packages(self):
        self.write("bin/python3", f'#!/bin/sh\ncase "$1" in bench/peers/*) echo "$PYTHONPATH $*"; wc -l ;; *) exec {sys.executable} "$@" ;; esac\n')
        ran = self.run_steps("attention_extras", KILN_BENCH_PACKAGES="/peers")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        ops = [line.split()[0] for line in (self.root / "out/attention_extras.txt").read_text().splitlines()]
        self.assertEqual(ops, ["attention_forward"] * 12 + ["attention_backward"] * 8)
        self.assertEqual((self.root / "out/attention_extras.json").read_text().splitlines(),
                         ["/peers bench/peers/attention_extras.py --base cache/h200.jsonl", "20"])

    def test_prompts_over_pages_are_the_same_in_each_type_of_the_cache(self):
        self.write("bin/python3", f'#!/bin/sh\ncase "$1" in bench/peers/*) echo "$*"; cat ;; *) exec {sys.executable} "$@" ;; esac\n')
        ran = self.run_steps("attention_paged", "attention_paged_e4m3")
        self.assertEqual(ran.returncode, 0, ran.stderr)
        (wide, *problems), (narrow, *same) = ((self.root / f"out/{step}.json").read_text().splitlines() for step in ("attention_paged", "attention_paged_e4m3"))
        self.assertEqual([wide, narrow], [f"bench/peers/{step}.py --base cache/h200.jsonl" for step in ("attention_paged", "attention_paged_e4m3")])
        self.assertEqual((problems, {each.split()[0] for each in problems}), (same, {"attention_paged"}))

    def test_all_steps_pass(self):
        ran = self.run_steps("cold", "first_batches")
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        self.assertEqual([json.loads(line)["step"] for line in ran.stdout.splitlines()], ["cold", "first_batches"])

    def test_a_failed_step_is_named_after_the_others_have_run(self):
        self.program("bench/bench_cold_start", "echo no compiler >&2; exit 3")
        ran = self.run_steps("cold", "first_batches")
        self.assertEqual(ran.returncode, 1)
        self.assertRegex(ran.stderr, "^failed: cold;")
        self.assertEqual([stamp["exit"] for stamp in self.stamps()], [3, 0])
        self.assertIn("first_batches", ran.stdout)

    def test_a_step_fails_with_any_command_of_it(self):
        self.write("bin/python3", "#!/bin/sh\nexit 0\n")
        self.program("bench/bench_hit_latency", "exit 3")  # the first of `hit`; the second passes
        self.assertRegex(self.run_steps("hit").stderr, "^failed: hit;")

    def test_a_command_that_took_too_long_has_failed(self):
        self.program("bench/bench_cold_start", "sleep 5")
        self.assertEqual(self.run_steps("cold", KILN_BENCH_LIMIT="0.1").returncode, 1)
        self.assertEqual(self.stamps()[0]["exit"], 124)

    def test_an_unknown_step_has_failed(self):
        self.assertIn("failed: colds;", self.run_steps("colds").stderr)

    def test_findings_among_records_are_no_failure(self):
        self.program("src/cli/kiln", 'if [ "$1" = --version ]; then echo "kiln 0.1.0, build 00000ff"; else exit 1; fi')
        self.assertEqual(self.run_steps("records").returncode, 0)

    def test_a_stamp_says_build_seed_clock_and_power(self):
        self.run_steps("cold")
        stamp = self.stamps()[0]
        self.assertEqual((stamp["build"], stamp["seed"], stamp["machine"]), ("00000ff-dirty", 255, "NVIDIA H100, 580.1"))
        self.assertEqual(stamp["gpus"], [{"sm_mhz": 1980, "most_mhz": 1980, "watts": 120.5, "watts_allowed": 700},
                                         {"sm_mhz": 1755, "most_mhz": 1980, "watts": None, "watts_allowed": 700}])

    def test_a_seed_that_is_asked_for_is_taken(self):
        self.run_steps("cold", KILN_BENCH_SEED="7")
        self.assertEqual(self.stamps()[0]["seed"], 7)

    def test_peers_are_told_the_build(self):
        self.write("bin/python3", '#!/bin/sh\necho "$KILN_BENCH_BUILD"\n')
        self.run_steps("products_peers")
        self.assertEqual((self.root / "out/products_peers.json").read_text(), "00000ff-dirty\n")


class Build(Folder):
    """The name that a build compiles in."""

    def git(self, *words):
        subprocess.run(["git", "-C", self.root / "source", "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True, capture_output=True)

    def commit(self):
        self.write("source/a.txt", "a")
        for words in (("init",), ("add", "."), ("commit", "-m", "a"), ("tag", "v1")):
            self.git(*words)

    def name(self, source="source", given=""):
        output = self.root / "build.cpp"
        subprocess.run(["cmake", f"-DSOURCE={self.root / source}", f"-DOUTPUT={output}", f"-DGIVEN={given}", "-P", ROOT / "cmake/WriteBuild.cmake"], check=True)
        return output.read_text().split('"')[3]

    def test_a_checkout_is_named_by_its_commit(self):
        self.commit()
        self.assertRegex(self.name(given="given"), "^[0-9a-f]{7,}$")

    def test_changed_sources_are_said(self):
        self.commit()
        self.write("source/a.txt", "b")
        self.assertRegex(self.name(), "^[0-9a-f]{7,}-dirty$")

    def test_a_folder_inside_of_another_checkout_is_not_named_by_it(self):
        self.commit()
        self.write("source/vendored/a.txt", "a")
        self.assertEqual(self.name("source/vendored"), "unknown")

    def test_outside_of_a_checkout_the_name_that_is_given_counts(self):
        self.write("source/a.txt", "a")
        self.assertEqual([self.name(), self.name(given="abc1234")], ["unknown", "abc1234"])

    def test_a_name_that_stays_is_not_written_again(self):
        self.commit()
        self.name()
        os.utime(self.root / "build.cpp", (1, 1))
        self.name()
        self.assertEqual((self.root / "build.cpp").stat().st_mtime, 1)


class Rows(unittest.TestCase):
    def test_a_row_has_the_versions_of_what_was_imported(self):
        with mock.patch.dict(sys.modules, {"triton": types.SimpleNamespace(__version__="3.9"), "flash_attn.cute": types.SimpleNamespace()}), \
                mock.patch("importlib.metadata.version", side_effect=lambda package: {"triton": "3.9.1"}[package] if package == "triton" else self.missing()):
            self.assertEqual(rows.versions(), {"triton": "3.9.1", "flash-attn-4": "unknown"})

    @staticmethod
    def missing():
        raise rows.importlib.metadata.PackageNotFoundError

    def test_torch_brings_the_versions_of_its_libraries(self):
        yes, no = (lambda: True), (lambda: False)
        torch = types.SimpleNamespace(
            __version__="2.11", backends=types.SimpleNamespace(cudnn=types.SimpleNamespace(is_available=yes, version=lambda: 91002)),
            distributed=types.SimpleNamespace(is_available=yes, is_initialized=yes), cuda=types.SimpleNamespace(nccl=types.SimpleNamespace(version=lambda: (2, 27, 3))))
        self.assertEqual(rows.libraries_of(torch), {"cudnn": "91002", "nccl": "2.27.3"})
        torch.distributed.is_initialized = no
        self.assertEqual(rows.libraries_of(torch), {"cudnn": "91002"})


class Tally(Folder):
    STORED = "1\t400\twriters killed\n1\t6925\tcommits among the kills\n4\t161\twrites to a full disk\n"

    def setUp(self):
        super().setUp()
        patch = mock.patch.object(claim, "RESULTS", self.root)
        patch.start()
        self.addCleanup(patch.stop)
        self.write("faults/tally.tsv", self.STORED)
        claim.Claim("faults", "none lost", [claim.Run(["tally.tsv"], "ctest", "a host", "2026-11-20", "abc1234", "", {"src": "0"}, kind="function")]).write()

    def of(self, found, *words):
        """Exit status, output and errors."""
        output, errors = io.StringIO(), io.StringIO()
        with mock.patch.object(sys, "argv", ["tally.py", str(self.write("found.tsv", found)), *words]), contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
            return tally.main(), output.getvalue(), errors.getvalue()

    def test_lines_of_one_text_are_added_up_in_any_order(self):
        status, output, _ = self.of("4\t100\twrites to a full disk\n1\t6925\tcommits among the kills\n1\t400\twriters killed\n4\t61\twrites to a full disk\n")
        self.assertEqual((status, output), (0, "7,486 cases of 2 rows, as stored\n"))

    def test_a_case_that_is_missing_or_new_fails_and_the_command_is_told(self):
        for change in ((400, 399), (400, 401), ("writers killed", "readers killed")):
            status, _, errors = self.of(self.STORED.replace(*map(str, change)))
            self.assertEqual(status, 1)
            self.assertIn("bench/tally.py", errors)
        self.assertEqual(self.of(self.STORED + "9\t1\tbits\n")[2].splitlines()[0], "row 9: bits: 1 cases, none stored")

    def test_a_count_by_chance_may_differ_but_not_vanish(self):
        self.assertEqual(self.of(self.STORED.replace("6925", "347"))[0], 0)
        self.assertIn("0 cases, expected 347 at least", self.of(self.STORED.replace("1\t6925\tcommits among the kills\n", ""))[2])

    def test_a_row_that_a_machine_skips_may_be_missing_and_is_named(self):
        status, output, _ = self.of(self.STORED.replace("161\twrites to a full disk", "skipped\tno mount namespace"))
        self.assertEqual(status, 0)
        self.assertIn("row 4 was skipped in part: no mount namespace", output)

    def test_what_is_written_is_as_found_but_keeps_what_was_skipped_and_what_chance_confirmed(self):
        self.assertEqual(self.of("4\tskipped\tno namespace\n1\t500\twriters killed\n1\t6000\tcommits among the kills\n", "--write")[0], 0)
        self.assertEqual(tally.stored_at().read_text(), "1\t6925\tcommits among the kills\n1\t500\twriters killed\n4\t161\twrites to a full disk\n")
        written = claim.Claim.read("faults")
        self.assertEqual((list(written.wrong()), written.run[0].code), ([], {}))
        self.assertNotEqual(written.run[0].commit, "abc1234")


class HitCounts(Folder):
    def compare(self, old, new, calls=1):
        for name, counts, times in (("old.json", old, 1), ("new.json", new, calls)):
            ways = lambda count: {way: {"instructions": count, "driver_calls": times} for way in hit_counts.LAUNCHES}
            self.write(name, "".join(json.dumps({"op": op, **ways(count)}) + "\n" for op, count in counts.items()))
        with mock.patch.object(sys, "argv", ["", f"{self.root}/old.json", f"{self.root}/new.json"]), contextlib.redirect_stdout(io.StringIO()) as output:
            return hit_counts.main(), output.getvalue()

    def test_counts_within_two_percent_are_the_same_launch(self):
        self.assertEqual(self.compare({"plain": 1000}, {"plain": 1019})[0], 0)
        status, output = self.compare({"plain": 1000, "expressions": 500}, {"plain": 1021, "expressions": 500})
        self.assertEqual(status, 1)
        self.assertIn("plain, Op::launch: 1000 -> 1021, 1.021 (past 2 %)\n", output)

    def test_another_call_of_the_driver_is_another_launch(self):
        status, output = self.compare({"plain": 1000}, {"plain": 1000}, calls=3)
        self.assertEqual(status, 1)
        self.assertIn("1.000 (driver calls: 1 -> 3)", output)

    def test_kinds_without_a_counterpart_are_named_and_nothing_in_common_fails(self):
        self.assertEqual(self.compare({"plain": 1000}, {"plain": 1000, "attention": 1})[0], 0)
        self.assertEqual(self.compare({"plain": 1000}, {"attention": 1000})[0], 1)


class OfCanary(Folder):
    def test_a_peer_without_the_words_that_were_asked_stands_beside_the_same_layout(self):
        own = [{"op": "gemm_batched", "asked": f"batch=2 m=4 n=8 k=16 layout={layout}", "ns": ns} for layout, ns in (("nt", 10), ("nn", 40))]
        peers = [{"op": "gemm_batched", "peer": "bmm", "batch": 2, "m": 4, "n": 8, "k": 16, "layout": "nn", "right": True, "ns": 20}]
        self.assertEqual(canary.ratios(own, peers), {("gemm_batched batch=2 m=4 n=8 k=16 layout=nn", "bmm"): 0.5})

    def test_problems_that_a_limit_of_time_left_count(self):
        self.write("build/src/cli/kiln", "#!/bin/sh\necho 'kiln 0.1.0, build abcd000 x'\n")
        late = self.write("late", "#!/bin/sh\necho '{\"ns\": 1}'\nprintf '{\"ns\": '\nexec sleep 60\n")
        asked = types.SimpleNamespace(build=self.root / "build", out=self.root / "out", limit=1)
        with contextlib.redirect_stderr(io.StringIO()) as said:
            self.assertEqual(canary.Canary(asked).run("pairs", [str(late)], ["gemm m=1"]), [{"ns": 1}])
        self.assertIn("pairs: ", said.getvalue())


class Launched(unittest.TestCase):
    def test_a_row_names_what_kiln_launched_and_which_file_had_it(self):
        text = "problem: attention_forward batch=1 dtype=bf16\nbucket: attention_forward batch=1\noverlay (memory): no record\nanswer: wgmma tile_m=128 pdl=1, from base, stale\nbecause: the record's config for batch=1"
        self.assertEqual(launched.read("attention_forward", text), {"problem": "batch=1 dtype=bf16", "implementation": "wgmma", "config": "tile_m=128 pdl=1",
                                                                    "origin": "base, stale", "because": "the record's config for batch=1"})


if __name__ == "__main__":
    unittest.main()
