"""What `elman demo` shows of language models: a table, samples, and those that see both sides of a word."""

from __future__ import annotations

from dataclasses import dataclass

from elman.cli import terminal


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    name: str
    what: str
    perplexity: float
    bits_per_byte: float
    seconds: float
    num_bytes: int
    sample: str | None  # None for what only evaluates


@dataclass(frozen=True)
class HeadRow:
    """One way to train the output of the same net."""

    head: str
    what: str
    perplexity: float
    passes: float
    seconds: float


@dataclass(frozen=True)
class BothSides:
    """Numbers of the models that see both sides of a word."""

    perplexity_forward: float
    perplexity_backward: float
    masked_accuracy: float
    masked_pseudo_perplexity: float
    gaps: str
    restored: str


def print_rows(rows: list[Row]) -> None:
    """The table of all models."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    best = min(row.perplexity for row in rows)
    table = Table(
        box=box.SIMPLE_HEAD,
        title="Python's reference and docstrings, topics and modules never seen before",
        title_justify="left",
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


def print_heads(rows: list[HeadRow], *, net: str, vocab_size: int) -> None:
    """The table of training criteria."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    title = f"One {net}, its output over {vocab_size:,} words trained in four ways"
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left")
    table.add_column("head", style="bold", no_wrap=True)
    table.add_column("a word is told from", style="dim")
    for heading in ("perplexity", "passes", "time"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(row.head, row.what, f"{row.perplexity:,.1f}", f"{row.passes:.1f}", f"{row.seconds:.1f} s")
    Console().print(table)


def print_both_sides(found: BothSides) -> None:
    """What models do that see both sides of a word. Their numbers are not those of the table, and say so."""
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    console = Console(highlight=False)
    console.print(Text("From both sides of a word", style="italic"))
    lines = (
        f"bilm    perplexity {found.perplexity_forward:,.1f} forward (as above), "
        f"{found.perplexity_backward:,.1f} backward",
        f"masked  {found.masked_accuracy:.1%} of hidden words restored; pseudo-perplexity "
        f"{found.masked_pseudo_perplexity:,.1f}",
        f"        {found.gaps}",
        f"        {terminal.escape(found.restored)}",
    )
    for line in lines:
        console.print(Padding(Text(line), (0, 0, 0, 2)))
    console.print()


def print_samples(rows: list[Row]) -> None:
    """What each model writes."""
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    console = Console()
    for row in rows:
        if row.sample is not None:
            console.print(Text(row.name, style="bold"))
            console.print(Padding(Text(terminal.escape(row.sample)), (0, 0, 0, 2)))
