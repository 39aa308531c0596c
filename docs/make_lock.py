"""Writes requirements.lock: what `elman` needs to run, at the versions of constraints.txt, with the hashes of all files.

The hashes are those that the package index lists, for every platform. torch is left out: which of its builds is wanted (CPU,
CUDA, ROCm) differs from machine to machine, and they come from other indexes. What is needed is found on the machine that
makes the file: on another system a package more may be needed, which pip then refuses by its name.
"""

from __future__ import annotations

import os
import re
import urllib.request
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_sdist_filename, parse_wheel_filename

ROOT = Path(__file__).parents[1]
PLACE = ROOT / "requirements.lock"
INDEX = os.environ.get("PIP_INDEX_URL", "https://pypi.org/simple")
LEFT_OUT = ("torch",)
HEAD = """\
# What elman needs to run, but for torch, with the hashes of all files: made by docs/make_lock.py from constraints.txt.
# The command is in SECURITY.md.
"""


def pinned() -> dict[str, str]:
    """Versions by name, as constraints.txt has them."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").split()
    return {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in lines)}


def needed() -> list[str]:
    """The distributions that elman needs without its extras, and what those need, as they are installed here."""
    found: set[str] = set()
    waiting = ["elman"]
    while waiting:
        for text in requires(waiting.pop()) or []:
            need = Requirement(text)
            name = canonicalize_name(need.name)
            if name in found or (need.marker is not None and not need.marker.evaluate({"extra": ""})):
                continue
            found.add(name)
            waiting.append(name)
    return sorted(found - {*LEFT_OUT})


def hashes(name: str, version: str) -> list[str]:
    """SHA-256 of every file of a version."""
    with urllib.request.urlopen(f"{INDEX.rstrip('/')}/{name}/", timeout=60) as page:
        links = re.findall(r"/([^/\"#]+)#sha256=([0-9a-f]{64})", page.read().decode())
    return sorted({digest for file, digest in links if _version_of(file) == version})


def _version_of(file: str) -> str | None:
    try:
        parsed = parse_wheel_filename(file) if file.endswith(".whl") else parse_sdist_filename(file)
    except ValueError:  # an installer of old, or a name that keeps to no rule
        return None
    return str(parsed[1])


def render() -> str:
    """A requirement for each, its hashes below it."""
    versions = pinned()
    parts = [HEAD]
    for name in needed():
        found = hashes(name, versions[name])
        if not found:
            raise SystemExit(f"the index has no file of {name} {versions[name]}")
        parts.append(
            " \\\n".join([f"{name}=={versions[name]}", *(f"    --hash=sha256:{digest}" for digest in found)]) + "\n"
        )
    return "".join(parts)


if __name__ == "__main__":
    PLACE.write_text(render(), encoding="utf-8")
