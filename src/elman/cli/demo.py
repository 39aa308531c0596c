"""`elman demo`: the main job, a comparison, on the corpus that is on every machine; and names out of noise, reversed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from elman.cli import demo_labels, demo_names, terminal
from elman.cli.compare import print_comparison
from elman.cli.demo_corpus import write_corpus
from elman.cli.options import Json, Seed, Threads
from elman.cli.verb import examples

OUT = Path("elman-demo")
MODELS = ("unigram", "bigram", "ngram", "mkn", "rnn", "lstm", "mkn+lstm+cache")
BUDGET: str | None = "3m30s"
QUICK_MODELS = ("unigram", "bigram", "mkn", "lstm", "mkn+lstm+cache")
QUICK_BUDGET: str | None = "45s"
SETTINGS: dict[str, Any] = {"data.units": "word"}
LINE = "The value of the expression is a string."  # to look into models with


@examples(
    "elman demo --quick",
    "elman demo --texts --out tour",
)
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Where texts and models go.")] = OUT,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer models in less time: under a minute.")] = False,
    texts: Annotated[
        bool, typer.Option("--texts", help="Only the texts: a corpus, sentences with labels, words with tags, pairs.")
    ] = False,
    seed: Seed = 1,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Compare models on what Python says about itself, from counts to an LSTM, and two translators of noisy names."""
    if texts:
        _print_texts(write_texts(out, seed), seed=seed, json=json)
        return
    terminal.limit_threads(threads)
    from elman.compare import compare

    corpus, models = write_corpus(out / "corpus"), out / "models"
    with terminal.training("comparing") as (report, on_progress):
        found = compare(
            corpus["train"],
            valid=corpus["valid"],
            test=corpus["test"],
            models=QUICK_MODELS if quick else MODELS,
            budget=QUICK_BUDGET if quick else BUDGET,
            settings=SETTINGS,
            out=models,
            seed=seed,
            threads=threads,
            overwrite=True,
            command=terminal.command(),
            report=report,
            on_progress=on_progress,
        )
    names: list[demo_names.NamesRow] = []
    if not quick:
        with terminal.status("names") as say:
            names = demo_names.compare_contexts(out, say, seed=seed, threads=threads)
    if json:
        rows = [asdict(row) for row in names]
        terminal.print_json({**found.data, "names": rows, "seed": seed, "directory": str(out)})
        return
    print_comparison(found.data)
    if names:
        demo_names.print_names(names, out)
    terminal.say(f"\nseed {seed}; open {models}/report.html for all of it. Now try:\n")
    commands = [
        f'elman explain {models}/mkn {models}/lstm "{LINE}"',
        f'elman explain {models}/lstm "{LINE}" --kind gradients',
        f'elman generate {models}/mkn+lstm+cache --prompt "The statement" --temperature 0.8',
    ]
    if names:
        commands.append(f"elman explain {out}/names-attention {demo_names.SOURCE}")
    for command in commands:
        terminal.say(f"  {command}")


def write_texts(out: Path, seed: int) -> list[Path]:
    """All texts that need no download: what a tour of the tasks is made of."""
    writers = (write_corpus, demo_labels.write_chapters, demo_labels.write_code_words)
    written = [path for write in writers for path in write(out).values()]
    return [*written, *demo_names.write_names(out, seed).values()]


def _print_texts(paths: Sequence[Path], *, seed: int, json: bool) -> None:
    rows = {str(path): path.read_bytes().count(b"\n") for path in paths}
    if json:
        terminal.print_json({"texts": rows, "seed": seed})
        return
    for name, num_lines in rows.items():
        print(f"{num_lines:>7,} lines  {name}")
