#!/usr/bin/env python3
"""Tests what bench/draw.py and bench/draw_attention.py draw of models, and what their table has. Needs no GPU and no build."""
import math
import pathlib
import random
import statistics
import subprocess
import sys
import unittest

BENCH = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(BENCH))
import models  # noqa: E402


def drawn(script, *words):
    ran = subprocess.run([sys.executable, BENCH / script, *words], capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL)
    return [line for line in ran.stdout.splitlines() if line and not line.startswith("#")]


def sizes(line):
    return {name: int(value) for name, value in (word.split("=") for word in line.split("#")[0].split() if "=" in word) if value.isdigit()}


class Table(unittest.TestCase):
    def test_there_are_twenty_models_each_with_its_source(self):
        table = models.read()
        self.assertEqual(len({each.name for each in table}), 20)
        for each in table:
            with self.subTest(each.name):
                self.assertRegex(each.source, r"^[\w-]+/[\w.-]+, ")
                self.assertEqual(each.heads % each.key_heads, 0)
                self.assertNotEqual(bool(each.longest), bool(each.tokens))
                self.assertTrue(all(n > 0 and k > 0 and n % 8 == 0 and k % 8 == 0 for _, n, k in each.products))

    def test_products_follow_from_the_configuration(self):
        [llama] = [each for each in models.read() if each.name == "Llama 3.1 8B"]
        self.assertEqual([(n, k) for _, n, k in llama.products], [(6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)])


