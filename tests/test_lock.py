"""requirements.lock is what elman needs, at the versions of constraints.txt, each with hashes."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
spec = importlib.util.spec_from_file_location("make_lock", ROOT / "docs" / "make_lock.py")
assert spec is not None and spec.loader is not None
make_lock = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make_lock)


def test_the_lock_agrees_with_the_constraints() -> None:
    text = make_lock.PLACE.read_text(encoding="utf-8").removeprefix(make_lock.HEAD)
    found = re.findall(r"^(\S+)==(\S+) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", text, re.MULTILINE)
    assert "".join(f"{name}=={version} \\\n{hashes}" for name, version, hashes in found) == text, (
        "something else is in it"
    )
    versions = make_lock.pinned()
    assert {name: version for name, version, _ in found} == {name: versions[name] for name in make_lock.needed()}
