#!/usr/bin/env python3
"""Tests that bench/restamp renews the digests of records exactly where the machine code is the same. See programs_test.py for what is needed."""
import hashlib
import json
import subprocess
import sys
import tomllib

import programs_test
from programs_test import CHUNKS, FACTOR, PROGRAM, ROOT, SCALE, ask

DEVICE_CLASS = "sm_90/mp132/l2_52428800/smem_232448/bus_5120"
BENCH = """#!/usr/bin/env bash
[[ $1 == --base && $2 == *build/cache/h100.kiln && $3 == --problems ]]
while read -r op problem; do
  for width in 1 2; do
    echo "{\\"bench\\":\\"throughput\\",\\"op\\":\\"$op\\",\\"problem\\":\\"$problem\\",\\"implementation\\":\\"chunks\\",\\"config\\":\\"threads=128 width=$width\\",\\"ns\\":1000}"
  done
done <"$4"
"""
UNUSED = "__device__ float halved(float x) { return x / 2; }\n"


def digest_of(*fields):
    """SHA-256 of fields, each after its length, numbers as 8 bytes."""
    parts = [field.to_bytes(8, "little") if isinstance(field, int) else field.encode() for field in fields]
    return hashlib.sha256(b"".join(len(part).to_bytes(8, "little") + part for part in parts)).hexdigest()


class Fixture(programs_test.Trees):
    def setUp(self):
        super().setUp()
        self.old = self.tree("old")
        self.records = self.root / "h100.jsonl"
        self.lists = self.root / "lists"
        self.write(["threads=128 width=1", "threads=128 width=2"])

    def write(self, configs, tree=None):
        """Two records of scale, as current at a tree. The first has a choice for each config, for equal intervals, the second one alone."""
        rows = [{"op": "scale", "problem": f"n={edge} dtype=f32 sign=plus", "device_class": DEVICE_CLASS, "implementation": "chunks", "config": config,
                 "sizes": f"n={edge // 2 + at * edge // 2 // len(some) + 1}..{edge // 2 + (at + 1) * edge // 2 // len(some)}"}
                for edge, some in ((1024, configs), (2048, configs[:1])) for at, config in enumerate(some)]
        answers = ask(rows, "--tree", tree or self.old)
        records = {}
        for row, answer in zip(rows, answers):
            record = records.setdefault(row["problem"], {"key": f"scale@1 | {row['problem']}", **{name: row[name] for name in ("op", "device_class")},
                                                         "bucket": row["problem"], "choices": []})
            record["choices"].append({"role": "fastest", **{name: row[name] for name in ("sizes", "implementation", "config")}, "source_digest": answer["source"]})
        # Unlike any JSON of Python's, to see that nothing is written anew.
        self.records.write_text("".join(json.dumps(each, separators=(",", ":")).replace('"role"', '"cost_ns":12.50,"role"') + "\n" for each in records.values()))

    def restamp(self, new, *options, status=0, old=None):
        command = [sys.executable, ROOT / "bench/restamp", old or self.old, new, self.records, "--lists", self.lists, "--programs", PROGRAM, *options]
        ran = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(ran.returncode, status, ran.stdout + ran.stderr)
        return ran.stdout + ran.stderr

    def assert_current(self, new):
        """The records differ from those of `new` in nothing."""
        renewed = self.records.read_text()
        self.write([choice["config"] for choice in json.loads(renewed.split("\n", 1)[0])["choices"]], new)
        self.assertEqual(renewed, self.records.read_text())

    def assert_kept(self, before):
        self.assertEqual(self.records.read_text(), before)


