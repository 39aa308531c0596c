"""A single file that somebody asked for: never over another one unasked, never over a part of a model."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, cast

from elman.core.errors import ElmanError, WriteError
from elman.core.files import LOCK, RUN_FOLDER, replacing, write_errors
from elman.core.stored import MANIFEST, NEW, holds_model, read_manifest

STDOUT = "-"


def check_output(path: Path, *, overwrite: bool) -> None:
    """Refuse a place where nothing may be written; to be asked before any work is done."""
    if str(path) == STDOUT:
        if sys.stdout is None:
            raise WriteError(
                "stdout is closed: there is nowhere to write to", code="no-stdout", hint="give the name of a file"
            )
        return
    for place in (path.parent.resolve() / path.name, path.resolve()):
        if _is_of_a_model(place):
            raise WriteError(
                f"{path} is a file of the model in {place.parent}", code="out-exists", hint="choose another name"
            )
    if path.is_dir():
        raise WriteError(f"{path} is a directory", code="out-exists", hint="give the name of a file")
    if path.is_file() and not overwrite:
        raise WriteError(f"{path} is there already", code="out-exists", hint="--overwrite replaces it")
    if not path.parent.is_dir():
        raise WriteError(f"cannot write {path}: there is no directory {path.parent}", hint="make it first")


def _is_of_a_model(path: Path) -> bool:
    """Whether a model or a run has this file, or may write one of this name."""
    if not holds_model(path.parent):
        return False
    try:
        names = {*read_manifest(path.parent).files, MANIFEST, LOCK}
    except ElmanError:  # damaged: whatever is there may be needed to mend it
        return True
    return path.name in names or path.name.endswith(NEW) or path.parent.name == RUN_FOLDER


@contextmanager
def open_output(path: Path, *, overwrite: bool) -> Iterator[IO[bytes]]:
    """The file to write into; it is there when the block has ended well. `-` is stdout; .gz is compressed."""
    check_output(path, overwrite=overwrite)
    with ExitStack() as stack:
        if str(path) == STDOUT:
            sys.stdout.flush()
            file = sys.stdout.buffer
            stack.callback(file.flush)
        elif path.exists() and not path.is_file():  # a device or a pipe, which no file can replace
            stack.enter_context(write_errors(path))
            file = stack.enter_context(path.open("wb"))
        else:
            file = stack.enter_context(stack.enter_context(replacing(path.resolve())).open("wb"))  # a link stays one
        if path.suffix == ".gz":  # the same bytes for the same content: neither its name nor the time is inside
            file = stack.enter_context(gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0))
        yield cast(IO[bytes], file)
