"""Ids as text, one at a time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elman.text.units.alphabet import bytes_of
from elman.text.units.letters import split_words
from elman.text.units.pipelines import TokenizerSpec
from elman.text.units.tokenizer import Tokenizer
from elman.text.units.vocabulary import EOS, EOS_ID, UNK, UNK_ID
from tests.text.strategies import TEXT, UNITS, lines, tokenizer_of


@pytest.fixture(scope="module")
def tokenizers_by_units(tmp_path_factory):
    return {units: tokenizer_of(tmp_path_factory.mktemp("text"), units) for units in UNITS}


@pytest.mark.parametrize("units", ["word", "char", "byte", "bpe:300"])
def test_text_comes_back(tokenizers_by_units, units):
    tokenizer = tokenizers_by_units[units]
    assert tokenizer.decode(tokenizer.encode_text(TEXT)) == TEXT


@given(lines)
@pytest.mark.parametrize("units", ["byte", "bpe:300"])
def test_any_text_comes_back_from_bytes(tokenizers_by_units, units, line):
    tokenizer = tokenizers_by_units[units]
    assert tokenizer.decode(tokenizer.encode(line)) == line


@given(lines)
def test_known_words_come_back_with_their_spaces(line):
    tokenizer = Tokenizer(TokenizerSpec("word", [UNK, EOS, *dict.fromkeys(split_words(line))]))
    assert tokenizer.decode(tokenizer.encode(line)) == line.replace("▁", " ")


@given(st.data(), st.sampled_from(UNITS))
def test_pieces_add_up_to_the_whole(tokenizers_by_units, data, units):
    tokenizer = tokenizers_by_units[units]
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=60))
    decoder = tokenizer.decoder()
    pieces = [decoder.push(i) for i in ids]
    assert "".join(pieces) + decoder.finish() == tokenizer.decode(ids)


@given(st.data())
def test_bytes_in_any_order_decode_like_all_at_once(tokenizers_by_units, data):
    """Broken sequences become U+FFFD exactly where Python would put it, and no earlier than they are known broken."""
    tokenizer = tokenizers_by_units["byte"]
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=60))
    content = {UNK_ID: UNK.encode(), EOS_ID: b"\n"}
    whole = b"".join(content[i] if i in content else bytes_of(tokenizer.tokens[i]) for i in ids)
    assert tokenizer.decode(ids) == whole.decode(errors="replace")


def test_a_character_is_said_when_it_is_whole(tokenizers_by_units):
    tokenizer = tokenizers_by_units["byte"]
    decoder = tokenizer.decoder()
    assert [decoder.push(int(i)) for i in tokenizer.encode("a漢b")] == ["a", "", "", "漢", "b"]
    assert decoder.finish() == ""
    for i in tokenizer.encode("漢")[:2]:
        assert decoder.push(int(i)) == ""
    assert decoder.finish() == "\ufffd"


def test_lines_end_in_newlines_and_start_without_a_space(tokenizers_by_units):
    expected = {"space": "a b\na", "word": "a b\na", "char": "a b\na", "byte": "a b\na", "bpe:300": "a b\na"}
    for units, text in expected.items():
        tokenizer = tokenizers_by_units[units]
        ids = [*tokenizer.encode("a b"), EOS_ID, *tokenizer.encode("a")]
        assert tokenizer.decode(ids) == text
        assert tokenizer.encode_text(text).tolist() == ids


def test_what_follows_a_prompt_brings_its_space(tokenizers_by_units):
    for units in ("space", "word", "bpe:300"):
        tokenizer = tokenizers_by_units[units]
        prompt, whole = tokenizer.encode("a b"), tokenizer.encode("a b c")
        decoder = tokenizer.decoder()
        for i in prompt:
            decoder.push(int(i))
        assert "".join(decoder.push(int(i)) for i in whole[len(prompt) :]) == " c"


def test_an_unknown_word_stands_by_itself(tokenizers_by_units):
    for units in ("space", "word"):
        tokenizer = tokenizers_by_units[units]
        assert tokenizer.decode([*tokenizer.encode("a"), UNK_ID, *tokenizer.encode("b")]) == "a <unk> b"
        assert tokenizer.decode([UNK_ID]) == "<unk>"