class Restamp(Fixture):
    def test_records_of_the_present_sources_are_current(self):
        before = self.records.read_text()
        self.assertIn("2 records: 2 were current, 0 renewed", self.restamp(self.old))
        self.assert_kept(before)

    def test_a_moved_folder_takes_no_compile(self):
        said = self.restamp(self.tree("elsewhere"))
        self.assertNotIn("compiled", said)
        self.assertIn("2 were current", said)

    def test_a_comment_takes_no_compile(self):
        before = self.records.read_text()
        said = self.restamp(self.tree("new", factor="// Twice.\n" + FACTOR))
        self.assertNotIn("compiled", said)
        self.assertIn("2 were current", said)
        self.assert_kept(before)

    def test_digests_over_text_are_renewed_without_a_compile(self):
        """Those that earlier versions of Kiln stored: of the files in the order in which they are included, and of the name expressions."""
        present = self.records.read_text()
        files = [field for name, text in (("scale.cuh", SCALE), ("common/parts/factor.cuh", FACTOR)) for field in (name, text)]
        names = {width: f"scale<float, 128, {width}>" for width in (1, 2)}
        by_text = {width: digest_of("source", 2, *files, 1, name) for width, name in names.items()}
        lines = [json.loads(line) for line in present.splitlines()]
        text = present
        for choice in (choice for line in lines for choice in line["choices"]):
            text = text.replace(choice["source_digest"], by_text[int(choice["config"][-1])])
        self.records.write_text(text)
        said = self.restamp(self.old)
        self.assertNotIn("compiled", said)
        self.assertIn("2 renewed; choices: 3 by equal sources", said)
        self.assert_kept(present)

    def test_names_and_unused_functions_renew_by_equal_ptx(self):
        new = self.tree("new", scale=SCALE.replace("first", "begin"), factor=FACTOR + UNUSED)
        said = self.restamp(new)
        self.assertIn("2 records: 0 were current, 2 renewed; choices: 3 by equal PTX", said)
        self.assertNotIn("--code", said)
        self.assert_current(new)

    def test_a_parameter_that_moves_renews_by_equal_machine_code(self):
        moved = SCALE.replace("scale(const T* x, T* y, long long n)", "scale(long long n, const T* x, T* y)")
        new = self.tree("new", scale=moved)
        self.assertIn("2 renewed; choices: 3 by equal machine code", self.restamp(new))
        self.assert_current(new)

    def test_kernels_in_another_order_renew_by_equal_machine_code(self):
        second = """[[pass]]
kernel = "NAME<{dtype}>"
grid = ["1"]
block = ["1"]
args = ["y"]
"""
        kernel = "template <typename T>\n__global__ void NAME(T* y) { y[0] += 1; }\n"
        trees = [self.tree(name, scale=SCALE + kernel.replace("NAME", name), chunks=CHUNKS + second.replace("NAME", name)) for name in ("after", "zero")]
        self.write(["threads=128 width=1"], trees[0])
        self.assertIn("2 renewed; choices: 2 by equal machine code", self.restamp(trees[1], old=trees[0]))

    def test_a_dry_run_writes_nothing(self):
        before = self.records.read_text()
        self.assertIn("2 renewed", self.restamp(self.tree("new", factor=FACTOR + UNUSED), "--dry-run"))
        self.assert_kept(before)

    def test_records_that_were_stale_stay_and_are_said(self):
        before = self.records.read_text()
        other = self.tree("other", factor=FACTOR.replace("3", "7"))
        said = self.restamp(self.tree("new", factor=FACTOR + UNUSED), old=other, status=1)
        self.assertIn("2 were stale at OLD and stay so", said)
        self.assert_kept(before)

    def test_a_config_that_is_gone_must_be_tuned(self):
        before = self.records.read_text()
        said = self.restamp(self.tree("new", chunks=CHUNKS.replace("[128, 256]", "[256]").replace("threads = 128", "threads = 256")), status=1)
        self.assertIn("2 must be tuned", said)
        self.assertIn("outside of the declared space", said)
        listed = tomllib.loads((self.lists / "tune-h100.toml").read_text())["workload"]
        self.assertEqual(listed, [{"op": "scale", "axes": {"n": n}, "types": {"dtype": "f32", "sign": "plus"}} for n in (1024, 2048)])
        self.assert_kept(before)

    def test_an_option_of_the_assembler_alone_is_no_equal_ptx(self):
        new = self.tree("new", chunks='options = ["--maxrregcount=32"]\n' + CHUNKS, factor=FACTOR + UNUSED)
        self.assertIn("2 renewed; choices: 3 by equal machine code", self.restamp(new))


class Canary(Fixture):
    """Of a constant that became another one: other code, with the same registers."""

    def setUp(self):
        super().setUp()
        self.new = self.tree("new", factor=FACTOR.replace("3", "5"))
        self.before = self.records.read_text()

    def times(self, ratio, problems=("n=1024", "n=2048")):
        rows = self.root / "canary.jsonl"
        lines = [{"device": "h100", "side": side, "problem": f"{problem} dtype=f32 sign=plus", "implementation": "chunks", "config": config, "ns": ns}
                 for problem in ("n=768", *problems) for config in ("threads=128 width=1", "threads=128 width=2")
                 for side, ns in (("old", 1000), ("new", 1000 * ratio), ("new", 5000), ("new", 1000 * ratio))]
        rows.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return rows

    def test_records_wait_for_their_canary(self):
        self.assertIn("2 wait for a canary", self.restamp(self.new, status=1))
        listed = (self.lists / "canary-h100.txt").read_text().splitlines()
        self.assertEqual(len(listed), 2)
        self.assertIn("scale n=2048 dtype=f32 sign=plus", listed)
        self.assert_kept(self.before)

    def test_what_the_listed_commands_print_is_a_canary(self):
        self.restamp(self.new, status=1)
        builds = [self.root / name for name in ("old build", "new build")]
        for build in builds:  # of a bench that knows no GPU, and prints for either config
            (build / "bench").mkdir(parents=True)
            bench = build / "bench/bench_throughput"
            bench.write_text(BENCH)
            bench.chmod(0o755)
        printed = subprocess.run([self.lists / "canary.sh", "h100", *builds], capture_output=True, text=True, check=True).stdout
        self.assertEqual(len(printed.splitlines()), 3 * 2 * 2 * 2)
        rows = self.root / "canary.jsonl"
        rows.write_text(printed)
        self.assertIn("2 renewed; choices: 3 by a canary", self.restamp(self.new, "--canary", rows))

    def test_one_that_holds_renews_all(self):
        self.assertIn("2 renewed; choices: 3 by a canary", self.restamp(self.new, "--canary", self.times(1.009)))
        self.assert_current(self.new)

    def test_one_that_does_not_hold_leaves_all_to_be_tuned(self):
        self.assertIn("takes 1.020 of its old time", self.restamp(self.new, "--canary", self.times(1.02), status=1))
        self.assertEqual(len(tomllib.loads((self.lists / "tune-h100.toml").read_text())["workload"]), 2)
        self.assert_kept(self.before)

    def test_a_time_that_is_missing_holds_nothing(self):
        self.assertIn("no time of scale n=2048", self.restamp(self.new, "--canary", self.times(1, ("n=1024",)), status=1))
        self.assert_kept(self.before)


if __name__ == "__main__":
    programs_test.unittest.main()
