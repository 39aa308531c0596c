"""Rows of two sides from two texts that are aligned line by line. Knows nothing of symbols."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from elman.core.errors import DataError
from elman.text.readers import SKIP_HINT, Fault, LineBlock, Reader, Sources
from elman.text.settings import ReadingConfig
from elman.text.tables import Pairs, Row, checked, in_form


def read_aligned(sources: Sources, targets: Sources, data: ReadingConfig, found: Pairs) -> None:
    """Line by line of two texts. Bad lines are seen here: dropped by a reader, they would move all that follow."""
    readers = [Reader(side, data, any_bytes=True, keep_records=True) for side in (sources, targets)]
    rows = itertools.zip_longest(*(_each_line(reader) for reader in readers))
    for number, (source, target) in enumerate(rows, start=1):
        if source is None or target is None:
            counts = [number - 1, number - 1]
            longer = 1 if source is None else 0
            counts[longer] += 1 + sum(1 for _ in rows)
            raise DataError(
                f"the sources have {counts[0]:,} lines and the targets {counts[1]:,}",
                code="misaligned",
                hint="line n of the one is the translation of line n of the other",
            )
        (lines, index, text), (_, _, other) = source, target
        if not text.strip() and not other.strip():
            continue
        row = _decoded(text, other, data)
        if isinstance(row, Fault):
            readers[0].drop(lines, index, row)
        else:
            found.add(in_form(row, readers[0], lines.source), lines.source, lines.number(index))
    found.num_dropped = readers[0].num_dropped


def _each_line(reader: Reader) -> Iterator[tuple[LineBlock, int, bytes]]:
    for lines in reader.blocks():
        for index, text in enumerate(lines.split()):
            yield lines, index, text


def _decoded(source: bytes, target: bytes, data: ReadingConfig) -> Row | Fault:
    texts = []
    for name, side in (("source", source), ("target", target)):
        try:
            texts.append(side.decode(errors=data.errors))
        except UnicodeDecodeError as error:
            hint = f"--set data.errors=replace puts U+FFFD there, {SKIP_HINT}"
            return Fault(f"has a {name} that is not UTF-8 at byte {error.start + 1}", hint, "bad-utf8")
        if b"\0" in side:
            return Fault(f"has a NUL in its {name}", f"is this a text? {SKIP_HINT}")
    return checked(texts[0], texts[1])
