"""What a person sees while a net is trained: a bar on a terminal, one that moves in a notebook, lines elsewhere."""

from __future__ import annotations

import contextlib
import html
import sys
import time
from collections.abc import Callable, Iterator
from typing import IO, Any

from elman.core.screen import escape, format_float, is_fancy
from elman.training.progress import Progress

LINE_SECONDS = 10.0  # between two lines of progress where there is no terminal
NOTEBOOK_SECONDS = 0.3  # between two pictures of a bar

Say = Callable[[str], None]
Show = Callable[[Progress], None]


def is_notebook() -> bool:
    """Whether this is a kernel of Jupyter, which shows HTML."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and type(shell).__name__ == "ZMQInteractiveShell"


@contextlib.contextmanager
def shown(message: str, stream: IO[str] | None = None) -> Iterator[tuple[Say, Show]]:
    """While something is trained. Gives two functions: for sentences that stay, and for progress."""
    stream = stream or sys.stderr
    if is_notebook():
        yield _in_notebook(message)
    elif is_fancy(stream):
        with _on_terminal(message, stream) as both:
            yield both
    else:
        yield _in_lines(stream)


def describe(progress: Progress) -> str:
    """Where a run is, in one line."""
    wording = progress.wording
    loss = "loss" if progress.is_likelihood else "sampled loss"
    parts = [f"step {progress.step:,}", f"pass {progress.epoch:.2f}", f"{loss} {progress.nats_per_token:.3f}"]
    if wording.has_perplexity and progress.perplexity is not None:
        parts.append(f"perplexity {format_float(progress.perplexity)}")
    if progress.valid_error is not None:
        parts.append(f"valid {wording.error or 'error'} {progress.valid_error:.4f}")
    elif progress.valid_perplexity is not None and wording.has_perplexity:
        parts.append(f"valid {format_float(progress.valid_perplexity)}")
    elif progress.valid_nats_per_token is not None:
        parts.append(f"valid loss {progress.valid_nats_per_token:.3f}")
    parts.append(f"{progress.tokens_per_second:,.0f} {wording.counted}/s, {progress.fraction_of_peak:.0%} of peak")
    if progress.eta_seconds is not None:
        minutes, seconds = divmod(round(progress.eta_seconds), 60)
        parts.append(f"{minutes}:{seconds:02d} left")
    return "  ".join(parts)


def _in_lines(stream: IO[str]) -> tuple[Say, Show]:
    """A line now and then."""
    said = [0.0]

    def say(note: str) -> None:
        print(note, file=stream, flush=True)

    def show(progress: Progress) -> None:
        if progress.elapsed_seconds - said[0] >= LINE_SECONDS and progress.step:
            said[0] = progress.elapsed_seconds
            say(describe(progress))

    return say, show


@contextlib.contextmanager
def _on_terminal(message: str, stream: IO[str]) -> Iterator[tuple[Say, Show]]:
    """A bar with all that matters; it is gone afterwards."""
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (SpinnerColumn(), BarColumn(bar_width=24), TextColumn("{task.description}"), TimeElapsedColumn())
    with Bar(*columns, console=Console(file=stream), transient=True) as bar:
        task = bar.add_task(message, total=None)

        def say(note: str) -> None:
            bar.console.print(escape(note), markup=False, highlight=False)

        def show(progress: Progress) -> None:
            total = None if progress.fraction is None else 1.0
            bar.update(task, description=describe(progress), total=total, completed=progress.fraction or 0.0)

        yield say, show


def _in_notebook(message: str) -> tuple[Say, Show]:
    """A bar that is drawn anew in its place; the last picture stays."""
    from IPython.display import HTML, display  # there is one: this is a notebook

    handle: Any = display(HTML(html.escape(message)), display_id=True)
    drawn = [0.0]

    def show(progress: Progress) -> None:
        if time.monotonic() - drawn[0] < NOTEBOOK_SECONDS and progress.fraction != 1.0:
            return
        drawn[0] = time.monotonic()
        value = "" if progress.fraction is None else f" value='{progress.fraction:.4f}'"
        handle.update(HTML(f"<progress max='1'{value}></progress> {html.escape(describe(progress))}"))

    return print, show
