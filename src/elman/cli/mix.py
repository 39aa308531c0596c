"""`elman mix`: several models as one."""

from __future__ import annotations

from typing import Annotated

import typer

from elman.cli import terminal
from elman.cli.options import Json, OutDirectory, Overwrite, Seed, Settings, Threads
from elman.cli.verb import examples


@examples(
    "elman mix lstm mkn cache --valid valid.txt --out mixture",
    "elman mix lstm neural-cache:window=2000 --valid valid.txt --out remembering",
)
def mix(
    members: Annotated[
        list[str],
        typer.Argument(
            metavar="DIR",
            help=(
                "Model directories (of a bilm, its forward model); 'cache' is what was just read "
                "(cache:decay=0.998, cache:window=200), "
                "'neural-cache' what was read after like histories (neural-cache:window=2000,theta=0.3,decay=1)."
            ),
            show_default=False,
        ),
    ],
    valid: Annotated[str, typer.Option(metavar="FILE", help="The text the weights are tuned on.", show_default=False)],
    out: OutDirectory,
    settings: Settings = None,
    seed: Seed = 1,
    threads: Threads = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Mix models linearly, with weights tuned by EM on held-out text.

    --set model.bucketed=true has a set of weights for each frequent last word, and one for each class of rarer ones.
    """
    terminal.limit_threads(threads)
    from elman.api import mix as mix_models
    from elman.core.settings import parse_pairs

    with terminal.status("mixing") as report:
        made = mix_models(
            members,
            valid=valid,
            out=out,
            settings=parse_pairs(settings),
            seed=seed,
            overwrite=overwrite,
            command=terminal.command(),
            report=report,
        )
    terminal.print_made(made, json=json)
