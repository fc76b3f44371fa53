#!/usr/bin/env python3
"""Tests that tables pair the rows that belong together."""
import pathlib
import unittest
from unittest import mock

from evidence import attention, face, products, summary, team, torch_ops, turns
from evidence.claim import Claim
from evidence.table import Reader


class Tables(unittest.TestCase):
    """Rows made here; a file that is not among them is absent."""
    GATHER, SCATTER = "all_gather_gemm rows=4096 k=8192 n=1536 dtype=bf16", "gemm_reduce_scatter rows=4096 k=1536 n=8192 dtype=bf16 ranks=alike"

    @staticmethod
    def table(name, **files):
        """The cells below the head of the table, whose files are named without folder and ending."""
        show = (team.TABLES | attention.TABLES | turns.TABLES)[name]
        text = show(lambda path: files.get(pathlib.PurePath(path).stem, []))
        return [line.strip("| ").split(" | ") for line in text.splitlines()[2:]]

    @staticmethod
    def reader(mark="", **files):
        """Reads these files, as `table` does, and ends each figure with the mark."""
        def read(path):
            return files.get(pathlib.PurePath(path).stem, [])
        read.figure = lambda told: text + mark if (text := told(read)) else ""
        return read

    @staticmethod
    def op(asked, ns, **more):
        return {"asked": asked, "world": 2, "implementation": "fused", "ns": ns, "replayed_ns": ns, "host_us": 5.0, **more}

    @staticmethod
    def peer(asked, peer, ns, right=True, **more):
        return {"asked": asked, "peer": peer, "right": right, "ns": ns, "host_us": 100.0, **more}

    def test_tables_of_absent_files_are_empty(self):
        for name in ("team_ops", "team_ops4", "team_skew", "team_parts", "attention_models", "turns_log", "turns_extras", "turns_extras_backward"):
            self.assertEqual(self.table(name), [], name)

    def test_ops_of_four_ranks_are_not_those_of_two(self):
        files = {"team": [self.op(self.GATHER, 9000)], "team4": [self.op(self.GATHER, 2000), {"asked": self.SCATTER, "error": "no answer"}],
                 "team4_peers": [self.peer(self.GATHER, "nccl", 3000), self.peer(self.GATHER, "fused", 1000, right=False)]}
        self.assertEqual(self.table("team_ops4", **files), [[self.GATHER, "2.0", "1.50", "-", "5.0", "100", "-", "1.00"]])
        self.assertIn("of each of four ranks", team.TABLES["team_ops4"](lambda path: files.get(pathlib.PurePath(path).stem, [])))

    def test_a_problem_that_a_later_run_compared_again_counts_by_that_run(self):
        few = "all_reduce rows=256 cols=8192 dtype=bf16"
        files = {"team4": [self.op(self.GATHER, 2000), self.op(few, 3000)], "team4_peers": [self.peer(self.GATHER, "nccl", 3000), self.peer(few, "nccl", 2000)]}
        def told():
            return summary.team(lambda path: files.get(pathlib.PurePath(path).stem, []), "team4", "nccl")
        self.assertIn("1 of 2", told())
        files |= {"team4_few": [self.op(few, 1000)], "team4_few_peers": [self.peer(few, "nccl", 2000)]}
        self.assertEqual(told(), "")  # slower at none
        files |= {"team4_again": [self.op(self.GATHER, 4000)], "team4_again_peers": [self.peer(self.GATHER, "nccl", 3000)]}
        self.assertIn("1 of 2", told())
        files |= {"team8": [self.op(self.GATHER, 3000)], "team8_peers": [self.peer(self.GATHER, "nccl", 1000)]}
        both = summary.team(lambda path: files.get(pathlib.PurePath(path).stem, []), {"four": "team4", "eight": "team8"}, "nccl")
        self.assertIn("2 of 3", both)
        self.assertIn("of eight", both)

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

    def test_the_fastest_right_peer_is_the_peer(self):
        asked = "batch=2 queries=100 keys=100 heads=8 key_heads=2 head_dim=64 value_dim=64 mask=window window_left=9 window_right=0"
        ways = {"kiln": {"right": True, "ns": 2000}, "flash3": {"right": True, "ns": 3000}, "flash4": {"right": False}, "cudnn": {"right": True, "ns": 1800}}
        rows = self.table("turns_log", attention_turns_log=[{"asked": asked, "remark": "A model, log", "ways": ways},
                                                            {"asked": asked, "remark": "Another, log", "ways": {**ways, "kiln": {"reason": "no answer"}}}])
        model = ["2", "100", "8 of 2", "64", "window of 10"]
        self.assertEqual(rows[:2], [["A model", *model, "2.0", "1.50", "-", "0.90", "0.90"], ["Another", *model, "no answer", "-", "-", "-", "-"]])
        self.assertEqual((len(rows), rows[2][-1]), (3, "0.90"))

    def test_pages_in_e4m3_stand_beside_flashinfer_once_it_was_timed(self):
        asked = "batch=1 queries=100 keys=100 heads=8 key_heads=2 head_dim=64 value_dim=64 mask=causal page_size=16 lengths=100 key_lengths=100"
        ways = {"kiln": {"right": True, "ns": 2000}, "bf16": {"right": True, "ns": 1000}, "flashinfer": {"reason": "not installed"}}
        files = {"attention_paged_e4m3": [{"asked": asked, "remark": "A model, served", "ways": ways}]}
        row = ["A model", "1", "100", "8 of 2", "64", "causal", "2.0", "0.50"]
        mean = ["geometric mean", *[""] * 6, "0.50"]
        self.assertEqual(self.table("turns_paged_e4m3", **files), [row, mean])
        files["attention_paged_e4m3"].append({"asked": asked, "remark": "Another, served", "ways": ways | {"flashinfer": {"right": True, "ns": 800}}})
        self.assertEqual(self.table("turns_paged_e4m3", **files), [[*row, "-"], ["Another", *row[1:], "0.40"], [*mean, "0.40"]])
        self.assertEqual(face.paged_e4m3(self.reader(**files)), "2.00 times as long, 2.00 times at worst,")  # as over pages in bf16

    def test_forward_and_backward_with_a_soft_cap_or_sinks_have_a_table_each(self):
        sizes = "batch=1 queries=5000 keys=5000 heads=16 key_heads=8 head_dim=256 value_dim=256"
        masks = ("mask=causal soft_cap=tanh cap=50", "mask=window window_left=127 window_right=0 sinks=head")
        ways = {"kiln": {"right": True, "ns": 2000}, "flash3": {"right": True, "ns": 3000}, "flash4": {"right": True, "ns": 4000}}
        of = {masks[0]: ways, masks[1]: ways | {"flash3": {"reason": "no sinks"}}}
        rows = [{"op": f"attention_{op}", "asked": f"{sizes} {mask}", "remark": f"A model, {op}", "ways": of[mask]} for op in ("forward", "backward") for mask in masks]
        size = ["1", "5000", "16 of 8", "256"]
        self.assertEqual(self.table("turns_extras", attention_extras=rows),
                         [["A model, forward", *size, "causal, soft cap of 50", "2.0", "1.50", "2.00", "1.50"],
                          ["A model, forward", *size, "window of 128, sinks", "2.0", "-", "2.00", "2.00"],
                          ["geometric mean", *[""] * 6, "1.50", "2.00", "1.73"]])
        for row in rows:
            row["ways"] = {"kiln": row["ways"]["kiln"], "flash4": row["ways"]["flash4"]}
        rows[2]["ways"]["kiln"] = {"right": False}
        self.assertEqual(self.table("turns_extras_backward", attention_extras=rows),
                         [["A model, backward", *size, "causal, soft cap of 50", "no answer", "-"],
                          ["A model, backward", *size, "window of 128, sinks", "2.0", "2.00"], ["geometric mean", *[""] * 6, "2.00"]])

    def test_the_sentences_on_torch_name_who_takes_less_time(self):
        routes = {"kiln.torch": 11, "torch": 12, "kiln.torch, forward and backward": 20, "torch, forward and backward": 19, "Triton": 1,
                  "kiln.torch, torch.compile": 100, "torch, torch.compile": 101}
        graphs = [{"rows": 1, "us": 50, "padded_us": 60, "exact_us": 20, "equal": True}, {"rows": 8192, "us": 70, "padded_us": 60, "exact_us": 80, "equal": True}]
        files = {"host": [{"route": route, "us": us} for route, us in routes.items()], "length_graph": graphs}
        read = lambda path: files.get(pathlib.PurePath(path).stem, [])
        self.assertEqual(torch_ops.host_winners(read), "`kiln.torch` takes less time for a call. Torch takes less time for both passes in eager mode. Both take the same time, within 3 %, for a compiled call.")
        self.assertEqual(torch_ops.length_winners(read), "Kiln's graph takes less time than torch's of all rows at 1 of 2 lengths. It takes less than a graph of the length itself only at 8,192 rows.")
        self.assertEqual(torch_ops.length_ratios(read), [0.4, 80 / 70])
        llama = {"eager": (1.0, 5.0, 9.0), "Kiln, prewarmed": (0.5, 4.0, 8.0), "Kiln, records": (3.0, 6.0, 9.0)}  # the last a tie
        rows = [{"contender": name, "train": False, "batches": count, "seconds": each} for name, times in llama.items() for count, each in zip((1, 10, 1000), times)]
        for contender, leads in (("Kiln, prewarmed", "at no count of batches"), ("Kiln, records", "at 1 to 10 batches")):
            self.assertEqual(torch_ops.eager_leads(contender)(self.reader(llama=rows)), leads)
        of = lambda name, times, end: [{"contender": name, "train": False, "batches": count, "seconds": each, "of_batches": 1000} for count, each in (*zip((1, 10, 100), times), end) if each]
        rows = [*of("eager", (1, 2, 3), (150, 4)), *of("Kiln, records", (2, 1, None), (70, 4))]  # each ended by its limit
        self.assertEqual(torch_ops.eager_leads("Kiln, records")(self.reader(llama=rows)), "at 1 and 100 batches")

    @staticmethod
    def ran(contender, seconds, batches=1000):
        """The rows of a contender of the Llama contest, that of its last batch twice."""
        common = {"contender": contender, "train": False}
        end = {"end": True, "batches": batches, "of_batches": 1000, "second_half_ms": 2.0, "second_half_tokens": 400_000, "device": "NVIDIA H200"}
        rows = [{"batches": count, "seconds": each} for count, each in zip((1, 100, batches), seconds)]
        return [common | row for row in (*rows, rows[-1] | end)]

    def test_the_contest_shows_contenders_that_ran_all_batches_the_fastest_first(self):
        files = {"llama": [*self.ran("torch.compile", (16, 17.04, 24.17)), *self.ran("liger", (1, 2, 3), batches=175), *self.ran("Kiln, prewarmed", (0.2161, 1.2, 6.4))]}
        text = torch_ops.contest(self.reader(" †", **files))
        self.assertIn("one H200", text.splitlines()[0])
        self.assertEqual(text.splitlines()[2:], ["| Kiln, a prewarmed file † | 0.216 s | 1.20 s | 6.40 s | 400,000 |", "| `torch.compile` † | 16.0 s | 17.0 s | 24.2 s | 400,000 |"])
        self.assertEqual(torch_ops.contest(self.reader()), "")
        files = {"llama": self.ran("Kiln, prewarmed", (0.2, 1.2, 6.4)), "llama_peers": self.ran("eager", (1, 2, 3))}
        self.assertEqual([line.split(" | ")[0] for line in torch_ops.contest(self.reader(**files)).splitlines()[2:]], ["| eager torch", "| Kiln, a prewarmed file"])

    def test_a_contender_that_ran_more_than_once_shows_medians(self):
        runs = [*self.ran("Kiln, prewarmed", (0.2, 1.3, 6.0)), *self.ran("Kiln, prewarmed", (0.4, 1.2, 9.0)), *self.ran("Kiln, prewarmed", (0.3, 1.1, 7.5))]
        files = {"llama": runs, "llama_peers": self.ran("eager", (1, 2, 8)) * 3}
        rows = torch_ops.contest(self.reader(**files)).splitlines()[2:]
        self.assertEqual(rows, ["| Kiln, a prewarmed file | 0.300 s | 1.20 s | 7.50 s | 400,000 |", "| eager torch | 1.00 s | 2.00 s | 8.00 s | 400,000 |"])
        self.assertEqual(torch_ops.contest_runs(self.reader(**files)),
                         "3 times, and the table has medians. Times of 1,000 batches differed by up to 50%, most for Kiln, a prewarmed file")
        for row, ms in zip((row for row in runs if "second_half_ms" in row), (1.0, 2.5, 4.0)):
            row["second_half_ms"] = ms
        self.assertIn("| 7.50 s | 320,000 |", torch_ops.contest(self.reader(llama=runs)))
        ended = [{**row, "batches": 1, "of_batches": 1000} for row in self.ran("torch.compile", (30,))] * 2
        self.assertEqual([len(run) for run in torch_ops.runs_of(ended)], [2, 2])
        self.assertEqual([torch_ops.contest_runs(self.reader(llama=each)) for each in ([], self.ran("eager", (1, 2, 8)))], ["", "once"])

    def test_each_row_of_the_contest_counts_as_a_figure_of_readme(self):
        reader = Reader()
        rows = torch_ops.contest(reader).splitlines()[2:]
        self.assertEqual(len(reader.figures), len(rows))
        self.assertIn("Kiln, the package of `scripts/build-records`", "".join(rows))

    def test_the_host_s_cost_leaves_out_a_route_that_was_not_timed(self):
        reader = self.reader(" †", host=[{"route": "kiln.torch", "us": 14.41}, {"route": "torch", "us": 16.68}])
        self.assertEqual([torch_ops.host_costs(torch_ops.HOST[name])(reader) for name in ("host_python", "host_python_given")], ["14.4 us with `kiln.torch` and 16.7 us with torch's op †", ""])

    def test_a_check_that_the_table_does_not_show_is_an_error(self):
        with self.assertRaisesRegex(ValueError, "no line for the check of a later day"):
            torch_ops.torch_checks(lambda path: [{"check": "of a later day", "case": "all", "ok": True}])

    def test_grouped_products_stand_beside_their_faster_peer(self):
        size = {"groups": 8, "m": 16, "n": 32, "k": 64}
        ours = [{"op": "gemm_grouped", "ns": 100, "asked": "m=16 n=32 k=64 groups=8"}, {"op": "gemm", "ns": 1, "asked": "m=16 n=32 k=64"}]
        peers = [{"op": "gemm_grouped", "peer": peer, "ns": ns, "right": right, **size} for peer, ns, right in (("grouped", 120, True), ("loop", 90, True), ("loop", 10, False))]
        read = lambda path: peers if path.endswith("peers.json") else ours
        self.assertEqual(products.grouped_ratios(read), [0.9])

    def test_decode_stands_beside_a_plain_read(self):
        paged, dense = "batch=8 keys=4096 queries=1 layout=paged page_size=64", "batch=8 keys=65536 queries=1 layout=contiguous"
        timed = [{"asked": paged, "ns": 1000, "bytes": 1e8}, {"asked": dense, "ns": 1000, "bytes": 1e8}]
        files = {"decode": timed, "decode_peers": [{"peer": "read", "asked": asked, "ns": 900} for asked in (paged, dense)]}
        self.assertEqual(face.of_decode(lambda path: files.get(pathlib.PurePath(path).stem, [])), "2 | 0.90 x as fast | 0.90 x")
        self.assertEqual(face.of_decode(lambda path: []), "")

    def test_readme_lists_where_kiln_s_median_is_the_longer_one(self):
        lines = [(what, "a peer", lambda read, found=found: summary.slower_by(found)) for what, found in (("loses", [0.9, 0.95, 3]), ("wins", [0.9, 1.2, 3]), ("wins all", [2]))]
        with mock.patch.object(face, "LOSSES", lines):
            read = Reader()
            self.assertEqual(face.losses(read).splitlines()[2:], ["| loses | a peer | 2 of 3 | 5% longer | 11% longer |"])
            self.assertEqual(len(read.figures), 1)
            self.assertIn("| 2 of 3 † |", face.losses(self.reader(" †")))  # a mark hides no loss

    def test_a_claim_s_folder_names_its_gpu(self):
        self.assertEqual([summary.chip(folder) for folder in (summary.STREAM, summary.COLD_START, summary.FIRST_BATCHES)],
                         [next(chip for chip in ("H100", "H200") if chip in run.machine) for folder in (summary.STREAM, summary.COLD_START, summary.FIRST_BATCHES)
                          for run in Claim.read(folder).run[:1]])

    def test_problems_are_short_by_the_length_of_a_sequence(self):
        problem = "batch=17 queries={} keys=951 heads=8 key_heads=8 head_dim=64 value_dim=64{}"
        self.assertEqual([turns.is_short({"asked": problem.format(queries, "")}) for queries in (951, 1000)], [True, False])
        self.assertEqual([turns.is_masked({"asked": problem.format(951, mask)}) for mask in ("", " mask=none", " mask=causal", " mask=window")], [False, False, True, True])

    def test_slower_by_is_told_by_the_median(self):
        self.assertEqual(summary.slower_by([0.9, 0.95, 3]), "2 of 3 | 5% longer | 11% longer")
        self.assertEqual(summary.slower_by([1, 2]), "")


if __name__ == "__main__":
    unittest.main()
