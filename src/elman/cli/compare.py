"""`elman compare`: many models, one text, one table."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elman.cli import terminal
from elman.cli.completion import complete_compared, complete_task
from elman.cli.options import Json, ResetLines, Seed, Settings, Threads, Units
from elman.cli.verb import examples
from elman.core.errors import UsageError

if TYPE_CHECKING:
    from rich.table import Table

PLAIN_WIDTH = 160  # of a table that is not on a terminal
NOT_SHOWN = ("seed", "seconds", "tokens", "lines", "bytes", "parameters", "rows")  # or shown in columns of their own
MAX_NUMBERS = 5  # columns of a task's own numbers
MAX_PAIRS = 6  # of models that are not told apart are named


@examples(
    "elman compare corpus.txt --budget 10m --out comparison",
    "elman compare corpus.txt --models lstm --sweep model.layers=1,2,3 --equal parameters --out depth",
)
def compare(
    data: Annotated[
        list[str],
        typer.Argument(metavar="DATA", help="Text or rows to train on: files, directories.", show_default=False),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="Where models and numbers go.", show_default=False)
    ],
    valid: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="What is tuned on. [default: the last part of DATA]"),
    ] = None,
    test: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="What the numbers are of. [default: half of what is tuned on, and not tuned on]"
        ),
    ] = None,
    models: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            help="Models, with commas between; mkn+lstm+cache is a mixture. [default: from unigram to transformer]",
            autocompletion=complete_compared,
        ),
    ] = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=V,V", help="One model with several values of a setting, like model.window=2,5,10."),
    ] = None,
    equal: Annotated[
        str | None, typer.Option(metavar="parameters", help="With --sweep: nets of about as many parameters.")
    ] = None,
    task: Annotated[
        str, typer.Option(metavar="TASK", help="lm, seq2seq, tag, classify, ...", autocompletion=complete_task)
    ] = "lm",
    units: Units = None,
    reset_lines: ResetLines = False,
    budget: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="For all of it. Nets share what counting leaves. [default: 10m]"),
    ] = None,
    epochs: Annotated[
        float | None,
        typer.Option(min=0.0, metavar="N", help="Nets: so many passes over the text, instead of a budget."),
    ] = None,
    settings: Settings = None,
    seed: Seed = 1,
    threads: Threads = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Begin again where another comparison is.")] = False,
    json: Json = False,
) -> None:
    """Train several models on one text, measure them by one rule, and say which differences are sure.

    The same command again goes on where it was stopped. --set is for every model that has the setting.
    """
    terminal.limit_threads(threads)
    from elman.compare import compare as compare_models
    from elman.core.settings import parse_pairs
    from elman.training.budget import process_started

    given: dict[str, Any] = dict(parse_pairs(settings))
    for key, value in {"data.units": units, "data.reset_lines": reset_lines or None}.items():
        if value is not None and str(given.setdefault(key, value)) != str(value):
            raise UsageError(f"{key} is given twice: {value} and {given[key]}", code="given-twice")
    with terminal.training("comparing") as (report, on_progress):
        found = compare_models(
            [Path(name) for name in data],
            out=out,
            valid=valid,
            test=test,
            task=task,
            models=models,
            sweep=sweep,
            equal=equal,
            budget=budget,
            epochs=epochs,
            settings=given,
            seed=seed,
            threads=threads,
            overwrite=overwrite,
            started=process_started(),
            command=terminal.command(),
            report=report,
            on_progress=on_progress,
        )
    if json:
        terminal.print_json(found.data)
    else:
        print_comparison(found.data)
    for failure in found.data["failed"]:
        terminal.say(f"{failure['name']} failed: {failure['error']}")
    terminal.say(f"seed {seed}; models and numbers are in {out}, all of it in {out}/report.html")


def print_comparison(found: Mapping[str, Any]) -> None:
    """What was found, the table, and which models are not told apart by this text."""
    from rich.console import Console

    from elman.compare.report_words import plain_findings

    rows = [row for row in found["models"] if row["error"] is None]
    is_lm = any("perplexity_low" in row for row in rows)
    fancy = terminal.is_fancy(sys.stdout)
    console = Console(width=None if fancy else PLAIN_WIDTH, highlight=False)
    for sentence in plain_findings(found):
        console.print(terminal.escape(sentence), markup=False, style="bold" if fancy else None)
    console.print()
    console.print(_lm_table(found, rows) if is_lm else _task_table(found, rows))
    if any(row.get("by_length") for row in rows):
        console.print(_length_table(rows))
    for sentence in _sentences(found, rows):
        console.print(f"  {sentence}", markup=False)


def _lm_table(found: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Table:
    data = found["data"]
    table = _table(f"{data['test_tokens']:,} tokens of {_measured(found)}, {found['vocab_size']:,} symbols")
    headings = ("perplexity", "95 %", "bits/byte", "parameters", "state", "trained", "tokens/s")
    for heading in (*headings, "ms at 10", "at 1,000", "size"):
        table.add_column(heading, justify="right", no_wrap=True)
    best = min((row["perplexity"] for row in rows if row["perplexity"] is not None), default=None)
    for row in rows:
        low, high = row["perplexity_low"], row["perplexity_high"]
        table.add_row(
            terminal.escape(row["name"]),
            row["what"],
            "infinite" if row["perplexity"] is None else f"{row['perplexity']:,.1f}",
            "" if low is None else f"{low:,.1f} - {high:,.1f}",
            "" if row["bits_per_byte"] is None else f"{row['bits_per_byte']:.3f}",
            _count(row["parameters"]),
            terminal.size(row["state_bytes"]),
            f"{row['seconds'] or 0:.1f} s",
            "" if row["tokens_per_second"] is None else f"{row['tokens_per_second']:,.0f}",
            f"{row['ms_per_token_10']:.2f}",
            f"{row['ms_per_token_1000']:.2f}",
            terminal.size(row["bytes"]),
            style="green" if row["perplexity"] is not None and row["perplexity"] == best else None,
        )
    return table


def _task_table(found: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Table:
    """The numbers of `evaluate`, whatever they are."""
    table = _table(f"{found['task']}, measured on {_measured(found)}")
    keys = [key for row in rows for key, value in row.items() if isinstance(value, float) and _is_shown(key)]
    keys = list(dict.fromkeys(keys))[:MAX_NUMBERS]
    for heading in (*(key.replace("_", " ") for key in keys), "parameters", "trained", "size"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(
            terminal.escape(row["name"]),
            row["what"],
            *("" if row.get(key) is None else terminal.number(row[key]) for key in keys),
            "" if row.get("parameters") is None else _count(row["parameters"]),
            "" if row.get("seconds") is None else f"{row['seconds']:.1f} s",
            "" if row.get("bytes") is None else terminal.size(row["bytes"]),
        )
    return table


def _length_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """The first number of `evaluate`, by the length of the source: a column for each model."""
    from rich import box
    from rich.table import Table

    rows = [row for row in rows if row.get("by_length")]
    key = next(key for key, value in rows[0]["by_length"][0].items() if isinstance(value, float))
    table = Table(box=box.SIMPLE_HEAD, title=f"{key.replace('_', ' ')} by length", title_justify="left")
    for heading in ("source tokens", *(row["name"] for row in rows)):
        table.add_column(heading, justify="right", no_wrap=True)
    for lengths in zip(*(row["by_length"] for row in rows), strict=True):
        numbers = ("" if one[key] is None else terminal.number(one[key]) for one in lengths)
        table.add_row(f"{lengths[0]['from']} - {lengths[0]['to']}", *numbers)
    return table


def _table(title: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left")
    table.add_column("model", style="bold", no_wrap=True)
    table.add_column("looks at", style="dim")
    return table


def _is_shown(key: str) -> bool:
    return key not in NOT_SHOWN and not key.startswith(("linear_", "tokens_per", "ms_per"))


def _measured(found: Mapping[str, Any]) -> str:
    on = found["measured_on"]
    return "held-out text" if on == "held out" else str(found["data"][on])


def _count(value: int) -> str:
    """A number of parameters as people write it."""
    for unit, size in (("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:.1f}{unit}"
    return str(value)


def _sentences(found: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What to make of it."""
    said = []
    unsure = [one for one in found["differences"] if not one["significant"]]
    if unsure:
        pairs = ", ".join(f"{one['a']} and {one['b']}" for one in unsure[:MAX_PAIRS])
        more = f" and {len(unsure) - MAX_PAIRS} more" if len(unsure) > MAX_PAIRS else ""
        said.append(f"this text does not tell apart: {pairs}{more} (paired bootstrap over its lines, 95 %)")
    elif found["differences"]:
        said.append("all differences are significant (paired bootstrap over the lines, 95 %)")
    for mixture in found["mixtures"]:
        weights = ", ".join(f"{name} {weight:.2f}" for name, weight in mixture["weights"].items())
        said.append(f"{mixture['name']}: {weights}")
    hasty = [row["name"] for row in rows if row.get("passes") is not None and row["passes"] < 1]
    if hasty:
        names = ", ".join(hasty)
        said.append(f"less than one pass over the text: {names} (a longer --budget or fewer --models say more of them)")
    if any(row.get("tuned") for row in rows):
        said.append("weights and temperatures were tuned on other text than the numbers are of")
    return said
