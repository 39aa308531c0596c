"""Can a file be read as it is, what does it hold, and what would surprise whoever trains on it?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from elman.core.errors import DataError, ElmanError
from elman.core.settings import make
from elman.doctor.finding import Finding, fine, note, wrong, wrong_by
from elman.text.formats import SAMPLE_LINES, guess_task
from elman.text.readers import Reader
from elman.text.settings import DataConfig

MAX_COMPARED = 2_000_000  # lines that are kept, as hashes, to find those that come again
MANY_REPEATED = 0.3
LONG_LINE = 1 << 20  # bytes


@dataclass
class _Seen:
    """What was counted while the text was read."""

    num_lines: int = 0
    num_bytes: int = 0
    num_blank: int = 0
    num_repeated: int = 0
    longest: int = 0
    longest_at: str = ""
    sample: list[str] = field(default_factory=list)
    has_records: bool = False
    hashes: set[int] = field(default_factory=set)


def examine_data(path: Path) -> Iterator[Finding]:
    """The first line that is wrong, how many are, and what the rest looks like."""
    reader = Reader([path], make(DataConfig, {}, section="data"), keep_records=True)
    try:
        seen = _read(reader)
    except DataError as error:
        yield wrong_by(error)
        reader = Reader([path], make(DataConfig, {"skip_bad": True}, section="data"), keep_records=True)
        try:
            seen = _read(reader)
        except ElmanError:  # it is no text at all
            return
        num_lines = seen.num_lines + reader.num_dropped
        yield note(f"{reader.num_dropped:,} of {num_lines:,} lines would be dropped by data.skip_bad=true")
    except ElmanError as error:
        yield wrong_by(error)
        return
    if not seen.num_bytes or seen.num_blank == seen.num_lines:
        yield wrong(f"there is no text in {path}", "is it the right file?")
        return
    lines = "1 line" if seen.num_lines == 1 else f"{seen.num_lines:,} lines"
    yield fine(f"{lines}, {seen.num_bytes:,} bytes of UTF-8")
    yield from _oddities(seen)
    guess = guess_task(seen.sample, is_jsonl=seen.has_records)
    yield fine(f"it looks like {guess.like}: elman train {guess.task} {path} --out DIR")


def _read(reader: Reader) -> _Seen:
    seen = _Seen()
    for block in reader.blocks():
        seen.has_records |= block.has_records
        for index, line in enumerate(block.split()):
            seen.num_lines += 1
            seen.num_bytes += len(line) + 1
            if not line.strip():
                seen.num_blank += 1
            elif len(seen.hashes) < MAX_COMPARED:
                seen.num_repeated += hash(line) in seen.hashes
                seen.hashes.add(hash(line))
            if len(line) > seen.longest:
                seen.longest, seen.longest_at = len(line), f"line {block.number(index)} of {block.source}"
            if len(seen.sample) < SAMPLE_LINES:
                seen.sample.append(line.decode(errors="replace"))
    return seen


def _oddities(seen: _Seen) -> Iterator[Finding]:
    if seen.longest > LONG_LINE:
        yield note(
            f"{seen.longest_at} has {seen.longest:,} bytes: is there a newline missing?",
            "nets read it as one stream all the same; --reset-lines keeps lines apart",
        )
    filled = seen.num_lines - seen.num_blank
    if seen.num_repeated > MANY_REPEATED * filled:
        yield note(
            f"{seen.num_repeated / filled:.0%} of the lines were there before: held-out lines would be known already",
            "sort -u FILE, or give a validation text of its own with --valid",
        )
    if any("<unk>" in line for line in seen.sample):
        yield note("it contains <unk>: its words are the vocabulary, and it is read as tokenised already")
