"""Lines from everywhere, and what is wrong with them."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elman.core.errors import DataError, MissingError
from elman.text import readers
from elman.text.readers import Reader, find_files
from elman.text.settings import DataConfig

STRICT, SKIPPING, REPLACING = DataConfig(), DataConfig(skip_bad=True), DataConfig(errors="replace")


def _file(directory, content: bytes, name: str = "text.txt"):
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def _text(*sources, data: DataConfig = STRICT, separator: str | None = None) -> bytes:
    return b"".join(block.data for block in Reader(sources, data, separator=separator).blocks())


def _lines(*sources) -> Iterator[str]:
    """Every line without its end, as soon as it is there."""
    for block in Reader(sources, STRICT).blocks():
        yield from (line.decode() for line in block.split())


def test_lines_end_at_newlines_only(tmp_path):
    path = _file(tmp_path, "a\x0b\x0c\x1c\x85\u2028b\r\n\n c\rd \r\r\nlast".encode())
    assert list(_lines(path)) == ["a\x0b\x0c\x1c\x85\u2028b", "", " c\rd \r", "last"]


def test_a_newline_at_the_end_makes_no_line(tmp_path):
    assert list(_lines(_file(tmp_path, b"a\n"))) == ["a"]
    assert list(_lines(_file(tmp_path, b"a\n\n"))) == ["a", ""]
    assert list(_lines(_file(tmp_path, b""))) == []
    assert list(_lines(_file(tmp_path, b"a\r"))) == ["a"]


def test_a_byte_order_mark_is_taken_off_at_the_start_only(tmp_path):
    path = _file(tmp_path, b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n")
    assert list(_lines(path)) == ["a", "\ufeffb"]
    assert list(_lines(path, path)) == ["a", "\ufeffb"] * 2


@given(st.lists(st.text(st.sampled_from("abé\r "), max_size=9)), st.integers(1, 12))
def test_blocks_of_any_size_hold_the_same_lines(tmp_path_factory, texts, size):
    text = "\n".join(texts)
    path = _file(tmp_path_factory.mktemp("text"), text.encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readers, "FIRST_BLOCK_BYTES", size)
        patch.setattr(readers, "BLOCK_BYTES", size)
        blocks = list(Reader([path], STRICT).blocks())
    ended = text if text.endswith("\n") or not text else text + "\n"
    assert b"".join(block.data for block in blocks) == ended.replace("\r\n", "\n").encode()
    number = 1
    for block in blocks:
        assert block.first == number and block.data.endswith(b"\n")
        number += block.data.count(b"\n")


def test_gzip_directories_and_several_files_are_read_in_order(tmp_path):
    _file(tmp_path, b"second\n", "d/b.txt")
    _file(tmp_path, gzip.compress(b"first\n"), "d/a.txt.gz")
    _file(tmp_path, b"third", "d/c/deep.txt")
    _file(tmp_path, b"hidden\n", "d/.hidden")
    _file(tmp_path, b"hidden\n", "d/.git/config")
    last = _file(tmp_path, b"fourth\n")
    packed = _file(tmp_path, gzip.compress(b"fifth\n"), "no-suffix")
    assert _text(tmp_path / "d", last, packed) == b"first\nsecond\nthird\nfourth\nfifth\n"
    assert [Path(name).name for name in find_files([tmp_path / "d"])] == ["a.txt.gz", "b.txt", "deep.txt"]


def test_a_dash_is_stdin(monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"a\nb")))
    assert list(_lines("-")) == ["a", "b"]


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_a_compressed_pipe_is_read_like_a_compressed_file(monkeypatch, compress):
    """`elman score DIR < web.txt.xz` said that line 1 was not UTF-8, and advised iconv -f LATIN1."""
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(compress(b"a\nb"))))
    assert list(_lines("-")) == ["a", "b"]


@pytest.mark.parametrize(
    ("start", "what"), [(b"PK\x03\x04", "a zip archive"), (b"PAR1", "Parquet"), (b"%PDF-1.4\n", "a PDF")]
)
def test_what_cannot_be_read_from_a_pipe_is_named(monkeypatch, start, what):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(start + b"\xff rest\n")))
    with pytest.raises(DataError, match=f"stdin is {what}"):
        list(_lines("-"))


def test_a_line_is_given_before_the_next_one_is_there(monkeypatch):
    read_end, write_end = os.pipe()
    with os.fdopen(read_end, "rb") as source, os.fdopen(write_end, "wb", buffering=0) as sink:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=source))
        reading = _lines("-")
        for word in ("one", "two"):
            sink.write(f"{word}\n".encode())
            assert next(reading) == word


def test_what_is_not_there_is_named(tmp_path):
    with pytest.raises(MissingError, match=r"nowhere\.txt: No such file"):
        _text(tmp_path / "nowhere.txt")
    (tmp_path / "empty").mkdir()
    with pytest.raises(MissingError, match="no files in the directory"):
        _text(tmp_path / "empty")
    with pytest.raises(MissingError, match="null"):
        _text("a\0b")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read_is_named(tmp_path):
    path = _file(tmp_path, b"a\n")
    path.chmod(0)
    with pytest.raises(MissingError, match="Permission denied"):
        _text(path)


def test_broken_utf8_is_named_by_file_line_and_byte(tmp_path):
    path = _file(tmp_path, b"fine\nalso \xc3\xa9\nab\xffcd\n")
    with pytest.raises(DataError, match=r"line 3 of .*text\.txt is not UTF-8 at byte 3 \(0xff\)") as caught:
        _text(path)
    assert "data.errors=replace" in str(caught.value.hint)
    assert _text(path, data=REPLACING) == "fine\nalso é\nab\ufffdcd\n".encode()
    reader = Reader([path], SKIPPING)
    assert b"".join(block.data for block in reader.blocks()) == "fine\nalso é\n".encode()
    assert reader.num_dropped == 1


def test_numbers_of_lines_stay_right_after_dropped_ones(tmp_path):
    path = _file(tmp_path, b"\xff\nok\n\xff\nfine\n")
    (block,) = Reader([path], SKIPPING).blocks()
    assert [block.number(i) for i in range(2)] == [2, 4]


def test_nul_is_refused_or_dropped_or_accepted(tmp_path):
    path = _file(tmp_path, b"fine text here\nab\0cd\n")
    with pytest.raises(DataError, match=r"line 2 of .* NUL at byte 3"):
        _text(path)
    assert _text(path, data=SKIPPING) == b"fine text here\n"
    assert [block.data for block in Reader([path], STRICT, any_bytes=True).blocks()] == [b"fine text here\nab\0cd\n"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf16_is_recognised(tmp_path, encoding):
    path = _file(tmp_path, "Some text\nin two lines\n".encode(encoding))
    for data in (STRICT, SKIPPING):
        with pytest.raises(DataError, match="UTF-16"):
            _text(path, data=data)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "utf-32-be"])
def test_whatever_is_no_utf8_is_replaced_where_that_is_asked_for(tmp_path, encoding):
    assert _text(_file(tmp_path, b"ab\0cd\xff\n"), data=REPLACING).decode() == "ab\ufffdcd\ufffd\n"
    wide = _text(_file(tmp_path, "Some text\nin two lines\n".encode(encoding)), data=REPLACING)
    assert wide.decode().count("\ufffd") > 20 and b"\0" not in wide


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_wide_letters_without_a_mark_are_recognised_whatever_their_accents(tmp_path, encoding):
    """With one accent in it, such a file was called Latin-1, and iconv made letters and NULs of it."""
    path = _file(tmp_path, "Ein Café\nund ein Tee\n".encode(encoding))
    for data in (STRICT, SKIPPING):
        with pytest.raises(DataError, match="looks like UTF-") as refused:
            _text(path, data=data)
        assert f"iconv -f {encoding.upper().replace('-LE', 'LE').replace('-BE', 'BE')} " in str(refused.value)


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (b'{"text": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "it is nested too deeply"),
        (b'{"text": "a", "id": ' + b"9" * 10_000 + b"}", "it has a number with too many digits"),
        (b'{"text": "a"', "expecting ',' delimiter at character 13"),
    ],
)
def test_what_is_no_json_says_why_without_speaking_of_python(tmp_path, record, why):
    """The hint was to call sys.set_int_max_str_digits(), and named line 1 for any line."""
    path = _file(tmp_path, b'{"text": "fine"}\n' + record + b"\n", "text.jsonl")
    with pytest.raises(DataError, match=r"line 2 of .* is not JSON") as refused:
        _text(path)
    assert why in str(refused.value) and "sys." not in str(refused.value) and "line 1" not in str(refused.value)


@pytest.mark.parametrize("size", [0.2, 0.7, 0.99])
def test_a_gzip_file_cut_short_is_refused(tmp_path, size):
    packed = gzip.compress(os.urandom(5000).hex().encode() + b"\n")
    with pytest.raises(DataError, match="not a whole gzip file"):
        _text(_file(tmp_path, packed[: int(len(packed) * size)], "text.gz"))


def test_damaged_gzip_is_refused(tmp_path):
    packed = bytearray(gzip.compress(b"some text\n" * 100))
    packed[20] ^= 0xFF
    with pytest.raises(DataError, match="not a whole gzip file"):
        _text(_file(tmp_path, bytes(packed), "text.gz"))
    with pytest.raises(DataError, match="not a whole gzip file"):
        _text(_file(tmp_path, b"plain text\n", "text.gz"))


def test_a_line_without_end_is_refused_before_memory_is_full(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "MAX_LINE_BYTES", 1 << 17)
    path = _file(tmp_path, b"a\n" + b"x" * (1 << 20))
    with pytest.raises(DataError, match=r"line 2 of .* longer"):
        _text(path)


def _records(directory, *records: object, name: str = "text.jsonl"):
    return _file(directory, "".join(json.dumps(record) + "\n" for record in records).encode(), name)


def test_records_of_text_and_of_tokens(tmp_path):
    path = _records(tmp_path, {"text": "a b\nc\r\nd\n", "id": 1}, {"tokens": ["e", "f."]}, {"text": ""}, {"tokens": []})
    reader = Reader([path], STRICT)
    (block,) = reader.blocks()
    assert block.data == b"a b\nc\nd\ne f.\n\n\n"
    assert [block.number(i) for i in range(6)] == [1, 1, 1, 2, 3, 4]
    assert reader.has_token_records
    packed = _file(tmp_path, gzip.compress(path.read_bytes()), "text.jsonl.gz")
    assert _text(packed) == block.data
    assert list(_lines(path)) == ["a b", "c", "d", "e f.", "", ""]


def test_tokens_with_spaces_need_a_separator(tmp_path):
    path = _records(tmp_path, {"tokens": ["New York", "is", "big"]})
    with pytest.raises(DataError, match="'New York' with a space") as caught:
        _text(path)
    assert "data.separator" in str(caught.value.hint)
    assert _text(path, separator="|") == b"New York|is|big\n"


@pytest.mark.parametrize(
    ("record", "what"),
    [
        (b'{"text": "a"', "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b"7" * 10_000, "is not JSON"),
        (b'{"words": "a"}', "neither"),
        (b'["text"]', "neither"),
        (b'{"text": 7}', "not a string"),
        (b'{"tokens": ["a", 7]}', "not strings"),
        (b'{"tokens": ["a", ""]}', "not strings"),
        (b'{"tokens": "a b"}', "not strings"),
        (b'{"text": "\\ud800"}', "half a character"),
        (b'{"text": "a\\u0000"}', "NUL"),
    ],
)
def test_a_bad_record_is_named_or_dropped(tmp_path, record, what):
    path = _file(tmp_path, b'{"text": "fine"}\n\n' + record + b"\n", "text.jsonl")
    with pytest.raises(DataError, match=f"line 3 of .*{what}"):
        _text(path)
    reader = Reader([path], SKIPPING)
    assert b"".join(block.data for block in reader.blocks()) == b"fine\n"
    assert reader.num_dropped == 1


def test_half_a_character_in_a_record_can_be_replaced(tmp_path):
    path = _file(tmp_path, b'{"text": "a\\ud800b"}\n', "text.jsonl")
    assert _text(path, data=REPLACING) == "a\ufffdb\n".encode()


@given(st.binary(max_size=200), st.sampled_from(["text.txt", "text.jsonl", "text.gz"]))
def test_any_bytes_are_read_or_refused(tmp_path_factory, content, name):
    path = _file(tmp_path_factory.mktemp("text"), content, name)
    for data in (STRICT, SKIPPING, REPLACING, DataConfig(errors="replace", skip_bad=True)):
        try:
            text = _text(path, data=data)
        except DataError as error:
            assert str(path) in error.what
            continue
        assert text.decode().count("\0") == 0 and (not text or text.endswith(b"\n"))


@pytest.mark.parametrize(("content", "encoding"), [(b"caf\xe9 noir\n", "LATIN1"), (b"\x93yes\x94\n", "CP1252")])
def test_the_encoding_is_guessed_by_the_byte_that_is_no_utf8(tmp_path, content, encoding):
    """A Bible with the quotes of Windows was called Latin-1, and iconv made control characters of them."""
    with pytest.raises(DataError) as refused:
        _text(_file(tmp_path, content))
    assert f"iconv -f {encoding} -t UTF-8" in (refused.value.hint or "")
