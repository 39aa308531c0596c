"""`elman resume`: go on where a stopped run was."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elman.cli import terminal
from elman.cli.options import Json
from elman.cli.verb import examples


@examples(
    "elman resume my-model",
    "elman resume my-model --device cpu --json",
)
def resume(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where the run was begun.", show_default=False)],
    device: Annotated[
        str | None, typer.Option(metavar="D", help="cpu or cuda. [default: cuda if there is one]")
    ] = None,
    threads: Annotated[
        int | None, typer.Option("--threads", min=1, metavar="N", help="Threads. [default: as it was begun]")
    ] = None,
    json: Json = False,
) -> None:
    """Go on exactly where a stopped training was; a finished one is left as it is."""
    from elman.api import resume as go_on
    from elman.training.budget import process_started
    from elman.training.threads import prepare_environment

    prepare_environment()
    with terminal.training("training") as (report, on_progress):
        made = go_on(
            directory,
            started=process_started(),
            device=device,
            threads=threads,
            report=report,
            on_progress=on_progress,
        )
    terminal.print_made(made, json=json)
