"""`elman import`: a model made by another tool."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elman.cli import terminal
from elman.cli.options import Json, OutDirectory, Overwrite
from elman.cli.verb import examples


@examples(
    "elman import kenlm.arpa --out my-model",
    "elman import srilm.arpa.gz --out my-model --overwrite",
)
def import_model(
    file: Annotated[Path, typer.Argument(metavar="FILE.arpa", help="An ARPA file, plain or .gz.", show_default=False)],
    out: OutDirectory,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Make a model of an ARPA file from KenLM, SRILM or elman."""
    from elman.api import import_arpa

    with terminal.status(f"reading {file}"):
        model = import_arpa(file, out=out, overwrite=overwrite, command=terminal.command())
    if json:
        terminal.print_json(model.info())
    else:
        terminal.say(
            f"{out}: {model.record.family} of {model.record.vocab_size:,} symbols, units {model.tokenizer.units}"
        )
