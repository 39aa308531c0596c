"""Is everything there that elman needs, in versions it knows, on a machine that can be worked with?"""

from __future__ import annotations

import mmap
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

from elman import __version__
from elman.core.workers import num_workers
from elman.doctor.finding import Finding, fine, note, wrong
from elman.nets.memory import free_memory

EXTRAS = {  # what each extra is for
    "serve": "`elman serve` and `elman studio`",
    "export": "`elman export --format onnx`",
    "hf": "`elman import HF_DIR`",
    "scale": "counting and scoring on Spark",
    "data": "Parquet and zstandard files",
    "track": "train.tensorboard",
}
LITTLE_DISK, LITTLE_MEMORY = 2 << 30, 1 << 30


def examine_installation() -> Iterator[Finding]:
    """Packages, torch, memory, disks, the terminal."""
    yield fine(f"elman {__version__} on Python {platform.python_version()}, {platform.system()} {platform.machine()}")
    requirements = [Requirement(text) for text in metadata.requires("elman") or ()]
    yield from _packages([one for one in requirements if one.marker is None])
    for extra, purpose in EXTRAS.items():
        needed = [one for one in requirements if one.marker is not None and one.marker.evaluate({"extra": extra})]
        if missing := [one.name for one in needed if _version(one.name) is None]:
            yield note(f"{purpose} cannot be used: {', '.join(missing)} missing", f"pip install 'elman[{extra}]'")
    yield _torch()
    yield from _machine()
    for name, place in (("this directory", Path.cwd()), ("temporary files (TMPDIR)", Path(tempfile.gettempdir()))):
        yield _disk(name, place)
    encoding = getattr(sys.stdout, "encoding", None) or "none"
    if encoding.lower().replace("-", "") != "utf8":
        yield note(f"the terminal's encoding is {encoding}: some letters cannot be shown", "set PYTHONUTF8=1")


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _packages(needed: list[Requirement]) -> Iterator[Finding]:
    bad = False
    for one in needed:
        found = _version(one.name)
        if found is None:
            bad = True
            yield wrong(f"{one.name} is not installed", f"pip install '{one}'")
        elif not one.specifier.contains(found, prereleases=True):
            bad = True
            yield wrong(
                f"{one.name} {found} is not a version that elman knows ({one.specifier})", f"pip install '{one}'"
            )
    if not bad:
        yield fine(f"all {len(needed)} packages that it needs are there")


def _torch() -> Finding:
    try:
        import torch

        product = float((torch.ones(64, 64) @ torch.ones(64, 64)).sum())
    except Exception as error:  # a broken installation fails in any way
        return wrong(f"torch does not work: {type(error).__name__}: {error}", "pip install --force-reinstall torch")
    if product != 64.0**3:
        return wrong(f"torch multiplies wrongly: {product} instead of {64.0**3}", "install another build of torch")
    device = "a graphics card" if torch.cuda.is_available() else "the processor"
    return fine(f"torch {torch.__version__} works, nets are trained by {device}")


def _machine() -> Iterator[Finding]:
    free = free_memory()
    memory = "" if free is None else f", {free / 1e9:.1f} GB of memory are free"
    cores = num_workers()
    yield fine(f"{cores} {'core' if cores == 1 else 'cores'} to use{memory}")
    if free is not None and free < LITTLE_MEMORY:
        yield note("little memory is free", "end other programs, or count with --memory 256M")
    load = os.getloadavg()[0]
    if load > cores:
        yield note(f"the machine is busy (load {load:.1f}): training takes longer", "wait, or --threads 1")


def _disk(name: str, place: Path) -> Finding:
    """Whether files can be written and mapped there."""
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(b"\0" * mmap.PAGESIZE)
            file.flush()
            mmap.mmap(file.fileno(), mmap.PAGESIZE).close()
        free = shutil.disk_usage(place).free
    except OSError as error:
        return wrong(f"{name}: {place} cannot be written: {error.strerror}", "choose another place")
    what = f"{name}: {place} can be written, {free / 1e9:.1f} GB are free"
    return fine(what) if free >= LITTLE_DISK else note(what, "make room before you train or count")
