"""A text as one stream of ids."""

from __future__ import annotations

import errno
import io
import sys
import tempfile
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elman.core.errors import DataError, UsageError, WriteError
from elman.text import corpus, readers, spool
from elman.text.corpus import Corpus, learn, read_blocks, read_corpus
from elman.text.settings import DataConfig
from elman.text.units.vocabulary import EOS_ID, UNK_ID
from tests.text.strategies import TEXT, UNITS, lines

DATA = DataConfig(units="space", min_count=1)


def _file(directory, text: str | bytes, name: str = "text.txt"):
    path = directory / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def _settings(**settings: object) -> DataConfig:
    return DataConfig.model_validate({"units": "space", "min_count": 1, **settings})


def test_ids_lines_and_bytes_by_hand(tmp_path):
    learned = learn([_file(tmp_path, "a b\r\n\nb é")], DATA, heldout=False)
    corpus = learned.train
    assert list(learned.tokenizer.tokens) == ["<unk>", "</s>", "b", "a", "é"]
    assert corpus.ids.tolist() == [3, 2, 1, 1, 2, 4, 1]
    assert corpus.ids.dtype == np.uint16
    assert corpus.num_lines == 3
    assert corpus.line_bytes.tolist() == [4, 1, 5]  # "a b\n", "\n", "b é\n" with é of two bytes
    assert corpus.num_bytes == 10
    assert corpus.unknown_tokens == 0
    assert learned.heldout is None


@pytest.mark.parametrize("units", UNITS)
def test_every_way_of_reading_gives_the_same(tmp_path, units):
    path = _file(tmp_path, TEXT * 3)
    data = _settings(units=units)
    learned = learn([path], data, heldout=False)
    again = learn([path], data, heldout=False, tokenizer=learned.tokenizer)
    corpus = read_corpus([path], learned.tokenizer, data)
    blocks = list(read_blocks([path], learned.tokenizer, data))
    expected = [i for line in TEXT[:-1].split("\n") * 3 for i in [*learned.tokenizer.encode(line), EOS_ID]]
    assert learned.train.ids.tolist() == expected
    assert corpus.ids.tolist() == again.train.ids.tolist() == expected
    assert corpus.fingerprint == again.train.fingerprint == learned.train.fingerprint
    assert np.concatenate([block.ids for block in blocks]).tolist() == expected
    assert sum(block.num_bytes for block in blocks) == corpus.num_bytes == len(TEXT.encode()) * 3
    assert sum(block.num_lines for block in blocks) == corpus.num_lines == TEXT.count("\n") * 3


@pytest.mark.parametrize("units", UNITS)
def test_a_corpus_on_disk_is_the_corpus_in_memory(tmp_path, monkeypatch, units):
    path = _file(tmp_path, TEXT * 20)
    data = _settings(units=units)
    in_memory = learn([path], data, heldout=True)
    monkeypatch.setattr(spool, "MAX_MEMORY_BYTES", 100)
    monkeypatch.setattr(spool, "CHUNK_ITEMS", 64)
    monkeypatch.setattr(readers, "FIRST_BLOCK_BYTES", 500)
    monkeypatch.setattr(readers, "BLOCK_BYTES", 500)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    on_disk = learn([path], data, heldout=True, directory=scratch)
    assert isinstance(on_disk.train.ids, np.memmap)
    for one, other in ((in_memory.train, on_disk.train), (in_memory.heldout, on_disk.heldout)):
        assert one is not None and other is not None
        assert one.ids.tolist() == other.ids.tolist() and one.ids.dtype == other.ids.dtype
        assert one.fingerprint == other.fingerprint
        assert one.line_bytes.tolist() == other.line_bytes.tolist()
    assert on_disk.tokenizer.fingerprint == in_memory.tokenizer.fingerprint
    assert list(scratch.iterdir()) == []


@given(st.lists(lines, min_size=1, max_size=8), st.integers(1, 30))
def test_blocks_of_a_corpus_are_whole_lines_and_add_up(tmp_path_factory, texts, max_tokens):
    text = "".join(line + "\n" for line in [*texts, "x"])
    corpus = learn([_file(tmp_path_factory.mktemp("text"), text)], _settings(units="char"), heldout=False).train
    blocks = list(corpus.blocks(max_tokens))
    assert np.concatenate([block.ids for block in blocks]).tolist() == corpus.ids.tolist()
    for block in blocks:
        assert block.ids[-1] == EOS_ID and block.num_lines == (block.ids == EOS_ID).sum()
        assert len(block.ids) <= max_tokens or block.num_lines == 1
    assert sum(block.num_bytes for block in blocks) == corpus.num_bytes
    assert sum(block.unknown_tokens for block in blocks) == corpus.unknown_tokens


