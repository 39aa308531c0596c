"""`elman evaluate`: how well a model knows a text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elman.cli import terminal
from elman.cli.options import Json, ModelDirectory, NoVerify, Seed, SourceFiles, TargetFiles, choose_data
from elman.errors import UsageError


def evaluate(
    directory: ModelDirectory,
    data: Annotated[
        list[str] | None, typer.Argument(metavar="DATA", help="The text; - is stdin.", show_default=False)
    ] = None,
    source: SourceFiles = None,
    target: TargetFiles = None,
    json: Json = False,
    reset_lines: Annotated[
        bool | None,
        typer.Option(
            "--reset-lines/--stream", help="Read each line alone, or all as one stream. [default: as trained]"
        ),
    ] = None,
    beam: Annotated[int | None, typer.Option(min=1, metavar="N", help="seq2seq: a beam so wide.")] = None,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="seq2seq: BLEU by the source's length, as .svg, .png or .html.")
    ] = None,
    seed: Seed = 1,
    no_verify: NoVerify = False,
) -> None:
    """Score a text: perplexity, bits per byte, and the signature that says what was counted."""
    from elman.api import Model, load
    from elman.api.translator import Translator

    data = choose_data(data, source, target)
    model = load(directory, verify=not no_verify)
    if isinstance(model, Model) and beam is not None:
        raise UsageError("--beam does not apply to a language model", hint="leave it out")
    if not isinstance(model, Model) and reset_lines is not None:
        raise UsageError(f"--reset-lines and --stream do not apply to {model.record.task}", hint="leave them out")
    if not isinstance(model, Translator) and (target or picture):
        raise UsageError(f"--target and --picture do not apply to {model.record.task}", hint="leave them out")
    with terminal.status("scoring"):
        if isinstance(model, Model):
            found = model.evaluate(data, reset_lines=reset_lines, seed=seed)
        elif isinstance(model, Translator):
            found = model.evaluate(data, targets=target, beam=beam, seed=seed)
        else:
            found = model.evaluate(data, beam=beam, seed=seed)
    if json:
        terminal.print_json(found)
    else:
        terminal.print_numbers(found)
    if picture is not None:
        from elman import pictures

        pictures.write(pictures.by_length({str(directory): found["by_length"]}), picture)
    if found.get("impossible_tokens"):
        terminal.say(
            f"the perplexity is infinite: {found['impossible_tokens']:,} tokens have probability zero "
            "(a smoothed model has none such)"
        )
