"""`elman studio`: the server on a free port, and the browser."""

from __future__ import annotations

import threading
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from elman.cli import terminal
from elman.cli.demo import OUT, demo
from elman.cli.options import NoVerify, Threads
from elman.cli.serve import require_extra
from elman.cli.verb import examples
from elman.core.errors import MissingError


@examples(
    "elman studio my-model my-comparison",
    "elman studio --demo",
)
def studio(
    directories: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="DIR",
            help="Models, or directories of comparisons. [default: those of `elman demo`, in elman-demo]",
            show_default=False,
        ),
    ] = None,
    train_demo: Annotated[
        bool, typer.Option("--demo", help="Train the models of `elman demo --quick` first, if there are none.")
    ] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="N", help="The port; 0 is any that is free.")] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only say where the page is.")] = False,
    threads: Threads = None,
    no_verify: NoVerify = False,
) -> None:
    """Open a page to write with models, to look inside them and to compare them. Reached from this machine alone."""
    terminal.limit_threads(threads)
    require_extra()
    from elman.serve.context import ServeOptions
    from elman.serve.served import load_models
    from elman.serve.server import serve

    chosen = list(directories or demo_directories())
    if not chosen and train_demo:
        demo(quick=True, threads=threads)
        chosen = demo_directories()
    if not chosen:
        raise MissingError(
            f"there are no models of the demo in {OUT}",
            code="no-model",
            hint="elman studio --demo trains some first, in under a minute; or elman studio DIR, with a model of yours",
        )
    options = ServeOptions(port=port, logs_requests=False)
    models = load_models(chosen, max_rows=options.max_streams, verify=not no_verify)
    terminal.say(f"loaded {', '.join(models)}")

    def open_page(address: str) -> None:
        terminal.say(f"the studio is at {address}; Ctrl-C ends it")
        if not no_browser:  # a browser in the terminal would hold up the server
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

    serve(models, options, on_ready=open_page)


def demo_directories(out: Path = OUT) -> list[Path]:
    """What `elman demo` has left: its comparison, and the translators of names."""
    from elman.core.stored import holds_model  # brings numpy, which `--help` does not need

    comparison = [out / "models"] if (out / "models" / "comparison.json").is_file() else []
    return comparison + [path for path in sorted(out.glob("names-*")) if holds_model(path)]
