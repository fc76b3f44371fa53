#!/usr/bin/env python3
"""Tests that bench_programs names the machine code that a row speaks of, and tells changes of code from changes of text. The program is named by
KILN_BENCH_PROGRAMS; kernels are compiled, so an NVRTC must be found."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = os.environ.get("KILN_BENCH_PROGRAMS", str(ROOT / "build/release/bench/bench_programs"))

OP = """[op]
summary = "y = factor x"
revision = 1
[axes]
n = { bucket = "pow2", max = 1048576 }
[types]
dtype = ["f32"]
[choices]
sign = ["plus", "minus"]
[tensors]
x = { shape = ["n"], dtype = "dtype", fill = "normal" }
y = { shape = ["n"], dtype = "dtype", output = true }
[tolerance]
f32 = { relative = 1e-6, absolute = 1e-6 }
[reference]
source = "scale.cuh"
[[reference.pass]]
kernel = "scale_reference<{dtype}>"
grid = ["1"]
block = ["1"]
args = ["x", "y", "n"]
[cost]
bytes = "8 * n"
flops = "n"
"""
CHUNKS = """source = "scale.cuh"
requires = "sm >= 80"
[parameters]
threads = [128, 256]
width = [1, 2]
[constraints]
all = ["threads * width <= 256"]
[default]
threads = 128
width = 1
[[pass]]
kernel = "scale<{dtype}, {threads}, {width}>"
grid = ["ceil_div(n, threads * width)"]
block = ["threads"]
args = ["x", "y", "n"]
"""
SCALE = """#include "common/parts/factor.cuh"
template <typename T>
__global__ void scale_reference(const T* x, float* y, long long n) {
  for (long long i = 0; i < n; ++i) y[i] = factor * x[i];
}
template <typename T, int Threads, int Width>
__global__ __launch_bounds__(Threads) void scale(const T* x, T* y, long long n) {
  __shared__ T kept[Threads];
  const long long first = (blockIdx.x * static_cast<long long>(Threads) + threadIdx.x) * Width;
  kept[threadIdx.x] = first < n ? x[first] : T(0);
  __syncthreads();
  for (int i = 0; i < Width && first + i < n; ++i) y[first + i] = factor * x[first + i] + kept[Threads - 1 - threadIdx.x];
}
"""
FACTOR = "// What all kernels multiply by.\n#pragma once\nconstexpr float factor = 3;\n"
ROW = {"op": "scale", "problem": "n=1000", "implementation": "chunks", "config": "threads=128"}


def ask(rows, *options):
    """Returns what the program answers, a dictionary for each row."""
    ran = subprocess.run([PROGRAM, *map(str, options)], input="".join(json.dumps(row) + "\n" for row in rows), capture_output=True, text=True, check=True)
    return [json.loads(line) for line in ran.stdout.splitlines()]


class Rows(unittest.TestCase):
    """Without a compile."""

    @classmethod
    def setUpClass(cls):
        cls.rows = {}
        for line in (ROOT / "cache/h100.jsonl").read_text().splitlines():
            record = json.loads(line)
            for choice in record["choices"]:
                row = {"op": record["op"], "problem": record["bucket"], "device_class": record["device_class"],
                       **{name: choice[name] for name in ("implementation", "config", "sizes", "source_digest")}}
                cls.rows.setdefault((record["op"], choice["implementation"]), row)

    def test_choices_that_ship_are_current(self):
        for answer in ask(self.rows.values()):
            self.assertTrue(answer.get("current"), answer)

    def test_a_tree_of_the_same_checkout_is_what_is_built_in(self):
        self.assertEqual(ask(self.rows.values(), "--tree", ROOT), ask(self.rows.values()))

    def test_a_device_by_its_name_has_the_class_of_the_records_that_ship(self):
        for name in ("h100", "h200"):
            record = json.loads((ROOT / f"cache/{name}.jsonl").read_text().split("\n", 1)[0])
            row = {"op": record["op"], "problem": record["bucket"], **{field: record["choices"][0][field] for field in ("implementation", "config", "sizes")}}
            self.assertEqual(ask([row], "--device", name)[0]["device_class"], record["device_class"])

    def test_a_row_of_a_library_has_a_digest_and_no_kernels(self):
        answer, = ask([self.rows["gemm", "cublaslt"]])
        self.assertEqual((answer["names"], answer["options"]), ([], []))
        self.assertRegex(answer["library"], "^cublaslt: a=")


class Trees(unittest.TestCase):
    """Checkouts with one small op."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def tree(self, name="tree", op=OP, chunks=CHUNKS, scale=SCALE, factor=FACTOR):
        for path, text in (("scale/op.toml", op), ("scale/chunks.toml", chunks), ("scale/scale.cuh", scale), ("common/parts/factor.cuh", factor)):
            file = self.root / name / "templates" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return self.root / name


