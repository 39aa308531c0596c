"""`elman next`: the next-symbol distribution."""

from __future__ import annotations

from typing import Annotated

import typer

from elman.cli import terminal
from elman.cli.options import Json, ModelDirectory, NoVerify, Threads
from elman.cli.verb import examples


@examples(
    "elman next my-model 'the cat sat on the'",
    "elman next my-model '' --k 3 --json",
)
def next_symbols(
    directory: ModelDirectory,
    prompt: Annotated[
        str, typer.Argument(metavar="PROMPT", help="The text so far; '' for the very beginning.", show_default=False)
    ],
    k: Annotated[int, typer.Option("--k", "-k", min=1, metavar="N", help="How many symbols to show.")] = 10,
    threads: Threads = None,
    json: Json = False,
    no_verify: NoVerify = False,
) -> None:
    """Show the likeliest next symbols and their probabilities."""
    terminal.limit_threads(threads)
    from elman.api import load_language_model

    model = load_language_model(directory, verify=not no_verify)
    found = model.next(prompt, k=k)
    if json:
        rows = [{"token": token, "probability": probability} for token, probability in found]
        terminal.print_json({"prompt": prompt, "next": rows})
        return
    for token, probability in found:
        print(f"{probability:.6f}\t{terminal.escape(token, keep='')}")
