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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import load_file

from elman.core import files
from elman.core.errors import BusyError, DataError, ElmanError, MissingError, WriteError
from elman.core.tensors import MAX_TENSORS

OLD: dict[str, files.Content] = {"config.json": b"old", "model.safetensors": {"a": np.arange(5)}, "only_old.txt": b"x"}
NEW: dict[str, files.Content] = {"config.json": b"new", "model.safetensors": {"a": np.arange(9)}, "only_new.txt": b"y"}

DTYPES = st.sampled_from(["<f8", "<f4", "<f2", "<i8", "<i4", "<i2", "i1", "<u8", "<u4", "<u2", "u1", "bool", ">i4"])


def contents_of(directory: Path) -> tuple[bytes, int]:
    """What the model there is: checked to the bit."""
    stored = files.open_directory(directory)
    for name in stored.manifest.files:
        assert stored.read(name)
    return stored.read("config.json"), len(stored.tensors("model.safetensors")["a"])


def write(directory: Path, contents: dict[str, files.Content]) -> None:
    with files.lock(directory):
        files.commit(directory, contents, seed=3)


# ------------------------------------------------------------------------------------------------------------ tensors


@given(
    arrays=st.dictionaries(
        st.text(min_size=1, max_size=5).filter(lambda name: name != "__metadata__"),
        DTYPES.flatmap(
            lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
        ),
        max_size=5,
    )
)
def test_tensors_come_back_as_they_were_and_safetensors_reads_them_too(
    tmp_path_factory: pytest.TempPathFactory, arrays: dict[str, files.Array]
) -> None:
    path = tmp_path_factory.mktemp("t") / "m.safetensors"
    files.write_tensors(path, arrays)
    ours, theirs = files.read_tensors(path), load_file(path)
    assert ours.keys() == theirs.keys() == arrays.keys()
    for name, array in arrays.items():
        assert ours[name].shape == theirs[name].shape == array.shape
        assert ours[name].dtype == theirs[name].dtype == array.dtype.newbyteorder("<")
        np.testing.assert_array_equal(ours[name], array)
        np.testing.assert_array_equal(theirs[name], array)
        assert ours[name].flags.aligned


def test_tensors_are_mapped_and_cannot_be_written_to(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    files.write_tensors(path, {"a": np.arange(4), "transposed": np.arange(6).reshape(2, 3).T})
    tensors = files.read_tensors(path)
    assert tensors["transposed"].tolist() == [[0, 3], [1, 4], [2, 5]]
    with pytest.raises(ValueError, match="read-only"):
        tensors["a"][0] = 1


def test_the_hash_is_that_of_the_file(tmp_path: Path) -> None:
    import hashlib

    entry = files.write_tensors(tmp_path / "m", {"a": np.arange(3_000_000)})
    data = (tmp_path / "m").read_bytes()
    assert entry == files.Entry(sha256=hashlib.sha256(data).hexdigest(), size=len(data))


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes, files.Entry]:
    path = tmp_path_factory.mktemp("fuzz") / "m.safetensors"
    tensors = {"weights": np.linspace(0, 1, 12, dtype=np.float32).reshape(3, 4), "ids": np.arange(7), "n": np.array(3)}
    entry = files.write_tensors(path, tensors)
    return path, path.read_bytes(), entry


@settings(max_examples=400)
@given(data=st.data())
def test_a_damaged_tensor_file_is_refused_and_never_crashes(
    sample: tuple[Path, bytes, files.Entry], data: st.DataObject
) -> None:
    path, good, entry = sample
    changed = bytearray(good)
    for _ in range(data.draw(st.integers(1, 4))):
        kind = data.draw(st.sampled_from(["flip", "cut", "insert", "header"]))
        place = data.draw(st.integers(0, max(0, len(changed) - 1)))
        if kind == "cut":
            del changed[place:]
        elif kind == "insert":
            changed[place:place] = data.draw(st.binary(min_size=1, max_size=9))
        elif kind == "header":
            changed[:8] = data.draw(st.integers(0, 2**64 - 1)).to_bytes(8, "little")
        elif changed:
            changed[place] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(changed)
    if bytes(changed) != good:
        with pytest.raises(DataError):
            files.read_tensors(path, expected=entry)
    with contextlib.suppress(DataError):  # without the manifest: a message or arrays, nothing else
        for array in files.read_tensors(path).values():
            assert array.sum() is not None


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, "no safetensors file"),
        ({"a": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}, "malformed header"),
        ({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4], "more": {}}}, None),
        ({str(i): {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]} for i in range(MAX_TENSORS + 2)}, "limit"),
    ],
)
def test_odd_headers(tmp_path: Path, header: dict[str, Any], message: str | None) -> None:
    text = json.dumps(header).encode()
    payload = b"\0" * 4 if "a" in header else b""
    path = tmp_path / "m.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + payload)
    if message is None:
        assert files.read_tensors(path)["a"].tolist() == [0.0]
    else:
        with pytest.raises(DataError, match=message):
            files.read_tensors(path)


