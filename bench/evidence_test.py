#!/usr/bin/env python3
"""Tests that a mark means what it says: what changes a figure marks it, what does not leaves it."""
import importlib.machinery
import importlib.util
import json
import pathlib
import subprocess
import tempfile
import unittest
from unittest import mock

from evidence import checks, claim, digests, marks, programs

LOADER = importlib.machinery.SourceFileLoader("present", str(pathlib.Path(__file__).with_name("present")))
script = importlib.util.module_from_spec(importlib.util.spec_from_loader("present", LOADER))
LOADER.exec_module(script)

CODE = 'int twice(int x) { return 2 * x; }  // "doubles"\nconst char* url = "http://kiln";\n'
PROGRAM = {"op": "norm", "problem": "rows=8", "implementation": "row", "config": "threads=256"}
CODE_OF = {"source": "aa", "options": "--std=c++20", "ptx": "01", "compiler": "nvrtc 13.0"}


class Evidence(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for module, name, path in ((digests, "ROOT", self.root), (claim, "RESULTS", self.root / "bench/results")):
            patch = mock.patch.object(module, name, path)
            patch.start()
            self.addCleanup(patch.stop)
        self.write("src/tune/a.cpp", CODE)
        self.write("cache/h100.jsonl", '{"key": "norm rows=8", "choices": [{"role": "fastest", "sizes": "", "implementation": "row", "config": "threads=256", "source_digest": "1"}], "baseline_ns": 5}\n')
        self.write("bench/peers.lock", '[torch]\nversion = "2.11.0"\n')
        self.write("bench/results/hits/hits.json", json.dumps({**PROGRAM, "ns": 40, "build": "v1-3-gabc1234"}) + "\n")
        self.write("bench/results/hits/programs.jsonl", json.dumps({"file": "hits.json", **PROGRAM, **CODE_OF}) + "\n")
        self.present()
        run = claim.Run(["hits.json"], "bench/run", "one GPU", "2026-11-24", "abc1234", self.data(), {"src/tune": digests.of_code("src/tune")},
                        records={"cache/h100.jsonl": digests.of_records("cache/h100.jsonl")}, peers={"torch": "2.11.0"})
        claim.Claim("hits", 'costs "little"', [run]).write()

    def data(self):
        return digests.of_data([self.root / "bench/results/hits/hits.json"])

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def present(self, **changed):
        """What the present code makes of the program."""
        self.write("bench/results/present.jsonl", json.dumps({**PROGRAM, **CODE_OF, **changed}) + "\n")

    def change_run(self, **fields):
        read = claim.Claim.read("hits")
        for name, value in fields.items():
            setattr(read.run[0], name, value)
        read.write()

    def mark(self):
        return marks.State().mark(["hits/hits.json"])

    def caption(self):
        return marks.caption(["hits/hits.json"], marks.State())

    def wrong(self):
        return "\n".join(checks.of_claims())

    def test_a_claim_is_read_as_it_was_written(self):
        read = claim.Claim.read("hits")
        self.assertEqual((read.claim, read.run[0].peers, self.wrong()), ('costs "little"', {"torch": "2.11.0"}, ""))

    def test_present_code_has_no_mark(self):
        self.assertEqual((self.mark(), self.caption()), ("", "Measured on one GPU, 2026-11-24, build abc1234 ([hits](../bench/results/hits))."))

    # What must not mark.

    def test_docstrings_are_no_change_and_other_strings_are(self):
        code = '"""Of a module."""\n\n\ndef twice(x):\n    """Of a function,\n    on two lines."""\n    said = "kept"; return 2 * x\n'
        other = 'def twice(x):\n    """Another one"""; said = "kept"; return 2 * x\n'
        alike = [digests.bare("a.py", each.encode()) for each in (code, other.replace('"""; said', '"""\n    said'))]
        self.assertEqual(*alike)
        self.assertIn(b"kept", alike[0])
        self.assertNotEqual(digests.bare("a.py", code.replace("kept", "changed").encode()), alike[0])

    def test_comments_and_white_space_are_no_change(self):
        self.write("src/tune/a.cpp", "/* new */\n" + CODE.replace("doubles", "twice as much").replace("{ return", "{\n  return"))
        self.assertEqual(self.mark(), "")

    def test_a_file_that_moves_is_no_change(self):
        (self.root / "src/tune/a.cpp").rename(self.root / "src/tune/b.cpp")
        self.assertEqual(self.mark(), "")

    def test_machine_code_of_a_file_that_is_measured_again_is_forgotten(self):
        other = json.dumps({"file": "other.json", **PROGRAM, **CODE_OF}) + "\n"
        self.write("bench/results/hits/programs.jsonl", json.dumps({"file": "hits.json", **PROGRAM, **CODE_OF}) + "\n" + other)
        programs.forget("hits", ["hits.json"])
        self.assertEqual((self.root / "bench/results/hits/programs.jsonl").read_text(), other)

    def test_a_function_that_is_left_out_does_not_count_but_the_rest_of_its_file_does(self):
        name, store = "src/tune/a.cpp!store", "/// Stores.\nvoid store(int x);\nstatic void store(int x) {\n  if (x) write(x);\n}\n"
        self.write("src/tune/a.cpp", CODE + store)
        was = digests.of_code(name)
        self.write("src/tune/a.cpp", CODE + store.replace("void", "int").replace("write", "print"))
        self.assertEqual(digests.of_code(name), was)
        self.write("src/tune/a.cpp", CODE.replace("2 * x", "3 * x") + store)
        self.assertNotEqual(digests.of_code(name), was)

    def test_a_new_function_in_a_shared_header_is_no_change_where_the_ptx_is_equal(self):
        self.present(source="bb")
        self.assertEqual(self.mark(), "")

    def measured_code(self, code):
        """Machine code that bench/present made of what was measured."""
        self.write("bench/results/hits/programs.jsonl", json.dumps({"file": "hits.json", **PROGRAM, **CODE_OF, "code": code}) + "\n")

    def test_a_parameter_that_moves_is_no_change_where_the_machine_code_is_equal(self):
        self.measured_code("c1")
        self.present(source="bb", ptx="02", code="c1")
        self.assertEqual(self.mark(), "")

    def test_kernels_in_another_order_are_no_change(self):
        answers = [{"source": "bb", "options": [], "code": code, "functions": [{"code": each} for each in kernels]} for code, kernels in (("c1", "ab"), ("c2", "ba"), ("c3", "a"), ("c4", ["a", ""]))]
        then, moved, fewer, joined = (script.code_of(answer) for answer in answers)
        self.assertEqual(then["kernels"], moved["kernels"])
        self.assertNotEqual(then["kernels"], fewer["kernels"])
        self.assertNotIn("kernels", joined)  # code of one that needs another's says nothing
        self.write("bench/results/hits/programs.jsonl", json.dumps({"file": "hits.json", **PROGRAM, **CODE_OF, "code": "c1", "kernels": then["kernels"]}) + "\n")
        self.present(source="bb", ptx="02", code="c2", kernels=moved["kernels"])
        self.assertEqual(self.mark(), "")

    def test_code_that_no_figure_speaks_of_does_not_count(self):
        self.write("src/manifest/config.cpp", "int parse_config();")
        self.assertEqual(self.mark(), "")

    def test_times_and_digests_of_sources_in_records_do_not_count(self):
        path = self.root / "cache/h100.jsonl"
        path.write_text(path.read_text().replace('"source_digest": "1"', '"source_digest": "2"').replace(": 5", ": 6"))
        self.assertEqual(self.mark(), "")

    # What must.

    def test_changed_code_is_said(self):
        self.write("src/tune/a.cpp", CODE.replace("2 * x", "3 * x"))
        self.assertIn("† src/tune has changed since.", self.caption())

    def test_a_changed_string_is_a_change_though_it_holds_slashes(self):
        self.write("src/tune/a.cpp", CODE.replace("//kiln", "//oven"))
        self.assertEqual(self.mark(), "†")

    def test_code_of_a_bench_that_differs_for_a_reason_marks_nothing_until_it_changes_again(self):
        self.write("bench/time.cpp", "int time(Old x) { return x; }")
        was = digests.of_code("bench/time.cpp#time")
        self.change_run(code={"bench/time.cpp#time": was})
        self.write("bench/time.cpp", "int time(New x) { return x; }")
        self.assertEqual(self.mark(), "†")
        equal = f'[[equal]]\ncode = "bench/time.cpp#time"\nwas = "{was}"\nis = "{digests.of_code("bench/time.cpp#time")}"\n'
        self.write("bench/results/equal.toml", equal)
        self.assertIn("why it is equal", self.wrong())
        self.write("bench/results/equal.toml", equal + 'why = "abc1234 renames a type"\n')
        self.assertEqual(self.mark(), "")
        self.assertNotIn("equal.toml", self.wrong())
        self.write("bench/time.cpp", "int time(New x) { return 2 * x; }")
        self.assertEqual(self.mark(), "†")
        self.assertIn("changed again", self.wrong())

    def test_other_ptx_is_said_with_the_count_of_rows(self):
        self.present(source="bb", ptx="02")
        self.assertEqual(self.mark(), "†")
        self.assertIn("† the machine code of 1 of 1 rows has changed since.", self.caption())

    def test_machine_code_of_both_sides_is_compared_where_the_ptx_has_changed(self):
        asked = []
        def ask(_build, programs, _device, *options, tree=None):
            """Of present sources that make other PTX, or of what was measured."""
            side = {"source": "bb", "options": CODE_OF["options"], "ptx": "02"} if tree is None else CODE_OF
            fields = ["source", "options", *(["ptx", "compiler"] if options else []), *(["code"] if "--code" in options else [])]
            asked.append((options[:1], tree))
            return [{field: (side | {"compiler": CODE_OF["compiler"], "code": code[tree is None]})[field] for field in fields} for _ in programs]
        def write():
            with mock.patch.multiple(script, RESULTS=claim.RESULTS, ask=ask, tree_at=lambda commit, _folder: commit), \
                    mock.patch("sys.argv", ["present", "build", "--write"]), mock.patch("builtins.print"):
                script.main()
        code = {True: "c1", False: "c1"}
        write()
        self.assertEqual(asked, [((), None), (("--ptx",), None), (("--code",), None), (("--code",), "abc1234")])
        self.assertEqual(self.mark(), "")
        asked.clear()
        write()
        self.assertEqual(asked, [((), None)])
        code[True] = "c2"
        self.write("bench/results/hits/programs.jsonl", json.dumps({"file": "hits.json", **PROGRAM, **CODE_OF}) + "\n")
        self.present()
        write()
        self.assertEqual(self.mark(), "†")

    def test_another_instruction_marks(self):
        self.measured_code("c1")
        self.present(source="bb", ptx="02", code="c2")
        self.assertEqual(self.mark(), "†")

    def test_machine_code_of_another_nvrtc_says_nothing(self):
        self.measured_code("c1")
        self.present(source="bb", ptx="02", code="c1", compiler="nvrtc 13.1")
        self.assertEqual(self.mark(), "†")

    def test_another_compile_option_marks_even_beside_equal_sources(self):
        self.present(options="--std=c++20 --use_fast_math")
        self.assertEqual(self.mark(), "†")

    def test_with_another_nvrtc_the_source_alone_decides(self):
        self.present(compiler="nvrtc 13.1", ptx="02")
        self.assertEqual(self.mark(), "")
        self.present(source="bb", compiler="nvrtc 13.1")
        self.assertEqual(self.mark(), "†")

    def test_a_program_that_is_gone_marks(self):
        self.write("bench/results/present.jsonl", "")
        self.assertEqual(self.mark(), "†")

    def test_emptied_records_mark(self):
        self.write("cache/h100.jsonl", "")
        self.assertIn("† cache/h100.jsonl has changed since.", self.caption())

    def test_records_of_buckets_that_a_workload_does_not_list_do_not_count(self):
        record = {"op": "norm", "bucket": "rows=8 cols=64 residual=none", "key": "a", "choices": [{"config": "threads=256"}]}
        write = lambda *records: self.write("cache/h100.jsonl", "".join(json.dumps(each) + "\n" for each in records))
        self.write("bench/results/hits/ran.toml", '[[workload]]\nop = "norm"\naxes = { rows = [4, 8], cols = 64 }\n')
        name = "cache/h100.jsonl@bench/results/hits/ran.toml"
        write(record)
        was = digests.of_records(name)
        write(record, record | {"key": "b", "bucket": "rows=16 cols=64 residual=none"}, record | {"key": "c", "op": "softmax"})
        self.assertEqual(digests.of_records(name), was)
        write(record, record | {"key": "b", "bucket": "rows=4 cols=64 residual=add"})
        self.assertNotEqual(digests.of_records(name), was)
        write(record | {"choices": [{"config": "threads=128"}]})
        self.assertNotEqual(digests.of_records(name), was)

    def test_records_of_a_commit_are_those_that_it_had(self):
        name = "cache/h100.jsonl"
        git = lambda *words: subprocess.run(["git", "-C", self.root, "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True, capture_output=True)
        git("init")
        git("add", name)
        git("commit", "--message", "records that were used")
        was = digests.of_records(name)
        self.write(name, "")
        self.assertEqual((digests.of_records(name, "HEAD"), digests.of_records(name) == was), (was, False))

    def test_a_workload_of_records_has_no_ranges(self):
        with self.assertRaises(ValueError):
            digests.is_listed({"op": "norm", "bucket": "rows=8"}, {"op": "norm", "axes": {"rows": "1..8"}})

    def test_records_of_other_buckets_do_not_count_where_rows_say_what_they_launched(self):
        record = lambda edge, config: json.dumps({"op": "norm", "key": f"norm@1 | rows=pow2:{edge} | dtype=bf16 | sm_90 | cold", "choices": [
            {"role": "fastest", "sizes": f"rows={edge // 2 + 1}..{edge}", "implementation": "row", "config": config, "source_digest": "1"}], "baseline_ns": 5}) + "\n"
        self.write("bench/results/hits/hits.json", json.dumps({**PROGRAM, "problem": "rows=7 dtype=bf16", "ns": 40, "build": "abc1234"}) + "\n")
        self.write("bench/results/hits/programs.jsonl", "")
        self.change_run(data=self.data())
        self.write("cache/h100.jsonl", record(8, "threads=256") + record(16, "threads=128"))
        self.assertEqual(self.mark(), "")
        self.write("cache/h100.jsonl", record(8, "threads=512") + record(16, "threads=256"))
        self.assertIn("† cache/h100.jsonl has changed since.", self.caption())
        self.write("cache/h100.jsonl", record(16, "threads=256"))
        self.assertEqual(self.mark(), "†")

    def test_a_newer_release_of_a_peer_has_a_mark_of_its_own(self):
        self.write("bench/peers.lock", '[torch]\nversion = "2.12.0"\n')
        self.assertEqual(self.mark(), "‡")
        self.assertIn("‡ torch (2.11.0) is not of the version in bench/peers.lock.", self.caption())

    def test_a_function_is_left_out_where_it_is_declared_and_not_where_it_is_called(self):
        code = b"int used(int x);\nvoid publish(const A& a,\n             B b);\nvoid run() {\n  publish(a, b);\n  return publish(a,\n    b);\n}\n"
        self.assertEqual(digests.without(code, {"publish"}), code.replace(b"void publish(const A& a,\n             B b);", b""))

    def test_a_peer_without_a_version_is_marked(self):
        self.change_run(peers={"torch": ""})
        self.assertEqual(self.mark(), "‡")

    def test_instructions_of_each_kind_of_hit_may_differ_by_two_percent(self):
        self.write("bench/results/hits/hits.json", json.dumps({"op": "rms_norm", "implementation": "block_row", "ns": 40, "build": "abc1234"}) + "\n")
        self.change_run(kind="host", code={"src/engine": "0"}, data=self.data())
        self.assertEqual(self.mark(), "†")
        count = lambda name, *instructions: self.write(f"bench/results/{name}", "".join(
            json.dumps({"op": op, "Op::launch": {"instructions": each, "driver_calls": 1}}) + "\n" for op, each in zip(("plain (rms_norm)", "expressions (gemm)"), instructions)))
        count("hits/instructions.json", 400, 400)
        count("hit-instructions/callgrind_hit.json", 407, 500)
        claim.Claim("hit-instructions", "few", []).write()
        self.assertEqual(self.mark(), "")
        count("hit-instructions/callgrind_hit.json", 412, 400)
        self.assertIn("† the count of instructions of 1 of 1 rows has changed since.", self.caption())

    # Canaries.

    def canary(self, holds, **code):
        self.write("bench/results/canary/canary.jsonl", json.dumps({**PROGRAM, "claim": "hits", "file": "hits.json", "asked": "norm", "was": 1.0, "now": 1.01, "holds": holds, "build": "abcd000"}) + "\n")
        run = claim.Run(["canary.jsonl"], "bench/canary.py", "one GPU", "2026-11-26", "abcd000", digests.of_data([self.root / "bench/results/canary/canary.jsonl"]),
                        {path: digests.of_code(path) for path in code.get("paths", ["src/tune"])}, peers={"torch": "2.11.0"})
        claim.Claim("canary", "holds", [run]).write()

    def test_a_canary_that_holds_lifts_the_mark_of_code_until_it_changes_again(self):
        self.write("src/tune/a.cpp", CODE.replace("2 * x", "3 * x"))
        self.canary(True)
        self.assertEqual(self.mark(), "")
        self.assertIn("1 of its problems held when they were timed again (2026-11-26, build abcd000).", self.caption())
        self.write("src/tune/a.cpp", CODE.replace("2 * x", "4 * x"))
        self.assertEqual(self.mark(), "†")

    def test_a_canary_lifts_the_mark_of_kernels_that_it_timed_as_they_are(self):
        self.present(source="bb", ptx="02")
        self.canary(True)
        self.assertEqual(self.mark(), "†")
        self.write("bench/results/canary/programs.jsonl", json.dumps({"file": "canary.jsonl", **PROGRAM, **CODE_OF, "source": "bb", "ptx": "02"}) + "\n")
        self.assertEqual(self.mark(), "")
        self.present(source="cc", ptx="03")
        self.assertEqual(self.mark(), "†")

    def test_a_canary_of_less_than_a_tenth_of_the_problems_lifts_nothing(self):
        self.write("bench/results/hits/hits.json", "".join(json.dumps({**PROGRAM, "problem": f"rows={rows}", "ns": 40, "build": "abc1234"}) + "\n" for rows in range(11)))
        self.write("bench/results/hits/programs.jsonl", "")
        self.write("src/tune/a.cpp", CODE.replace("2 * x", "3 * x"))
        self.canary(True)
        self.assertEqual(self.mark(), "†")

    def test_a_canary_of_a_problem_speaks_of_the_file_of_its_peers_too(self):
        self.change_run(peers={"torch": ""})
        self.write("bench/peers.lock", '[torch]\nversion = "2.11.0"\n')
        self.canary(True)
        canary = self.root / "bench/results/canary/canary.jsonl"
        row = json.loads(canary.read_text()) | {"file": "other.json"}
        canary.write_text(json.dumps(row) + "\n")
        self.assertEqual(self.mark(), "‡")
        canary.write_text(json.dumps(row | {"peers": "hits.json"}) + "\n")
        self.assertEqual(self.mark(), "")

    def test_a_canary_that_fails_lifts_nothing(self):
        self.write("src/tune/a.cpp", CODE.replace("2 * x", "3 * x"))
        self.canary(False)
        self.assertEqual(self.mark(), "†")

    # Stamps and rows.

    def test_files_that_no_run_names_and_files_that_changed_are_found(self):
        self.write("bench/results/hits/earlier.json", "{}\n")
        self.write("bench/results/hits/hits.json", '{"ns": 30}\n')
        self.assertIn("earlier.json is of no run", self.wrong())
        self.assertIn("hits.json changed after claim.toml", self.wrong())

    def test_a_stamp_with_another_commit_than_the_rows_is_found(self):
        self.change_run(commit="fffffff")
        self.assertIn("rows are of the build v1-3-gabc1234, claim.toml says fffffff", self.wrong())

    def test_a_build_with_changes_is_refused(self):
        self.write("bench/results/hits/hits.json", json.dumps({**PROGRAM, "ns": 40, "build": "v1-3-gabc1234-dirty"}) + "\n")
        self.change_run(data=self.data())
        self.assertIn("expected a commit without changes", self.wrong())

    def test_rows_that_say_no_build_cannot_be_stamped_anew(self):
        self.write("bench/results/hits/hits.json", json.dumps({**PROGRAM, "ns": 40}) + "\n")
        self.change_run(data=self.data())
        self.assertIn("cannot be checked", self.wrong())
        self.write("bench/results/earlier.tsv", f"hits\t{self.data()}\tabc1234\n")
        self.assertEqual(self.wrong(), "")
        self.change_run(commit="fffffff")
        self.assertIn("cannot be checked", self.wrong())

    def test_a_build_that_was_not_written_down_marks_and_leaves_readme(self):
        self.change_run(commit="")
        self.assertEqual((self.mark(), marks.is_too_old(["hits/hits.json"])), ("†", True))

    def test_a_figure_thirty_days_older_than_the_newest_leaves_readme(self):
        self.assertFalse(marks.is_too_old(["hits/hits.json"]))
        claim.Claim("later", "one", [claim.Run([], "", "", "2026-12-26", "abc", "")]).write()
        self.assertTrue(marks.is_too_old(["hits/hits.json"]))

    def test_a_problem_without_a_row_needs_a_reason(self):
        self.write("bench/problems/team.txt", "# two\nnorm rows=8 # one\nnorm rows=16\n")
        self.write("bench/results/hits/team.json", json.dumps({"asked": "norm rows=8", "ns": 4, "build": "abc1234"}) + "\n")
        self.change_run(files=["hits.json", "team.json"], data=digests.of_data([self.root / f"bench/results/hits/{name}.json" for name in ("hits", "team")]))
        self.assertIn("hits/team.json has no row of 'norm rows=16'", self.wrong())
        self.change_run(left_out=["norm rows=16: its limit ended it"])
        self.assertEqual(self.wrong(), "")

    def test_a_pair_that_was_drawn_needs_a_row(self):
        self.write("bench/results/hits/pairs_bf16.txt", "gemm m=1 n=2 k=3 # a model\ngemm m=2 n=2 k=3\n")
        self.write("bench/results/hits/pairs_bf16.json", '{"problem": "m=1 n=2 k=3 dtype=bf16"}\n')
        self.assertIn("no row of 'gemm m=2 n=2 k=3', which pairs_bf16.txt drew", self.wrong())
        self.change_run(left_out=["pairs_bf16.txt after 1: its limit ended it"])
        self.assertNotIn("drew", self.wrong())
        for count in (0, 2):
            self.change_run(left_out=[f"pairs_bf16.txt after {count}: its limit ended it"])
            self.assertIn("drew", self.wrong())
        self.write("bench/results/hits/pairs_bf16.json", '{"problem": "m=1 n=2 k=3 dtype=bf16"}\n{"problem": "m=2 n=2 k=3 dtype=bf16"}\n')
        self.change_run(left_out=["pairs_bf16.txt after 1: its limit ended it"])
        self.assertIn("rows of pairs_bf16.txt past the 1", self.wrong())

    # Documents.

    def test_a_figure_in_prose_is_found_and_one_in_a_span_is_not(self):
        found = lambda text: [sentence.split("'")[1] for sentence in checks.of_prose("README.md", text)]
        self.assertEqual(found("NCCL wins nine of fifteen (0.81 to 0.97)."), ["0.81"])
        self.assertEqual(found("It takes 12 % longer.\nOr 4.2 ms, or 51 us."), ["12 %", "4.2 ms"])
        self.assertEqual(found("x <!-- figure: a -->1.06<!-- end --> and `eps=1e-6 0.25`, CUDA 12.0, heads of 128, sm_90, 2 GPUs\n| 1.06 | 4 us |\n[it](a_1.25.md)"), [])

    def test_an_empty_table_is_found(self):
        self.assertEqual(len(list(checks.of_table("a.md", "hits", "\nNot measured yet.\n"))), 1)
        self.assertEqual(len(list(checks.of_table("a.md", "hits", "\n"))), 1)
        self.assertEqual(len(list(checks.of_table("a.md", "hits", "\n| us |\n|---|\n\nMeasured on one GPU.\n"))), 1)
        self.assertEqual(list(checks.of_table("a.md", "hits", "\n| us |\n|---|\n| 4 |\n")), [])

    def test_functions_of_a_file_count_alone(self):
        self.write("bench/watch.cpp", "constexpr int rounds = 5, limit{3};\nint time(int x) {\n  if (x) { return 1; }\n  return 2;\n}\nint print(int x) { return x; }\n")
        self.write("bench/watch.py", "LIMIT = 3\ndef time(x):\n    return x\ndef show(x):\n    return x\n")
        paths = ("bench/watch.cpp#time,rounds", "bench/watch.py#time,LIMIT")
        before = [digests.of_code(path) for path in paths]
        self.assertNotIn("", before)
        for name, text in (("cpp", "constexpr int rounds = 5, limit{3};\nint time(int x) {  // as before\n  if (x) { return 1; }\n  return 2;\n}\nint print(long x) { return x + 1; }\n"),
                           ("py", "LIMIT = 3\ndef show(x):\n    return 2 * x\ndef time(x):\n    return x\n")):
            self.write(f"bench/watch.{name}", text)
        self.assertEqual([digests.of_code(path) for path in paths], before)
        self.write("bench/watch.cpp", "constexpr int rounds = 6, limit{3};\nint time(int x) {\n  if (x) { return 1; }\n  return 2;\n}\n")
        self.write("bench/watch.py", "LIMIT = 3\ndef time(x):\n    return 2 * x\n")
        for path, had in zip(paths, before):
            self.assertNotEqual(digests.of_code(path), had, path)

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

    def test_an_op_counts_with_the_parts_that_its_manifests_include(self):
        self.write("templates/gemm/mma.toml", 'include = ["common/tile.part.toml"]\n[default]\ntile = 1\n')
        self.write("templates/common/tile.part.toml", "[parameters]\ntile = [1]\n")
        before = digests.of_code("templates/gemm")
        self.write("templates/common/tile.part.toml", "[parameters]\ntile = [1, 2]\n")
        self.assertNotEqual(digests.of_code("templates/gemm"), before)

    def test_a_comment_behind_a_line_of_a_manifest_is_no_change(self):
        self.write("templates/gemm/op.toml", 'when = "a # b"   # not timed yet\n')
        before = digests.of_code("templates/gemm")
        self.write("templates/gemm/op.toml", 'when = "a # b"   # by counts\n')
        self.assertEqual(digests.of_code("templates/gemm"), before)
        self.write("templates/gemm/op.toml", 'when = "a # c"   # by counts\n')
        self.assertNotEqual(digests.of_code("templates/gemm"), before)


class Groups(unittest.TestCase):
    def test_groups_of_code_name_what_there_is(self):
        missing = [part for parts in digests.GROUPS.values() for part in parts if not part.endswith(".hpp") and not digests.of_code(part)]
        self.assertEqual(missing, [])


if __name__ == "__main__":
    unittest.main()
