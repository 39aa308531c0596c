"""From arguments to an exit code: the list of verbs, and what becomes of every way in which one can end.

typer only parses: a verb is called after typer has returned, so that signals, closed pipes and errors are ours.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from elman import __version__
from elman.cli import (
    compare,
    demo,
    doctor,
    encode,
    evaluate,
    explain,
    export,
    generate,
    import_,
    info,
    mix,
    next_,
    predict,
    rescore,
    resume,
    score,
    serve,
    settings,
    studio,
    terminal,
    train,
)
from elman.cli.verb import Verb
from elman.core import errors
from elman.core.errors import ElmanError, FullDiskError, UsageError, WriteError

RESULTS_ON_STDOUT = (
    evaluate.evaluate,
    score.score,
    generate.generate,
    next_.next_symbols,
    predict.predict,
    rescore.rescore,
    info.info,
    doctor.doctor,
)
HINTS_IN_USE = {  # what only training can set, and what to do where a model is used
    "--set data.skip_bad=true drops such lines": "--errors skip passes over such lines",
    "--set data.errors=replace": "--errors replace",
    "data.source=KEY data.target=KEY says which they are": "name the keys as they were named in training",
    "data.source=1,3 data.target=2 picks columns": "give the columns that the model was trained on",
    "data.source and data.target take names of the first row, or numbers from 1": "name them as they were in training",
}
INTERRUPTED, TERMINATED, CLOSED_PIPE = 128 + signal.SIGINT, 128 + signal.SIGTERM, 128 + signal.SIGPIPE


class Terminated(BaseException):
    """SIGTERM came; everything is cleaned up on the way out, as for Ctrl-C."""


def make_app() -> typer.Typer:
    """The command line as typer sees it."""
    app = typer.Typer(
        name="elman",
        help="Train, compare, explain and serve language models, from counts to attention.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_top)
    verbs: dict[str, Callable[..., int | None]] = {
        "demo": demo.demo,
        "compare": compare.compare,
        "train": train.train,
        "resume": resume.resume,
        "evaluate": evaluate.evaluate,
        "score": score.score,
        "generate": generate.generate,
        "next": next_.next_symbols,
        "predict": predict.predict,
        "encode": encode.encode,
        "explain": explain.explain,
        "serve": serve.serve,
        "studio": studio.studio,
        "mix": mix.mix,
        "rescore": rescore.rescore,
        "export": export.export,
        "import": import_.import_model,
        "settings": settings.settings,
        "info": info.info,
        "doctor": doctor.doctor,
    }
    for name, verb in verbs.items():
        shown = "\n".join(verb.examples)  # type: ignore[attr-defined]
        app.command(name, cls=Verb, epilog=shown, no_args_is_help=name not in ("demo", "doctor", "settings", "studio"))(
            _deferred(verb)
        )
    return app


def _print_version(is_asked: bool) -> None:
    if is_asked:
        print(f"elman {__version__}")
        raise typer.Exit


def _top(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    pass


def _deferred(verb: Callable[..., int | None]) -> Callable[..., Callable[[], int | None]]:
    """A verb that, called by typer, gives back the call instead of doing it."""

    @functools.wraps(verb)
    def defer(**arguments: Any) -> Callable[[], int | None]:
        if verb in RESULTS_ON_STDOUT:
            terminal.require_stdout()
        return functools.partial(verb, **arguments)

    return defer


def run(arguments: Sequence[str]) -> int:
    """Do what the arguments say. -> the exit code"""
    # numpy multiplies no large matrices here; its threads only wait for each other, 20 times slower on a busy machine
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if sys.stderr is None:  # closed by whoever called us: nobody reads what is said
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115
    if arguments[:1] == ["train"] and (len(arguments) == 1 or {"-h", "--help"} & {*arguments}):
        train.describe_choices()
    try:
        with _sigterm_raises(), terminal.saying_warnings():
            call = make_app()(args=list(arguments), prog_name="elman", standalone_mode=False)
            if callable(call):
                call = call()
            if sys.stdout is not None:  # closed by whoever called us
                sys.stdout.flush()
        return call if isinstance(call, int) else 0
    except KeyboardInterrupt:
        terminal.say("stopped by Ctrl-C")
        return INTERRUPTED
    except Terminated:
        terminal.say("stopped by SIGTERM")
        return TERMINATED
    except BrokenPipeError:
        _silence_stdout()
        return CLOSED_PIPE
    except Exception as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # `elman` or `elman train` alone: the help is the message
            print(str(error.format_message()).strip(), file=sys.stderr)  # type: ignore[attr-defined]
            return 2
        found = _for_the_user(error)
        hint = _usable(found.hint, arguments[:1])
        terminal.fail(found.what, hint)
        if "--json" in arguments:
            _print_failure(found, hint)
        return found.exit_code


def _for_the_user(error: Exception) -> ElmanError:
    """Whatever went wrong, as an error with a cause and an exit code."""
    match error:
        case ElmanError():
            return error
        case typer.TyperException():
            return _usage_error(error)
        case OSError():
            return _system_error(error)
        case UnicodeEncodeError():
            return _encoding_error(error)
    return _out_of_memory() if _is_about_memory(error) else _bug(error)


def _print_failure(error: ElmanError, hint: str | None) -> None:
    """For programs, where a result would stand: the cause by its code."""
    about = {"code": error.code, "message": error.what, "hint": hint, "exit_code": error.exit_code}
    if sys.stdout is None:  # closed by whoever called us
        return
    try:
        terminal.print_json({"error": {key: _writable(value) for key, value in about.items()}})
        sys.stdout.flush()
    except OSError:
        _silence_stdout()


def _writable(value: Any) -> Any:
    """What any stdout can print: names of files need not be text."""
    return value.encode("ascii", "backslashreplace").decode() if isinstance(value, str) else value


def _usable(hint: str | None, verb: Sequence[str]) -> str | None:
    """A hint with the flags of the verb that was called: --set is only for training."""
    if hint is None or not {*verb} & {"predict", "evaluate", "score", "encode", "rescore"}:
        return hint
    for in_training, in_use in HINTS_IN_USE.items():
        hint = hint.replace(in_training, in_use)
    return f"{hint} (settings of `elman train`)" if re.search(r"\bdata\.\w", hint) else hint


def _usage_error(error: typer.TyperException) -> ElmanError:
    """What typer did not understand, in the one form errors have here."""
    message = getattr(error, "format_message", lambda: str(error))().strip()
    message = message.replace(": Value error, ", ": ").replace(": Input should be", ": it should be")
    context = getattr(error, "ctx", None)
    what, _, nearest = (
        message.replace(" (Possible options: ", ". Did you mean ").rstrip(".?)").partition(". Did you mean ")
    )
    nearest = nearest or _nearest_choice(what)
    hint = f"did you mean {nearest}?" if nearest else f"see {context.command_path} --help" if context else None
    return UsageError(what[:1].lower() + what[1:], code="bad-arguments", hint=hint)


def _nearest_choice(message: str) -> str | None:
    """The one that was probably meant, where typer says that a value is none of those there are."""
    given, _, names = message.rpartition(": ")[2].partition(" is not one of ")
    return errors.nearest(given.strip("'"), re.findall("'([^']+)'", names))


def _system_error(error: OSError) -> ElmanError:
    """An error of the system that no room of ours made a message of: a full disk under stdout, say."""
    place = f" {error.filename}" if error.filename else ""
    what = f"{(error.strerror or str(error)).lower()}{place}"
    _silence_stdout()
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return FullDiskError(what)
    return (
        WriteError(what)
        if error.errno in (errno.EFBIG, errno.EROFS, errno.EIO)
        else ElmanError(what, code="system-error")
    )


def _encoding_error(error: UnicodeEncodeError) -> ElmanError:
    """A text that cannot be written: stdout has an alphabet without it, or it came out of arguments that are no text."""
    char = error.object[error.start]
    if error.encoding.replace("-", "").lower() == "utf8":
        what = f"an argument is not UTF-8: {char!r} is no character"
        return UsageError(what, code="bad-arguments", hint="give it in UTF-8")
    _silence_stdout()
    what = f"stdout is {error.encoding}, which has no {char!r}"
    return WriteError(what, code="cannot-encode", hint="PYTHONIOENCODING=utf-8 before the command")


def _is_about_memory(error: Exception) -> bool:
    """torch says it in the words of its allocator."""
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or (isinstance(error, RuntimeError) and "can't allocate memory" in str(error))
    )


def _out_of_memory() -> ElmanError:
    hint = "use a smaller model or fewer data; --memory limits what counting may use"
    return ElmanError("out of memory", code="out-of-memory", hint=hint)


def _bug(error: Exception) -> ElmanError:
    """Our own mistake: the traceback is for whoever asks for it."""
    if os.environ.get("ELMAN_DEBUG"):
        traceback.print_exception(error)
    place = traceback.extract_tb(error.__traceback__)[-1]
    return ElmanError(
        f"a bug in elman: {type(error).__name__}: {error} ({Path(place.filename).name} line {place.lineno})",
        code="bug",
        hint="please report it with the output of the same command under ELMAN_DEBUG=1",
    )


@contextlib.contextmanager
def _sigterm_raises() -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a second one does not wait
        raise Terminated

    try:
        before = signal.signal(signal.SIGTERM, stop)
    except ValueError:  # not in the main thread: nobody can send it to us
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _silence_stdout() -> None:
    """Nobody reads any more: what is still in the buffer must not raise again when Python flushes it at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
