"""`elman settings`: what --set and a recipe can set."""

from __future__ import annotations

from typing import Annotated

import typer

from elman.cli import terminal
from elman.cli.options import Json
from elman.cli.verb import examples


@examples(
    "elman settings dropout",
    "elman settings 'train.*' --json",
)
def settings(
    pattern: Annotated[
        str,
        typer.Argument(
            metavar="PATTERN", help="Only keys with this in them, like dropout or model.*.", show_default=False
        ),
    ] = "",
    json: Json = False,
) -> None:
    """Say what every setting of --set and of recipes means, what it can be, its default, and what has it."""
    from elman.tasks.reference import find_settings, render

    found = find_settings(pattern)
    if json:
        terminal.print_json({"settings": [one.as_json() for one in found]})
    else:
        print(render(found))
