"""`elman doctor`: what is wrong with an installation, a data file or a model, and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elman.cli import terminal
from elman.cli.options import Json
from elman.cli.verb import examples

MARKS = {"fine": "ok", "note": "note", "wrong": "WRONG"}


@examples(
    "elman doctor",
    "elman doctor my-model",
    "elman doctor text.txt",
)
def doctor(
    path: Annotated[
        Path | None, typer.Argument(metavar="PATH", help="a model, or data; without it, the installation")
    ] = None,
    json: Json = False,
) -> int:
    """Say what is wrong with an installation, a data file or a model, and what to do.

    Exit 1 if anything is wrong.
    """
    from elman.doctor import examine

    found = []
    for finding in examine(path):
        found.append(finding)
        if not json:
            print(f"{MARKS[finding.level]:6}{terminal.escape(finding.what)}")
            if finding.remedy is not None:
                print(f"      -> {terminal.escape(finding.remedy)}")
    is_well = all(finding.level != "wrong" for finding in found)
    if json:
        terminal.print_json({"is_well": is_well, "findings": [finding.as_json() for finding in found]})
    return 0 if is_well else 1
