"""Nothing is measured on the text it was tuned on."""

from __future__ import annotations

from pathlib import Path

import pytest

from elman.compare.texts import cut_text, fingerprints
from elman.core.errors import DataError, MissingError
from elman.text.settings import DataConfig


def write(path: Path, count: int) -> Path:
    path.write_text("".join(f"line {number:03}\n" for number in range(count)))
    return path


def read(path: str | None) -> list[str]:
    assert path is not None
    return Path(path).read_text().splitlines()


def cut(folder: Path, train: Path, valid: Path | None = None, test: Path | None = None):  # type: ignore[no-untyped-def]
    others = [None if path is None else str(path) for path in (valid, test)]
    return cut_text([str(train)], *others, folder / "out", data=DataConfig(), heldout=0.05)


def test_all_files_given_are_used_as_they_are(tmp_path: Path) -> None:
    paths = [write(tmp_path / name, 10) for name in ("a", "b", "c")]
    parts = cut(tmp_path, *paths)
    assert (list(parts.train), parts.valid, parts.test) == ([str(paths[0])], str(paths[1]), str(paths[2]))
    assert (parts.measured_on, parts.note) == ("test", None)
    assert not (tmp_path / "out").exists()


def test_without_files_the_end_of_the_text_is_held_out_in_two_parts(tmp_path: Path) -> None:
    parts = cut(tmp_path, write(tmp_path / "a.txt", 200))
    pieces = [read(path) for path in (parts.train[0], parts.valid, parts.test)]
    assert [len(piece) for piece in pieces] == [180, 10, 10]
    assert [line for piece in pieces for line in piece] == read(str(tmp_path / "a.txt"))
    assert parts.measured_on == "held out" and "10%" in parts.note


def test_half_of_a_validation_text_is_kept_for_measuring(tmp_path: Path) -> None:
    valid = write(tmp_path / "v.txt", 7)
    parts = cut(tmp_path, write(tmp_path / "a.txt", 20), valid)
    assert read(parts.valid) + read(parts.test) == read(str(valid))
    assert len(read(parts.valid)) == 4
    assert list(parts.train) == [str(tmp_path / "a.txt")]
    assert parts.measured_on == "held out"


def test_a_test_text_is_not_cut(tmp_path: Path) -> None:
    test = write(tmp_path / "t.txt", 5)
    parts = cut(tmp_path, write(tmp_path / "a.txt", 100), None, test)
    assert (parts.test, parts.measured_on) == (str(test), "test")
    assert [len(read(parts.train[0])), len(read(parts.valid))] == [95, 5]


def test_parts_are_shares_of_the_text_not_of_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("x " * 5000 + "\n" + "y\n" * 5000)  # the first line is half of it
    parts = cut(tmp_path, path)
    assert len(read(parts.train[0])) == 1 + 4000


def test_records_and_several_files_are_read_as_text(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n{"text": "two"}\n')
    parts = cut_text(
        [str(tmp_path / "a.jsonl"), str(write(tmp_path / "b.txt", 1))],
        None,
        None,
        tmp_path / "out",
        data=DataConfig(),
        heldout=0.05,
    )
    assert [read(path) for path in (parts.train[0], parts.valid, parts.test)] == [["one"], ["two"], ["line 000"]]


@pytest.mark.parametrize("count", [0, 2])
def test_a_text_with_nothing_to_hold_out_is_refused(tmp_path: Path, count: int) -> None:
    with pytest.raises(DataError, match=rf"has {count} lines, too few to hold some out\nhint: give valid=... and test"):
        cut(tmp_path, write(tmp_path / "a.txt", count))
    assert not (tmp_path / "out" / "texts").exists()


def test_a_fingerprint_is_of_the_bytes(tmp_path: Path) -> None:
    import hashlib

    path = write(tmp_path / "a.txt", 3)
    assert fingerprints([str(path)]) == {str(path): hashlib.sha256(path.read_bytes()).hexdigest()[:16]}
    with pytest.raises(MissingError, match=r"cannot read .*none: no such file"):
        fingerprints([str(tmp_path / "none")])
