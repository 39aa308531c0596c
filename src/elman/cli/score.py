"""`elman score`: what each line costs."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elman.cli import terminal
from elman.cli.options import Errors, ModelDirectory, NoVerify, Threads
from elman.cli.verb import examples

if TYPE_CHECKING:
    from elman.api import Score


@examples(
    "elman score my-model web.txt.gz --text --json --errors skip > scored.jsonl",
    "echo 'the cat sat' | elman score my-model --per-token",
)
def score(
    context: typer.Context,
    directory: ModelDirectory,
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="The text; - or nothing is stdin.", show_default=False)
    ] = None,
    per_token: Annotated[
        bool, typer.Option("--per-token", help="Behind the numbers every token and its nats.")
    ] = False,
    stream: Annotated[
        bool, typer.Option("--stream", help="Read each line after the lines before it, not each alone.")
    ] = False,
    text: Annotated[bool, typer.Option("--text", help="Behind the numbers the line itself.")] = False,
    errors: Errors = None,
    json: Annotated[bool, typer.Option("--json", help="Print a JSON object a line.")] = False,
    threads: Threads = None,
    no_verify: NoVerify = False,
) -> None:
    """Score each line: nats, tokens, perplexity and unknown tokens, tab-separated, a line for a line.

    --json adds bits_per_byte, which compares lines with many unknown words to others: it counts their spelling.
    """
    if file is None and terminal.is_typed():
        terminal.show_help(context)
    terminal.limit_threads(threads)
    from elman.api import load_language_model
    from elman.lm.evaluate import warnings

    model = load_language_model(directory, verify=not no_verify)
    source = "-" if file is None else file
    lines = tokens = unknown = empty = 0
    for scores in model.score_lines(source, per_token=per_token, stream=stream, errors=errors, with_text=text):
        for found in scores:
            if found is None:
                empty += 1
            else:
                lines, tokens, unknown = lines + 1, tokens + found.tokens, unknown + found.unknown
            if json:
                terminal.print_json(_record(found, per_token=per_token, text=text))
            else:
                print("" if found is None else _row(found))
        sys.stdout.flush()
    if empty:
        terminal.say(f"{empty:,} {'line is' if empty == 1 else 'lines are'} no text: the result is empty there")
    for warning in warnings(tokens, lines=lines, unknown=unknown, spells_unknown=model.spelling is not None):
        terminal.say(warning)


def _row(found: Score) -> str:
    columns = [f"{found.nats:.6f}", str(found.tokens), f"{found.perplexity:.4f}", str(found.unknown)]
    columns += [] if found.text is None else [_cell(found.text)]
    columns += [column for token, nats in found.per_token for column in (_cell(token), f"{nats:.6f}")]
    return "\t".join(columns)


def _record(found: Score | None, *, per_token: bool, text: bool) -> dict[str, Any]:
    """A score as JSON has it: null for what is infinite, and for all of what is no text."""
    numbers = dict.fromkeys(("nats", "tokens", "perplexity", "unknown", "bits_per_byte"))
    if found is None:
        return {**numbers, **({"text": None} if text else {}), **({"per_token": None} if per_token else {})}
    return {
        **{key: _finite(getattr(found, key)) for key in numbers},
        **({"text": found.text} if text else {}),
        **({"per_token": [[token, _finite(nats)] for token, nats in found.per_token]} if per_token else {}),
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _cell(text: str) -> str:
    """A token or a line that breaks no table."""
    return terminal.escape(text, keep="")
