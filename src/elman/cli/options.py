"""Options that several verbs share, so that one thing has one name and one help text everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ModelDirectory = Annotated[Path, typer.Argument(metavar="DIR", help="A model directory.", show_default=False)]
OutDirectory = Annotated[
    Path, typer.Option("--out", "-o", metavar="DIR", help="Where the model is written.", show_default=False)
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the model that is there.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
NoVerify = Annotated[bool, typer.Option("--no-verify", help="Load without checking the model's files for damage.")]
Seed = Annotated[int, typer.Option("--seed", min=0, metavar="N", help="Seed of everything random.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting like model.order=5. May be repeated.")
]
