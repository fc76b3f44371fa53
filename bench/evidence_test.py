#!/usr/bin/env python3
"""Tests that stale or unnamed evidence is found, and that tables pair the rows that belong together: bench/tables.py is what CI believes."""
import pathlib
import tempfile
import unittest
from unittest import mock

from evidence import attention, claim, digests, table, team

CODE = 'int twice(int x) { return 2 * x; }  // "doubles"\nconst char* url = "http://kiln";\n'


class Evidence(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for module, name, path in ((digests, "ROOT", self.root), (claim, "RESULTS", self.root / "results"), (table, "RESULTS", self.root / "results")):
            patch = mock.patch.object(module, name, path)
            patch.start()
            self.addCleanup(patch.stop)
        self.write("src/tune/a.cpp", CODE)
        self.write("results/hits/hits.json", '{"ns": 40}\n')
        run = claim.Run(["hits.json"], "bench/run", "one GPU", "2026-11-24", "abc1234", digests.of_data([self.root / "results/hits/hits.json"]),
                        {"src/tune": digests.of_code("src/tune")})
        claim.Claim("hits", 'costs "little"', [run]).write()

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def caption(self):
        read = table.Reader()
        read("hits/hits.json")
        return claim.caption(read.used)

    def test_a_claim_is_read_as_it_was_written(self):
        read = claim.Claim.read("hits")
        self.assertEqual(read.claim, 'costs "little"')
        self.assertEqual(list(read.wrong()), [])

    def test_present_code_is_not_called_changed(self):
        self.assertEqual(self.caption(), "Measured on one GPU, 2026-11-24, build abc1234 ([hits](../bench/results/hits)).")

    def test_comments_and_white_space_are_no_change(self):
        self.write("src/tune/a.cpp", "/* new */\n" + CODE.replace("doubles", "twice as much").replace("{ return", "{\n  return"))
        self.assertNotIn("changed", self.caption())

    def test_changed_code_is_said(self):
        self.write("src/tune/a.cpp", CODE.replace("2 * x", "3 * x"))
        self.assertIn("src/tune has changed since.", self.caption())

    def test_a_changed_string_is_a_change_though_it_holds_slashes(self):
        self.write("src/tune/a.cpp", CODE.replace("//kiln", "//oven"))
        self.assertIn("src/tune has changed since.", self.caption())

    def test_a_renamed_file_is_a_change(self):
        (self.root / "src/tune/a.cpp").rename(self.root / "src/tune/b.cpp")
        self.assertIn("src/tune has changed since.", self.caption())

    def test_an_op_counts_with_what_it_includes_and_nothing_else(self):
        self.write("templates/gemm/tile.cuh", '#include "common/wait.cuh"\n#include <cstdint>\n')
        self.write("templates/common/wait.cuh", '#include "clock.cuh"\n')
        self.write("templates/common/clock.cuh", "int now();\n")
        self.write("templates/common/dropout.cuh", "int drop();\n")
        before = digests.of_code("templates/gemm")
        self.write("templates/common/dropout.cuh", "int drop_more();\n")
        self.assertEqual(digests.of_code("templates/gemm"), before)
        self.write("templates/common/clock.cuh", "long now();\n")
        self.assertNotEqual(digests.of_code("templates/gemm"), before)

    def test_a_comment_behind_a_line_of_a_manifest_is_no_change(self):
        self.write("templates/gemm/op.toml", 'when = "a # b"   # not timed yet\n')
        before = digests.of_code("templates/gemm")
        self.write("templates/gemm/op.toml", 'when = "a # b"   # by counts\n')
        self.assertEqual(digests.of_code("templates/gemm"), before)
        self.write("templates/gemm/op.toml", 'when = "a # c"   # by counts\n')
        self.assertNotEqual(digests.of_code("templates/gemm"), before)

    def test_a_build_that_was_not_written_down_counts_as_changed(self):
        read = claim.Claim.read("hits")
        read.run[0].commit = ""
        read.write()
        self.assertIn("counts as changed", self.caption())
        self.assertTrue(claim.is_older(["hits/hits.json"]))

    def test_files_that_no_run_names_and_files_that_changed_are_found(self):
        self.write("results/hits/earlier.json", "{}\n")
        self.write("results/hits/hits.json", '{"ns": 30}\n')
        unnamed, changed = claim.Claim.read("hits").wrong()
        self.assertIn("earlier.json is of no run", unnamed)
        self.assertIn("hits.json changed after claim.toml", changed)


class Tables(unittest.TestCase):
    """Rows made here; a file that is not among them is absent."""
    GATHER, SCATTER = "all_gather_gemm rows=4096 k=8192 n=1536 dtype=bf16", "gemm_reduce_scatter rows=4096 k=1536 n=8192 dtype=bf16 ranks=alike"

    @staticmethod
    def table(name, **files):
        """The cells below the head of the table, whose files are named without folder and ending."""
        show = (team.TABLES | attention.TABLES)[name]
        text = show(lambda path: files.get(pathlib.PurePath(path).stem, []))
        return [line.strip("| ").split(" | ") for line in text.splitlines()[2:]]

    @staticmethod
    def op(asked, ns, **more):
        return {"asked": asked, "world": 2, "implementation": "fused", "ns": ns, "replayed_ns": ns, "host_us": 5.0, **more}

    @staticmethod
    def peer(asked, peer, ns, right=True, **more):
        return {"asked": asked, "peer": peer, "right": right, "ns": ns, "host_us": 100.0, **more}

    def test_tables_of_absent_files_are_empty(self):
        for name in ("team_ops", "team_ops4", "team_skew", "team_parts", "packed", "packed_backward"):
            self.assertEqual(self.table(name), [], name)

    def test_ops_of_four_ranks_are_not_those_of_two(self):
        files = {"team": [self.op(self.GATHER, 9000)], "team4": [self.op(self.GATHER, 2000), {"asked": self.SCATTER, "error": "no answer"}],
                 "team4_peers": [self.peer(self.GATHER, "nccl", 3000), self.peer(self.GATHER, "fused", 1000, right=False)]}
        self.assertEqual(self.table("team_ops4", **files), [[self.GATHER, "2.0", "1.50", "-", "5.0", "100", "-", "1.00"]])
        self.assertIn("of each of four ranks", team.TABLES["team_ops4"](lambda path: files.get(pathlib.PurePath(path).stem, [])))

    def test_skewed_times_are_set_against_those_of_the_same_skew(self):
        own, peer = {"0": 1000, "50": 2000, "500": 4000, "100000": 5000}, {"0": 1500, "50": 2000, "500": 8000, "100000": 20000}
        rows = self.table("team_skew", team_skew=[self.op(self.GATHER, 900, skewed_ns=own), self.op(self.SCATTER, 900, skewed_ns=own)],
                          team_skew_peers=[self.peer(self.GATHER, "nccl", 1200, skewed_ns=peer), self.peer(self.SCATTER, "fused", 1200, skewed_ns=peer)])
        self.assertEqual(rows, [[self.GATHER, "0.9", "1.0", "2.0", "4.0", "5.0", "1.50, 1.00, 2.00, 4.00", "-"],
                                [self.SCATTER, "0.9", "1.0", "2.0", "4.0", "5.0", "-", "1.50, 1.00, 2.00, 4.00"]])

    def test_a_part_that_is_missing_shifts_no_other(self):
        rows = self.table("team_parts", team_parts=[
            self.op(self.GATHER, 100_000), self.op("all_gather rows=4096 cols=8192 dtype=bf16", 60_000),
            self.op("gemm m=8192 n=8192 k=1536 dtype=bf16", 80_000), self.op("reduce_scatter rows=4096 cols=8192 dtype=bf16", 70_000), self.op(self.SCATTER, 100_000)])
        self.assertEqual(rows, [[self.GATHER, "fused", "100.0", "-", "60.0", "-", "-"], [self.SCATTER, "fused", "100.0", "80.0", "70.0", "0.80", "1.50"]])

    def test_the_problems_of_team_parts_are_fused_products_and_all_parts_of_these(self):
        lines = (pathlib.Path(__file__).parent / "problems/team_parts.txt").read_text().splitlines()
        asked = [line.split("#")[0].strip() for line in lines if not line.startswith("#")]
        parts = {each: team.parts_of({"asked": each, "world": 2}) for each in asked}
        self.assertEqual({part for of in parts.values() for part in of}, {each for each in asked if not parts[each]})

    def test_gradients_of_packed_batches_stand_beside_varlen_attn_alone(self):
        batch = {"sequences": 40, "tokens": 16371, "longest": 3003, "mask": "causal", "tflop_s": 462.7}
        rows = self.table("packed_backward", packed=[{"asked": "chat", "ns": 1, **batch}], packed_backward=[{"asked": "chat", "ns": 340_000, **batch}],
                          packed_backward_peers=[self.peer("chat", "varlen", 680_000), self.peer("documents", "varlen", 1)])
        self.assertEqual(rows[0], ["chat", "40", "16371", "3003", "causal", "340.0", "463", "2.00"])
        self.assertEqual((len(rows), rows[1][0], rows[1][-1]), (2, "geometric mean", "2.00"))


if __name__ == "__main__":
    unittest.main()
