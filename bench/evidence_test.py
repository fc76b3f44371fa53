#!/usr/bin/env python3
"""Tests that stale or unnamed evidence is found: bench/tables.py is what CI believes."""
import pathlib
import tempfile
import unittest
from unittest import mock

from evidence import claim, digests, table

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


if __name__ == "__main__":
    unittest.main()
