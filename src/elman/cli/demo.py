"""`elman demo`: the main job on the corpus that is on every machine, Python's own language reference."""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elman.cli import demo_labels, demo_names, terminal
from elman.cli.demo_corpus import write_corpus
from elman.cli.demo_tables import BothSides, HeadRow, Row, print_both_sides, print_heads, print_rows, print_samples
from elman.cli.options import Json, Seed, Threads
from elman.cli.verb import examples

if TYPE_CHECKING:
    from elman.api import Model

Texts = Mapping[str, Path]
Step = Callable[[str], None]


@dataclass(frozen=True)
class RunOptions:
    """What all models of a demo are trained with."""

    seed: int = 1
    threads: int | None = None


@dataclass(frozen=True)
class Entry:
    """A model to train."""

    what: str  # it looks at
    model: str
    budget: str | None = None  # of nets
    settings: Mapping[str, Any] = field(default_factory=dict)
    task: str = "lm"


ENTRIES = {
    "uniform": Entry("nothing", "uniform"),
    "unigram": Entry("frequencies", "unigram"),
    "bigram": Entry("1 word back", "bigram"),
    "ngram": Entry("2 words back", "ngram"),
    "kn": Entry("4 words back", "kn"),
    "mkn": Entry("4 words back", "mkn"),
    "snm": Entry("skip-grams", "snm"),
    "window": Entry("5 words back", "window", "10s"),
    "rnn": Entry("all, fading", "rnn", "10s"),
    "rnn+maxent": Entry("and n-grams", "rnn", "12s", {"model.maxent": 9}),
    "gru": Entry("all, gated", "gru", "20s"),
    "lstm": Entry("all, gated", "lstm", "20s"),
    "transformer": Entry("128 words back", "transformer", "15s"),
    "bilm forward": Entry("all, gated", "lstm", "12s", task="bilm"),
}
MASKED = Entry(
    "both sides",
    "lstm",
    "16s",
    {  # narrow and many short steps: so it has learned something in seconds
        "model.layers": 1,
        "model.hidden": 100,
        "model.mask": 0.25,
        "train.batch": 8,
        "train.bptt": 35,
        "train.learning_rate": 0.006,
    },
    task="masked",
)
HEAD_NET = "lstm"
HEAD_SETTINGS = {"model.hidden": 100}  # the same net for all
HEAD_BUDGET = "7s"
HEADS = {"full": "all others", "sampled": "words drawn", "nce": "noise drawn", "blackout": "words drawn, weighted"}
MIXTURES = {
    "mkn+cache": ("mkn", "cache"),
    "mkn+lstm+cache": ("mkn", "lstm", "cache"),
    "+neural cache": ("mkn", "lstm", "cache", "neural-cache"),
}
QUICK = {name: ENTRIES[name] for name in ("uniform", "unigram", "bigram", "kn", "mkn")} | {
    "lstm": Entry("all, gated", "lstm", "10s"),
}
QUICK_MIXTURES = {"mkn+lstm+cache": MIXTURES["mkn+lstm+cache"]}
DYNAMIC = "+dynamic"  # the last mixture, whose net learns from what it has read
SAMPLE_TOKENS = 28
SAMPLE_TEMPERATURE = 0.8
GAPS = 'If the <mask> is not a <mask>, a "TypeError" is <mask>.'


@examples(
    "elman demo --quick",
    "elman demo --texts --out tour",
)
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Where texts and models go.")] = Path(
        "elman-demo"
    ),
    quick: Annotated[bool, typer.Option("--quick", help="Only a few of the models: half a minute.")] = False,
    texts: Annotated[
        bool, typer.Option("--texts", help="Only the texts: a corpus, sentences with labels, words with tags, pairs.")
    ] = False,
    seed: Seed = 1,
    threads: Threads = None,
    json: Json = False,
) -> None:
    """Train and compare every family on Python's own language reference, and two translators of noisy names."""
    from elman.training.threads import prepare_environment

    if texts:
        _print_texts(write_texts(out, seed), seed=seed, json=json)
        return
    terminal.limit_threads(threads)
    prepare_environment()
    import torch  # noqa: F401  (so that no model's time contains it)

    import elman.api  # noqa: F401

    options = RunOptions(seed, threads)
    found = _compare_few(out, options) if quick else _compare_all(out, options)
    if json:
        terminal.print_json({**found.as_json(), "seed": seed, "directory": str(out)})
        return
    print_rows(found.rows)
    if found.both_sides is not None:
        print_both_sides(found.both_sides)
    if found.heads:
        print_heads(found.heads, net=HEAD_NET, vocab_size=found.vocab_size)
    print_samples(found.rows)
    if found.names:
        demo_names.print_names(found.names, out)
    terminal.say(f"\nseed {seed}; the models are in {out}. Now try:\n")
    commands = [
        f'elman next {out}/mkn "The value of the"',
        f'elman generate {out}/mkn --prompt "The statement" --temperature 0.8',
        f"elman evaluate {out}/mkn {out}/test.txt --json",
    ]
    if found.names:
        commands.append(f"echo {demo_names.SOURCE} | elman predict {out}/names-attention --n-best 3")
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


@dataclass(frozen=True)
class Comparison:
    """All that the demo shows."""

    rows: list[Row]
    both_sides: BothSides | None = None
    heads: list[HeadRow] = field(default_factory=list)
    vocab_size: int = 0
    names: list[demo_names.NamesRow] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {
            "models": [asdict(row) for row in self.rows],
            "both_sides": None if self.both_sides is None else asdict(self.both_sides),
            "heads": [asdict(row) for row in self.heads],
            "vocab_size": self.vocab_size,
            "names": [asdict(row) for row in self.names],
        }


