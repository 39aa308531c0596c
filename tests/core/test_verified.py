"""A large file is hashed once, and again whenever anything was written into it."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from elman.core import stored, verified
from elman.core.errors import DataError
from elman.core.files import write_tensors


@pytest.fixture
def hashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was hashed so far, where every file counts as large and as settled."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(verified, "LARGE_BYTES", 10)
    monkeypatch.setattr(verified, "SETTLED_NS", 0)
    found: list[str] = []
    digest = stored.digest
    monkeypatch.setattr(stored, "digest", lambda *buffers: found.append(digest(*buffers)) or found[-1])
    return found


def test_a_file_is_hashed_once_and_again_when_it_was_touched(tmp_path: Path, hashed: list[str]) -> None:
    path = tmp_path / "m.safetensors"
    entry = write_tensors(path, {"a": np.arange(9.0)})
    for _ in range(3):
        assert stored.read_tensors(path, expected=entry)["a"][8] == 8.0
    assert hashed == [entry.sha256]
    copy = tmp_path / "copy.safetensors"
    copy.write_bytes(path.read_bytes())
    stored.read_tensors(copy, expected=entry)
    assert len(hashed) == 2


def test_a_changed_byte_is_found_even_if_the_time_was_set_back(tmp_path: Path, hashed: list[str]) -> None:
    path = tmp_path / "m.safetensors"
    entry = write_tensors(path, {"a": np.arange(9.0)})
    stored.read_tensors(path, expected=entry)
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\x41")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    for _ in range(2):
        with pytest.raises(DataError, match="SHA-256"):
            stored.read_tensors(path, expected=entry)
    assert len(hashed) == 3


def test_what_was_changed_a_moment_ago_is_not_remembered(
    tmp_path: Path, hashed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verified, "SETTLED_NS", 3_600_000_000_000)
    path = tmp_path / "m.safetensors"
    entry = write_tensors(path, {"a": np.arange(9.0)})
    stored.read_tensors(path, expected=entry)
    stored.read_tensors(path, expected=entry)
    assert len(hashed) == 2


def test_a_cache_that_cannot_be_written_or_read_is_done_without(
    tmp_path: Path, hashed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    path = tmp_path / "m.safetensors"
    entry = write_tensors(path, {"a": np.arange(9.0)})
    stored.read_tensors(path, expected=entry)
    stored.read_tensors(path, expected=entry)
    assert len(hashed) == 2


def test_old_memories_leave(tmp_path: Path, hashed: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verified, "MAX_REMEMBERED", 3)
    for i in range(8):
        entry = write_tensors(tmp_path / f"{i}.safetensors", {"a": np.arange(9.0)})
        stored.read_tensors(tmp_path / f"{i}.safetensors", expected=entry)
    assert len(list((verified.user_cache() / "verified").iterdir())) <= 4
