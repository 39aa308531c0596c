"""What runs on executors: Arrow batches of lines in, Arrow batches of numbers out, by the same code that reads texts here.

A partition is the lines of one or several blocks, a block being a piece of a file, in order. Nothing here knows of Spark.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from elman import __version__
from elman.core.arrays import Array
from elman.core.errors import DataError, ElmanError
from elman.text.corpus import without_reserved
from elman.text.gathering import line_sizes
from elman.text.readers import LOOKED_AT_BYTES, Fault, LineBlock, Reader
from elman.text.settings import DataConfig
from elman.text.units.forms import normalize_bytes
from elman.text.units.pipelines import TokenizerSpec
from elman.text.units.splitters import learner
from elman.text.units.tokenizer import Tokenizer
from elman.text.units.vocabulary import EOS_ID

if TYPE_CHECKING:
    import pyarrow

    from elman.spark.packing import Packing

Batches = Iterator["pyarrow.RecordBatch"]
POSITION_BITS = 28  # of a token in its line; no line is longer
LINE_COLUMNS = ("block", "value")  # of what comes in: the number of the block, and a line with its newline


class BadLineError(Exception):
    """A line that is refused."""

    def __init__(self, number: int, fault: Fault) -> None:
        super().__init__(fault.what)
        self.number = number
        self.fault = fault


class _Reader(Reader):
    """Tells of a bad line by its number in the block, since the lines before the block are not known here."""

    def drop(self, lines: LineBlock, index: int, fault: Fault) -> None:
        if not self._data.skip_bad:
            raise BadLineError(lines.number(index), fault)
        super().drop(lines, index, fault)


@dataclass(frozen=True)
class Reading:
    """How lines are read on every executor."""

    data: DataConfig
    units: str
    first_blocks: frozenset[int]  # the blocks that begin a file
    version: str = __version__

    @property
    def spec(self) -> TokenizerSpec:
        """A tokenizer without symbols yet."""
        return TokenizerSpec(self.units, (), self.data.separator, normalize=self.data.normalize)

    def check_version(self) -> None:
        """Refuse to count by other rules than the driver's."""
        if self.version != __version__:
            raise ElmanError(
                f"an executor has elman {__version__}, and elman {self.version} asks for the counts",
                code="other-version",
                hint="install the same version everywhere",
            )

    def reader(self, *, keep_empty: bool = False) -> Reader:
        """Checks and cleans lines."""
        return _Reader([], self.data, separator=self.data.separator, keep_empty=keep_empty)


def raw_blocks(batches: Batches, reading: Reading) -> Iterator[tuple[int, LineBlock]]:
    """The lines as they come, by block. Lines are numbered from 1 in a block that begins a file, else from 2."""
    reading.check_version()
    read: dict[int, int] = {}
    for batch in batches:
        blocks, lines = (batch.column(name) for name in LINE_COLUMNS)
        numbers = blocks.to_numpy()
        edges = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
        for first, last in itertools.pairwise(edges):
            if first == last:
                continue
            block = int(numbers[first])
            data = joined_bytes(lines.slice(first, last - first))
            before = read.get(block, 0 if block in reading.first_blocks else 1)
            read[block] = before + last - first
            yield block, LineBlock(data, "the text", before + 1, num_read=last - first)


def joined_bytes(lines: Any) -> bytes:
    """The bytes of an Arrow array of bytes, one after another: they lie so already."""
    offsets = np.frombuffer(lines.buffers()[1], np.int32)[lines.offset : lines.offset + len(lines) + 1]
    body = lines.buffers()[2]
    return b"" if body is None else bytes(memoryview(body)[offsets[0] : offsets[-1]])


def clean_blocks(batches: Batches, reading: Reading, reader: Reader) -> Iterator[tuple[int, LineBlock]]:
    """The lines as the local engine would read them."""
    for block, lines in raw_blocks(batches, reading):
        for kept in without_reserved(reader, [reader.cleaned(lines)], reading.spec):
            if kept.data:
                yield block, kept


# ------------------------------------------------------------------------------------------------------- a first look


@dataclass
class _Survey:
    """What is to be known of a block before its lines have numbers."""

    raw_lines: int = 0
    lines: int = 0
    bytes: int = 0
    last_text: int = -1  # the last of the lines that is not blank
    dropped: int = 0
    head: tuple[str | None, ...] = ()  # its first tokens, None for the end of a line
    forms: str = "NFC NFD"  # the Unicode forms that it may be in
    fault_line: int = 0
    fault: str = ""
    hint: str = ""
    code: str = ""


SURVEY_SCHEMA = (
    "block int, raw_lines long, lines long, bytes long, last_text long, dropped long, head array<string>, "
    "forms string, fault_line long, fault string, hint string, code string"
)