@pytest.mark.parametrize("table", ["np.ones(25_000_000)", "np.memmap('table', np.float64, 'w+', shape=(25_000_000,))"])
def test_a_table_is_not_doubled_in_memory_when_written(tmp_path: Path, table: str) -> None:
    """Neither a table of 200 MB in memory, nor one in a file, whose pages are given back as they are written."""
    script = f"""
        import resource, numpy as np
        from pathlib import Path
        from elman import files
        table = {table}
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        files.write_tensors(Path({str(tmp_path / "m")!r}), {{"table": table}})
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    """
    grown_kb = int(subprocess.check_output([sys.executable, "-c", textwrap.dedent(script)], cwd=tmp_path))
    assert grown_kb < 80_000


# ---------------------------------------------------------------------------------------------------------- directory


def test_a_commit_replaces_the_whole_model(tmp_path: Path) -> None:
    directory = tmp_path / "deep" / "model"
    write(directory, OLD)
    assert contents_of(directory) == (b"old", 5)
    write(directory, NEW)
    assert contents_of(directory) == (b"new", 9)
    assert sorted(path.name for path in directory.iterdir()) == sorted([*NEW, files.MANIFEST])
    manifest = files.read_manifest(directory)
    assert manifest.seed == 3
    assert manifest.versions["numpy"] == np.__version__
    assert "torch" not in manifest.versions or "torch" in sys.modules


class Crash(BaseException):
    """The machine stops here."""


OPERATIONS = ["open", "write", "fsync", "replace", "unlink"]


