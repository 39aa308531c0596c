"""Byte strings as numbers."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from elman.text.units.chunks import LINE_END, ChunkTable, cut_at_spaces, cut_at_whitespace, join_chunks

pieces = st.lists(st.binary(min_size=0, max_size=40).map(lambda piece: piece.replace(b"\0", b"x")), max_size=60)


@given(st.lists(pieces, min_size=1, max_size=4))
def test_numbers_are_those_of_a_dictionary(blocks):
    """Short, medium and long pieces, new ones and known ones, in any order."""
    table, numbers = ChunkTable(), {}
    for block in blocks:
        expected = [numbers.setdefault(piece, len(numbers)) for piece in block]
        assert table.learn(join_chunks(block)).tolist() == expected
    assert table.pieces() == list(numbers)
    every = [piece for block in blocks for piece in block]
    assert table.find(join_chunks(every)).tolist() == [numbers[piece] for piece in every]


@given(pieces, pieces)
def test_what_was_never_learnt_is_not_found(known, others):
    table = ChunkTable(known)
    found = table.find(join_chunks(others)).tolist()
    assert [number >= 0 for number in found] == [piece in known for piece in others]
    assert len(table) == len(set(known))


def test_a_table_grows_and_keeps_every_number():
    words = [f"w{i}".encode() for i in range(50_000)] + [f"a longer word {i}".encode()[:16] for i in range(20_000)]
    table = ChunkTable(words[:100])
    table.learn(join_chunks(words))
    distinct = list(dict.fromkeys(words))
    assert np.array_equal(table.find(join_chunks(distinct)), np.arange(len(distinct)))


def test_a_piece_is_not_taken_for_one_it_begins_with():
    table = ChunkTable([b"12345678", b"1234567812345678"])
    wanted = [b"1234567", b"12345678", b"123456781", b"1234567812345678", b"12345678123456781"]
    assert table.find(join_chunks(wanted)).tolist() == [-1, 0, -1, 1, -1]


@given(st.lists(st.binary(max_size=30), min_size=1).map(lambda parts: b"\n".join(parts).replace(b"\0", b"")))
def test_cutting_at_whitespace_is_what_split_does(text):
    text = text.replace(LINE_END, b"") + b"\n"
    expected = [part for line in text[:-1].split(b"\n") for part in [*line.split(), LINE_END]]
    assert list(cut_at_whitespace(text)) == expected


def test_cutting_at_spaces_by_hand():
    cut = list(cut_at_spaces(b"a  b \n\n  c\td\n \n"))
    assert cut == [b"a", b" b", b"", LINE_END, LINE_END, b"  c\td", LINE_END, b" ", LINE_END]


@given(st.lists(st.text(st.sampled_from(" ab\t"), max_size=12), min_size=1))
def test_cutting_at_spaces_loses_nothing(lines):
    text = "".join(line + "\n" for line in lines).encode()
    rebuilt, is_start = b"", True
    for piece in cut_at_spaces(text):
        if piece == LINE_END:
            rebuilt += b"\n"
            is_start = True
        else:
            rebuilt += piece if is_start else b" " + piece
            is_start = False
    assert rebuilt == text
