"""What is wrong with an installation, a text or a model, in plain words, and what to do about it. Changes nothing.

One file for each of the three; each gives findings, and is free to be slow: every byte of a model is read and hashed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from elman.core.errors import MissingError
from elman.core.files import holds_run, is_locked
from elman.core.stored import MANIFEST
from elman.doctor.finding import Finding as Finding


def examine(path: Path | None) -> Iterator[Finding]:
    """What there is to say of a model directory, of a file or folder of data, or, without a path, of the installation."""
    if path is None:
        from elman.doctor.installation import examine_installation

        yield from examine_installation()
        return
    if not path.exists():
        raise MissingError(f"there is no file or directory {path}", hint="is the name right?")
    if path.is_dir() and ((path / MANIFEST).exists() or holds_run(path) or is_locked(path)):
        from elman.doctor.model import examine_model

        yield from examine_model(path)
        return
    from elman.doctor.data import examine_data

    yield from examine_data(path)
