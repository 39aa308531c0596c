"""Is a model directory whole, does it load, and does it say what a model should?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from elman import __version__
from elman.api import load
from elman.core.errors import ElmanError
from elman.core.files import LOCK, RUN_FOLDER, holds_run, is_locked
from elman.core.stored import MANIFEST, NEW, Stored, open_directory
from elman.doctor.finding import Finding, fine, note, wrong, wrong_by
from elman.lm.protocol import FreeModel

PICKLED = {".pt", ".pth", ".bin", ".pkl", ".ckpt", ".pickle"}
TOLERANCE = 1e-4  # of a sum of probabilities, each rounded to float32


def examine_model(directory: Path) -> Iterator[Finding]:
    """Its files one by one, what else lies there, and the model as a whole."""
    if is_locked(directory):
        yield note(f"busy: another process is writing into {directory}", "wait until it has ended, and look again")
    elif holds_run(directory):
        yield note(f"an unfinished run is in {directory / RUN_FOLDER}", f"elman resume {directory} goes on with it")
    if not (directory / MANIFEST).exists():
        return
    try:
        stored = open_directory(directory)
    except ElmanError as error:
        yield wrong_by(error)
        return
    damaged = [finding for name in stored.manifest.files if (finding := _file(stored, name)) is not None]
    yield from damaged
    if not damaged:
        size = sum(entry.size for entry in stored.manifest.files.values())
        yield fine(f"all {len(stored.manifest.files)} files are as they were written, {size / 1e6:,.1f} MB")
    yield from _strangers(stored)
    made_by = stored.manifest.versions.get("elman")
    if made_by is not None and made_by != __version__:
        yield note(f"it was made by elman {made_by}; this is {__version__}")
    if not damaged:
        yield from _as_a_whole(directory)


def _file(stored: Stored, name: str) -> Finding | None:
    """What is wrong with one of its files. All of it is read, also what was verified before."""
    try:
        stored.check(name)
    except ElmanError as error:
        return wrong_by(error)
    return None


def _strangers(stored: Stored) -> Iterator[Finding]:
    own = {*stored.manifest.files, MANIFEST, LOCK, RUN_FOLDER}
    for path in sorted(stored.directory.iterdir()):
        if path.suffix in PICKLED:
            yield wrong(
                f"{path.name} may be pickled: loading such a file can run any program",
                "remove it; elman never reads it",
            )
        elif path.name.endswith(NEW) and path.name.removesuffix(NEW) not in stored.manifest.pending:
            yield note(f"{path.name} is left over from a writer that was stopped", "the next one removes it")
        elif path.name not in own and not path.name.endswith(NEW):
            yield note(f"{path.name} is not part of the model")


def _as_a_whole(directory: Path) -> Iterator[Finding]:
    try:
        model = load(directory)
    except ElmanError as error:
        yield wrong_by(error)
        return
    info = model.info()
    yield fine(f"it loads: {info['task']}, {info['parameters']:,} parameters")
    for key, value in (info.get("valid") or {}).items():
        if isinstance(value, float) and not np.isfinite(value):
            yield wrong(f"its {key} on held-out data is {value}", "train it again, with a lower train.learning_rate")
    lm = getattr(model, "lm", None)
    if isinstance(lm, FreeModel):
        total = float(np.exp(lm.predict(lm.start(1))[0].astype(np.float64)).sum())
        if abs(total - 1) < TOLERANCE:
            yield fine("its probabilities of the first token add up to 1")
        else:
            yield wrong(
                f"its probabilities of the first token add up to {total:.6f}, not to 1", "train or copy it again"
            )
