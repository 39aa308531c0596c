"""`elman evaluate`: how well a model knows a text."""

from __future__ import annotations

from typing import Annotated

import typer

from elman.cli import terminal
from elman.cli.options import Json, ModelDirectory, NoVerify, Seed


def evaluate(
    directory: ModelDirectory,
    data: Annotated[list[str], typer.Argument(metavar="DATA", help="The text; - is stdin.", show_default=False)],
    json: Json = False,
    reset_lines: Annotated[
        bool | None,
        typer.Option(
            "--reset-lines/--stream", help="Read each line alone, or all as one stream. [default: as trained]"
        ),
    ] = None,
    seed: Seed = 1,
    no_verify: NoVerify = False,
) -> None:
    """Score a text: perplexity, bits per byte, and the signature that says what was counted."""
    from elman.api import load

    model = load(directory, verify=not no_verify)
    with terminal.status("scoring"):
        found = model.evaluate(data, reset_lines=reset_lines, seed=seed)
    if json:
        terminal.print_json(found)
    else:
        terminal.print_record(found)
    if found["impossible_tokens"]:
        terminal.say(
            f"the perplexity is infinite: {found['impossible_tokens']:,} tokens have probability zero "
            "(a smoothed model has none such)"
        )
