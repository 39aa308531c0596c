"""Options that several verbs share, so that one thing has one name and one help text everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from elman.cli.completion import complete_setting, complete_units
from elman.core.errors import UsageError

ModelDirectory = Annotated[Path, typer.Argument(metavar="DIR", help="A model directory.", show_default=False)]
OutDirectory = Annotated[
    Path, typer.Option("--out", "-o", metavar="DIR", help="Where the model is written.", show_default=False)
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the model that is there.")]
OverwriteFile = Annotated[bool, typer.Option("--overwrite", help="Replace the file that is there.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
NoVerify = Annotated[bool, typer.Option("--no-verify", help="Load without checking the model's files for damage.")]
Errors = Annotated[
    Literal["stop", "replace", "skip"] | None,
    typer.Option(
        "--errors",
        metavar="E",
        help="Lines that are not understood: stop, replace bad bytes, or skip. [default: as trained]",
    ),
]
Units = Annotated[
    str | None,
    typer.Option(
        metavar="U",
        help="space, word, char, byte or bpe:8000. [default: looks at the data]",
        autocompletion=complete_units,
    ),
]
ResetLines = Annotated[bool, typer.Option("--reset-lines", help="Read each line alone instead of all as one stream.")]
Seed = Annotated[int, typer.Option("--seed", min=0, metavar="N", help="Seed of everything random.")]
Threads = Annotated[
    int | None, typer.Option("--threads", min=1, max=1024, metavar="N", help="Threads. [default: all cores]")
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="A setting like model.order=5; `elman settings` lists them. May be repeated.",
        autocompletion=complete_setting,
    ),
]
SourceFiles = Annotated[
    list[str] | None,
    typer.Option("--source", metavar="FILE", help="seq2seq, tag, classify: the sources, instead of DATA."),
]
TargetFiles = Annotated[
    list[str] | None,
    typer.Option("--target", metavar="FILE", help="Line by line the targets, tags or labels of --source."),
]


def choose_data(data: list[str] | None, source: list[str] | None, target: list[str] | None) -> list[Path]:
    """The files to read: DATA, or the sources of line-aligned files."""
    if bool(source) != bool(target):
        missing = "--target" if source else "--source"
        raise UsageError(
            f"{missing} is missing",
            code="missing-option",
            hint="--source and --target are read line by line, side by side",
        )
    if bool(data) == bool(source):
        hint = "give files, or --source and --target"
        if data:
            raise UsageError("DATA and --source are both given", code="options-conflict", hint=hint)
        raise UsageError("there is no DATA", code="missing-option", hint=hint)
    return [Path(name) for name in data or source or []]