def survey(batches: Batches, reading: Reading, *, head_tokens: int) -> Batches:
    """A row for each block: how many lines, which of them is bad, the first tokens."""
    import pyarrow as pa

    found: dict[int, _Survey] = {}
    readers: dict[int, Reader] = {}
    for block, raw in raw_blocks(batches, reading):
        one = found.setdefault(block, _Survey())
        reader = readers.setdefault(block, reading.reader())
        one.raw_lines += raw.num_read
        if one.fault:
            continue
        try:
            lines = next(iter(without_reserved(reader, [reader.cleaned(raw)], reading.spec)), None)
        except (BadLineError, DataError) as error:
            one.fault_line, one.fault, one.hint, one.code = fault_of(error)
            continue
        one.dropped = reader.num_dropped
        if lines is None or not lines.data:
            continue
        sizes = line_sizes(lines.data)
        if len(one.head) < head_tokens:
            one.head = (*one.head, *_first_tokens(lines.data, reading, head_tokens))[:head_tokens]
        with_text = np.flatnonzero(sizes > 1)
        one.last_text = one.lines + int(with_text[-1]) if len(with_text) else one.last_text
        one.lines += len(sizes)
        one.bytes += len(lines.data)
        reader.forms.look(lines.data[:LOOKED_AT_BYTES].decode(errors="ignore"), "")
        one.forms = " ".join(sorted(reader.forms.possible))
    rows = [{"block": block, **vars(one)} for block, one in found.items()]
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema=_survey_schema())


def fault_of(error: BadLineError | DataError) -> tuple[int, str, str, str]:
    """The number of the bad line (0: it is the file as a whole), what is wrong, what to do, and the code."""
    if isinstance(error, BadLineError):
        return error.number, error.fault.what, error.fault.hint, error.fault.code
    return 0, error.what, error.hint or "", error.code


def _survey_schema() -> Any:
    import pyarrow as pa

    kinds = {"int": pa.int32(), "long": pa.int64(), "string": pa.string(), "array<string>": pa.list_(pa.string())}
    return pa.schema([(name, kinds[kind]) for name, kind in (column.split() for column in SURVEY_SCHEMA.split(", "))])


def _first_tokens(lines: bytes, reading: Reading, num_tokens: int) -> tuple[str | None, ...]:
    """The first symbols of a text; every line has at least its end, so as many lines are enough."""
    splitter = learner(reading.units, reading.data.separator)
    start = b"\n".join(lines.split(b"\n", num_tokens)[:num_tokens])
    start = start if start.endswith(b"\n") else start + b"\n"
    ids = splitter.encode(normalize_bytes(start, reading.data.normalize))[:num_tokens].tolist()
    symbols = splitter.symbols()
    return tuple(None if i == EOS_ID else symbols[i] for i in ids)


# ----------------------------------------------------------------------------------------------------- numbered lines


@dataclass(frozen=True)
class Part:
    """Some lines of a text: where each block's begin in the whole text, and the numbers of the lines that are wanted."""

    reading: Reading
    first_lines: Mapping[int, int]  # of each block
    begin: int
    end: int

    def blocks(self, batches: Batches) -> Iterator[tuple[int, int, bytes]]:
        """Wanted lines, the block they are of and the number of the first."""
        reader, read = self.reading.reader(), dict[int, int]()
        for block, lines in clean_blocks(batches, self.reading, reader):
            sizes = line_sizes(lines.data)
            number = self.first_lines[block] + read.get(block, 0)
            read[block] = read.get(block, 0) + len(sizes)
            first, last = (min(max(edge - number, 0), len(sizes)) for edge in (self.begin, self.end))
            if first < last:
                begin = int(sizes[:first].sum())
                yield block, number + first, lines.data[begin : begin + int(sizes[first:last].sum())]


TEXT_SCHEMA = "line long, data binary"


def give_text(batches: Batches, part: Part) -> Batches:
    """The lines themselves, many in a row."""
    import pyarrow as pa

    for _, line, data in part.blocks(batches):
        yield pa.record_batch({"line": pa.array([line], pa.int64()), "data": pa.array([data], pa.binary())})


SYMBOLS_SCHEMA = "symbol string, n long, first long"


