"""`elman explain`: what a model does with a text, drawn."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elman.cli import terminal
from elman.cli.completion import complete_kind
from elman.cli.options import NoVerify, OverwriteFile, Seed, Threads
from elman.cli.verb import examples
from elman.core.errors import UsageError

if TYPE_CHECKING:
    from elman.explain.explanation import Line

CONFIG = "config.json"


@examples(
    "elman explain my-model 'the cat sat on the mat'",
    "elman explain my-rnn my-lstm 'the cat sat on the mat' --kind gradients --out gradients.html",
)
def explain(
    models_and_texts: Annotated[
        list[str],
        typer.Argument(metavar="DIR... TEXT...", help="Model directories, then texts.", show_default=False),
    ],
    kind: Annotated[
        str | None,
        typer.Option(
            metavar="K",
            help="surprisal, …; without it the one that says most.",
            autocompletion=complete_kind,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="F", help="F.html, F.png, F.svg or F.json. [default: a drawing]"),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting of the kind, like preferred=5. May be repeated."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    overwrite: OverwriteFile = False,
    seed: Seed = 1,
    threads: Threads = None,
    no_verify: NoVerify = False,
) -> None:
    """Look inside: what a model does with a text, as a drawing here or as a picture in a file."""
    directories, texts = _split(models_and_texts)
    if out is not None:
        from elman.explain.explanation import check_path

        check_path(out, overwrite=overwrite)
    terminal.limit_threads(threads)
    from elman.api import load
    from elman.explain import explain as explain_models

    models: list[Any] = [load(directory, verify=not no_verify) for directory in directories]
    with terminal.share("explaining") as report:
        found = explain_models(models, texts, kind=kind, options={"seed": seed} | _options(set_), report=report)
    if out is not None:
        found.save(out, overwrite=overwrite)
    elif json:
        terminal.print_json(found.to_dict())
    else:
        _print(found.drawing)
    for note in found.notes:
        terminal.say(note)
    if out is not None:
        terminal.say(f"wrote {out}: {found.title}")


def _split(arguments: list[str]) -> tuple[list[Path], list[str]]:
    """Model directories come first; what follows is text."""
    count = 1
    while count < len(arguments) and os.path.isfile(Path(arguments[count]) / CONFIG):  # noqa: PTH113  (any text may be asked)
        count += 1
    return [Path(name) for name in arguments[:count]], arguments[count:]


def _options(pairs: list[str] | None) -> dict[str, Any]:
    found = {}
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(f"--set {pair} is not of the form key=value", hint="for example preferred=5")
        found[key.removeprefix("explain.")] = value
    return found


def _print(drawing: Sequence[Line]) -> None:
    """The drawing, in colours on a terminal."""
    fancy = terminal.is_fancy(sys.stdout)
    for line in drawing:
        print("".join(_coloured(span.text, span.shade) if fancy else span.text for span in line).rstrip())


def _coloured(text: str, shade: float) -> str:
    """Text on orange for positive shades, on blue for negative ones; the larger, the stronger."""
    from elman.core.screen import escape

    strength = min(1.0, abs(shade))
    if strength < 0.02:
        return escape(text)
    end = (230, 97, 1) if shade > 0 else (33, 102, 172)
    red, green, blue = (round(255 + (part - 255) * strength) for part in end)
    ink = "30" if 0.3 * red + 0.6 * green + 0.1 * blue > 110 else "97"
    return f"\x1b[48;2;{red};{green};{blue};{ink}m{escape(text)}\x1b[0m"
