"""The texts of a comparison: what is trained on, what is tuned on, and what the numbers are of. No text is two of these."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from elman.core.arrays import Array
from elman.core.errors import DataError, MissingError, UsageError
from elman.core.files import replacing
from elman.text.gathering import line_sizes
from elman.text.readers import Reader, find_files
from elman.text.settings import ReadingConfig

FOLDER = "texts"
COPIED_BYTES = 1 << 20


@dataclass(frozen=True)
class Parts:
    """Files to train on, to tune on and to measure on. None where a task holds rows out itself."""

    train: tuple[str, ...]
    valid: str | None
    test: str | None
    measured_on: str  # test, valid, held out
    note: str | None = None  # how they came about

    @property
    def measured(self) -> str | None:
        """The file that the numbers are of; None for rows that every model holds out from the same data."""
        return self.test or self.valid


def fingerprints(paths: Sequence[str]) -> dict[str, str]:
    """The beginning of the SHA-256 of every file."""
    found = {}
    for source in find_files(list(paths)):
        digest = hashlib.sha256()
        try:
            with Path(str(source)).open("rb") as file:
                for chunk in iter(lambda: file.read(COPIED_BYTES), b""):
                    digest.update(chunk)
        except OSError as error:
            raise MissingError(f"cannot read {source}: {(error.strerror or str(error)).lower()}") from None
        found[str(source)] = digest.hexdigest()[:16]
    return found


def refuse_same(train: Sequence[str], valid: str | None, test: str | None, prints: Mapping[str, str]) -> None:
    """Refuse to measure on what was trained or tuned on."""
    if test is None:
        return
    for name, others in (("DATA", train), ("--valid", [] if valid is None else [valid])):
        if any(prints.get(str(path)) == prints.get(test) for path in find_files(list(others)) if prints.get(test)):
            hint = "leave out --test: a part of the other text is kept for measuring"
            raise UsageError(f"--test is the same text as {name}", code="given-twice", hint=hint)


def cut_text(
    train: Sequence[str], valid: str | None, test: str | None, out: Path, *, data: ReadingConfig, heldout: float
) -> Parts:
    """A text to tune on and another to measure on, cut from the ends of what is given where they are not given.

    So nothing that was tuned, be it a mixture's weights or a temperature, is measured on the text it was tuned on.
    """
    if valid is not None and test is not None:
        return Parts(tuple(train), valid, test, "test")
    folder = out / FOLDER
    if valid is not None:
        paths = _cut([valid], folder, dict.fromkeys(("valid", "test"), 0.5), data=data)
        note = (
            f"the first half of {valid} is for tuning, the numbers are of the second half (--test gives another text)"
        )
        return Parts(tuple(train), paths["valid"], paths["test"], "held out", note)
    if test is not None:
        paths = _cut(train, folder, {"train": 1 - heldout, "valid": heldout}, data=data)
        note = f"the last {heldout:.0%} of the text are for tuning"
        return Parts((paths["train"],), paths["valid"], test, "test", note)
    paths = _cut(train, folder, {"train": 1 - 2 * heldout, "valid": heldout, "test": heldout}, data=data)
    note = f"the last {2 * heldout:.0%} of the text are held out: half for tuning, the numbers are of the other half"
    return Parts((paths["train"],), paths["valid"], paths["test"], "held out", note)


def _cut(sources: Sequence[str], folder: Path, shares: dict[str, float], *, data: ReadingConfig) -> dict[str, str]:
    """Whole lines, in order, into a file for each part, or no file at all. -> their names"""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return _cut_into(sources, folder, shares, data=data)
    except BaseException:
        shutil.rmtree(folder)
        raise


def _cut_into(sources: Sequence[str], folder: Path, shares: dict[str, float], *, data: ReadingConfig) -> dict[str, str]:
    with replacing(folder / "all.txt") as whole:
        sizes: list[Array] = []
        with whole.open("wb") as file:
            for block in Reader(list(sources), data, separator=getattr(data, "separator", None)).blocks():
                file.write(block.data)
                sizes.append(line_sizes(block.data))
        ends = np.cumsum(np.concatenate(sizes)) if sizes else np.zeros(0, dtype=np.int64)
        if len(ends) < len(shares):
            what = f"{', '.join(sources)} has {len(ends)} lines, too few to hold some out"
            raise DataError(what, code="empty-data", hint="give --valid and --test")
        starts = [0, *_boundaries(ends, list(shares.values()))]
        paths = {name: folder / f"{name}.txt" for name in shares}
        for path, (start, end) in zip(paths.values(), pairwise(starts), strict=True):
            with replacing(path) as temporary, temporary.open("wb") as part:
                for piece in _pieces(whole, start, end):
                    part.write(piece)
    (folder / "all.txt").unlink()
    return {name: str(path) for name, path in paths.items()}


def _boundaries(ends_L: Array, shares: Sequence[float]) -> Iterator[int]:
    """Where each part ends, in bytes: at the line end nearest to its share; every part has a line."""
    before, total = 0, int(ends_L[-1])
    for place, share in enumerate(np.cumsum(shares).tolist()):
        left = len(shares) - place - 1  # parts that still need a line
        line = int(np.searchsorted(ends_L, share * total * (1 - 1e-9))) + 1 if left else len(ends_L)
        before = min(max(line, before + 1), len(ends_L) - left)
        yield int(ends_L[before - 1])


def _pieces(path: Path, start: int, end: int) -> Iterator[bytes]:
    with path.open("rb") as file:
        file.seek(start)
        while start < end:
            piece = file.read(min(COPIED_BYTES, end - start))
            start += len(piece)
            yield piece
