"""All lines of a text as ids in one place, however many, and where the part that is held out begins."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from elman.core.arrays import Array
from elman.core.errors import DataError
from elman.text.readers import LineBlock, cut_blocks
from elman.text.spool import MAX_MEMORY_BYTES, Spool, writing_to
from elman.text.units.vocabulary import EOS_ID


@dataclass(frozen=True)
class Gathered:
    """The ids of a text, as one stream, and the bytes of every line."""

    ids: Spool
    line_bytes: Array

    def tokens_of(self, num_lines: int) -> int:
        """How many ids the first lines have."""
        num_tokens = 0
        for part in self.ids.parts():
            ends = np.flatnonzero(part == EOS_ID)
            if len(ends) >= num_lines:
                return num_tokens + int(ends[num_lines - 1]) + 1
            num_lines -= len(ends)
            num_tokens += len(part)
        return num_tokens

    def count(self, num_tokens: int, num_symbols: int) -> Array:
        """How often each symbol is among the first tokens."""
        counts = np.zeros(num_symbols, dtype=np.int64)
        for part in self.ids.parts():
            counts += np.bincount(part[:num_tokens], minlength=num_symbols)
            num_tokens -= len(part)
            if num_tokens <= 0:
                break
        return counts


def gather(
    blocks: Iterable[LineBlock], encode: Callable[[bytes], Array], id_type: npt.DTypeLike, directory: Path | None
) -> Gathered:
    """Encode every line."""
    ids, line_bytes = Spool(id_type, directory), Spool(np.uint32, directory)
    try:
        for lines in blocks:
            ids.append(encode(lines.data))
            line_bytes.append(line_sizes(lines.data))
        if not len(line_bytes):
            raise DataError("the input is empty", code="empty-data", hint="it needs at least one line of text")
    except BaseException:
        ids.close()
        line_bytes.close()
        raise
    return Gathered(ids, line_bytes.finish())


def line_sizes(lines: bytes) -> Array:
    """The bytes of every line, with its newline."""
    ends = np.flatnonzero(np.frombuffer(lines, dtype=np.uint8) == ord("\n"))
    return np.diff(ends, prepend=-1)


def num_training_lines(line_bytes: Array, heldout: float | None) -> int:
    """How many lines are for training if a last part is held out, which is at least one line that is not blank.

    All of them if that would leave nothing to train on.
    """
    last_with_text = len(line_bytes) - 1
    while last_with_text > 0 and line_bytes[last_with_text] == 1:
        last_with_text -= 1
    return cut_heldout(len(line_bytes), last_with_text, heldout)


def cut_heldout(num_lines: int, last_with_text: int, heldout: float | None) -> int:
    """`num_training_lines`, where it is known which line is the last that is not blank (0 if there is none)."""
    if heldout is None or num_lines < 2:
        return num_lines
    return min(num_lines - max(1, int(num_lines * heldout)), last_with_text) or num_lines


class KeptText:
    """Lines to be read again: in memory while they are few, then in a file without a name."""

    def __init__(self, blocks: Iterable[LineBlock], directory: Path | None) -> None:
        folder = None if directory is None else str(directory)
        self._file: IO[bytes] = tempfile.SpooledTemporaryFile(MAX_MEMORY_BYTES, dir=folder)  # noqa: SIM115
        sizes = Spool(np.uint32, directory)
        try:
            for lines in blocks:
                with writing_to(directory):
                    self._file.write(lines.data)
                sizes.append(line_sizes(lines.data))
        except BaseException:
            sizes.close()
            self.close()
            raise
        self.line_bytes = sizes.finish()

    def blocks(self) -> Iterator[LineBlock]:
        """The text from its beginning."""
        self._file.seek(0)
        for data, first in cut_blocks(self._file, "the text"):
            yield LineBlock(data, "the text", first)

    def lines(self, num_lines: int) -> Iterator[bytes]:
        """The first lines, without their ends."""
        return itertools.islice((line for lines in self.blocks() for line in lines.split()), num_lines)

    def close(self) -> None:
        """Forget it."""
        self._file.close()
