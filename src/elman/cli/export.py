"""`elman export`: a model in a format that other tools read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from elman.cli import terminal
from elman.cli.options import Json, ModelDirectory, NoVerify, OverwriteFile
from elman.cli.verb import examples


@examples(
    "elman export my-model --format arpa --out model.arpa",
    "elman export my-model --format arpa --out model.arpa --json",
)
def export(
    directory: ModelDirectory,
    kind: Annotated[
        Literal["arpa"], typer.Option("--format", metavar="arpa", help="arpa: for KenLM, SRILM and others.")
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", metavar="PATH", help="The file to write; - is stdout, .gz is compressed.", show_default=False
        ),
    ],
    overwrite: OverwriteFile = False,
    json: Json = False,
    no_verify: NoVerify = False,
) -> None:
    """Write a model in a format that other tools read."""
    from elman.api import load_language_model
    from elman.core.outputs import STDOUT, check_output

    check_output(out, overwrite=overwrite)
    model = load_language_model(directory, verify=not no_verify)
    with terminal.status(f"writing {out}"):
        model.export(out, format=kind, overwrite=overwrite)
    if str(out) == STDOUT:
        return
    num_bytes = out.stat().st_size
    terminal.say(f"wrote {out} ({terminal.size(num_bytes)})")
    if json:
        terminal.print_json({"path": str(out), "format": kind, "bytes": num_bytes})
