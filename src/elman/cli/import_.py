"""`elman import`: a model made by another tool."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elman.cli import terminal
from elman.cli.options import Json, OutDirectory, Overwrite
from elman.cli.verb import examples
from elman.core.errors import UsageError


@examples(
    "elman import kenlm.arpa --out my-model",
    "elman import gpt2-directory --out my-model --context 512",
)
def import_model(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="FILE.arpa|HF_DIR",
            help="An ARPA file, plain or .gz; or a directory with config.json, model.safetensors and tokenizer.json.",
            show_default=False,
        ),
    ],
    out: OutDirectory,
    context: Annotated[
        int | None,
        typer.Option(min=2, metavar="N", help="HF_DIR: tokens read at most before half of them are read anew."),
    ] = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Make a model of an ARPA file (KenLM, SRILM, elman), or of a causal language model in Hugging Face's layout.

    The second needs the extra `hf`. Nothing is downloaded, and neither pickles nor a model's own code are run.
    """
    from elman.api import import_arpa, import_hf

    with terminal.status(f"reading {source}"):
        if source.is_dir():
            model = import_hf(source, out=out, context=context, overwrite=overwrite, command=terminal.command())
        elif context is not None:
            raise UsageError(
                "--context is for a model in Hugging Face's layout", code="does-not-apply", hint="leave it out"
            )
        else:
            model = import_arpa(source, out=out, overwrite=overwrite, command=terminal.command())
    if json:
        terminal.print_json(model.info())
    else:
        terminal.say(
            f"{out}: {model.record.family} of {model.record.vocab_size:,} symbols, units {model.tokenizer.units}"
        )
