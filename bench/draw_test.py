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
        for words in (["draw.py", "12", "--models", "served"], ["draw_attention.py", "--models", "12"], ["draw_attention.py", "--models", "5", "--packed"]):
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

    def test_a_window_that_sees_all_keys_is_a_plain_causal_mask(self):
        mistral = next(each for each in models.read() if each.name.startswith("Mistral 7B"))
        self.assertIn("mask=causal", mistral.words(random.Random(1), 4096))
        self.assertIn("mask=window window_left=4095 window_right=0", mistral.words(random.Random(1), 4097))

    def test_ranks_share_what_a_team_computes(self):
        products, team = (drawn("draw.py", "30", "--models", "log", *words) for words in ([], ["--team", "4"]))
        for plain, shared in zip(products, team):
            one, own = sizes(plain), sizes(shared)
            gathers = shared.startswith("all_gather_gemm")
            self.assertEqual((own["n"], own["k"]), (one["n"] // 4, one["k"]) if gathers else (one["n"], one["k"] // 4))
            self.assertLessEqual(one["m"], own["rows"] * (1 if shared.startswith("gemm_all_reduce") else 4))


if __name__ == "__main__":
    unittest.main()
