"""`elman explain`: what a model does with a text, drawn."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from elman.cli import terminal
from elman.cli.completion import complete_kind
from elman.cli.drawing import print_drawing
from elman.cli.options import NoVerify, OverwriteFile, Seed, Threads
from elman.cli.verb import examples
from elman.core.errors import UsageError

CONFIG = "config.json"


@examples(
    "elman explain my-model 'the cat sat on the mat'",
    "elman explain my-rnn my-lstm 'the cat sat on the mat' --kind gradients --out gradients.html",
)
def explain(
    models_and_texts: Annotated[
        list[str],
        typer.Argument(
            metavar="DIR... TEXT...", help="Model directories or files of word vectors, then texts.", show_default=False
        ),
    ],
    kind: Annotated[
        str | None,
        typer.Option(
            metavar="K",
            help="surprisal, counts, gradients, reach, attention, saliency, gates, states, neighbours, analogy, map, cloze"
            " or novelty. [default: the one that says most]",
            autocompletion=complete_kind,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="F", help="F.html, F.png, F.svg or F.json. [default: a drawing]"),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A setting of the kind, like preferred=5; `elman settings explain` lists them. May be repeated.",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    overwrite: OverwriteFile = False,
    seed: Seed = 1,
    threads: Threads = None,
    no_verify: NoVerify = False,
) -> None:
    """Look inside: what a model does with a text, as a drawing here or as a picture in a file."""
    directories, texts = _split(models_and_texts)
    if out is None:
        terminal.require_stdout()
    else:
        from elman.explain.explanation import check_path

        check_path(out, overwrite=overwrite)
    terminal.limit_threads(threads)
    from elman.api import load
    from elman.explain import explain as explain_models
    from elman.explain.words import VectorFile

    models: list[Any] = [
        VectorFile(path) if _is_vector_file(str(path)) else load(path, verify=not no_verify) for path in directories
    ]
    with terminal.share("explaining") as report:
        found = explain_models(models, texts, kind=kind, options={"seed": seed} | _options(set_), report=report)
    if out is not None:
        found.save(out, overwrite=overwrite)
    elif json:
        terminal.print_json(found.to_dict())
    else:
        print_drawing(found.drawing)
    for note in found.notes:
        terminal.say(note)
    if out is not None:
        terminal.say(f"wrote {out}: {found.title}")


def _split(arguments: list[str]) -> tuple[list[Path], list[str]]:
    """Models come first; what follows is text."""
    count = 1
    while count < len(arguments) and _is_model(arguments[count]):
        count += 1
    return [Path(name) for name in arguments[:count]], arguments[count:]


def _is_model(argument: str) -> bool:
    """Whether it is a model directory or a file of word vectors, and no text."""
    return os.path.isfile(Path(argument) / CONFIG) or _is_vector_file(argument)  # noqa: PTH113  (any text may be asked)


def _is_vector_file(argument: str) -> bool:
    return argument.endswith((".vec", ".txt", ".gz", ".npz")) and os.path.isfile(argument)  # noqa: PTH113  (the same)


def _options(pairs: list[str] | None) -> dict[str, Any]:
    found = {}
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        if not equals:
            raise UsageError(
                f"--set {pair} is not of the form key=value", code="bad-value", hint="for example preferred=5"
            )
        found[key.removeprefix("explain.")] = value
    return found
