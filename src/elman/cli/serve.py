"""`elman serve`: models over HTTP."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Annotated

import typer

from elman.cli import terminal
from elman.cli.options import NoVerify, Threads
from elman.cli.verb import examples
from elman.core.errors import ElmanError, MissingError, UsageError

MIN_KEY = 16  # characters of a key that nobody guesses


@examples(
    "elman serve kn lstm --port 8080",
    "elman serve my-model --host 0.0.0.0 --api-key-file key.txt",
)
def serve(
    directories: Annotated[
        list[Path],
        typer.Argument(metavar="DIR", help="Model directories; the name of each is its id.", show_default=False),
    ],
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="The address to listen on; any but this machine's own needs a key.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="N", help="The port; 0 is any that is free.")] = 8000,
    api_key_file: Annotated[
        Path | None, typer.Option(metavar="F", help="A file with the key that clients have to send.")
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Another name (or name:port) that the server is asked by. May be repeated."),
    ] = None,
    streams: Annotated[
        int, typer.Option(min=1, max=4096, metavar="N", help="Texts that are generated at once, by each model.")
    ] = 64,
    queue: Annotated[
        int, typer.Option(min=0, max=4096, metavar="N", help="Requests that may wait beyond; more are refused.")
    ] = 32,
    sessions: Annotated[int, typer.Option(min=1, max=100_000, metavar="N", help="Sessions that are kept.")] = 256,
    log_prompts: Annotated[
        bool, typer.Option("--log-prompts", help="Write the texts of requests into the log too.")
    ] = False,
    threads: Threads = None,
    no_verify: NoVerify = False,
) -> None:
    """Serve models over HTTP: completions as OpenAI's clients ask for them, and elman's own routes.

    Reached from this machine alone, unless --host says otherwise. The log is a JSON object a line on stderr.
    """
    terminal.limit_threads(threads)
    key = None if api_key_file is None else read_key(api_key_file)
    require_extra()
    from elman.serve.context import ServeOptions
    from elman.serve.hosts import check_options
    from elman.serve.served import load_models
    from elman.serve.server import serve as run

    options = ServeOptions(
        host=host,
        port=port,
        api_key=key,
        allowed_hosts=tuple(allow_host or ()),
        max_streams=streams,
        max_waiting=queue,
        max_sessions=sessions,
        logs_prompts=log_prompts,
    )
    check_options(options)
    models = load_models(directories, max_rows=streams, verify=not no_verify)
    terminal.say(f"loaded {', '.join(models)}")
    run(models, options, on_ready=lambda address: terminal.say(f"serving at {address}"))


def require_extra() -> None:
    """Refuse without the packages that serving needs."""
    try:
        import fastapi  # noqa: F401
        import httptools  # noqa: F401
        import prometheus_client  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise ElmanError(
            f"serving needs {error.name}", code="missing-package", hint="pip install 'elman[serve]'"
        ) from None


def read_key(path: Path) -> str:
    """The key in a file, which nobody else should be able to read."""
    try:
        content = path.read_text(encoding="utf-8").strip()
        mode = path.stat().st_mode
    except (OSError, UnicodeDecodeError) as error:
        raise MissingError(f"cannot read the key from {path}: {getattr(error, 'strerror', None) or error}") from None
    if len(content) < MIN_KEY or not content.isascii() or any(character.isspace() for character in content):
        raise UsageError(
            f"{path} holds no key: one line of at least {MIN_KEY} ASCII characters without spaces is needed",
            code="bad-key",
            hint="python -c 'import secrets; print(secrets.token_urlsafe(32))' makes one",
        )
    if os.name == "posix" and mode & stat.S_IROTH:
        terminal.say(f"warning: every user of this machine can read {path}: chmod 600 {path}")
    return content
