"""`elman demo`: the main job on the corpus that is on every machine, Python's own language reference."""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elman.cli import demo_names, terminal
from elman.cli.options import Json, Seed

if TYPE_CHECKING:
    from elman.api import Model

FAMILIES = {
    "uniform": "nothing",
    "unigram": "frequencies",
    "bigram": "1 word back",
    "ngram": "2 words back",
    "kn": "4 words back",
    "mkn": "4 words back",
    "snm": "skip-grams",
    "window": "5 words back",
    "rnn": "all, fading",
    "gru": "all, gated",
    "lstm": "all, gated",
}
NETS = ("window", "rnn", "gru", "lstm")
NET_BUDGET = "25s"  # each
MIXTURES = {"mkn+cache": ("mkn", "cache"), "mkn+lstm+cache": ("mkn", "lstm", "cache")}
SAMPLE_TOKENS = 28
SAMPLE_TEMPERATURE = 0.8


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    what: str
    perplexity: float
    bits_per_byte: float
    seconds: float
    num_bytes: int
    sample: str


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Where texts and models go.")] = Path(
        "elman-demo"
    ),
    seed: Seed = 1,
    json: Json = False,
) -> None:
    """Train and compare every family on Python's own language reference, and two translators of noisy names."""
    from elman.train.threads import prepare_environment

    prepare_environment()
    import torch  # noqa: F401  (so that no model's time contains it)

    import elman.api  # noqa: F401

    rows = []
    with _bar(len(FAMILIES) + len(MIXTURES) + len(demo_names.CONTEXTS)) as step:
        texts = write_corpus(out)
        for name, what in FAMILIES.items():
            step(f"training {name}")
            rows.append(_try_out(partial(_train, name, texts, out / name, seed), name, what, texts, seed))
        for name, members in MIXTURES.items():
            step(f"mixing {name}")
            rows.append(_try_out(partial(_mix, members, texts, out, seed), name, "all of that", texts, seed))
        names = demo_names.compare_contexts(out, seed, step)
        step("")
    if json:
        models, names_models = [vars(row) for row in rows], [vars(row) for row in names]
        terminal.print_json({"models": models, "names": names_models, "seed": seed, "directory": str(out)})
        return
    _print_table(rows)
    _print_samples(rows)
    demo_names.print_names(names, out)
    terminal.say(f"\nseed {seed}; the models are in {out}. Now try:\n")
    for command in (
        f'elman next {out}/mkn "The value of the"',
        f'elman generate {out}/mkn --prompt "The statement" --temperature 0.8',
        f"elman evaluate {out}/mkn {out}/test.txt --json",
        f"echo {demo_names.SOURCE} | elman predict {out}/names-attention --n-best 3",
    ):
        terminal.say(f"  {command}")


def _train(name: str, texts: dict[str, Path], out: Path, seed: int) -> Model:
    from elman.api import Model, train

    made = train(
        "lm",
        texts["train"],
        valid=texts["valid"],
        model=name,
        units="word",
        budget=NET_BUDGET if name in NETS else None,
        out=out,
        seed=seed,
        overwrite=True,
    )
    assert isinstance(made, Model)
    return made


def _mix(members: tuple[str, ...], texts: dict[str, Path], out: Path, seed: int) -> Model:
    from elman.api import mix

    parts: list[str | Path] = [name if name == "cache" else out / name for name in members]
    return mix(parts, valid=texts["valid"], out=out / "-".join(members), seed=seed, overwrite=True)


def _try_out(make: Callable[[], Model], name: str, what: str, texts: dict[str, Path], seed: int) -> Row:
    begin = time.perf_counter()
    model = make()
    seconds = time.perf_counter() - begin
    numbers = model.evaluate(texts["test"], seed=seed)
    sample = model.generate("The", tokens=SAMPLE_TOKENS, temperature=SAMPLE_TEMPERATURE, seed=seed, forbid=["<unk>"])
    sample = re.sub(r"\s+", " ", "The" + sample)
    return Row(name, what, numbers["perplexity"], numbers["bits_per_byte"], seconds, model.num_bytes or 0, sample)


def write_corpus(directory: Path) -> dict[str, Path]:
    """Python's language reference as three texts, cut by topic: no topic is in two of them."""
    from elman.files import replacing

    directory.mkdir(parents=True, exist_ok=True)
    topics = sorted(topic_texts().values(), key=len, reverse=True)
    parts: dict[str, list[str]] = {"train": [], "valid": [], "test": []}
    for number, text in enumerate(topics):
        parts[{4: "valid", 7: "test"}.get(number % 10, "train")].append(text)
    paths = {name: directory / f"{name}.txt" for name in parts}
    for name, texts in parts.items():
        with replacing(paths[name]) as temporary:
            temporary.write_text("\n".join(texts) + "\n", encoding="utf-8")
    return paths


def topic_texts() -> dict[str, str]:
    """Each topic, a line for a paragraph of prose and for a line of code.

    Rules, tables and frames of lines are left out; and, since many topics quote others, whatever was there already.
    """
    from pydoc_data.topics import topics

    seen: set[str] = set()
    found = {}
    for name, text in sorted(topics.items()):
        kept = []
        for paragraph in re.split(r"\n\s*\n", text):
            is_code = re.search(r"^    ", paragraph, re.MULTILINE) is not None
            lines = [" ".join(line.split()) for line in paragraph.split("\n")]
            lines = [line for line in lines if re.search(r"\w", line) and line[0] not in "+|"]
            plain = ("\n" if is_code else " ").join(lines)
            if plain and plain not in seen:
                seen.add(plain)
                kept.append(plain)
        if kept:
            found[name] = "\n".join(kept)
    return found


@contextlib.contextmanager
def _bar(num_steps: int) -> Iterator[Callable[[str], None]]:
    """A progress bar on a terminal, a line for each step elsewhere."""
    if not terminal.is_fancy(sys.stderr):
        yield lambda message: terminal.say(message) if message else None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description:<22}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=num_steps)
        begun = [0]

        def step(message: str) -> None:
            progress.update(task, description=message, completed=begun[0])
            begun[0] += 1

        yield step


def _print_table(rows: list[Row]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    best = min(row.perplexity for row in rows)
    table = Table(
        box=box.SIMPLE_HEAD, title="Python's language reference, topics never seen before", title_justify="left"
    )
    table.add_column("model", style="bold", no_wrap=True)
    table.add_column("looks at", style="dim")
    for heading in ("perplexity", "bits/byte", "time", "size"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        style = "green" if row.perplexity == best else None
        numbers = (f"{row.perplexity:,.1f}", f"{row.bits_per_byte:.3f}", f"{row.seconds:.1f} s")
        table.add_row(row.name, row.what, *numbers, terminal.size(row.num_bytes), style=style)
    console = Console()
    console.print()
    console.print(table)


def _print_samples(rows: list[Row]) -> None:
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    console = Console()
    for row in rows:
        console.print(Text(row.name, style="bold"))
        console.print(Padding(Text(terminal.escape(row.sample)), (0, 0, 0, 2)))
