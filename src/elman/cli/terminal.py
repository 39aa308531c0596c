"""What is printed and how: results on stdout, messages on stderr, colour and bars only on a terminal."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import typer

from elman.core.errors import UsageError, WriteError
from elman.core.screen import escape as escape
from elman.core.screen import format_float
from elman.core.screen import is_fancy as is_fancy
from elman.text.units.forms import FormWarning

if TYPE_CHECKING:
    from elman.api import TaskModel
    from elman.training.progress import Progress

SCHEMA_VERSION = 1  # of what --json prints; a key may be added without a new number, never removed
TABLES = ("by_label", "by_length", "members")  # keys of evaluate that are printed as tables


def is_typed() -> bool:
    """Whether somebody would have to type what is read from stdin."""
    return sys.stdin is not None and sys.stdin.isatty()


def say(message: str) -> None:
    """A message for the person at the terminal; never part of a result."""
    print(message, file=sys.stderr, flush=True)


@contextlib.contextmanager
def saying_warnings() -> Iterator[None]:
    """Say what the library warns the user of, as anything else is said."""
    with warnings.catch_warnings():
        shown = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if issubclass(category, FormWarning):
                say(f"warning: {escape(str(message))}")
            else:
                shown(message, category, *place, **more)

        warnings.simplefilter("always", FormWarning)
        warnings.showwarning = show
        yield


def fail(what: str, hint: str | None = None) -> None:
    """Why it did not work, and what to do."""
    red, dim, plain = ("\x1b[1;31m", "\x1b[2m", "\x1b[0m") if is_fancy(sys.stderr) else ("", "", "")
    say(f"{red}error:{plain} {escape(what)}")
    if hint:
        say(f"{dim}hint:{plain}  {escape(hint)}" if plain else f"hint: {escape(hint)}")


def dim(text: str) -> str:
    """Set back from the rest, on a terminal."""
    return f"\x1b[2m{text}\x1b[0m" if is_fancy(sys.stderr) else text


def require_stdout() -> None:
    """Refuse to work for a result that nobody would get."""
    if sys.stdout is None:
        raise WriteError(
            "stdout is closed: the result would be lost", code="no-stdout", hint="leave out >&-, or write into a file"
        )


def print_json(result: Mapping[str, Any]) -> None:
    """One JSON object on one line, its schema named."""
    print(json.dumps({"schema_version": SCHEMA_VERSION, **result}, ensure_ascii=False, allow_nan=False))


def print_record(record: Mapping[str, Any]) -> None:
    """A record as lines of `key value`; what is None is left out."""
    width = max(map(len, record), default=0)
    for key, value in record.items():
        if value is not None:
            print(f"{key:<{width}}  {number(value)}")


def print_numbers(found: Mapping[str, Any]) -> None:
    """Numbers as lines; those by label, length and member as tables below."""
    print_record({key: value for key, value in found.items() if not isinstance(value, list | dict)})
    for note in found.get("notes", ()):
        say(note)
    print_tables(found)


def print_tables(found: Mapping[str, Any]) -> None:
    """Numbers by label, by member and by length, where there are any."""
    for key_of_table, head in (("by_label", "label"), ("members", "name")):
        if rows := found.get(key_of_table):
            width = max(len(head), *(len(escape(row[head])) for row in rows))
            columns = {key: max(12, len(key) + 2) for key in rows[0] if key != head}
            print()
            print(f"{head:<{width}}" + "".join(f"{key:>{size}}" for key, size in columns.items()))
            for row in rows:
                rest = "".join(f"{_cell(row[key]):>{size}}" for key, size in columns.items())
                print(f"{escape(row[head]):<{width}}{rest}")
    table = found.get("by_length")
    if table:
        print()
        print(f"{'source tokens':>15}" + "".join(f"{key:>14}" for key in table[0] if key not in ("from", "to")))
        for row in table:
            rest = "".join(f"{number(value):>14}" for key, value in row.items() if key not in ("from", "to"))
            print(f"{row['from']:>8} - {row['to']:<4}{rest}")


def _cell(value: object) -> str:
    return "-" if value is None else number(value)


def number(value: object) -> str:
    """A value as people write it."""
    match value:
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return format_float(value)
        case _:
            return escape(str(value))


def size(num_bytes: int) -> str:
    """A number of bytes as people write it."""
    amount = float(num_bytes)
    for unit in ("B", "kB", "MB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} GB"


def escape_if_terminal(text: str) -> str:
    """Escaped for people, untouched for programs."""
    return escape(text) if sys.stdout.isatty() else text


@contextlib.contextmanager
def status(message: str) -> Iterator[Callable[[str], None]]:
    """While something takes long: a spinner with the time on a terminal, plain lines of messages elsewhere.

    What the block reports through the function it is given stays on the screen.
    """
    if not is_fancy(sys.stderr):
        yield say
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        progress.add_task(message)

        def report(note: str) -> None:
            progress.console.print(escape(note), markup=False, highlight=False)

        yield report


@contextlib.contextmanager
def share(message: str) -> Iterator[Callable[[float], None]]:
    """While something may take long: gives a function for the share that is done, from 0 to 1.

    A bar on a terminal from the first call on; elsewhere a line every ten seconds.
    """
    if not is_fancy(sys.stderr):
        spoken = time.monotonic()

        def say_share(done: float) -> None:
            nonlocal spoken
            if time.monotonic() - spoken >= 10:
                spoken = time.monotonic()
                say(f"{message}: {done:.0%}")

        yield say_share
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    task = progress.add_task(message, total=1.0)

    def draw_share(done: float) -> None:
        progress.start()  # once is enough, and more do no harm
        progress.update(task, completed=done)

    try:
        yield draw_share
    finally:
        progress.stop()


@contextlib.contextmanager
def rate(num_bytes: int | None) -> Iterator[Callable[[int, int], None]]:
    """While lines are worked on: gives a function for how many lines and bytes more are done.

    On a terminal the lines, how many a second, and a bar where the bytes to do are known; nothing elsewhere, nor where
    the results themselves go to the terminal.
    """
    if not is_fancy(sys.stderr) or sys.stdout.isatty():
        yield lambda lines, size: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), TimeRemainingColumn())
    begin, num_lines, done = time.monotonic(), 0, 0
    console = Console(stderr=True)
    # the results go on to stdout as they are: rich would take them, and show them above its bar
    with Progress(*columns, console=console, transient=True, redirect_stdout=False) as progress:
        task = progress.add_task("0 lines", total=num_bytes)

        def show(lines: int, size: int) -> None:
            nonlocal num_lines, done
            num_lines, done = num_lines + lines, done + size
            speed = num_lines / (time.monotonic() - begin)
            progress.update(task, completed=done, description=f"{num_lines:,} lines, {speed:,.0f} a second")

        yield show


def training(
    message: str,
) -> contextlib.AbstractContextManager[tuple[Callable[[str], None], Callable[[Progress], None]]]:
    """While something is trained: gives two functions, for sentences that stay and for progress.

    Of several processes that train together only the first speaks.
    """
    from elman.training.display import shown
    from elman.training.world import read_launch

    if read_launch().rank:
        return contextlib.nullcontext((lambda sentence: None, lambda progress: None))
    return shown(message, sys.stderr)


def command() -> str:
    """The command that was given, as it can be given again."""
    return shlex.join(["elman", *sys.argv[1:]])


def limit_threads(threads: int | None) -> None:
    """Before numpy is there: the libraries below it read their number of threads only once."""
    if threads is not None:
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
            os.environ[name] = str(threads)
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(threads)


def show_help(context: typer.Context) -> NoReturn:
    """Help instead of waiting for somebody to type a corpus."""
    say(context.get_help())
    raise UsageError("nothing to read: stdin is the terminal", code="missing-option", hint="give a file, or - to type")


def print_made(model: TaskModel[Any], *, json: bool) -> None:
    """What was made: its numbers, and where it is. Of several processes that made it only the first says so."""
    from elman.training.world import read_launch

    if read_launch().rank:
        return
    found = model.info()
    if json:
        print_json(found)
        return
    keys = ("task", "model", "units", "vocab_size", "bytes", "seconds", "seed")
    rows = {key: found[key] for key in keys if key in found and found[key] != "lm"}
    signature = {key: found[key] for key in ("signature",) if key in found}
    print_numbers({**rows, **(found["valid"] or {}), **signature})
    say(f"saved in {found['directory']}")
