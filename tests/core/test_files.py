"""The one writer: nothing half-written, nothing lost, nothing read that was not written."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elman.core import files
from elman.core.arrays import Array
from elman.core.errors import BusyError, DataError, ElmanError, MissingError, WriteError
from elman.core.stored import MANIFEST, Stored, open_directory, read_consistently, read_manifest
from tests.core.faults import Crash, failing

OLD: dict[str, files.Content] = {"config.json": b"old", "model.safetensors": {"a": np.arange(5)}, "only_old.txt": b"x"}
NEW: dict[str, files.Content] = {"config.json": b"new", "model.safetensors": {"a": np.arange(9)}, "only_new.txt": b"y"}


def contents_of(directory: Path) -> tuple[bytes, int]:
    """What the model there is: checked to the bit."""
    stored = open_directory(directory)
    for name in stored.manifest.files:
        assert stored.read(name)
    return stored.read("config.json"), len(stored.tensors("model.safetensors")["a"])


def write(directory: Path, contents: dict[str, files.Content]) -> None:
    with files.lock(directory):
        files.commit(directory, contents, seed=3)


# ---------------------------------------------------------------------------------------------------------- directory


def test_a_commit_replaces_the_whole_model(tmp_path: Path) -> None:
    directory = tmp_path / "deep" / "model"
    write(directory, OLD)
    assert contents_of(directory) == (b"old", 5)
    write(directory, NEW)
    assert contents_of(directory) == (b"new", 9)
    assert sorted(path.name for path in directory.iterdir()) == sorted([*NEW, MANIFEST])
    manifest = read_manifest(directory)
    assert manifest.seed == 3
    assert manifest.versions["numpy"] == np.__version__
    assert "torch" not in manifest.versions or "torch" in sys.modules


def count_operations(directory: Path) -> int:
    write(directory, OLD)
    with files.lock(directory), failing(0, Crash, for_good=False) as count:
        files.commit(directory, NEW)
    return count[0]


def test_a_crash_at_any_file_operation_leaves_the_old_model_or_the_new_one(tmp_path: Path) -> None:
    total = count_operations(tmp_path / "count")
    seen = set()
    for at in range(1, total + 1):
        directory = tmp_path / str(at)
        write(directory, OLD)
        with files.lock(directory), failing(at, Crash, for_good=True), contextlib.suppress(Crash):
            files.commit(directory, NEW)
        found = contents_of(directory)
        assert found in {(b"old", 5), (b"new", 9)}
        seen.add(found)
        # Crash again while the next writer cleans up, at every operation of that.
        for again in range(1, 12):
            with files.lock(directory), failing(again, Crash, for_good=True), contextlib.suppress(Crash):
                files.recover(directory)
            assert contents_of(directory) == found
        write(directory, NEW)
        assert contents_of(directory) == (b"new", 9)
        assert sorted(path.name for path in directory.iterdir()) == sorted([*NEW, MANIFEST])
    assert len(seen) == 2


def test_an_io_error_at_any_file_operation_is_reported_and_leaves_a_whole_model(tmp_path: Path) -> None:
    total = count_operations(tmp_path / "count")
    num_reported = 0
    for at in range(1, total + 1):
        directory = tmp_path / str(at)
        write(directory, OLD)
        before = sorted(directory.iterdir())
        with files.lock(directory), failing(at, lambda: OSError(errno.EIO, "I/O error"), for_good=False):
            try:
                files.commit(directory, NEW)
                expected = {(b"new", 9)}  # it failed where only tidying was left
            except WriteError as error:
                assert str(directory) in error.what
                expected = {(b"old", 5), (b"new", 9)}
                num_reported += 1
        found = contents_of(directory)
        assert found in expected
        if found == (b"old", 5):
            assert sorted(directory.iterdir()) == before
    assert num_reported > total / 2


def test_ctrl_c_at_any_file_operation_leaves_nothing_half_written(tmp_path: Path) -> None:
    total = count_operations(tmp_path / "count")
    for at in range(1, total + 1):
        directory = tmp_path / str(at)
        write(directory, OLD)
        interrupted = failing(at, KeyboardInterrupt, for_good=False)
        with files.lock(directory), contextlib.suppress(KeyboardInterrupt), interrupted:
            files.commit(directory, NEW)
        assert contents_of(directory) in {(b"old", 5), (b"new", 9)}


def test_a_kill_at_any_time_leaves_a_model_that_loads(tmp_path: Path) -> None:
    """60 children that do nothing but replace the model are killed at random moments."""
    script = f"""
        import os, random, signal, time
        from pathlib import Path
        import numpy as np
        from elman.core import files
        from elman.core.stored import open_directory
        directory = Path({str(tmp_path / "model")!r})
        def commit(number):
            with files.lock(directory):
                files.commit(directory, {{"config.json": str(number).encode(), "m": {{"a": np.full(50_000, number)}}}})
        begin = time.perf_counter()
        commit(0)
        duration = time.perf_counter() - begin
        rng = random.Random(1)
        last = 0
        for _ in range(60):
            child = os.fork()
            if child == 0:
                for number in range(last + 1, 10**6):
                    commit(number)
            time.sleep(rng.uniform(0, 3 * duration))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            stored = open_directory(directory)
            number = int(stored.read("config.json"))
            assert (stored.tensors("m")["a"] == number).all()
            assert number >= last, (number, last)
            last = number
        commit(-1)
        assert sorted(os.listdir(directory)) == ["config.json", "m", "manifest.json"], os.listdir(directory)
        print(last)
    """
    assert int(subprocess.check_output([sys.executable, "-c", textwrap.dedent(script)], timeout=120)) > 5


def read_version(stored: Stored) -> tuple[int, Array]:
    """The number of a version and its table; what is no number, for it is half-written, is a DataError as everywhere."""
    try:
        return int(stored.read("config.json")), stored.tensors("m")["a"]
    except ValueError as error:
        raise DataError(str(error)) from None


def test_readers_never_see_a_mixture_of_two_models(tmp_path: Path) -> None:
    """Once the reader failed over a file that was just being written, and the writer outlived the test.

    It then met the failures that `failing` makes for another one: both failed, now and then.
    """
    directory = tmp_path / "model"
    versions: list[dict[str, files.Content]] = [
        {"config.json": str(number).encode(), "m": {"a": np.full(1000, number)}} for number in range(2)
    ]
    write(directory, versions[0])
    stopped = threading.Event()

    def keep_writing() -> None:
        for turn in range(30):
            if not stopped.is_set():
                write(directory, versions[turn % 2])

    reads = 0
    with ThreadPoolExecutor(max_workers=1) as pool:  # joins its thread, whatever happens
        writing = pool.submit(keep_writing)
        try:
            while not writing.done():
                number, table = read_consistently(directory, read_version, verify=reads % 2 == 0)
                assert (table == number).all()
                reads += 1
        finally:
            stopped.set()
        writing.result()  # raises what the writer raised
    assert reads > 5


@contextlib.contextmanager
def file_size_limit(limit: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("limit", [0, 1, 100, 5_000, 70_000])
def test_a_file_size_limit_keeps_the_old_model_and_leaves_no_stray_file(tmp_path: Path, limit: int) -> None:
    write(tmp_path, OLD)
    before = sorted(tmp_path.iterdir())
    with files.lock(tmp_path), file_size_limit(limit), pytest.raises(WriteError, match="too large") as caught:
        files.commit(tmp_path, {"config.json": b"new", "model.safetensors": {"a": np.zeros(10_000)}})
    assert "ulimit" in (caught.value.hint or "")
    assert sorted(tmp_path.iterdir()) == before
    assert contents_of(tmp_path) == (b"old", 5)


def test_a_full_disk_keeps_the_old_model_and_leaves_no_stray_file(tiny_disk: Path) -> None:
    directory = tiny_disk / "model"
    write(directory, OLD)
    before = sorted(directory.iterdir())
    for kilobytes in range(16, 400, 16):
        contents: dict[str, files.Content] = {
            "config.json": b"new",
            "model.safetensors": {"a": np.zeros(kilobytes * 128)},
        }
        try:
            write(directory, contents)
        except WriteError as error:
            assert "no space" in error.what
            assert "free disk space" in (error.hint or "")
            assert sorted(directory.iterdir()) == before
            assert contents_of(directory) == (b"old", 5)
        else:
            assert contents_of(directory)[0] == b"new"
            write(directory, OLD)
    with files.lock(tiny_disk / "fresh"), pytest.raises(WriteError):
        files.commit(tiny_disk / "fresh", {"m": {"a": np.zeros(100_000)}})
    assert not (tiny_disk / "fresh").exists()


def test_a_disk_that_is_full_once_the_model_is_committed_leaves_no_stray_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second, shorter manifest could not be written, and manifest.json.new stayed."""
    write_file, written = files._write_file, []

    def write_until_full(path: Path, buffers: Any) -> Any:
        written.append(path.name)
        if written.count(MANIFEST + ".new") == 2:
            path.touch()
            raise WriteError("no space left on device")
        return write_file(path, buffers)

    monkeypatch.setattr(files, "_write_file", write_until_full)
    write(tmp_path, OLD)
    assert written.count(MANIFEST + ".new") == 2
    assert not list(tmp_path.glob("*.new"))
    assert contents_of(tmp_path) == (b"old", 5)


