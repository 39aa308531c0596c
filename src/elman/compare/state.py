"""comparison.json: all that is known of a comparison, written after every model, so that the same command goes on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from platform import python_version
from typing import Any

from elman import __version__
from elman.compare.texts import FOLDER
from elman.core.errors import DataError, WriteError
from elman.core.files import LOCK, holds_run, write_bytes
from elman.core.stored import holds_model

COMPARISON = "comparison.json"
SCORES = "scores"  # the nats of every token, a file for each model
SCHEMA_VERSION = 1


def read_state(out: Path) -> dict[str, Any] | None:
    """The comparison in a directory; None where there is none."""
    path = out / COMPARISON
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict) or not isinstance(found["models"], list):
            raise ValueError
    except (OSError, ValueError, KeyError, RecursionError):
        raise DataError(f"{path} is damaged", code="damaged-run", hint="--overwrite begins again") from None
    return found


def write_state(out: Path, state: Mapping[str, Any]) -> None:
    """All of it, or what was there before."""
    text = json.dumps(state, indent=1, ensure_ascii=False, allow_nan=False)
    write_bytes(out / COMPARISON, text.encode() + b"\n")


def open_state(out: Path, request: Mapping[str, Any], *, overwrite: bool) -> dict[str, Any] | None:
    """What to go on with; None to begin. A directory with another comparison, or with something else, is refused."""
    try:
        found = read_state(out)
    except DataError:
        if not overwrite:
            raise
        found = {"models": []}
    if found is None:
        if out.is_dir() and any(path.name not in (LOCK, FOLDER) for path in out.iterdir()):
            raise WriteError(
                f"{out} is not empty and holds no comparison",
                code="out-exists",
                hint="choose a new directory with --out",
            )
        return None
    if overwrite:
        _remove(out, found)
        return None
    before = found.get("request", {})
    different = [key for key in request if request[key] != before.get(key)]
    if different:
        key = different[0]
        raise WriteError(
            f"{out} holds another comparison: its {key.replace('_', ' ')} is {_short(before.get(key))}, "
            f"not {_short(request[key])}",
            code="out-exists",
            hint="--overwrite begins again, --out gives another directory",
        )
    return found


def _remove(out: Path, state: Mapping[str, Any]) -> None:
    """The models of a comparison, and the file that lists them. What else is in the directory stays."""
    for row in state["models"]:
        name = str(row.get("directory") or "")
        place = out / name
        if name and place.parent == out and (holds_model(place) or holds_run(place)):
            shutil.rmtree(place)
    for name in (FOLDER, SCORES):
        shutil.rmtree(out / name, ignore_errors=True)
    (out / COMPARISON).unlink(missing_ok=True)


def _short(value: Any) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def versions() -> dict[str, str]:
    """Of all that moves a number."""
    found = {"elman": __version__, "python": python_version()}
    return found | {name: metadata.version(name) for name in ("torch", "numpy")}
