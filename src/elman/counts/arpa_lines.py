"""Lines of an ARPA file, parsed in blocks into words and numbers. Knows nothing of models.

Blocks are parsed with numpy: 0.4 µs per n-gram, a quarter of what splitting every line costs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NoReturn

import numpy as np

from elman.core.arrays import Array
from elman.core.errors import DataError
from elman.text.units.chunks import LINE_END, Chunks, cut_at_whitespace

NATS = math.log(10)  # nats per unit of log10
LARGEST = 1e30  # largest absolute log10 accepted; sums of larger values overflow
BLOCK_BYTES = 4 << 20  # bytes read, and parsed by one thread, at once
MAX_LINE = 1 << 20  # bytes of the longest line accepted
DAMAGED = "the file is damaged or truncated; create it again with the tool it came from"


class Lines:
    """A file read by lines or blocks of lines, with line numbers for errors."""

    def __init__(self, file: IO[bytes], path: Path) -> None:
        self.number = 0  # number of the last line read
        self._file = file
        self._path = path
        self._block = b""
        self._at = 0
        self._tail = b""  # start of a line whose end has not been read yet

    def next_line(self) -> bytes | None:
        """The next line, stripped of whitespace; None at the end of the file."""
        if self._at == len(self._block):
            self._fill()
        if not self._block:
            return None
        end = self._block.index(b"\n", self._at)
        line = self._block[self._at : end]
        self._at = end + 1
        self.number += 1
        return line.strip()

    def next_text(self) -> bytes | None:
        """The next line that is not blank."""
        while (line := self.next_line()) == b"":
            pass
        return line

    def blocks(self) -> Iterator[tuple[int, bytes]]:
        """All lines up to a blank one or one that starts with a backslash. -> number of the first line, lines"""
        while True:
            if self._at == len(self._block):
                self._fill()
            block, at = self._block, self._at
            if not block or block.startswith((b"\n", b"\r\n", b"\\"), at):
                return
            ends = [block.find(mark, at) + 1 for mark in (b"\n\n", b"\n\r\n", b"\n\\")]
            end = min((end for end in ends if end > 0), default=len(block))
            first, self._at = self.number + 1, end
            self.number += block.count(b"\n", at, end)
            yield first, block[at:end]

    def _fill(self) -> None:
        """Read a block of whole lines; a newline is added to the last line if missing. Empty only at the end of the file."""
        data = self._file.read(BLOCK_BYTES)
        text = self._tail + data
        end = text.rfind(b"\n") + 1
        if not data and text:
            text, end = text + b"\n", len(text) + 1
        self._block, self._at, self._tail = text[:end], 0, text[end:]
        if len(self._tail) > MAX_LINE:
            self.fail(f"is longer than {MAX_LINE:,} bytes", line=self.number + self._block.count(b"\n") + 1)
        if data and not self._block:
            self._fill()

    def fail(self, what: str, *, hint: str = DAMAGED, line: int | None = None) -> NoReturn:
        """Refuse the file because of a line, by default the last one read."""
        raise DataError(
            f"line {self.number if line is None else line} of {self._path} {what}", code="malformed-arpa", hint=hint
        )

    def fail_at_end(self, expected: str) -> NoReturn:
        what = "is empty" if self.number == 0 else f"ends after line {self.number}"
        raise DataError(f"{self._path} {what}, expected {expected}", code="malformed-arpa", hint=DAMAGED)


def parse_rows(lines: Lines, first: int, block: bytes, order: int, *, is_highest: bool) -> tuple[Chunks, Array, Array]:
    """The words of all lines, concatenated, and the log-probability and back-off of each line in nats, float32."""
    for byte, name in ((b"\0", "a NUL byte"), (LINE_END, "the byte 0xFF, which is not UTF-8")):
        if (at := block.find(byte)) >= 0:
            lines.fail(f"contains {name}", line=first + block.count(b"\n", 0, at))
    if order == 1:
        try:
            block.decode()
        except UnicodeDecodeError as error:
            lines.fail("is not UTF-8", line=first + block.count(b"\n", 0, error.start))
    fields = cut_at_whitespace(block)
    body = np.frombuffer(fields.text, np.uint8)
    ends = np.flatnonzero(np.take(body, fields.starts) == LINE_END[0])
    starts = np.concatenate(([0], ends[:-1] + 1))
    widths = ends - starts
    has_backoff = widths == order + 2
    if not (has_backoff | (widths == order + 1)).all():
        at = int(np.flatnonzero(~(has_backoff | (widths == order + 1)))[0])
        lines.fail(f"has {widths[at]} fields: a {order}-gram has {order + 1} or {order + 2}", line=first + at)
    log_probs = _numbers(fields.select(starts))
    backoffs = np.zeros(len(starts))
    backoffs[has_backoff] = _numbers(fields.select(ends[has_backoff] - 1))
    for values, what in ((log_probs, "log-probability"), (backoffs, "back-off")):
        if not (np.abs(values) <= LARGEST).all():
            at = int(np.flatnonzero(~(np.abs(values) <= LARGEST))[0])
            lines.fail(f"has a {what} that is not a number from -1e30 to 1e30", line=first + at)
    if log_probs.max(initial=0) > 0:
        at = int(np.flatnonzero(log_probs > 0)[0])
        lines.fail(f"has the positive log-probability {log_probs[at]:g}", line=first + at)
    if is_highest and backoffs.any():
        at = int(np.flatnonzero(backoffs)[0])
        lines.fail(f"has the back-off {backoffs[at]:g}, but {order} is the highest order", line=first + at)
    words = fields.select((starts[:, None] + np.arange(1, order + 1)).ravel())
    return words, (log_probs * NATS).astype(np.float32), (backoffs * NATS).astype(np.float32)


def _numbers(fields: Chunks) -> Array:
    """Fields as numbers, NaN where a field is not a number.

    Fields like -1.234567 are parsed together: digits times powers of ten. `float` parses the others: 0, 1e-05.
    """
    width = 16
    letters = np.stack([fields.keys(0), fields.keys(1)], axis=1).view(np.uint8)
    digits = letters - np.uint8(ord("0"))
    is_digit = digits < 10
    digits *= is_digit
    is_negative = letters[:, 0] == ord("-")
    is_decimal = (np.count_nonzero(is_digit, axis=1) + is_negative + 1 == fields.lengths) & (fields.lengths > 2)
    values = np.full(len(fields), np.nan)
    for dot in range(1, 5):
        rows = np.flatnonzero(is_decimal & (letters[:, dot] == ord(".")))
        powers = 10.0 ** np.array([dot - 1 - i if i < dot else dot - i for i in range(width)])
        absolute = digits[rows] @ powers
        values[rows] = np.where(is_negative[rows], -absolute, absolute)
    others = np.flatnonzero(np.isnan(values))
    values[others] = [_number(field) for field in fields.select(others)]
    return values


def _number(field: bytes) -> float:
    try:
        return math.nan if b"_" in field else float(field)
    except ValueError:
        return math.nan


def shown(text: bytes) -> str:
    return repr(text[:60].decode(errors="replace"))
