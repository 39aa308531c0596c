"""N-best lists that lie in several files of a directory: Kaldi's archives, and ESPnet's folder for each rank.

Kaldi's `nbest-to-linear` and the scripts around it (`lmrescore_nbest.sh`) leave, line by line with the keys `utterance-rank`,
`words_text`, the acoustic costs `acwt` and the costs of graph and language model `lmwt.withlm`. ESPnet writes
`1best_recog/text` and `1best_recog/score`, `2best_recog/...`, by utterance.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from elman.core.errors import DataError, MissingError
from elman.rescore.hypothesis import Hypothesis, Layout, finite_number, write_tsv
from elman.text.readers import Reader
from elman.text.settings import ReadingConfig

KALDI_MARK = "words_text"
ESPNET_MARK = "1best_recog/text"
LM_COSTS = ("lmwt.withlm", "lmwt.nolm")  # with the decoder's own language model, or only the graph's costs
TENSOR = re.compile(r"tensor\(\[?([^\s,\])]+).*\)")  # how torch prints the number that ESPnet writes


class Keyed(NamedTuple):
    """A line `key value`."""

    key: str
    value: str
    place: str


def read_directory(directory: Path, data: ReadingConfig, *, scale: float) -> Iterator[tuple[Layout, Hypothesis]]:
    """The hypotheses of a directory, or of its numbered parts in order. scale: of Kaldi's acoustic costs."""
    for part in _parts(directory, ESPNET_MARK):
        for row in _espnet_rows(part, data):
            yield ESPNET, row
    for part in _parts(directory, KALDI_MARK):
        for row in _kaldi_rows(part, data, scale):
            yield KALDI, row
    if not _parts(directory, ESPNET_MARK) and not _parts(directory, KALDI_MARK):
        raise MissingError(
            f"there are no n-best lists in the directory {directory}",
            hint=f"of Kaldi {KALDI_MARK} and acwt are read, of ESPnet {ESPNET_MARK}; otherwise give a file",
        )


def _parts(directory: Path, mark: str) -> list[Path]:
    """The directory itself, or `archives.1`, `output.2`, ... in it, where the mark is there."""
    if (directory / mark).is_file():
        return [directory]
    found = [part.parents[mark.count("/")] for part in directory.glob(f"*.*/{mark}")]
    numbered = [part for part in found if part.suffix[1:].isdigit()]
    return sorted(numbered, key=lambda part: int(part.suffix[1:]))


def keyed_lines(path: Path, data: ReadingConfig) -> Iterator[Keyed]:
    """The lines of a Kaldi table: a key, white space, a value."""
    if not path.is_file():
        raise MissingError(f"there is no {path}", hint="the directory of n-best lists is not complete")
    for block in Reader([path], data, any_bytes=False, keep_records=True).blocks():
        for index, line in enumerate(block.split()):
            key, _, value = line.decode().strip().partition(" ")
            if key:
                yield Keyed(key, value.strip(), f"line {block.number(index)} of {path}")


def _kaldi_rows(part: Path, data: ReadingConfig, scale: float) -> Iterator[Hypothesis]:
    lm_costs = next((part / name for name in LM_COSTS if (part / name).is_file()), part / LM_COSTS[0])
    files = (part / KALDI_MARK, part / "acwt", lm_costs)
    for words, acoustic, graph in itertools.zip_longest(*(keyed_lines(path, data) for path in files)):
        _check_keys(words, acoustic, graph)
        name, _, rank = words.key.rpartition("-")
        if not (name and rank.isdigit()):
            raise DataError(
                f"{words.place} has the key {words.key!r}",
                code="malformed-line",
                hint="Kaldi's keys end in a rank: utterance-1",
            )
        cost = scale * _cost(acoustic) + _cost(graph)
        yield Hypothesis(name, -cost, words.value, words.place, rest=words.key)


def _check_keys(*lines: Keyed | None) -> None:
    there = [line for line in lines if line is not None]
    if len(there) < len(lines) or len({line.key for line in there}) > 1:
        other = f"; {there[-1].place} has {there[-1].key!r}" if len(there) > 1 else ", and another file has ended"
        raise DataError(
            f"{there[0].place} has the key {there[0].key!r}{other}",
            code="malformed-line",
            hint="all files have the same keys",
        )


def _cost(line: Keyed) -> float:
    """A number, as Kaldi or torch print it."""
    tensor = TENSOR.fullmatch(line.value)
    value = finite_number(tensor[1] if tensor else line.value)
    if value is None:
        raise DataError(
            f"{line.place} has the score {line.value[:20]!r}", code="malformed-line", hint="a finite number is needed"
        )
    return value


def _espnet_rows(part: Path, data: ReadingConfig) -> Iterator[Hypothesis]:
    """Utterance by utterance; a rank may lack those that had fewer hypotheses."""
    ranks = itertools.takewhile(lambda rank: (part / f"{rank}best_recog").is_dir(), itertools.count(1))
    streams = [_espnet_rank(part / f"{rank}best_recog", data) for rank in ranks]
    waiting = [next(stream, None) for stream in streams]
    while waiting[0] is not None:
        name = waiting[0].id
        for rank, row in enumerate(waiting):
            if row is not None and row.id == name:
                yield row
                waiting[rank] = next(streams[rank], None)
    left = next((row for row in waiting if row is not None), None)
    if left is not None:
        raise DataError(
            f"{left.place} has {left.id!r}, which is not where 1best_recog has it",
            code="malformed-line",
            hint="sort all files",
        )


def _espnet_rank(folder: Path, data: ReadingConfig) -> Iterator[Hypothesis]:
    files = (folder / "text", folder / "score")
    for text, score in itertools.zip_longest(*(keyed_lines(path, data) for path in files)):
        _check_keys(text, score)
        yield Hypothesis(text.key, _cost(score), text.value, text.place)


def _write_kaldi(hypothesis: Hypothesis, total: float, log_prob: float) -> str:
    """As in words_text: by the key, which its costs have too."""
    return f"{hypothesis.rest} {hypothesis.text}"


KALDI = Layout("Kaldi's words_text, acwt and lmwt; written like words_text", _write_kaldi)
ESPNET = Layout("ESPnet's 1best_recog, 2best_recog, ...; written as id TAB score TAB text", write_tsv)