def _compare_all(out: Path, options: RunOptions) -> Comparison:
    num_steps = len(ENTRIES) + len(MIXTURES) + 1 + 1 + len(HEADS) + len(demo_names.CONTEXTS)
    with _bar(num_steps) as step:
        texts = write_corpus(out)
        rows = compare_models(ENTRIES, texts, out, options, step)
        mixed, last = mix_models(MIXTURES, texts, out, options.seed, step)
        rows += [*mixed, evaluate_dynamically(last, texts, options.seed, step)]
        both_sides = compare_both_sides(texts, out, options, step)
        heads, vocab_size = compare_heads(texts, out, options, step)
        names = demo_names.compare_contexts(out, step, seed=options.seed, threads=options.threads)
        step("")
    return Comparison(rows, both_sides, heads, vocab_size, names)


def _compare_few(out: Path, options: RunOptions) -> Comparison:
    with _bar(len(QUICK) + len(QUICK_MIXTURES)) as step:
        texts = write_corpus(out)
        rows = compare_models(QUICK, texts, out, options, step)
        mixed, _ = mix_models(QUICK_MIXTURES, texts, out, options.seed, step)
        step("")
    return Comparison([*rows, *mixed])


def compare_models(entries: Mapping[str, Entry], texts: Texts, out: Path, options: RunOptions, step: Step) -> list[Row]:
    """Train and measure each."""
    rows = []
    for name, entry in entries.items():
        step(f"training {name}")
        begin = time.perf_counter()
        made = _train(entry, texts, out / name.split()[0], options)
        rows.append(_row(name, entry.what, made.language_model(), time.perf_counter() - begin, texts, options.seed))
    return rows


def mix_models(
    mixtures: Mapping[str, Sequence[str]], texts: Texts, out: Path, seed: int, step: Step
) -> tuple[list[Row], Model]:
    """Mixtures of models that were trained; and the last of them."""
    from elman.api import mix

    rows = []
    for name, members in mixtures.items():
        step(f"mixing {name}")
        begin = time.perf_counter()
        parts: list[str | Path] = [part if part.endswith("cache") else out / part for part in members]
        mixed = mix(parts, valid=texts["valid"], out=out / "-".join(members), seed=seed, overwrite=True)
        rows.append(_row(name, "all of that", mixed, time.perf_counter() - begin, texts, seed))
    return rows, mixed


def evaluate_dynamically(model: Model, texts: Texts, seed: int, step: Step) -> Row:
    """The same model, whose nets learn from what they have read."""
    from elman.api import EvaluateOptions

    step("dynamic evaluation")
    begin = time.perf_counter()
    numbers = model.evaluate(texts["test"], EvaluateOptions(dynamic=True, seed=seed))
    figures = (numbers["perplexity_dynamic"], numbers["bits_per_byte_dynamic"], time.perf_counter() - begin)
    return Row(DYNAMIC, "and learns", *figures, model.num_bytes or 0, None)


def compare_both_sides(texts: Texts, out: Path, options: RunOptions, step: Step) -> BothSides:
    """The models that see both sides of a word."""
    from elman.api import EvaluateOptions, load

    step("training masked")
    both = load(out / "bilm").evaluate(texts["test"], EvaluateOptions(seed=options.seed))
    masked = _train(MASKED, texts, out / "masked", options)
    restored = masked.evaluate(texts["test"], EvaluateOptions(seed=options.seed))
    return BothSides(
        both["perplexity"],
        both["perplexity_backward"],
        restored["accuracy"],
        restored["pseudo_perplexity"],
        GAPS,
        masked.predict(GAPS),
    )


def compare_heads(texts: Texts, out: Path, options: RunOptions, step: Step) -> tuple[list[HeadRow], int]:
    """The same net in the same time, by what its output learns from; and the size of its vocabulary."""
    from elman.api import EvaluateOptions

    rows, vocab_size = [], 0
    for head, what in HEADS.items():
        step(f"training {HEAD_NET} ({head})")
        entry = Entry(what, HEAD_NET, HEAD_BUDGET, HEAD_SETTINGS | {"model.head": head})
        begin = time.perf_counter()
        made = _train(entry, texts, out / f"{HEAD_NET}-{head}", options)
        seconds = time.perf_counter() - begin
        perplexity = made.evaluate(texts["test"], EvaluateOptions(seed=options.seed))["perplexity"]
        rows.append(HeadRow(head, what, perplexity, (made.record.outcome or {})["epochs"], seconds))
        vocab_size = made.record.vocab_size
    return rows, vocab_size


def _train(entry: Entry, texts: Texts, out: Path, options: RunOptions) -> Any:
    from elman.api import train

    return train(
        entry.task,
        texts["train"],
        valid=texts["valid"],
        model=entry.model,
        units="word",
        budget=entry.budget,
        settings=entry.settings,
        out=out,
        seed=options.seed,
        threads=options.threads,
        overwrite=True,
    )


def _row(name: str, what: str, model: Model, seconds: float, texts: Texts, seed: int) -> Row:
    from elman.api import EvaluateOptions

    numbers = model.evaluate(texts["test"], EvaluateOptions(seed=seed))
    sample = model.generate("The", tokens=SAMPLE_TOKENS, temperature=SAMPLE_TEMPERATURE, seed=seed, forbid=["<unk>"])
    sample = re.sub(r"\s+", " ", "The" + sample)
    num_bytes = model.num_bytes or sum(array.nbytes for array in model.lm.tensors().values())
    return Row(name, what, numbers["perplexity"], numbers["bits_per_byte"], seconds, num_bytes, sample)


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