def test_unknown_words_are_counted(tmp_path):
    learned = learn([_file(tmp_path, "a a b\n")], _settings(min_count=2), heldout=False)
    (block,) = read_blocks([_file(tmp_path, "a c <unk> d a\n")], learned.tokenizer, DATA)
    assert block.ids.tolist() == [2, UNK_ID, UNK_ID, UNK_ID, 2, EOS_ID]
    assert block.unknown_tokens == 3


def test_a_large_vocabulary_needs_wider_ids(tmp_path):
    text = "".join(f"w{i}\n" for i in range(70_000))
    corpus = learn([_file(tmp_path, text)], _settings(max_words=100_000), heldout=False).train
    assert corpus.ids.dtype == np.uint32 and int(corpus.ids.max()) == 70_001


def _parts(tmp_path, text: str, share: float) -> tuple[int, int | None]:
    learned = learn([_file(tmp_path, text)], _settings(heldout=share), heldout=True)
    return learned.train.num_lines, learned.heldout.num_lines if learned.heldout else None


def test_the_last_part_of_the_lines_is_held_out(tmp_path):
    assert _parts(tmp_path, "a\n" * 100, 0.05) == (95, 5)
    assert _parts(tmp_path, "a\n" * 10, 0.05) == (9, 1)
    assert _parts(tmp_path, "a\n" * 2, 0.99) == (1, 1)
    assert _parts(tmp_path, "a\n" * 9 + "\n" * 3, 0.05) == (8, 4)  # blank lines alone would be no part
    learned = learn([_file(tmp_path, "a b\nc d\na c\n")], DATA, heldout=True)
    assert learned.heldout is not None
    assert learned.tokenizer.decode(learned.train.ids) == "a b\nc d\n"
    assert learned.tokenizer.decode(learned.heldout.ids) == "a c\n"
    assert learned.train.num_bytes == 8 and learned.heldout.num_bytes == 4


def test_one_line_cannot_be_parted(tmp_path):
    learned = learn([_file(tmp_path, "a b a\n\n")], DATA, heldout=True)
    assert learned.heldout is None and learned.train.num_lines == 2
    assert any("nothing is held out" in note for note in learned.notes)


@pytest.mark.parametrize("text", ["", "\n", "\r\n\n\n", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("units", ["auto", *UNITS])
def test_nothing_to_learn_from_is_an_error(tmp_path, text, units):
    with pytest.raises(DataError, match=r"empty|blank"):
        learn([_file(tmp_path, text)], _settings(units=units), heldout=True)


def test_spaces_are_nothing_for_space_units_and_something_for_others(tmp_path):
    with pytest.raises(DataError, match="blank"):
        learn([_file(tmp_path, "  \n \n")], DATA, heldout=False)
    assert learn([_file(tmp_path, "  \n \n")], _settings(units="char"), heldout=False).train.ids.tolist() == [
        2,
        2,
        1,
        2,
        1,
    ]


@pytest.mark.parametrize("units", ["space", "word"])
@pytest.mark.parametrize("bad", ["a </s> b", "<s>", "<s> a", "a\t</s>"])
def test_reserved_symbols_are_named_by_file_and_line(tmp_path, units, bad):
    path = _file(tmp_path, f"a b\n{bad}\nb a\n")
    with pytest.raises(DataError, match=r"line 2 of .*text\.txt contains </?s>, which is reserved") as caught:
        learn([path], _settings(units=units), heldout=False)
    assert "data.skip_bad=true" in str(caught.value.hint)
    learned = learn([path], _settings(units=units, skip_bad=True), heldout=False)
    assert learned.tokenizer.decode(learned.train.ids) == "a b\nb a\n"
    assert any("1 bad line" in note for note in learned.notes)
    (block,) = read_blocks([path], learned.tokenizer, DataConfig(skip_bad=True))
    assert block.num_lines == 2 and block.dropped_lines == 1
    with pytest.raises(DataError, match="reserved"):
        list(read_blocks([path], learned.tokenizer, DATA))


def test_reserved_symbols_between_separators(tmp_path):
    with pytest.raises(DataError, match=r"line 1 of .* contains </s>"):
        learn([_file(tmp_path, "a|</s>|b\n")], _settings(separator="|"), heldout=False)
    learn([_file(tmp_path, "a|</s> |b\n")], _settings(separator="|"), heldout=False)


def test_reserved_symbols_are_characters_in_characters(tmp_path):
    for units in ("char", "byte", "bpe:300"):
        learned = learn([_file(tmp_path, "<s> a </s>\n")], _settings(units=units), heldout=False)
        assert (learned.train.ids == EOS_ID).sum() == 1
        assert learned.tokenizer.decode(learned.train.ids) == "<s> a </s>\n"


def test_bytes_may_be_anything(tmp_path):
    content = bytes(range(256)).replace(b"\r", b"").replace(b"\n", b"") + b"\n\xff\xfe\0\n"
    learned = learn([_file(tmp_path, content)], _settings(units="byte"), heldout=False)
    assert learned.train.num_bytes == len(content)
    assert UNK_ID not in learned.train.ids


def test_stdin_can_be_learnt_from_in_three_passes(tmp_path, monkeypatch):
    expected = learn([_file(tmp_path, TEXT)], _settings(units="bpe:300"), heldout=True)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(TEXT.encode())))
    learned = learn(["-"], _settings(units="bpe:300"), heldout=True)
    assert learned.tokenizer.fingerprint == expected.tokenizer.fingerprint
    assert learned.train.fingerprint == expected.train.fingerprint


