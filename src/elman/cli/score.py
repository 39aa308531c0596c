"""`elman score`: what each line costs."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elman.cli import terminal
from elman.cli.options import ModelDirectory, NoVerify, Threads
from elman.cli.verb import examples

if TYPE_CHECKING:
    from elman.api import Score


@examples(
    "elman score my-model lines.txt | sort -g -k 3 | head",
    "echo 'the cat sat' | elman score my-model --per-token",
)
def score(
    context: typer.Context,
    directory: ModelDirectory,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="The text; - or nothing is stdin.", show_default=False)
    ] = None,
    per_token: Annotated[
        bool, typer.Option("--per-token", help="Behind the three numbers every token and its nats.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print a JSON object a line.")] = False,
    threads: Threads = None,
    no_verify: NoVerify = False,
) -> None:
    """Score each line alone: nats, tokens and perplexity, tab-separated, a line for a line."""
    if file is None and terminal.is_typed():
        terminal.show_help(context)
    terminal.limit_threads(threads)
    from elman.api import load_language_model

    model = load_language_model(directory, verify=not no_verify)
    for scores in model.score_lines("-" if file is None else file, per_token=per_token):
        for found in scores:
            if json:
                terminal.print_json(_record(found, per_token=per_token))
                continue
            columns = [f"{found.nats:.6f}", str(found.tokens), f"{found.perplexity:.4f}"]
            if per_token:
                columns += [column for token, nats in found.per_token for column in (_cell(token), f"{nats:.6f}")]
            print("\t".join(columns))
        sys.stdout.flush()


def _record(found: Score, *, per_token: bool) -> dict[str, Any]:
    """A score as JSON has it: null for what is infinite."""
    tokens = {"per_token": [[token, _finite(nats)] for token, nats in found.per_token]} if per_token else {}
    return {"nats": _finite(found.nats), "tokens": found.tokens, "perplexity": _finite(found.perplexity), **tokens}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _cell(token: str) -> str:
    """A token that breaks no table."""
    return terminal.escape(token, keep="")
