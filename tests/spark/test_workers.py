"""What executors do, without a Spark: blocks of lines in, numbers out, as if one process had read it all."""

from __future__ import annotations

import itertools
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elman.core.errors import DataError
from elman.counts.counting import count_ngrams
from elman.counts.scratch import Scratch
from elman.spark.counting import _following
from elman.spark.lines import Lines, Surveyed, survey_lines
from elman.spark.packing import Packing
from elman.spark.workers import Windows, count_symbols
from elman.text.settings import DataConfig
from elman.text.units.pipelines import TokenizerSpec
from elman.text.units.tokenizer import Tokenizer
from elman.text.units.vocabulary import EOS_ID

WORDS = ["a", "b", "c", "d"]
TEXTS = st.lists(st.lists(st.sampled_from(WORDS), max_size=5), min_size=1, max_size=12)


class FakeFrame:
    """Blocks of lines, each in a partition with the one before or alone, given to functions of Arrow batches."""

    def __init__(self, blocks: list[list[bytes]], *, batch_rows: int = 2, per_partition: int = 2) -> None:
        self._partitions = [
            [
                (number, line)
                for number in range(first, min(first + per_partition, len(blocks)))
                for line in blocks[number]
            ]
            for first in range(0, len(blocks), per_partition)
        ]
        self._batch_rows = batch_rows

    def mapInArrow(self, function, schema):  # noqa: N802  (as Spark calls it)
        rows = []
        for partition in self._partitions:
            for batch in function(self._batches(partition)):
                rows += batch.to_pylist()
        return SimpleNamespace(collect=lambda: [SimpleNamespace(**row) for row in rows])

    def _batches(self, partition):
        for first in range(0, len(partition), self._batch_rows):
            numbers, lines = zip(*partition[first : first + self._batch_rows], strict=True)
            yield pa.record_batch({"block": pa.array(numbers, pa.int32()), "value": pa.array(lines, pa.binary())})


def surveyed(blocks: list[list[bytes]], data: DataConfig, *, order: int, **options) -> Surveyed:
    places = tuple(("a.txt", 0) if number == 0 else ("a.txt", 1000 * number) for number in range(len(blocks)))
    lines = Lines(FakeFrame(blocks, **options), places)
    return survey_lines(lines, data, "space", head_tokens=order - 1)


def in_blocks(lines: list[bytes], cuts: list[int]) -> list[list[bytes]]:
    edges = sorted({0, *(cut % len(lines) for cut in cuts), len(lines)})
    return [lines[first:last] for first, last in itertools.pairwise(edges)]


@settings(max_examples=150)
@given(
    TEXTS,
    st.lists(st.integers(0, 11)),
    st.integers(1, 4),
    st.booleans(),
    st.integers(1, 3),
    st.integers(1, 3),
    st.integers(0, 4),
)
def test_windows_of_blocks_count_as_the_whole_text_does(texts, cuts, order, reset_lines, rows, per_partition, heldout):
    """However a text is cut into blocks, batches and partitions, and wherever the held-out part begins."""
    lines = [" ".join(words).encode() + b"\n" for words in texts]
    num_lines = max(1, len(lines) - heldout)
    tokenizer = Tokenizer(TokenizerSpec("space", ["<unk>", "</s>", "a", "b", "c"]))
    packing = Packing(tokenizer.vocab_size)
    text = surveyed(in_blocks(lines, cuts), DataConfig(), order=order, batch_rows=rows, per_partition=per_partition)
    blocks = [block for block, first in text.first_lines.items() if first < num_lines]
    following = {} if reset_lines else _following(text, blocks, num_lines, tokenizer, order)
    windows = Windows(text.part(0, num_lines), packing, order, reset_lines, 0, following)
    found = Counter()
    for row in text.lines.frame.mapInArrow(lambda batches: windows(batches, tokenizer), windows.schema()).collect():
        words = packing.unpack([np.array([getattr(row, name)]) for name in packing.history(order)], order - 1)
        ngram = (*(int(word[0]) for word in words), row.w)
        while ngram and ngram[-1] == packing.pad:
            ngram = ngram[:-1]
        for k in range(1, len(ngram) + 1):
            found[ngram[:k]] += 1
    ids = tokenizer.encode_lines(b"".join(lines[:num_lines]))
    with Scratch() as scratch:
        expected = count_ngrams(ids, order=order, vocab_size=5, reset_lines=reset_lines, scratch=scratch)
    nodes = [(word,) for word in range(6)]
    found[(packing.bos,)] = 0  # the start symbol is no token,
    found[(EOS_ID,)] -= not reset_lines  # nor is the end that begins a stream
    for k in range(1, order + 1):
        assert [found[node] for node in nodes] == expected.counts[k - 1].tolist()
        assert sum(len(ngram) == k for ngram, n in found.items() if n) == sum(
            n > 0 for n in expected.counts[k - 1].tolist()
        )
        if k < order:
            starts, words = expected.trie.starts[k - 1], expected.trie.words[k]
            nodes = [(*node, int(word)) for i, node in enumerate(nodes) for word in words[starts[i] : starts[i + 1]]]


def test_symbols_are_counted_with_the_place_where_they_came_first():
    text = surveyed([[b"b a b\n", b"\n"], [b"c b\n"]], DataConfig(), order=1)
    rows = text.lines.frame.mapInArrow(lambda batches: count_symbols(batches, text.part(0, 3)), "").collect()
    found = {(row.symbol, row.n, row.first >> 28, row.first & 0xFFFFFFF) for row in rows}
    assert found == {("b", 3, 0, 0), ("a", 1, 0, 1), ("c", 1, 2, 0)}
    assert (text.num_lines, text.last_text, text.num_bytes) == (3, 2, 11)


def test_a_bad_line_is_named_by_its_number_in_the_file():
    """A block does not know how many lines of the file stand before it."""
    blocks = [[b"one\n", b"two\n"], [b"three\n"], [b"f\xe4nf\n", b"six\n"]]
    with pytest.raises(DataError, match=r"line 4 of a.txt is not UTF-8 at byte 2") as caught:
        surveyed(blocks, DataConfig(), order=2)
    assert "data.errors=replace" in caught.value.hint
    assert surveyed(blocks, DataConfig(skip_bad=True), order=2).num_dropped == 1
    replaced = surveyed(blocks, DataConfig(errors="replace"), order=2)
    assert replaced.num_lines == 5
    with pytest.raises(DataError, match=r"line 3 of a.txt contains </s>, which is reserved"):
        surveyed([blocks[0], [b"a </s> b\n"]], DataConfig(), order=2)
    with pytest.raises(DataError, match=r"a.txt looks like UTF-16"):
        surveyed([[line + b"\n" for line in "zwei\ndrei".encode("utf-16-le").split(b"\n")]], DataConfig(), order=2)


def test_marks_and_carriage_returns_are_taken_off_at_the_start_of_a_file_alone():
    text = surveyed([[b"\xef\xbb\xbfa b\r\n"], [b"\xef\xbb\xbfc\n"]], DataConfig(), order=3)
    assert text.heads == {0: ("a", "b"), 1: ("\ufeffc", None)}
