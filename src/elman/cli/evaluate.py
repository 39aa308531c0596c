"""`elman evaluate`: how well a model knows a text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elman.cli import terminal
from elman.cli.options import Json, ModelDirectory, NoVerify, Seed, SourceFiles, TargetFiles, choose_data
from elman.core.errors import UsageError


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
        Path | None, typer.Option(metavar="FILE", help="BLEU by length, or what was taken for what: .svg, .png, .html.")
    ] = None,
    dynamic: Annotated[
        bool, typer.Option("--dynamic", help="Also let nets learn from each piece of the text once it is scored.")
    ] = False,
    dynamic_rate: Annotated[
        float | None, typer.Option(min=0, metavar="R", help="How fast they learn. [default: 0.00015]")
    ] = None,
    seed: Seed = 1,
    no_verify: NoVerify = False,
) -> None:
    """Score a text: perplexity, bits per byte, and the signature that says what was counted.

    --dynamic adds the same numbers under names that end in _dynamic. The model in DIR stays as it is.
    """
    from elman.api import Model, load
    from elman.tasks.seq2seq.model import Translator

    data = choose_data(data, source, target)
    model = load(directory, verify=not no_verify)
    if isinstance(model, Model) and beam is not None:
        raise UsageError("--beam does not apply to a language model", hint="leave it out")
    if not isinstance(model, Model) and reset_lines is not None:
        raise UsageError(f"--reset-lines and --stream do not apply to {model.record.task}", hint="leave them out")
    if not isinstance(model, Model) and (dynamic or dynamic_rate is not None):
        raise UsageError(f"--dynamic does not apply to {model.record.task}", hint="leave it out")
    if not isinstance(model, Translator) and target:
        raise UsageError(f"--target does not apply to {model.record.task}", hint="leave it out")
    if model.record.task not in ("seq2seq", "tag", "classify", "qa") and picture:
        raise UsageError(f"--picture does not apply to {model.record.task}", hint="leave it out")
    with terminal.status("scoring"):
        if isinstance(model, Model):
            found = model.evaluate(data, reset_lines=reset_lines, dynamic=dynamic, dynamic_rate=dynamic_rate, seed=seed)
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

        if "confusions" in found:
            pictures.write(pictures.confusion_map(**found["confusions"]), picture)
        elif "by_length" in found:
            pictures.write(pictures.by_length({str(directory): found["by_length"]}), picture)
        else:
            raise UsageError("there is no picture of these numbers", hint="leave --picture out")
    if found.get("impossible_tokens"):
        terminal.say(
            f"the perplexity is infinite: {found['impossible_tokens']:,} tokens have probability zero "
            "(a smoothed model has none such)"
        )