@contextlib.contextmanager
def failing(at: int, how: Callable[[], BaseException], *, for_good: bool) -> Iterator[list[int]]:
    """Make the `at`-th file operation fail (for good: and every one after it); a write is torn in the middle."""
    count = [0]
    originals = {name: getattr(os, name) for name in OPERATIONS}

    def wrap(name: str) -> Callable[..., Any]:
        def wrapped(*args: Any, **options: Any) -> Any:
            count[0] += 1
            if count[0] == at or (for_good and count[0] > at):
                if name == "write":
                    originals["write"](args[0], args[1][: len(args[1]) // 2])
                raise how()
            return originals[name](*args, **options)

        return wrapped

    try:
        for name in OPERATIONS:
            setattr(os, name, wrap(name))
        yield count
    finally:
        for name, original in originals.items():
            setattr(os, name, original)


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
        assert sorted(path.name for path in directory.iterdir()) == sorted([*NEW, files.MANIFEST])
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
        from elman import files
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
            stored = files.open_directory(directory)
            number = int(stored.read("config.json"))
            assert (stored.tensors("m")["a"] == number).all()
            assert number >= last, (number, last)
            last = number
        commit(-1)
        assert sorted(os.listdir(directory)) == ["config.json", "m", "manifest.json"], os.listdir(directory)
        print(last)
    """
    assert int(subprocess.check_output([sys.executable, "-c", textwrap.dedent(script)], timeout=120)) > 5


def test_readers_never_see_a_mixture_of_two_models(tmp_path: Path) -> None:
    directory = tmp_path / "model"
    versions: list[dict[str, files.Content]] = [
        {"config.json": str(number).encode(), "m": {"a": np.full(1000, number)}} for number in range(2)
    ]
    write(directory, versions[0])
    done = threading.Event()

    def keep_writing() -> None:
        for turn in range(30):
            write(directory, versions[turn % 2])
        done.set()

    writer = threading.Thread(target=keep_writing)
    writer.start()
    reads = 0
    while not done.is_set():
        number, tensors = files.read_consistently(
            directory, lambda stored: (int(stored.read("config.json")), stored.tensors("m")), verify=reads % 2 == 0
        )
        assert (tensors["a"] == number).all()
        reads += 1
    writer.join()
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


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mount.returncode:
        pytest.skip("mounting a tmpfs needs root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


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
            assert "make room" in (error.hint or "")
            assert sorted(directory.iterdir()) == before
            assert contents_of(directory) == (b"old", 5)
        else:
            assert contents_of(directory)[0] == b"new"
            write(directory, OLD)
    with files.lock(tiny_disk / "fresh"), pytest.raises(WriteError):
        files.commit(tiny_disk / "fresh", {"m": {"a": np.zeros(100_000)}})
    assert not (tiny_disk / "fresh").exists()


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
        from elman import files
        with files.lock(Path({str(tmp_path)!r})):
            Path({str(tmp_path / "m.new")!r}).write_text("half")
            os.kill(os.getpid(), signal.SIGKILL)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "m.new"]
    files.check_vacant(tmp_path, overwrite=False)
    write(tmp_path, OLD)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*OLD, files.MANIFEST])


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
    manifest = json.loads((tmp_path / files.MANIFEST).read_text())
    manifest["files"]["config.json"]["sha256"] = "damaged"
    (tmp_path / files.MANIFEST).write_text(json.dumps(manifest))
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
                files.open_directory(tmp_path).read(name)
        (tmp_path / name).write_bytes(good[:-1])
        with pytest.raises(DataError, match="manifest says"):
            files.open_directory(tmp_path).read(name)
        (tmp_path / name).write_bytes(good)
    assert contents_of(tmp_path) == (b"old", 5)


def test_no_verify_reads_what_is_there(tmp_path: Path) -> None:
    write(tmp_path, OLD)
    (tmp_path / "config.json").write_bytes(b"edited by hand")
    assert files.open_directory(tmp_path, verify=False).read("config.json") == b"edited by hand"


def test_no_model_there(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="there is no model at"):
        files.open_directory(tmp_path / "nowhere")
    with pytest.raises(MissingError, match="holds no model"):
        files.open_directory(tmp_path)
    write(tmp_path, OLD)
    (tmp_path / "config.json").unlink()
    with pytest.raises(MissingError, match=r"cannot read .*config\.json"):
        files.open_directory(tmp_path).read("config.json")
    with pytest.raises(DataError, match=r"has no tokenizer\.json"):
        files.open_directory(tmp_path).read("tokenizer.json")


def test_a_model_of_a_newer_format_is_refused_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / files.MANIFEST).write_text('{"format_version": 99, "files": {}, "future": 1}')
    with pytest.raises(DataError, match="newer elman") as caught:
        files.open_directory(tmp_path)
    assert caught.value.hint == "upgrade elman"


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", ".lock", "a/b", "", "a\n"])
def test_a_manifest_cannot_point_out_of_its_directory(tmp_path: Path, name: str) -> None:
    entry = {"sha256": "0" * 64, "size": 1}
    (tmp_path / files.MANIFEST).write_text(json.dumps({"format_version": 1, "files": {name: entry}}))
    with pytest.raises(DataError, match="no manifest"):
        files.open_directory(tmp_path)


@settings(max_examples=300)
@given(data=st.data())
def test_a_damaged_manifest_never_crashes(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    directory = tmp_path_factory.getbasetemp() / "manifest_fuzz"
    if not directory.exists():
        write(directory, OLD)
        (directory / "good").write_bytes((directory / files.MANIFEST).read_bytes())
    changed = bytearray((directory / "good").read_bytes())
    for _ in range(data.draw(st.integers(1, 5))):
        place = data.draw(st.integers(0, len(changed) - 1))
        changed[place : place + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    (directory / files.MANIFEST).write_bytes(changed)
    with contextlib.suppress(ElmanError):
        contents_of(directory)


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
