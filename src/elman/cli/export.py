"""`elman export`: a model in a format that other tools read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from elman.cli import terminal
from elman.cli.options import ModelDirectory, NoVerify


def export(
    directory: ModelDirectory,
    kind: Annotated[
        Literal["arpa"], typer.Option("--format", metavar="arpa", help="arpa: for KenLM, SRILM and others.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="PATH", help="The file to write.", show_default=False)],
    no_verify: NoVerify = False,
) -> None:
    """Write a model in a format that other tools read."""
    from elman.api import load_language_model

    model = load_language_model(directory, verify=not no_verify)
    with terminal.status(f"writing {out}"):
        model.export(out, format=kind)
    terminal.say(f"wrote {out} ({terminal.size(out.stat().st_size)})")
