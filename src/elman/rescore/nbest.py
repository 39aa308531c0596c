"""N-best lists, one at a time, from whatever layout they are in; and the references they are compared with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from elman.core.errors import DataError
from elman.rescore.archives import read_directory
from elman.rescore.hypothesis import Hypothesis, Layout
from elman.rescore.line_layouts import read_rows
from elman.text.opening import Source
from elman.text.readers import Fault, Reader
from elman.text.settings import ReadingConfig

ACOUSTIC_SCALE = 0.1
MAX_REMEMBERED = 1 << 20  # ids of lists that may not come again; with more lists than these, only the first ones


@dataclass(frozen=True)
class NBest:
    """The hypotheses for one utterance, line or sentence, in the order of the file."""

    id: str
    hypotheses: Sequence[Hypothesis]
    layout: Layout


def read_lists(
    source: Source, data: ReadingConfig, *, are_costs: bool = False, acoustic_scale: float = ACOUSTIC_SCALE
) -> Iterator[NBest]:
    """The lists of a file or directory. are_costs: of a file, the lower score is the better one.

    acoustic_scale: by which Kaldi's acoustic costs are multiplied.
    """
    directory = Path(str(source))
    is_directory = directory.is_dir()
    rows = read_directory(directory, data, scale=acoustic_scale) if is_directory else read_rows(source, data)
    seen: set[int] = set()
    for name, group in groupby(rows, key=lambda row: row[1].id):
        layouts, hypotheses = zip(*group, strict=True)
        if are_costs:
            hypotheses = tuple(one._replace(score=-one.score) for one in hypotheses)
        if hash(name) in seen:
            hint = "the lines of a list stand together: sort -s -k1,1 puts them there"
            raise DataError(
                f"{hypotheses[0].place} goes on with list {name!r}, which had ended", code="malformed-line", hint=hint
            )
        if len(seen) < MAX_REMEMBERED:
            seen.add(hash(name))
        yield NBest(name, hypotheses, layouts[0])


def read_references(source: Source, data: ReadingConfig) -> dict[str, str]:
    """What was really said, by list: lines `id TAB text`, or Kaldi's `id text`."""
    found: dict[str, str] = {}
    reader = Reader([source], data, keep_records=True)
    for block in reader.blocks():
        for index, line in enumerate(block.split()):
            text = line.decode()
            if not text.strip():
                continue
            name, _, said = text.partition("\t") if "\t" in text else text.strip().partition(" ")
            name, said = name.strip(), said.strip()
            if found.setdefault(name, said) != said:
                hint = "a line is id TAB text, and an id has one text"
                reader.drop(block, index, Fault(f"has another text for {name!r}", hint))
    if not found:
        raise DataError(f"there are no references in {source}", code="empty-data", hint="a line is id TAB text")
    return found
