"""`elman train`: a model from text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elman.cli import terminal
from elman.cli.completion import complete_model, complete_recipe, complete_task
from elman.cli.options import (
    Json,
    OutDirectory,
    Overwrite,
    ResetLines,
    Seed,
    Settings,
    SourceFiles,
    TargetFiles,
    Threads,
    Units,
    choose_data,
)
from elman.cli.verb import examples

TASK = typer.Argument(metavar="TASK", show_default=False, autocompletion=complete_task)
MODEL = typer.Option(metavar="NAME", autocompletion=complete_model)


def describe_choices() -> None:
    """Let --help list tasks and models. They are imported only when somebody asks: that takes as long as all the rest."""
    from elman.tasks.catalogue import TASKS, find_task

    TASK.help = "; ".join(f"{name}: {entry.what}" for name, entry in TASKS.items())
    models: dict[str, list[str]] = {}  # the tasks that have the same ones
    for name in TASKS:
        models.setdefault(" ".join(find_task(name).model_names()), []).append(name)
    listed = "; ".join(f"{' '.join(names)}: {listed}" for listed, names in models.items() if listed)
    MODEL.help = f"{listed}. [default: the first; lm with --budget: a mixture]"


@examples(
    "elman train lm corpus.txt --budget 10m --out my-model",
    "elman train classify reviews.tsv --valid more.tsv --set model.pool=attention --out stars",
)
def train(
    task: Annotated[str, TASK],
    out: OutDirectory,
    data: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="DATA",
            help="Text, JSONL, CSV, Parquet, .gz and the like, directories; - is stdin.",
            show_default=False,
        ),
    ] = None,
    source: SourceFiles = None,
    target: TargetFiles = None,
    valid: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Held-out text; 'none' for none. [default: the last part of DATA]"),
    ] = None,
    valid_target: Annotated[
        str | None, typer.Option("--valid-target", metavar="FILE", help="seq2seq: line by line the targets of --valid.")
    ] = None,
    model: Annotated[str | None, MODEL] = None,
    units: Units = None,
    reset_lines: ResetLines = False,
    budget: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="At most so long, like 10m; lm without --model: the best for the time."),
    ] = None,
    epochs: Annotated[
        float | None, typer.Option(min=0.0, metavar="N", help="Nets: so many passes over the text.")
    ] = None,
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Count within so much memory, like 4G, and on disk beyond it.")
    ] = None,
    settings: Settings = None,
    recipe: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.toml",
            help="Settings in a file, or the name of a shipped recipe; --set wins.",
            autocompletion=complete_recipe,
        ),
    ] = None,
    init: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="lm: go on from this net, with its vocabulary; classify, tag, qa, seq2seq: begin with its words and cells.",
        ),
    ] = None,
    seed: Seed = 1,
    threads: Threads = None,
    device: Annotated[
        str | None, typer.Option(metavar="D", help="Nets: cpu or cuda. [default: cuda if there is one]")
    ] = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Train a model on text.

    A setting that is not a flag is given by --set: model.order=5, model.hidden=512, train.learning_rate=0.003. `elman
    settings` lists all.
    """
    terminal.limit_threads(threads)
    from elman.api import train as train_model
    from elman.core.settings import parse_pairs
    from elman.training.budget import process_started
    from elman.training.threads import prepare_environment

    prepare_environment()
    with terminal.training(f"training {model or (task if task != 'lm' or budget else 'mkn')}") as (report, on_progress):
        made = train_model(
            task,
            choose_data(data, source, target),
            targets=[Path(name) for name in target] if target else None,
            valid_targets=valid_target,
            out=out,
            model=model,
            valid=valid,
            units=units,
            reset_lines=reset_lines or None,
            budget=budget,
            epochs=epochs,
            started=process_started(),
            memory=memory,
            settings=parse_pairs(settings),
            recipe=recipe,
            init=init,
            seed=seed,
            threads=threads,
            device=device,
            overwrite=overwrite,
            command=terminal.command(),
            report=report,
            on_progress=on_progress,
        )
    terminal.print_made(made, json=json)
