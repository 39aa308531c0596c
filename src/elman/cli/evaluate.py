"""`elman evaluate`: how well a model knows a text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from elman.cli import terminal
from elman.cli.options import (
    Errors,
    Json,
    ModelDirectory,
    NoVerify,
    OverwriteFile,
    Seed,
    SourceFiles,
    TargetFiles,
    Threads,
    choose_data,
)
from elman.cli.verb import examples
from elman.core.errors import UsageError


@examples(
    "elman evaluate my-model test.txt",
    "elman evaluate translator --source test.de --target test.en --beam 1 --json",
)
def evaluate(
    directory: ModelDirectory,
    data: Annotated[
        list[str] | None, typer.Argument(metavar="DATA", help="The text; - is stdin.", show_default=False)
    ] = None,
    source: SourceFiles = None,
    target: TargetFiles = None,
    errors: Errors = None,
    json: Json = False,
    reset_lines: Annotated[
        bool | None,
        typer.Option(
            "--reset-lines/--stream", help="Read each line alone, or all as one stream. [default: as trained]"
        ),
    ] = None,
    beam: Annotated[int | None, typer.Option(min=1, metavar="N", help="seq2seq: a beam so wide.")] = None,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="BLEU by length, or what was taken for what: .svg, .png, .html.")
    ] = None,
    overwrite: OverwriteFile = False,
    dynamic: Annotated[
        bool,
        typer.Option(
            "--dynamic",
            help="Also let nets learn from each piece of the text once it is scored "
            "(RMS-scaled steps, and for all weights one decay towards the trained ones), mixed with what they were before.",
        ),
    ] = False,
    dynamic_rate: Annotated[
        float | None, typer.Option(min=0, metavar="R", help="How fast they learn. [default: 0.0003]")
    ] = None,
    seed: Seed = 1,
    threads: Threads = None,
    no_verify: NoVerify = False,
) -> None:
    """Score a text: perplexity, bits per byte, and the signature that says what was counted.

    --dynamic adds the same numbers under names that end in _dynamic. The model in DIR stays as it is.
    """
    terminal.limit_threads(threads)
    from elman.api import EvaluateOptions, TaskModel, load
    from elman.lm.evaluate import warnings

    files = choose_data(data, source, target)
    if picture is not None:
        from elman import pictures

        pictures.check_file(picture, overwrite=overwrite)
    model: TaskModel[Any] = load(directory, verify=not no_verify)
    options = EvaluateOptions(
        beam=beam,
        reset_lines=reset_lines,
        dynamic=dynamic,
        dynamic_rate=dynamic_rate,
        targets=[Path(name) for name in target] if target else None,
        errors=errors,
        seed=seed,
    )
    if dynamic:
        with terminal.share("scoring and learning") as report_share:
            found = model.evaluate(files, replace(options, report_share=report_share))
    else:
        with terminal.status("scoring"):
            found = model.evaluate(files, options)
    if json:
        terminal.print_json(found)
    else:
        terminal.print_numbers(found)
    if picture is not None:
        drawn = model.pictures(found)
        if not drawn:
            raise UsageError(
                "there is no picture of these numbers", code="not-for-this-model", hint="leave --picture out"
            )
        pictures.write(drawn[0], picture, overwrite=overwrite)
    if found.get("impossible_tokens"):
        terminal.say(
            f"the perplexity is infinite: {found['impossible_tokens']:,} tokens have probability zero "
            "(a smoothed model has none such)"
        )
    if {"unknown_tokens", "tokens", "lines"} <= found.keys():
        counts = {"lines": found["lines"], "unknown": found["unknown_tokens"]}
        is_spelled = "bits_per_byte_without_spelling" in found
        for warning in warnings(found["tokens"], **counts, spells_unknown=is_spelled):
            terminal.say(warning)