# ------------------------------------------------------------------------------------------------------- who may write


def test_a_second_writer_is_told_that_the_directory_is_busy(tmp_path: Path) -> None:
    with files.lock(tmp_path / "model"):
        with pytest.raises(BusyError, match="another process") as caught, files.lock(tmp_path / "model"):
            raise AssertionError("two at once")
        assert caught.value.exit_code == 75
    with files.lock(tmp_path / "model"):
        pass
    assert not (tmp_path / "model").exists()


def test_a_killed_writer_leaves_nothing_locked(tmp_path: Path) -> None:
    script = f"""
        import os, signal
        from pathlib import Path
        from elman.core import files
        from elman.core.stored import open_directory
        with files.lock(Path({str(tmp_path)!r})):
            Path({str(tmp_path / "m.new")!r}).write_text("half")
            os.kill(os.getpid(), signal.SIGKILL)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "m.new"]
    files.check_vacant(tmp_path, overwrite=False)
    write(tmp_path, OLD)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*OLD, MANIFEST])


def test_a_directory_that_holds_something_is_refused(tmp_path: Path) -> None:
    model, other, site = tmp_path / "model", tmp_path / "other", tmp_path / "site"
    write(model, OLD)
    with pytest.raises(WriteError, match="holds a model already") as caught:
        files.check_vacant(model, overwrite=False)
    assert "--overwrite" in (caught.value.hint or "")
    files.check_vacant(model, overwrite=True)
    other.mkdir()
    (other / "thesis.new").write_text("mine")
    site.mkdir()
    (site / "manifest.json").write_text('{"name": "a web app"}')
    for directory in (other, site):
        for overwrite in (False, True):
            with pytest.raises(WriteError, match="not empty and holds no model"):
                files.check_vacant(directory, overwrite=overwrite)
    files.check_vacant(tmp_path / "nowhere", overwrite=False)


def test_a_damaged_model_may_be_overwritten(tmp_path: Path) -> None:
    write(tmp_path, OLD)
    manifest = json.loads((tmp_path / MANIFEST).read_text())
    manifest["files"]["config.json"]["sha256"] = "damaged"
    (tmp_path / MANIFEST).write_text(json.dumps(manifest))
    files.check_vacant(tmp_path, overwrite=True)
    write(tmp_path, NEW)
    assert contents_of(tmp_path) == (b"new", 9)


def test_a_file_where_the_directory_should_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    with pytest.raises(WriteError, match="is a file"), files.lock(tmp_path / "file" / "model"):
        pass


def test_no_permission_to_write(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write anywhere")
    tmp_path.chmod(0o500)
    with pytest.raises(WriteError, match="permission denied"), files.lock(tmp_path / "model"):
        pass


# ------------------------------------------------------------------------------------------------------------- reading


def test_any_flipped_bit_of_any_file_is_noticed(tmp_path: Path) -> None:
    write(tmp_path, OLD)
    rng = np.random.default_rng(0)
    for name in OLD:
        good = (tmp_path / name).read_bytes()
        for _ in range(60):
            bad = bytearray(good)
            bad[rng.integers(len(bad))] ^= 1 << rng.integers(8)
            (tmp_path / name).write_bytes(bad)
            with pytest.raises(DataError, match="SHA-256"):
                open_directory(tmp_path).read(name)
        (tmp_path / name).write_bytes(good[:-1])
        with pytest.raises(DataError, match="manifest says"):
            open_directory(tmp_path).read(name)
        (tmp_path / name).write_bytes(good)
    assert contents_of(tmp_path) == (b"old", 5)


def test_no_verify_reads_what_is_there(tmp_path: Path) -> None:
    write(tmp_path, OLD)
    (tmp_path / "config.json").write_bytes(b"edited by hand")
    assert open_directory(tmp_path, verify=False).read("config.json") == b"edited by hand"


def test_no_model_there(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="there is no model at"):
        open_directory(tmp_path / "nowhere")
    with pytest.raises(MissingError, match="holds no model"):
        open_directory(tmp_path)
    write(tmp_path, OLD)
    (tmp_path / "config.json").unlink()
    with pytest.raises(MissingError, match=r"cannot read .*config\.json"):
        open_directory(tmp_path).read("config.json")
    with pytest.raises(DataError, match=r"has no tokenizer\.json"):
        open_directory(tmp_path).read("tokenizer.json")


def test_a_model_of_a_newer_format_is_refused_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text('{"format_version": 99, "files": {}, "future": 1}')
    with pytest.raises(DataError, match="newer elman") as caught:
        open_directory(tmp_path)
    assert caught.value.hint == "upgrade elman"


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", ".lock", "a/b", "", "a\n"])
def test_a_manifest_cannot_point_out_of_its_directory(tmp_path: Path, name: str) -> None:
    entry = {"sha256": "0" * 64, "size": 1}
    (tmp_path / MANIFEST).write_text(json.dumps({"format_version": 1, "files": {name: entry}}))
    with pytest.raises(DataError, match="not a valid manifest"):
        open_directory(tmp_path)


@settings(max_examples=300)
@given(data=st.data())
def test_a_damaged_manifest_never_crashes(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    directory = tmp_path_factory.getbasetemp() / "manifest_fuzz"
    if not directory.exists():
        write(directory, OLD)
        (directory / "good").write_bytes((directory / MANIFEST).read_bytes())
    changed = bytearray((directory / "good").read_bytes())
    for _ in range(data.draw(st.integers(1, 5))):
        place = data.draw(st.integers(0, len(changed) - 1))
        changed[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    (directory / MANIFEST).write_bytes(changed)
    try:
        found = contents_of(directory)
    except ElmanError:
        return
    assert found == (b"old", 5)  # what still counts as a manifest leads to what was written


# -------------------------------------------------------------------------------------------------------- single files


def test_a_single_file_is_replaced_only_when_its_writer_ended_well(tmp_path: Path) -> None:
    path = tmp_path / "model.arpa"
    path.write_text("before")
    with contextlib.suppress(KeyboardInterrupt), files.replacing(path) as temporary:
        temporary.write_text("half")
        raise KeyboardInterrupt
    assert path.read_text() == "before"
    with files.replacing(path) as temporary:
        temporary.write_text("after")
    assert path.read_text() == "after"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(WriteError, match="no such file"), files.replacing(tmp_path / "nowhere" / "x") as temporary:
        temporary.write_text("never")