class Code(Trees):
    def error(self, **changed):
        answer, = ask([{**ROW, **changed}], "--tree", self.tree())
        self.assertNotIn("source", answer)
        return answer["error"]

    def test_a_parameter_that_the_row_lacks_has_its_default(self):
        lacking, whole = ask([ROW, {**ROW, "config": "threads=128 width=1"}], "--tree", self.tree())
        self.assertEqual(lacking, whole)

    def test_a_digest_of_other_sources_is_not_current(self):
        source = ask([ROW], "--tree", self.tree())[0]["source"]
        own, other = ask([{**ROW, "source_digest": source}, {**ROW, "source_digest": "0" * 64}], "--tree", self.tree())
        self.assertEqual((own["current"], other["current"]), (True, False))

    def test_further_fields_come_back(self):
        answer, = ask([{**ROW, "ns": 12.5, "asked": {"n": 1000}}], "--tree", self.tree())
        self.assertEqual(answer["id"], {"ns": 12.5, "asked": {"n": 1000}})

    def test_what_a_row_speaks_of_must_exist(self):
        self.assertIn("there is no op", self.error(op="scales"))
        self.assertIn("no implementation 'rows'", self.error(implementation="rows"))
        self.assertIn("outside of the declared space", self.error(config="threads=128 stages=2"))
        self.assertIn("outside of the declared space", self.error(config="threads=512"))
        self.assertIn("breaks the constraint", self.error(config="threads=256 width=2"))
        self.assertIn("'m'", self.error(problem="m=1000"))
        self.assertIn("does not parse", self.error(device_class="an H100"))

    def test_headers_of_a_tree_hide_those_of_the_library(self):
        tree = self.root / "copy"
        shutil.copytree(ROOT / "templates", tree / "templates")
        row = {"op": "gemm", "problem": "m=64 n=4096 k=4096", "implementation": "mma", "config": "tile_m=16 tile_n=64 tile_k=128"}
        before, = ask([row], "--tree", tree)
        for header in ("common/types.cuh", "common/gemm/operand_tile.cuh"):
            with self.subTest(header):
                file = tree / "templates" / header
                file.write_text(file.read_text() + "constexpr int spare = 77;\n")
                after, = ask([row], "--tree", tree)
                self.assertNotEqual(after["source"], before["source"])
                before = after

    def test_parts_of_a_tree_hide_those_of_the_library(self):
        tree = self.root / "parts"
        shutil.copytree(ROOT / "templates", tree / "templates")
        manifest = tree / "templates/gemm/mma.toml"
        manifest.write_text(manifest.read_text().replace("include  = [", 'include  = ["common/spare.part.toml", ', 1))
        row = {"op": "gemm", "problem": "m=64 n=4096 k=4096", "implementation": "mma", "config": "tile_m=16 tile_n=64 tile_k=128"}
        for part, error in (("", "no part 'common/spare.part.toml'"), ("[constraints]\nall = [\"tile_m > 16\"]\n", "breaks the constraint 'tile_m > 16'")):
            with self.subTest(part):
                if part:
                    (tree / "templates/common/spare.part.toml").write_text(part)
                answer, = ask([row], "--tree", tree)
                self.assertIn(error, answer.get("error", ""))

    def test_an_op_of_the_library_is_none_of_a_tree_without_it(self):
        answer, = ask([{**ROW, "op": "gemm"}], "--tree", self.tree())
        self.assertIn("there is no op 'gemm'", answer["error"])

    def test_ops_of_folders_are_found(self):
        answer, = ask([{"op": "segment_sum", "problem": "rows=16 groups=4 cols=64 checked=all", "implementation": "blocks", "config": "threads=128 pdl=0"}],
                      "--templates", ROOT / "tests/ops")
        self.assertEqual(answer["names"], ["segment_sum<128>"])

    def code(self, **changed):
        answer, = ask([ROW], "--tree", self.tree("changed", **changed), "--code")
        self.assertNotIn("error", answer)
        return answer

    def test_changes_of_text_and_of_code_are_told_apart(self):
        as_it_was = self.code()
        self.assertEqual([set(each) for each in as_it_was["functions"]], [{"registers", "spills", "code"}])
        with self.subTest("names, and what no kernel uses, are no change of the PTX"):
            text = self.code(scale=SCALE.replace("kept", "held").replace("first", "begin"),
                             factor=FACTOR + "template <int N> struct Twice { static constexpr int value = 2 * N; };\n"
                                             "static_assert(Twice<2>::value == 4);\n__device__ float halved(float x) { return x / 2; }\n")
            self.assertNotEqual(text["source"], as_it_was["source"])
            self.assertEqual((text["ptx"], text["code"]), (as_it_was["ptx"], as_it_was["code"]))
        with self.subTest("a parameter that moves is a change of the PTX alone"):
            moved = self.code(scale=SCALE.replace("scale(const T* x, T* y, long long n)", "scale(long long n, const T* x, T* y)"))
            self.assertNotEqual(moved["ptx"], as_it_was["ptx"])
            self.assertEqual((moved["code"], moved["functions"]), (as_it_was["code"], as_it_was["functions"]))
        with self.subTest("a parameter that moves to where an indexed load begins to count is one of the PTX alone"):
            tables = lambda parameters: self.code(scale=SCALE.replace("scale(const T* x, T* y, long long n)", f"scale({parameters}, const __grid_constant__ Tables tables, int count)").replace(
                "template <typename T>", "struct Tables {\n  float* at[8];\n};\ntemplate <typename T>", 1).rstrip("}\n") + ";\n  *tables.at[count + static_cast<int>(threadIdx.x) - 1] = factor;\n}\n")
            one, other = tables("const T* x, T* y, long long n"), tables("long long n, const T* x, T* y")
            self.assertNotEqual(one["ptx"], other["ptx"])
            self.assertEqual(one["code"], other["code"])
        with self.subTest("a constant is a change of the code"):
            self.assertNotEqual(self.code(factor=FACTOR.replace("3", "5"))["code"], as_it_was["code"])

    def test_the_ptx_alone_is_that_of_a_whole_compile(self):
        answer, = ask([ROW], "--tree", self.tree(), "--ptx")
        self.assertEqual(answer["ptx"], self.code()["ptx"])

    def test_options_of_a_manifest_are_said(self):
        fast, = ask([ROW], "--tree", self.tree(chunks='options = ["--use_fast_math"]\n' + CHUNKS))
        self.assertEqual(fast["options"], ["--std=c++20", "--gpu-architecture=sm_90a", "--use_fast_math"])

    def test_a_compile_that_fails_is_an_answer(self):
        answer, other = ask([ROW, {**ROW, "op": "none"}], "--tree", self.tree(scale=SCALE.replace("first", "1 first", 1)), "--ptx")
        self.assertIn("scale.cuh", answer["error"])
        self.assertIn("source", answer)
        self.assertIn("error", other)


if __name__ == "__main__":
    unittest.main()