def test_pairs_are_learnt_from_the_training_part_and_the_same_every_time(tmp_path):
    text = "low lower lowest\n" * 19 + "zzzz zzzz zzzz zzzz\n"
    first, second = (learn([_file(tmp_path, text)], _settings(units="bpe:270"), heldout=True) for _ in range(2))
    assert first.tokenizer.fingerprint == second.tokenizer.fingerprint
    assert not any("zz" in token for token in first.tokenizer.tokens)
    assert "Ġlow" in first.tokenizer.tokens


def test_too_many_pairs_wanted_is_said(tmp_path):
    learned = learn([_file(tmp_path, "ab ab\n")], _settings(units="bpe:5000"), heldout=False)
    assert learned.tokenizer.vocab_size < 300
    assert any("symbols only" in note for note in learned.notes)


def test_settings_that_cannot_be_are_refused(tmp_path):
    path = _file(tmp_path, TEXT)
    for settings in ({"units": "word", "separator": "|"}, {"separator": "\n"}, {"units": "bpe:257"}):
        with pytest.raises(UsageError):
            learn([path], _settings(**settings), heldout=False)


def test_no_place_to_write_is_an_error_that_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(spool, "MAX_MEMORY_BYTES", 10)
    with pytest.raises(WriteError, match="nowhere"):
        learn([_file(tmp_path, TEXT)], DATA, heldout=False, directory=tmp_path / "nowhere")

    class FullDisk(io.BytesIO):
        def write(self, data: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", lambda dir: FullDisk())  # noqa: A006
    with pytest.raises(WriteError, match="No space left"):
        learn([_file(tmp_path, TEXT)], DATA, heldout=False)


def test_guessed_units_are_said_with_the_reason(tmp_path):
    learned = learn([_file(tmp_path, "the cat , it sat .\n" * 5)], _settings(units="auto"), heldout=False)
    assert learned.tokenizer.units == "space"
    assert learned.notes[0].startswith("units: space, because punctuation stands by itself")
    records = _file(tmp_path, '{"tokens": ["It", "was.", "So,"]}\n' * 3, "text.jsonl")
    assert "lists of tokens" in learn([records], _settings(units="auto"), heldout=False).notes[0]
    learned = learn([_file(tmp_path, "a b|c\n")], _settings(units="auto", separator="|"), heldout=False)
    assert list(learned.tokenizer.tokens[2:]) == ["a b", "c"]


def test_guessing_reads_nothing_twice_and_nothing_less(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "FIRST_BLOCK_BYTES", 64)
    monkeypatch.setattr(readers, "BLOCK_BYTES", 64)
    path = _file(tmp_path, TEXT * 9)
    guessed = learn([path], _settings(units="auto"), heldout=False)
    asked = learn([path], _settings(units=guessed.tokenizer.units), heldout=False)
    assert guessed.train.fingerprint == asked.train.fingerprint


def _long_line(units: str) -> bytes:
    word = b"x" if units in ("char", "byte") else b"word "
    return word * (50_000_000 // len(word)) + b"\n"


@pytest.mark.slow
@pytest.mark.parametrize("units", UNITS)
def test_a_line_of_fifty_megabytes_is_one_line(tmp_path, units):
    path = _file(tmp_path, b"a word b word\n" + _long_line(units))
    corpus: Corpus = learn([path], _settings(units=units), heldout=False).train
    assert corpus.num_lines == 2 and corpus.line_bytes[1] == 50_000_001


def test_more_distinct_words_than_fit_into_the_memory_are_refused_while_they_are_read(tmp_path) -> None:
    """Ten million distinct words took 2.8 GB under any --memory."""
    path = tmp_path / "words.txt"
    path.write_text("".join(f"w{number}\n" for number in range(2_000)))
    data = DataConfig(units="space", min_count=1)
    with pytest.raises(DataError, match="more than 1,000 distinct words") as caught:
        learn([path], data, heldout=False, memory_bytes=1_000 * corpus.SYMBOL_BYTES)
    assert "--units bpe" in (caught.value.hint or "")
    assert learn([path], data, heldout=False, memory_bytes=3_000 * corpus.SYMBOL_BYTES).tokenizer.vocab_size == 2_002
