"""`elman score`: what each line costs."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from json import JSONEncoder
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from elman.cli import terminal
from elman.cli.options import Errors, ModelDirectory, NoVerify, Threads
from elman.cli.verb import examples
from elman.core.errors import UsageError
from elman.text.opening import COMPRESSED

if TYPE_CHECKING:
    from elman.api import ScoredRows
    from elman.core.arrays import Array
    from elman.spark.scoring import Writer
    from elman.text.readers import LineBlock, Reader

ENCODER = JSONEncoder(ensure_ascii=False, allow_nan=False)
NUMBERS = ("nats", "tokens", "perplexity", "unknown", "bits_per_byte")


@examples(
    "elman score my-model web.txt.gz --text --json --errors skip > scored.jsonl",
    "echo 'the cat sat' | elman score my-model --per-token",
    "elman score --engine spark my-model hdfs:///web hdfs:///scored --text --set count.master=yarn",
)
def score(
    context: typer.Context,
    directory: ModelDirectory,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="The text; - or nothing is stdin.", show_default=False)
    ] = None,
    output: Annotated[
        str | None,
        typer.Argument(metavar="OUTPUT", help="--engine spark: the folder of parts to write.", show_default=False),
    ] = None,
    per_token: Annotated[
        bool, typer.Option("--per-token", help="Behind the numbers every token and its nats.")
    ] = False,
    stream: Annotated[
        bool, typer.Option("--stream", help="Read each line after the lines before it, not each alone.")
    ] = False,
    text: Annotated[bool, typer.Option("--text", help="Behind the numbers the line itself.")] = False,
    errors: Errors = None,
    json: Annotated[bool, typer.Option("--json", help="Print a JSON object a line.")] = False,
    engine: Annotated[
        Literal["local", "spark"],
        typer.Option("--engine", metavar="E", help="What scores: this process (local), or Apache Spark (spark)."),
    ] = "local",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="--engine spark: count.master, count.conf and count.wait."),
    ] = None,
    threads: Threads = None,
    no_verify: NoVerify = False,
) -> None:
    """Score each line: nats, tokens, perplexity and unknown tokens, tab-separated, a line for a line.

    --json adds bits_per_byte, which compares lines with many unknown words to others: it counts their spelling.
    """
    if file is None and terminal.is_typed():
        terminal.show_help(context)
    terminal.limit_threads(threads)
    from elman.api import load_language_model
    from elman.lm.evaluate import warnings

    if engine == "spark" or output is not None or settings:
        form = LineForm(json=json, per_token=per_token, with_text=text, errors=errors)
        if engine != "spark" or file is None or output is None or stream:
            raise UsageError(
                "--engine spark, a text and OUTPUT belong together, without --stream",
                code="options-conflict",
                hint="elman score --engine spark DIR FILE OUTPUT",
            )
        score_on_spark(directory, str(file), output, form, settings, threads=threads, verify=not no_verify)
        return
    model = load_language_model(directory, verify=not no_verify)
    source = "-" if file is None else file
    write = _json_lines if json else _table_lines
    lines = tokens = unknown = empty = 0
    with terminal.rate(None if file is None else _size(file)) as show:
        for rows in model.score_lines(source, per_token=per_token, stream=stream, errors=errors, with_text=text):
            sys.stdout.write("".join(write(rows)))
            sys.stdout.flush()
            num_scored = int((rows.tokens > 0).sum())
            lines, empty = lines + num_scored, empty + len(rows) - num_scored
            tokens, unknown = tokens + int(rows.tokens.sum()), unknown + int(rows.unknown.sum())
            show(len(rows), int(rows.num_bytes.sum()))
    _say_empty(empty)
    for warning in warnings(tokens, lines=lines, unknown=unknown, spells_unknown=model.spelling is not None):
        terminal.say(warning)


@dataclass(frozen=True)
class LineForm:
    """What is written of each line."""

    json: bool
    per_token: bool
    with_text: bool
    errors: Literal["stop", "replace", "skip"] | None

    def writer(self, directory: str) -> Writer:
        """Writes the scores of lines by the model in a directory; made where the lines are."""
        from elman.api import load_language_model
        from elman.spark.scoring import WrittenLines

        model = load_language_model(directory, verify=False)
        write = _json_lines if self.json else _table_lines

        def score_lines(reader: Reader, lines: LineBlock) -> WrittenLines:
            rows = model.score_block(reader, lines, per_token=self.per_token, with_text=self.with_text)
            text = "".join(write(rows)).removesuffix("\n")
            return WrittenLines(text, int(rows.tokens.sum()), int(rows.unknown.sum()), int((rows.tokens == 0).sum()))

        return score_lines


def score_on_spark(
    directory: Path,
    source: str,
    output: str,
    form: LineForm,
    settings: Sequence[str] | None,
    *,
    threads: int | None,
    verify: bool,
) -> None:
    """Score a corpus that is on many machines, by them."""
    from elman.api import load_language_model
    from elman.core.settings import make, parse_pairs, sections_of
    from elman.lm.evaluate import warnings
    from elman.spark.config import CountConfig
    from elman.spark.scoring import map_lines
    from elman.spark.session import session

    given = sections_of(parse_pairs(settings))["count"]
    config = make(CountConfig, {**given, "engine": "spark"}, section="count")
    model = load_language_model(directory, verify=verify)
    data = model.record.data.reading(form.errors)
    with session(config, threads=threads) as spark:
        units = model.tokenizer.units
        found = map_lines(spark, directory, source, output, data=data, units=units, make_writer=form.writer)
    terminal.say(f"{found.lines:,} lines scored, in parts in {output}")
    _say_empty(found.empty)
    lines = found.lines - found.empty
    for warning in warnings(
        found.tokens, lines=lines, unknown=found.unknown, spells_unknown=model.spelling is not None
    ):
        terminal.say(warning)


def _say_empty(empty: int) -> None:
    if empty:
        terminal.say(f"{empty:,} {'line is' if empty == 1 else 'lines are'} no text: the result is empty there")


def _size(file: Path) -> int | None:
    """The bytes to read, where they are known before: not of a pipe, nor of what is compressed."""
    is_plain = file.is_file() and file.suffix not in COMPRESSED
    return file.stat().st_size if is_plain else None


def _table_lines(rows: ScoredRows) -> list[str]:
    """Tab-separated columns, made a block at a time; an empty line for what is no text."""
    columns = (column.tolist() for column in (rows.nats, rows.tokens, rows.perplexity, rows.unknown))
    lines = [f"{n:.6f}\t{t}\t{p:.4f}\t{u}" if t else "" for n, t, p, u in zip(*columns, strict=True)]
    if rows.texts is not None:
        cells = ("" if text is None else f"\t{_cell(text)}" for text in rows.texts)
        lines = list(map(str.__add__, lines, cells))
    if rows.per_token is not None:
        cells = ("".join(f"\t{_cell(token)}\t{nats:.6f}" for token, nats in pairs) for pairs in rows.per_token)
        lines = list(map(str.__add__, lines, cells))
    return [f"{line}\n" for line in lines]


def _json_lines(rows: ScoredRows) -> list[str]:
    """JSON objects, made a block at a time; null for what is infinite, and for all of what is no text."""
    is_text = rows.tokens > 0
    columns = {name: _json_numbers(getattr(rows, name), is_text) for name in NUMBERS}
    if rows.texts is not None:
        columns["text"] = list(map(ENCODER.encode, rows.texts))
    if rows.per_token is not None:
        columns["per_token"] = [ENCODER.encode(_finite_pairs(pairs) or None) for pairs in rows.per_token]
    keys = ", ".join(f'"{name}": %s' for name in columns)
    line = f'{{"schema_version": {terminal.SCHEMA_VERSION}, {keys}}}\n'
    return [line % values for values in zip(*columns.values(), strict=True)]


def _json_numbers(column: Array, is_text: Array) -> list[str]:
    numbers = list(map(repr, column.tolist()))
    for row in (~is_text | (abs(column) == math.inf)).nonzero()[0].tolist():
        numbers[row] = "null"
    return numbers


def _finite_pairs(pairs: Sequence[tuple[str, float]]) -> list[tuple[str, float | None]]:
    return [(token, nats if math.isfinite(nats) else None) for token, nats in pairs]


def _cell(text: str) -> str:
    """A token or a line that breaks no table."""
    return terminal.escape(text, keep="")
