"""`elman predict`: a line in, a line out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elman.cli import terminal
from elman.cli.options import Errors, ModelDirectory, NoVerify, OverwriteFile, Threads
from elman.cli.verb import examples

if TYPE_CHECKING:
    from elman.tasks.base import Prediction, TaskModel


@examples(
    "elman predict tagger test.conllu > tagged.conllu",
    "echo 'ein rotes haus' | elman predict translator --n-best 3",
)
def predict(
    context: typer.Context,
    directory: ModelDirectory,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="The sources; - or nothing is stdin.", show_default=False)
    ] = None,
    beam: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="A beam so wide; 1 is greedy. [default: 5]")
    ] = None,
    n_best: Annotated[
        int | None, typer.Option("--n-best", min=1, metavar="N", help="So many for each: number, text, nats.")
    ] = None,
    length_penalty: Annotated[
        float | None,
        typer.Option(min=0.0, metavar="A", help="Nats are divided by ((5 + length) / 6)^A. [default: 0.6]"),
    ] = None,
    prefix: Annotated[str, typer.Option(metavar="TEXT", help="What every target begins with.")] = "",
    max_tokens: Annotated[int | None, typer.Option(min=1, metavar="N", help="Of a target, at most.")] = None,
    alignments: Annotated[
        bool, typer.Option("--alignments", help="Behind each text where attention looked: source-target places.")
    ] = False,
    keep_unknown: Annotated[
        bool, typer.Option("--keep-unknown", help="Write <unk> instead of copying the word that attention looked at.")
    ] = False,
    truncate: Annotated[
        bool, typer.Option("--truncate", help="Cut sources that are too long, and count them.")
    ] = False,
    as_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="F",
            help="tag: lines, conllu, columns or jsonl. [default: by its look]",
        ),
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option(metavar="F", help="Draw where it looked for the first line: F.svg, F.png, F.html or F.json."),
    ] = None,
    overwrite: OverwriteFile = False,
    errors: Errors = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print a JSON object a line, with probabilities or attention.")
    ] = False,
    threads: Threads = None,
    no_verify: NoVerify = False,
) -> None:
    """Write an answer for every line, in order, as soon as it is there: a translation, tags, a label, an answer.

    Of files with a word and its tags a line, all is written as it was, with the tags in their column.
    """
    if file is None and terminal.is_typed():
        terminal.show_help(context)
    terminal.limit_threads(threads)
    from elman.api import PredictOptions, load

    model: TaskModel[Any] = load(directory, verify=not no_verify)
    options = PredictOptions(
        beam=beam,
        n_best=n_best,
        length_penalty=length_penalty,
        prefix=prefix,
        max_tokens=max_tokens,
        alignments=alignments,
        keep_unknown=keep_unknown,
        truncate=truncate,
        format=as_format,
        errors=errors,
        details=json,
    )
    if picture is not None:
        _check_picture(model, picture, overwrite=overwrite)
    number = num_cut = 0
    for prediction in model.predict_lines(["-" if file is None else str(file)], options):
        number, num_cut = number + 1, num_cut + prediction.is_cut
        if json:
            terminal.print_json(prediction.as_json())
        else:
            print(prediction.line())
        sys.stdout.flush()
        if picture is not None and number == 1:
            _draw(model, prediction, picture, overwrite=overwrite)
    if num_cut:
        terminal.say(f"{num_cut:,} of {number:,} sources were cut")


def _check_picture(model: TaskModel[Any], path: Path, *, overwrite: bool) -> None:
    """Refuse a model that has no attention, and a file that cannot be written, before anything is predicted."""
    from elman.core.errors import UsageError
    from elman.explain.explanation import check_path

    check_path(path, overwrite=overwrite)
    if "attention" not in model.kinds():
        raise UsageError(
            "--picture draws attention, and this model has none",
            code="not-for-this-model",
            hint="elman explain shows what it has",
        )


def _draw(model: TaskModel[Any], prediction: Prediction, path: Path, *, overwrite: bool) -> None:
    """Where the model looked, as `elman explain --kind attention` draws it."""
    pair = prediction.pair()
    if pair is None or not pair[0].strip():
        terminal.say("no picture: elman explain --kind attention draws one of a text")
        return
    text, target = pair
    found = model.explain(text, kind="attention", target=target)
    found.save(path, overwrite=overwrite)
    terminal.say(f"wrote {path}: {found.title}")
