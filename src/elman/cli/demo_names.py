"""The part of `elman demo` in which one sequence becomes another: names with noise between their letters, reversed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from elman.cli import terminal

CONTEXTS = {"initial": "its end", "attention": "all of it"}
# By steps, not by time, so that every machine gets there: about ten seconds of one core.
SETTINGS = {"model.hidden": 64, "model.dropout": 0, "train.batch": 50, "train.learning_rate": 0.008, "train.steps": 900}
NUM_NAMES = {"train": 12_000, "valid": 300, "test": 500}
EXAMPLE, NOISE = "romulus", "nmudotv"
SOURCE = "".join(letter + noise for letter, noise in zip(EXAMPLE, NOISE, strict=True))
PICTURE = "names-attention.svg"


@dataclass(frozen=True)
class NamesRow:
    """One line of the table."""

    context: str
    what: str
    exact_match: float
    edit_distance: float
    seconds: float
    sample: str


def write_names(directory: Path, seed: int) -> dict[str, Path]:
    """Pairs to train on, to validate on and to test on; no name is in two of them."""
    import numpy as np

    from elman.cli.names import make_names, noisy_reversal
    from elman.core.files import replacing

    directory.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    names = make_names(sum(NUM_NAMES.values()), rng)
    paths, first = {}, 0
    for part, count in NUM_NAMES.items():
        rows = ["\t".join(noisy_reversal(name, rng)) for name in names[first : first + count]]
        paths[part], first = directory / f"names.{part}.tsv", first + count
        with replacing(paths[part]) as temporary:
            temporary.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return paths


def compare_contexts(
    out: Path, step: Callable[[str], None], *, seed: int, threads: int | None = None
) -> list[NamesRow]:
    """The decoder that sees the source once, and the one that looks where it wants; its attention as a picture."""
    from elman import pictures
    from elman.api import EvaluateOptions, PredictOptions, train

    paths = write_names(out, seed)
    example = out / "names.example.txt"
    example.write_text(SOURCE + "\n", encoding="utf-8")
    rows = []
    for context, what in CONTEXTS.items():
        step(f"training seq2seq ({context})")
        made = train(
            "seq2seq",
            paths["train"],
            valid=paths["valid"],
            out=out / f"names-{context}",
            recipe="names",
            settings={"model.context": context, **SETTINGS},
            seed=seed,
            threads=threads,
            overwrite=True,
        )
        found = made.evaluate(paths["test"], EvaluateOptions(beam=1, seed=seed))
        (answer,) = made.predict_lines([example], PredictOptions(details=True))
        sample = answer.as_json()["predictions"][0]
        seconds = made.record.seconds or 0.0
        rows.append(NamesRow(context, what, found["exact_match"], found["edit_distance"], seconds, sample["text"]))
        if "attention" in sample:
            spec = pictures.attention_map(
                sample["attention"],
                sources=sample["source_tokens"],
                targets=sample["tokens"],
                title=f"{SOURCE} -> {sample['text']}",
            )
            pictures.write(spec, out / PICTURE, overwrite=True)
    return rows


def print_names(rows: list[NamesRow], out: Path) -> None:
    """The table, an example, and where the picture is."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    title = "A name out of noise, backwards (names never seen before)"
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left")
    table.add_column("context", style="bold", no_wrap=True)
    table.add_column("it sees", style="dim")
    for heading in ("right", "wrong letters", "time"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column(SOURCE, no_wrap=True)
    best = max(row.exact_match for row in rows)
    for row in rows:
        numbers = (f"{row.exact_match:.1%}", f"{row.edit_distance:.1%}", f"{row.seconds:.1f} s")
        sample = terminal.escape(row.sample, keep="")
        table.add_row(row.context, row.what, *numbers, sample, style="green" if row.exact_match == best else None)
    console = Console()
    console.print()
    console.print(table)
    console.print(f"  where attention looked: {out / PICTURE}", highlight=False)