def count_symbols(batches: Batches, part: Part) -> Batches:
    """Every symbol of a partition: how often, and where first."""
    import pyarrow as pa

    data = part.reading.data
    splitter = learner(part.reading.units, data.separator)
    counts, firsts = np.zeros(2, np.int64), np.full(2, np.iinfo(np.int64).max)
    for _, line, lines in part.blocks(batches):
        ids = splitter.encode(normalize_bytes(lines, data.normalize))
        places = _places(ids, line)
        numbers, first, tally = np.unique(ids, return_index=True, return_counts=True)
        more = int(numbers[-1]) + 1 - len(counts)
        if more > 0:
            counts = np.concatenate([counts, np.zeros(more, np.int64)])
            firsts = np.concatenate([firsts, np.full(more, np.iinfo(np.int64).max)])
        counts[numbers] += tally
        np.minimum.at(firsts, numbers, places[first])
    symbols = splitter.symbols()
    wanted = np.flatnonzero(counts)
    wanted = wanted[wanted != EOS_ID]
    if len(wanted):
        names = [symbols[i] for i in wanted.tolist()]
        yield pa.record_batch(
            {"symbol": pa.array(names, pa.string()), "n": pa.array(counts[wanted]), "first": pa.array(firsts[wanted])}
        )


def _places(ids: Array, line: int) -> Array:
    """Where each token stands in the whole text: its line, then its place there, as one number that orders them."""
    is_end = ids == EOS_ID
    lines = np.cumsum(is_end) - is_end
    starts = np.concatenate(([0], np.flatnonzero(is_end)[:-1] + 1)) if is_end.any() else np.zeros(1, np.int64)
    within = np.arange(len(ids)) - starts[lines]
    return np.asarray(((line + lines) << POSITION_BITS) | within)


# ----------------------------------------------------------------------------------------------------------- n-grams


@dataclass(frozen=True)
class Windows:
    """Cuts a text into windows of `order` words, one beginning at each word, padded behind its end."""

    part: Part
    packing: Packing
    order: int
    reset_lines: bool
    first_block: int  # where a stream begins
    following: Mapping[int, Sequence[int]]  # of a stream: the ids that follow on each block, up to order - 1

    def schema(self) -> str:
        """The columns of the windows."""
        return ", ".join([*(f"{name} long" for name in self.packing.history(self.order)), "w int"])

    def __call__(self, batches: Batches, tokenizer: Tokenizer) -> Batches:
        """The windows of a partition."""
        cut = self._cut_lines if self.reset_lines else self._cut_stream
        for windows in cut(((block, tokenizer.encode_lines(lines)) for block, _, lines in self.part.blocks(batches))):
            if len(windows[0]):
                yield self._packed(windows)

    def _packed(self, windows: Sequence[Array]) -> pyarrow.RecordBatch:
        import pyarrow as pa

        columns = self.packing.pack(windows)
        return pa.record_batch([pa.array(column) for column in columns], names=self.packing.key(self.order))

    def _cut_lines(self, texts: Iterator[tuple[int, Array]]) -> Iterator[list[Array]]:
        """Each line alone, after a start symbol."""
        bos, pad = self.packing.bos, self.packing.pad
        for _, ids in texts:
            starts = np.concatenate(([0], np.flatnonzero(ids == EOS_ID)[:-1] + 1))
            text = np.concatenate((np.insert(ids, starts, bos), np.full(self.order - 1, pad, ids.dtype)))
            size = len(text) - self.order + 1
            words, is_over = [text[:size]], np.zeros(size, bool)
            for k in range(1, self.order):
                word = text[k : k + size]
                is_over |= word == bos
                words.append(np.where(is_over, pad, word))
            yield words

    def _cut_stream(self, texts: Iterator[tuple[int, Array]]) -> Iterator[list[Array]]:
        """Lines one after another, across the ends of blocks."""
        waiting: dict[int, Array] = {}  # of a block: words whose windows are not whole yet
        for block, ids in texts:
            before = waiting.get(block)
            if before is None:
                before = np.array([EOS_ID] if block == self.first_block else [], ids.dtype)
                yield from self._ends(waiting)
            text = np.concatenate((before, ids))
            size = max(0, len(text) - self.order + 1)
            waiting[block] = text[size:]
            if size:
                yield [text[k : k + size] for k in range(self.order)]
        yield from self._ends(waiting)

    def _ends(self, waiting: dict[int, Array]) -> Iterator[list[Array]]:
        """The windows that reach into the block behind."""
        for block, text in waiting.items():
            behind = np.array(self.following.get(block, ()), text.dtype)[: self.order - 1]
            padding = np.full(self.order - 1 - len(behind), self.packing.pad, text.dtype)
            whole = np.concatenate((text, behind, padding))
            yield [whole[k : k + len(text)] for k in range(self.order)]
        waiting.clear()


def shipped(function: Callable[..., Batches], **options: Any) -> Callable[[Batches], Batches]:
    """A function of batches alone, with what it needs."""

    def run(batches: Batches) -> Batches:
        return function(batches, **options)

    return run
