"""Units: the plain way, the quick way and the `tokenizers` library agree."""

from __future__ import annotations

import re

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from elman.text.units import letters, splitters
from elman.text.units.letters import split_words
from elman.text.units.vocabulary import EOS_ID, UNK_ID
from tests.text.strategies import TEXT, UNITS, lines, tokenizer_of


@pytest.fixture(scope="module", params=[*UNITS, "space|", "space<>"])
def tokenizer(request, tmp_path_factory):
    units, separator = request.param, None
    if units.startswith("space") and units != "space":
        units, separator = "space", units.removeprefix("space")
    text = TEXT if separator is None else TEXT.replace(" ", separator)
    return tokenizer_of(tmp_path_factory.mktemp("text"), units, text, separator=separator)


@pytest.fixture(scope="module")
def library(tokenizer):
    return tokenizers.Tokenizer.from_str(tokenizer.files()["tokenizer.json"].decode())


@given(st.lists(lines, min_size=1, max_size=6))
def test_a_block_of_lines_gives_the_ids_of_its_lines(tokenizer, batch):
    block = "".join(line + "\n" for line in batch).encode()
    expected = [i for line in batch for i in [*tokenizer.encode(line), EOS_ID]]
    assert tokenizer.encode_lines(block).tolist() == expected


@given(st.lists(lines, min_size=1, max_size=3))
def test_long_lines_are_encoded_in_pieces_and_nobody_notices(tokenizer, batch):
    """All words of a line at once took 37 times the size of the line."""
    block = "".join(line + "\n" for line in batch).encode()
    expected = tokenizer.encode_lines(block).tolist()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(splitters, "PIECE_BYTES", 2)
        assert tokenizer.encode_lines(block).tolist() == expected


@given(lines)
def test_the_library_gives_the_same_ids(tokenizer, library, line):
    assert library.encode(line, add_special_tokens=False).ids == tokenizer.encode(line).tolist()


@given(lines)
def test_the_library_decodes_to_the_same_text(tokenizer, library, line):
    ids = [i for i in tokenizer.encode(line).tolist() if i != UNK_ID]
    assert library.decode(ids) == tokenizer.decode(ids)


def test_the_whole_text_agrees_with_the_library(tokenizer, library):
    for line in TEXT.split("\n"):
        assert library.encode(line, add_special_tokens=False).ids == tokenizer.encode(line).tolist()


def test_the_end_of_a_line_is_one_id_for_the_library(tokenizer, library):
    assert library.encode("</s>", add_special_tokens=False).ids == [EOS_ID]
    assert library.token_to_id("</s>") == EOS_ID
    assert library.token_to_id("<unk>") == UNK_ID


def test_characters_are_in_the_same_class_for_the_library():
    """At every edge of a class, where the running Python or the library's Unicode tables may think otherwise."""
    splitter = tokenizers.pre_tokenizers.Split(tokenizers.Regex(letters.WORD_PATTERN), "isolated")
    characters = [chr(code) for code in range(0x110000) if not 0xD800 <= code <= 0xDFFF]
    is_word = [bool(re.match(f"[{letters.WORD_CLASS}]", character)) for character in characters]
    edges = [i for i in range(1, len(characters)) if is_word[i] != is_word[i - 1]]
    assert len(edges) > 500
    text = "".join(f"a{character}b." for i in edges for character in characters[i - 2 : i + 2])
    assert [piece for piece, _ in splitter.pre_tokenize_str(text)] == letters.WORD_REGEX.findall(text)


def test_words_by_hand():
    assert split_words("It's  the dog’s (old) bone...") == [
        *["▁It's", "▁", "▁the", "▁dog’s", "▁(", "old", ")", "▁bone", ".", ".", "."]
    ]
    assert split_words("") == []
    assert split_words(" a") == ["▁", "▁a"]
    assert split_words("naïve e\u0301te\u0301 हिन्दी") == ["▁naïve", "▁e\u0301te\u0301", "▁हिन्दी"]
    assert split_words("'tis rock 'n' roll") == ["▁'", "tis", "▁rock", "▁'", "n", "'", "▁roll"]


def test_space_splits_at_ascii_whitespace_only(tmp_path):
    tokenizer = tokenizer_of(tmp_path, "space", "a\u00a0b\x1cc \t\x0b\x0c\rd\u3000e\n")
    assert list(tokenizer.tokens[2:]) == ["a\u00a0b\x1cc", "d\u3000e"]


def test_a_separator_keeps_everything_else(tmp_path):
    tokenizer = tokenizer_of(tmp_path, "space", "New York| Paris||New York\n|Rome|\n", separator="|")
    assert list(tokenizer.tokens[2:]) == ["New York", " Paris", "Rome"]
    assert tokenizer.decode(tokenizer.encode("Rome|New York")) == "Rome|New York"


def test_bytes_and_pairs_are_never_unknown(tmp_path):
    for units in ("byte", "bpe:300"):
        ids = tokenizer_of(tmp_path, units).encode("\x01 ß 漢 \U0010ffff </s> <unk>")
        assert UNK_ID not in ids and EOS_ID not in ids


def test_an_unknown_symbol_is_unk(tmp_path):
    assert tokenizer_of(tmp_path, "space").encode("zebra a <unk>").tolist()[::2] == [UNK_ID, UNK_ID]
    assert tokenizer_of(tmp_path, "word").encode("zebra a")[0] == UNK_ID
    assert tokenizer_of(tmp_path, "char").encode("ж").tolist() == [UNK_ID]


def test_forgetting_chunks_changes_no_id(tmp_path, monkeypatch):
    tokenizer = tokenizer_of(tmp_path, "word")
    blocks = [f"the dog {'x' * i} {'y' * 70} a\n".encode() for i in range(30)]
    whole = tokenizer_of(tmp_path, "word").encode_lines(b"".join(blocks))
    monkeypatch.setattr(splitters, "MEMO_CHUNKS", 5)
    assert np.concatenate([tokenizer.encode_lines(block) for block in blocks]).tolist() == whole.tolist()


def test_long_words_go_to_the_library_in_pieces(tmp_path, monkeypatch):
    """Cut before a space, the pieces give the ids of the whole; without a space they still give the text."""
    tokenizer = tokenizer_of(tmp_path, "bpe:300")
    spaced, unspaced = "the lazy dog   jumps éé " * 40, "漢字é" * 200
    whole = tokenizer.encode(spaced).tolist()
    monkeypatch.setattr(splitters, "PIECE_BYTES", 64)
    assert tokenizer.encode(spaced).tolist() == whole
    assert tokenizer.encode_lines(f"{spaced}\n".encode()).tolist() == [*whole, EOS_ID]
    assert tokenizer.decode(tokenizer.encode(unspaced)) == unspaced
