"""What is stored, what is refused, and what a prompt may be."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elman.core.errors import DataError
from elman.text.units.tokenizer import Tokenizer
from elman.text.units.vocabulary import EOS_ID
from tests.text.strategies import TEXT, UNITS, tokenizer_of


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    return {units: tokenizer_of(tmp_path_factory.mktemp("text"), units).files() for units in UNITS}


@pytest.mark.parametrize("units", UNITS)
def test_save_then_load_is_exact(tmp_path, units):
    tokenizer = tokenizer_of(tmp_path, units)
    files = tokenizer.files()
    loaded = Tokenizer.from_files(files.__getitem__)
    assert loaded.files() == files
    assert loaded.fingerprint == tokenizer.fingerprint
    assert list(loaded.tokens) == list(tokenizer.tokens) and loaded.units == units
    assert loaded.encode_text(TEXT).tolist() == tokenizer.encode_text(TEXT).tolist()


def test_a_separator_is_stored(tmp_path):
    tokenizer = tokenizer_of(tmp_path, "space", "a b||c\n", separator="||")
    loaded = Tokenizer.from_files(tokenizer.files().__getitem__)
    assert loaded.encode("c||a b").tolist() == tokenizer.encode("c||a b").tolist() == [3, 2]
    assert loaded.fingerprint != tokenizer_of(tmp_path, "space", "a b|c\n", separator="|").fingerprint


def test_the_config_says_what_the_ecosystem_asks(stored):
    config = json.loads(stored["word"]["tokenizer_config.json"])
    assert config["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert (config["eos_token"], config["unk_token"]) == ("</s>", "<unk>")
    assert config["model_max_length"] > 100_000


@pytest.mark.parametrize("units", UNITS)
def test_a_long_line_has_the_ids_of_a_short_one(tmp_path, units, monkeypatch):
    tokenizer = tokenizer_of(tmp_path, units)
    lines = [*TEXT.split("\n"), "", " two  spaces ", "naïve 東京\tx"]
    short = [tokenizer.encode(line).tolist() for line in lines]
    monkeypatch.setattr("elman.text.units.tokenizer.LONG_LINE", -1)
    assert [tokenizer.encode(line).tolist() for line in lines] == short


@pytest.mark.parametrize("units", UNITS)
def test_ids_are_int32_also_of_nothing(tmp_path, units):
    tokenizer = tokenizer_of(tmp_path, units)
    for text in ("", "a", "\n"):
        assert tokenizer.encode_text(text).dtype == np.int32
    assert tokenizer.encode("").tolist() == []
    assert tokenizer.encode_text("\n\n").tolist() == [EOS_ID, EOS_ID]
    assert tokenizer.encode_text("a\n").tolist() == [*tokenizer.encode("a"), EOS_ID]


@pytest.mark.parametrize("units", UNITS)
def test_half_a_character_is_refused(tmp_path, units):
    with pytest.raises(DataError, match=r"character 3 .*surrogate"):
        tokenizer_of(tmp_path, units).encode("ab\ud800c")


def test_reserved_symbols_are_refused_where_they_are_symbols(tmp_path):
    for units in ("space", "word"):
        tokenizer = tokenizer_of(tmp_path, units)
        for line in ("<s>", "a </s>", "\t</s> b"):
            with pytest.raises(DataError, match="reserved"):
                tokenizer.encode(line)
        tokenizer.encode("a</s> <s>b </ s>")
    for units in ("char", "byte", "bpe:300"):
        tokenizer = tokenizer_of(tmp_path, units, TEXT + "<s>/")
        assert tokenizer.decode(tokenizer.encode("<s> </s>")) == "<s> </s>"
        assert EOS_ID not in tokenizer.encode("</s>")


def test_a_newline_is_not_in_a_line(tmp_path):
    with pytest.raises(ValueError, match="encode_text"):
        tokenizer_of(tmp_path, "char").encode("a\nb")


def _load(tokenizer_json: bytes, config: bytes) -> Tokenizer:
    files = {"tokenizer.json": tokenizer_json, "tokenizer_config.json": config}
    return Tokenizer.from_files(files.__getitem__)


def _changed(stored, units, change):
    content = json.loads(stored[units]["tokenizer.json"])
    change(content)
    return json.dumps(content).encode(), stored[units]["tokenizer_config.json"]


@pytest.mark.parametrize(
    ("units", "change"),
    [
        ("space", lambda c: c["model"]["vocab"].update({"a": 99})),
        ("space", lambda c: c["model"]["vocab"].update({"x y": len(c["model"]["vocab"])})),
        ("space", lambda c: c["model"].update(vocab=[])),
        ("space", lambda c: c["model"].update(vocab={})),
        ("space", lambda c: c["model"].update(vocab={"<unk>": False, "</s>": True})),
        ("space", lambda c: c["model"].update(type="BPE")),
        ("space", lambda c: c.update(padding={"strategy": {"Fixed": 0}})),
        ("space", lambda c: c.pop("decoder")),
        ("word", lambda c: c["pre_tokenizer"]["pattern"].update(Regex="(a+)+$")),
        ("word", lambda c: c["model"]["vocab"].update({"two words": len(c["model"]["vocab"])})),
        ("char", lambda c: c["model"]["vocab"].update({"ab": len(c["model"]["vocab"])})),
        ("char", lambda c: c["model"]["vocab"].update({"\ud800": len(c["model"]["vocab"])})),
        ("byte", lambda c: c["model"].update(merges=[["a", "b"]])),
        ("byte", lambda c: c["model"]["vocab"].update({"aa": 258})),
        ("bpe:300", lambda c: c["model"]["merges"].append(["a", "nowhere"])),
        ("bpe:300", lambda c: c["model"]["merges"].append(c["model"]["merges"][0])),
        ("bpe:300", lambda c: c["model"]["merges"].append(["</", "s>"])),
        ("bpe:300", lambda c: c["model"].update(merges="a b")),
        ("bpe:300", lambda c: c["model"].update(continuing_subword_prefix="##")),
    ],
)
def test_a_changed_tokenizer_is_refused(stored, units, change):
    with pytest.raises(DataError, match=r"tokenizer\.json"):
        _load(*_changed(stored, units, change))


@pytest.mark.parametrize("config", [b"", b"[]", b"{}", b"\xff", b'{"elman_units": "bpe:0"}', b"[" * 100_000])
def test_a_config_without_units_is_refused(stored, config):
    with pytest.raises(DataError, match=r"tokenizer_config\.json"):
        _load(stored["space"]["tokenizer.json"], config)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 400) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def _places(content: object) -> list[tuple[object, object]]:
    """Every (container, key) in a JSON value."""
    items = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    return [place for key, value in items for place in [(content, key), *_places(value)]]


@given(st.data(), st.sampled_from(UNITS))
def test_a_mutated_structure_loads_as_a_tokenizer_or_is_refused(stored, data, units):
    content = json.loads(stored[units]["tokenizer.json"])
    for _ in range(data.draw(st.integers(1, 3))):
        container, key = data.draw(st.sampled_from(_places(content)))
        if data.draw(st.booleans()):
            container[key] = data.draw(json_values)  # type: ignore[index]
        else:
            del container[key]  # type: ignore[attr-defined]
            if not _places(content):
                break
    _loads_or_is_refused(json.dumps(content).encode(), stored[units]["tokenizer_config.json"])


@given(st.data(), st.sampled_from(UNITS))
def test_mutated_bytes_load_as_a_tokenizer_or_are_refused(stored, data, units):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        content = bytearray(stored[units][name])
        for _ in range(data.draw(st.integers(0, 4))):
            start = data.draw(st.integers(0, len(content) - 1))
            content[start : start + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
        if data.draw(st.booleans()):
            del content[data.draw(st.integers(0, len(content))) :]
        files = {**stored[units], name: bytes(content)}
        _loads_or_is_refused(files["tokenizer.json"], files["tokenizer_config.json"])


def _loads_or_is_refused(tokenizer_json: bytes, config: bytes) -> None:
    try:
        tokenizer = _load(tokenizer_json, config)
    except DataError:
        return
    ids = tokenizer.encode_text(TEXT)
    assert ((ids >= 0) & (ids < tokenizer.vocab_size)).all()
    tokenizer.decode(range(tokenizer.vocab_size))
