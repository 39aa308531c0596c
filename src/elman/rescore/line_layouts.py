"""N-best lists in one file, a hypothesis a line; which of the layouts a file has is seen by its first lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from elman.core.errors import DataError
from elman.rescore.hypothesis import Hypothesis, Layout, finite_number, write_tsv
from elman.text.opening import Source
from elman.text.readers import SKIP_HINT, Fault, LineBlock, Reader
from elman.text.settings import ReadingConfig

HINT = "a line is id TAB score TAB text; the higher score is the better one"
LOOKED_AT_LINES = 100

Parse: TypeAlias = Callable[[str], Hypothesis | Fault]


def read_rows(source: Source, data: ReadingConfig) -> Iterator[tuple[Layout, Hypothesis]]:
    """The hypotheses of a file. A line that is none is an error, or dropped if the settings say so."""
    reader = Reader([source], data, keep_records=True)
    layout: Layout = TSV
    parse: Parse = _parse_tsv
    for block in reader.blocks():
        lines = [line.decode() for line in block.split()]
        if block.first == 1:
            layout, parse = _recognise(block, lines)
        for index, line in enumerate(lines):
            if not line.strip():
                continue
            row = parse(line)
            if isinstance(row, Fault):
                reader.drop(block, index, row)
            else:
                yield layout, row._replace(place=f"line {block.number(index)} of {block.source}")


def _recognise(block: LineBlock, lines: Sequence[str]) -> tuple[Layout, Parse]:
    if block.has_records:
        raise DataError(f"{block.source} has records, but n-best lists are lines", code="wrong-format", hint=HINT)
    shown = [line for line in lines if line.strip()][:LOOKED_AT_LINES]
    if all(line.count("|||") >= 3 for line in shown):
        return MOSES, _parse_moses
    columns = [line.split("\t") for line in shown]
    has_scores = all(len(one) > 1 and finite_number(one[1]) is not None for one in columns)
    if not has_scores and all(len(one) in (3, 4) and finite_number(one[2]) is not None for one in columns):
        return PREDICTIONS, _parse_prediction
    return TSV, _parse_tsv


def _parse_tsv(line: str) -> Hypothesis | Fault:
    columns = line.split("\t")
    if len(columns) == 2:  # nothing was recognised, and the last tab got lost
        columns.append("")
    if len(columns) != 3:
        many = f"{len(columns)} column{'s' if len(columns) > 1 else ''}"
        return Fault(f"has {many}, expected 3", f"{HINT}; {SKIP_HINT}")
    score = finite_number(columns[1])
    if score is None:
        return Fault(f"has the score {columns[1][:20]!r}, which is no finite number", f"{HINT}; {SKIP_HINT}")
    return Hypothesis(columns[0].strip(), score, columns[2].strip())


def _parse_prediction(line: str) -> Hypothesis | Fault:
    columns = line.split("\t")
    nats = finite_number(columns[2]) if len(columns) in (3, 4) else None
    if nats is None:
        return Fault("is not number TAB text TAB nats, as the first lines are", SKIP_HINT)
    return Hypothesis(columns[0].strip(), -nats, columns[1].strip(), rest="\t".join(columns[3:]))


def _write_prediction(hypothesis: Hypothesis, total: float, log_prob: float) -> str:
    columns = [hypothesis.id, hypothesis.text, f"{-total:.6f}"]
    return "\t".join([*columns, hypothesis.rest] if hypothesis.rest else columns)


def _parse_moses(line: str) -> Hypothesis | Fault:
    fields = [field.strip() for field in line.split("|||")]
    score = finite_number(fields[3]) if len(fields) >= 4 else None
    if score is None:
        return Fault("is not id ||| text ||| features ||| score, as the first lines are", SKIP_HINT)
    return Hypothesis(fields[0], score, fields[1], rest=fields[2])


def _write_moses(hypothesis: Hypothesis, total: float, log_prob: float) -> str:
    features = f"{hypothesis.rest} elman= {log_prob:.6f}".strip()
    return f"{hypothesis.id} ||| {hypothesis.text} ||| {features} ||| {total:.6f}"


TSV = Layout("id TAB score TAB text", write_tsv)
PREDICTIONS = Layout("number TAB text TAB nats, as elman predict --n-best prints", _write_prediction)
MOSES = Layout("id ||| text ||| features ||| score, as Moses and Marian print", _write_moses)
