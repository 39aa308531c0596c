"""Tensors on disk: they come back as they were, mapped, and what is damaged is refused."""

from __future__ import annotations

import contextlib
import hashlib
import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import load_file

from elman.core import files
from elman.core.arrays import Array
from elman.core.errors import DataError
from elman.core.stored import Entry, read_tensors
from elman.core.tensors import MAX_TENSORS, refuse_not_finite

DTYPES = st.sampled_from(["<f8", "<f4", "<f2", "<i8", "<i4", "<i2", "i1", "<u8", "<u4", "<u2", "u1", "bool", ">i4"])


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
    tmp_path_factory: pytest.TempPathFactory, arrays: dict[str, Array]
) -> None:
    path = tmp_path_factory.mktemp("t") / "m.safetensors"
    files.write_tensors(path, arrays)
    ours, theirs = read_tensors(path), load_file(path)
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
    tensors = read_tensors(path)
    assert tensors["transposed"].tolist() == [[0, 3], [1, 4], [2, 5]]
    with pytest.raises(ValueError, match="read-only"):
        tensors["a"][0] = 1


def test_the_hash_is_that_of_the_file(tmp_path: Path) -> None:
    entry = files.write_tensors(tmp_path / "m", {"a": np.arange(3_000_000)})
    data = (tmp_path / "m").read_bytes()
    assert entry == Entry(sha256=hashlib.sha256(data).hexdigest(), size=len(data))


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bytes, Entry]:
    path = tmp_path_factory.mktemp("fuzz") / "m.safetensors"
    tensors = {"weights": np.linspace(0, 1, 12, dtype=np.float32).reshape(3, 4), "ids": np.arange(7), "n": np.array(3)}
    entry = files.write_tensors(path, tensors)
    return path, path.read_bytes(), entry


@settings(max_examples=400)
@given(data=st.data())
def test_a_damaged_tensor_file_is_refused_and_never_crashes(
    sample: tuple[Path, bytes, Entry], data: st.DataObject
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
            read_tensors(path, expected=entry)
    # without the manifest: a message or arrays, nothing else; numpy warns of a signalling NaN, which a flipped bit makes
    with contextlib.suppress(DataError), np.errstate(invalid="ignore"):
        for array in read_tensors(path).values():
            assert array.sum() is not None


@pytest.mark.parametrize(("kind", "bits"), [("f2", 0x7D00), ("f4", 0x7FA00000), ("f8", 0x7FF4000000000000)])
def test_a_signalling_nan_is_refused_without_a_warning(kind: str, bits: int) -> None:
    array = np.array([1, bits, 1], dtype=kind.replace("f", "u")).view(kind)
    with pytest.raises(DataError, match="NaN"):
        refuse_not_finite("a table", array)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, "not a safetensors file"),
        ({"a": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}, "malformed header"),
        ({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4], "more": {}}}, None),
        ({"a": {"dtype": "F32", "shape": [0, 1 << 62], "data_offsets": [0, 0]}}, "corrupt|not a safetensors file"),
        ({str(i): {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]} for i in range(MAX_TENSORS + 2)}, "limit"),
    ],
)
def test_odd_headers(tmp_path: Path, header: dict[str, Any], message: str | None) -> None:
    text = json.dumps(header).encode()
    payload = b"\0" * 4 if "a" in header else b""
    path = tmp_path / "m.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + payload)
    if message is None:
        assert read_tensors(path)["a"].tolist() == [0.0]
    else:
        with pytest.raises(DataError, match=message):
            read_tensors(path)


@pytest.mark.parametrize("table", ["np.ones(25_000_000)", "np.memmap('table', np.float64, 'w+', shape=(25_000_000,))"])
def test_a_table_is_not_doubled_in_memory_when_written(tmp_path: Path, table: str) -> None:
    """Neither a table of 200 MB in memory, nor one in a file, whose pages are given back as they are written."""
    script = f"""
        import resource, numpy as np
        from pathlib import Path
        from elman.core import files
        table = {table}
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        files.write_tensors(Path({str(tmp_path / "m")!r}), {{"table": table}})
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    """
    grown_kb = int(subprocess.check_output([sys.executable, "-c", textwrap.dedent(script)], cwd=tmp_path))
    assert grown_kb < 80_000
