"""Which units suit a text."""

from __future__ import annotations

import time

import pytest

from elman.text.units.guess import guess_units


@pytest.mark.parametrize(
    ("units", "text"),
    [
        ("word", 'The cat sat, and the dog ran. "Why?" she said.\nIt was late; nobody answered.\n'),
        ("space", 'the cat sat , and the dog ran . " why ? " she said .\nit was late ; nobody answered .\n'),
        ("space", "no it was n't black monday\nbut while the <unk> stock exchange did n't fall apart.\n"),
        ("space", "E5 E5 E22 E5 E11 E9 E11 E9\nE5 E22 E5 E5 E11\n"),
        ("space", "walk twice and jump\nturn left\n"),
        ("char", "emma\nolivia\nava\nisabella\nsophia\n"),
        ("char", "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。\n" * 3),
        ("char", "ACGTACGTTGCAACGTACGTTGCAACGTACGTTGCA\nTTGCAACGTACGTTGCAACGTACGT\n"),
    ],
)
def test_by_example(units, text):
    guess = guess_units(text.encode())
    assert guess.units == units
    assert guess.why


@pytest.mark.parametrize("piece", [".", "'a", "a.", "-", '")', "a'"])
def test_a_long_run_of_marks_among_words_is_no_trap(piece):
    """Words enough that patterns are looked for at all: one that tries every place in the run would take minutes."""
    text = "the cat sat, " * 2000 + piece * (1 << 15) + "\n"
    before = time.process_time()
    assert guess_units(text.encode()).units == "word"
    assert time.process_time() - before < 1
