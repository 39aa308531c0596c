"""A file that somebody asked for is written over nothing unasked, and over no part of a model at all."""

from __future__ import annotations

import gzip
import os
import threading
from pathlib import Path

import pytest

from elman.core import files
from elman.core.errors import WriteError
from elman.core.outputs import check_output, open_output
from elman.core.stored import MANIFEST
from elman.tasks.run_folder import write_run


@pytest.fixture
def model(tmp_path: Path) -> Path:
    directory = tmp_path / "model"
    with files.lock(directory):
        files.commit(directory, {"config.json": b"{}", "curves.svg": b"<svg/>"})
    return directory


def write(path: Path, content: bytes, *, overwrite: bool = False) -> None:
    with open_output(path, overwrite=overwrite) as file:
        file.write(content)


def test_what_is_there_is_replaced_only_when_that_is_asked_for(tmp_path: Path) -> None:
    thesis = tmp_path / "thesis.txt"
    write(thesis, b"ten years of work")
    with pytest.raises(WriteError, match="is there already") as caught:
        write(thesis, b"new")
    assert "--overwrite" in (caught.value.hint or "")
    assert thesis.read_bytes() == b"ten years of work"
    write(thesis, b"new", overwrite=True)
    assert thesis.read_bytes() == b"new"


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_file_of_a_model_is_never_written(model: Path, tmp_path: Path, overwrite: bool) -> None:
    before = {path.name: path.read_bytes() for path in model.iterdir()}
    (model / "curves.svg").unlink()  # may be removed, but its name is taken
    link, folder = tmp_path / "link", tmp_path / "folder"
    link.symlink_to(model / "config.json")
    folder.symlink_to(model)
    for path in (*(model / name for name in (*before, ".lock", "config.json.new")), link, folder / MANIFEST):
        with pytest.raises(WriteError, match="is a file of the model in"):
            write(path, b"gone", overwrite=overwrite)
    assert {path.name: path.read_bytes() for path in model.iterdir()} == {
        name: content for name, content in before.items() if name != "curves.svg"
    }


def test_the_files_of_a_run_are_not_written_either(tmp_path: Path) -> None:
    write_run(tmp_path, {"run.json": b"{}"})
    (tmp_path / "checkpoints" / "metrics.jsonl").write_text("{}\n")
    for name in ("run.json", "metrics.jsonl"):
        with pytest.raises(WriteError, match="is a file of the model in"):
            write(tmp_path / "checkpoints" / name, b"gone", overwrite=True)


def test_another_file_beside_those_of_a_model_is_like_any_other(model: Path) -> None:
    write(model / "model.arpa", b"mine")
    with pytest.raises(WriteError, match="is there already"):
        write(model / "model.arpa", b"again")
    write(model / "model.arpa", b"again", overwrite=True)
    assert (model / "model.arpa").read_bytes() == b"again"


def test_a_file_that_cannot_be_finished_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), open_output(tmp_path / "half.gz", overwrite=False) as file:
        file.write(b"half")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_a_name_that_ends_in_gz_is_compressed_to_the_same_bytes_every_time(tmp_path: Path) -> None:
    for name in ("a.gz", "b.gz"):
        write(tmp_path / name, b"text" * 1000)
    assert gzip.decompress((tmp_path / "a.gz").read_bytes()) == b"text" * 1000
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


def test_a_minus_is_stdout(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    print("before")
    write(Path("-"), b"\\data\\\n")
    print("after")
    assert capfdbinary.readouterr().out == b"before\n\\data\\\nafter\n"


def test_a_device_is_written_into_and_stays_a_device(tmp_path: Path) -> None:
    write(Path("/dev/null"), b"text")
    assert Path("/dev/null").is_char_device()


def test_a_pipe_is_written_into_and_a_link_stays_a_link(tmp_path: Path) -> None:
    pipe, link, target = tmp_path / "pipe", tmp_path / "link", tmp_path / "target"
    os.mkfifo(pipe)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()))
    reader.start()
    write(pipe, b"text")
    reader.join(60)
    assert found == [b"text"] and pipe.is_fifo()
    link.symlink_to(target)
    write(link, b"new")  # it points to nothing yet
    assert link.is_symlink() and target.read_bytes() == b"new"
    with pytest.raises(WriteError, match="is there already"):
        write(link, b"newer")
    write(link, b"newer", overwrite=True)
    assert link.is_symlink() and target.read_bytes() == b"newer"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the device is one of Linux")
def test_a_device_without_room_is_an_error_for_people() -> None:
    with pytest.raises(WriteError, match="no space left"):
        write(Path("/dev/full"), b"text")


def test_a_place_where_no_file_can_be_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match="is a directory"):
        check_output(tmp_path, overwrite=True)
    with pytest.raises(WriteError, match="there is no directory"):
        check_output(tmp_path / "nowhere" / "file", overwrite=True)