class Draws(unittest.TestCase):
    def test_a_seed_gives_the_same_problems_and_another_one_others(self):
        for words in (["draw.py", "12", "--models", "served"], ["draw_attention.py", "--models", "12"], ["draw_attention.py", "--models", "5", "--packed"],
                      ["draw_attention.py", "--models", "8", "--extras"]):
            with self.subTest(words):
                once, again, other = (drawn(*words, "--seed", seed) for seed in ("7", "7", "8"))
                self.assertEqual(once, again)
                self.assertNotEqual(once, other)

    def test_as_many_problems_as_models_have_each_model_once(self):
        for lengths in models.DISTRIBUTIONS:
            names = [line.split("# ")[1].rsplit(",", 1)[0] for line in drawn("draw_attention.py", "--models", "20", "--lengths", lengths)]
            self.assertEqual(sorted(names), sorted(each.name for each in models.read()))

    def test_served_prompts_have_the_published_medians_and_most_decode_steps_are_small(self):
        draw = random.Random(1)
        [llama] = [each for each in models.read() if each.name == "Llama 3.1 8B"]
        prompts = [llama.length(draw, "served") for _ in range(4000)]
        self.assertAlmostEqual(math.log(statistics.median(prompts)), statistics.mean(map(math.log, models.PROMPTS)), delta=0.15)
        rows = [llama.rows(draw, "served") for _ in range(4000)]
        self.assertAlmostEqual(sum(each <= 20 for each in rows) / len(rows), 0.65 / 2, delta=0.03)

    def test_lengths_of_images_are_those_of_resolutions(self):
        clip = next(each for each in models.read() if each.name.startswith("CLIP"))
        draw = random.Random(2)
        self.assertEqual({clip.length(draw, "served") for _ in range(50)}, set(clip.tokens))
        self.assertTrue(all(257 <= clip.length(draw, "log") <= 577 for _ in range(50)))

    def test_packed_lengths_add_up_to_the_batch(self):
        for line in drawn("draw_attention.py", "--models", "14", "--packed", "--backward"):
            lengths = [int(each) for each in line.split("lengths=")[1].split()[0].split(",")]
            asked = sizes(line)
            self.assertEqual((asked["batch"], asked["queries"], asked["keys"]), (len(lengths), sum(lengths), sum(lengths)))

    def test_models_with_a_soft_cap_or_sinks_have_dense_problems_of_global_and_of_local_layers(self):
        table = {each.name: each for each in models.read(models.EXTRAS)}
        self.assertTrue(all(bool(each.soft_cap) != each.sinks for each in table.values()))
        for seed in map(str, range(20)):
            seen = set()
            for line in drawn("draw_attention.py", "--models", "8", "--extras", "--seed", seed):
                own, model = sizes(line), table[line.split("# ")[1].rsplit(",", 1)[0]]
                seen.add((model.name, "mask=window" in line))
                self.assertEqual(own.get("cap", 0), model.soft_cap, line)
                self.assertEqual([word in line for word in (" soft_cap=tanh", " sinks=head")], [bool(model.soft_cap), model.sinks])
                if "mask=window" in line:
                    self.assertEqual(own["window_left"], model.window - 1)
                    self.assertGreater(own["queries"], model.window)
            self.assertEqual(seen, {(name, is_local) for name in table for is_local in (False, True)})

    def test_packed_problems_of_models_with_a_soft_cap_or_sinks_are_of_each_model(self):
        lines = drawn("draw_attention.py", "--models", "4", "--extras", "--packed")
        self.assertEqual(sorted(line.split("# ")[1] for line in lines), sorted(f"{each.name}, served" for each in models.read(models.EXTRAS)))
        self.assertTrue(all(("soft_cap=tanh cap=50" in line) != ("sinks=head" in line) and "layout=packed" in line for line in lines))

    def test_paged_problems_have_no_soft_cap_and_no_sinks(self):
        ran = subprocess.run([sys.executable, BENCH / "draw_attention.py", "--models", "4", "--extras", "--paged"], capture_output=True, text=True, check=False)
        self.assertEqual(ran.returncode, 2)
        self.assertIn("--extras has no problems over pages", ran.stderr)

    def test_a_window_that_sees_all_keys_is_a_plain_causal_mask(self):
        mistral = next(each for each in models.read() if each.name.startswith("Mistral 7B"))
        self.assertIn("mask=causal", mistral.words(random.Random(1), 4096))
        self.assertIn("mask=window window_left=4095 window_right=0", mistral.words(random.Random(1), 4097))

    def test_ranks_share_what_a_team_computes(self):
        table = {each.name: each for each in models.read()}
        for ranks in (2, 4, 8):
            for line in drawn("draw.py", "60", "--models", "log", "--team", str(ranks)):
                with self.subTest(line, ranks=ranks):
                    own, remark = sizes(line), line.split("# ")[1]
                    model = next(each for name, each in table.items() if remark.startswith(name + " "))
                    gathers = line.startswith("all_gather_gemm")
                    whole = (own["n"] * ranks, own["k"]) if gathers else (own["n"], own["k"] * ranks)
                    self.assertIn(list(whole), [[n, k] for name, n, k in model.products if gathers != models.is_sum(name)])
                    self.assertEqual((own["n"] % 8, own["k"] % 8), (0, 0))
                    self.assertIn(line.split()[0], ("all_gather_gemm", "gemm_reduce_scatter", "gemm_all_reduce"))
                    sums = line.startswith("gemm_all_reduce")  # of all rows; the other two have a rank's
                    self.assertEqual(sums, -(-own["rows"] // (ranks if sums else 1)) < models.DIVIDED)
                    self.assertIn("ranks=alike", line)

    def test_few_rows_are_summed_and_many_are_divided_among_the_ranks(self):
        for ranks in (2, 4, 8):
            plain, shared = (drawn("draw.py", "60", "--models", "served", *words, "--seed", "3") for words in (["--team", "1"], ["--team", str(ranks)]))
            rows = [sizes(line)["rows"] for line in shared if line.startswith("gemm_all_reduce")]
            self.assertTrue(rows and all(each <= ranks * models.DIVIDED for each in rows))
            self.assertTrue(all(sizes(line)["rows"] >= models.DIVIDED for line in shared if line.startswith("gemm_reduce_scatter")))
            self.assertEqual(len(plain), len(shared))

    def test_collectives_are_those_between_products_or_of_shared_heads(self):
        table = {each.name: each for each in models.read()}
        seen = set()
        for ranks in (2, 4, 8):
            for line in drawn("draw.py", "100", "--models", "log", "--team", str(ranks), "--collectives"):
                with self.subTest(line, ranks=ranks):
                    op, own, model = line.split()[0], sizes(line), table[line.split("# ")[1].rsplit(",", 1)[0]]
                    seen.add(op)
                    if op == "all_to_all":
                        self.assertEqual((own["heads"], own["dim"], own["heads"] % ranks, bool(model.tokens)), (model.heads, model.head_dim, 0, True))
                    else:
                        self.assertEqual(own["cols"], model.hidden)
                        self.assertEqual(op == "all_reduce", -(-own["rows"] // (ranks if op == "all_reduce" else 1)) < models.DIVIDED)
        self.assertEqual(seen, {"all_reduce", "all_gather", "reduce_scatter", "all_to_all"})

    def test_collectives_need_a_team(self):
        ran = subprocess.run([sys.executable, BENCH / "draw.py", "5", "--models", "log", "--collectives"], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        self.assertEqual(ran.returncode, 2)
        self.assertIn("--collectives needs --models and --team", ran.stderr)


if __name__ == "__main__":
    unittest.main()
