"""Which units suit a text."""

from __future__ import annotations

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


def test_a_long_line_of_marks_is_no_trap():
    for piece in (b".", b"'a", b"a.", b"-", b'")'):
        guess_units(piece * (1 << 19) + b"\n")
