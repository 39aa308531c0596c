"""The safetensors format: arrays to bytes and bytes to arrays, without copies. Writes no files.

Eight bytes of header length, a JSON header of {name: dtype, shape, data_offsets}, then the tensors without gaps.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from elman.core.arrays import Array
from elman.core.errors import DataError

DAMAGED = "copy the model again from its source, or train it again"
MAX_HEADER_BYTES = 100_000_000  # limit of the safetensors library
MAX_TENSORS = 10_000  # no model has more; parsing a header of 100,000 entries would only waste time

_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1"}
_DTYPES |= {"U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1", "BOOL": "|b1"}
_CODES = {np.dtype(name): code for code, name in _DTYPES.items()}


class _Place(NamedTuple):
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    start: int
    end: int


def tensor_buffers(tensors: Mapping[str, Array]) -> list[memoryview]:
    """The buffers of a file: its header, then the memory of every tensor.

    The widest dtypes come first, so that each tensor is aligned to its item size.
    """
    if len(tensors) > MAX_TENSORS:
        raise ValueError(f"{len(tensors)} tensors; the limit per file is {MAX_TENSORS}")
    header: dict[str, Any] = {}
    buffers: list[memoryview] = []
    offset = 0
    for name, array in sorted(tensors.items(), key=lambda item: (-item[1].itemsize, item[0])):
        little = np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")
        end = offset + little.nbytes
        header[name] = {"dtype": _CODES[little.dtype], "shape": list(array.shape), "data_offsets": [offset, end]}
        buffers.append(little.reshape(-1).view(np.uint8).data)
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return [memoryview(len(text).to_bytes(8, "little") + text), *buffers]


def parse_tensors(path: Path, view: memoryview) -> dict[str, Array]:
    """The tensors in the bytes of the file `path`, as views. The safetensors library checks the file first."""
    _check_with_safetensors(path)
    begin, places = _parse_header(path, view)
    tensors: dict[str, Array] = {}
    reached = 0
    for name, place in sorted(places.items(), key=lambda item: item[1].start):
        if place.start != reached or place.end - place.start != place.dtype.itemsize * math.prod(place.shape):
            raise DataError(f"{path} is corrupt: tensor {name!r} has the wrong offset or size", code="damaged-model")
        if begin + place.end > len(view):
            raise DataError(
                f"{path} is truncated: {name!r} ends at byte {begin + place.end}, the file at {len(view)}",
                code="damaged-model",
            )
        flat: Array = np.frombuffer(view[begin + place.start : begin + place.end], dtype=place.dtype)
        try:
            tensors[name] = flat.reshape(place.shape)
        except ValueError:  # empty, and one of its sides beyond what an array can have
            raise DataError(
                f"{path} is corrupt: tensor {name!r} has shape {place.shape}", code="damaged-model"
            ) from None
        reached = place.end
    if begin + reached != len(view):
        raise DataError(
            f"{path} is corrupt: {len(view) - begin - reached} bytes belong to no tensor", code="damaged-model"
        )
    return tensors


def _check_with_safetensors(path: Path) -> None:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="np"):
            pass
    except SafetensorError as error:
        raise DataError(f"{path} is not a safetensors file: {error}", code="damaged-model") from None


def _parse_header(path: Path, view: memoryview) -> tuple[int, dict[str, _Place]]:
    """The offset of the first tensor, and the place of each relative to it."""
    length = int.from_bytes(view[:8], "little")
    if length > min(MAX_HEADER_BYTES, len(view) - 8):
        raise DataError(f"{path} is corrupt: it claims a header of {length} bytes", code="damaged-model")
    try:
        header = json.loads(bytes(view[8 : 8 + length]))
        if len(header) > MAX_TENSORS + 1:
            raise DataError(f"{path} claims {len(header)} tensors; {MAX_TENSORS} is the limit", code="damaged-model")
        places = {}
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            start, end = entry["data_offsets"]
            place = _Place(np.dtype(_DTYPES[entry["dtype"]]), tuple(entry["shape"]), start, end)
            if not all(isinstance(number, int) and number >= 0 for number in (*place.shape, start, end)):
                raise DataError(
                    f"{path} is corrupt: tensor {name!r} has shape {place.shape} at {start}:{end}", code="damaged-model"
                )
            places[name] = place
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise DataError(
            f"{path} has a malformed header: {type(error).__name__} {error}", code="damaged-model"
        ) from None
    return 8 + length, places


def refuse_not_finite(name: str, array: Array, *, zeros: bool = False) -> None:
    """An error where an array of a saved model has NaN or infinity. zeros: it holds logarithms, -infinity is that of zero."""
    if array.dtype.kind != "f" or not array.size:
        return
    highest = array.max()  # NaN if anything is
    if not highest < np.inf or not (zeros or array.min() > -np.inf):
        number = "NaN" if np.isnan(highest) else "infinity"
        raise DataError(
            f"{name} has {number} in it: the model is damaged, or its training diverged",
            code="damaged-model",
            hint=DAMAGED,
        )


def require_table(tensors: Mapping[str, Array], name: str, kinds: str, rows: int | None = None) -> Array:
    """One array of a saved model, of one of these kinds of numbers and this length; an error where it is not so."""
    found = tensors.get(name)
    if found is None or found.dtype.kind not in kinds or found.ndim != 1 or (rows is not None and len(found) != rows):
        raise DataError(
            f"the model's table {name} is missing or has the wrong type or size", code="damaged-model", hint=DAMAGED
        )
    refuse_not_finite(f"the model's table {name}", found, zeros=True)
    return found


def under_prefix(tensors: Mapping[str, Array], prefix: str) -> dict[str, Array]:
    """The tensors whose names start with a prefix, without it."""
    return {name.removeprefix(prefix): array for name, array in tensors.items() if name.startswith(prefix)}
