"""What every test relies on."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

# Before numpy and torch are there. Tests run side by side: threads that spin while they wait take the others' time.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import pytest
from hypothesis import HealthCheck, settings

# Time is not a property of a parser: on a busy machine a deadline fails for nothing.
settings.register_profile("elman", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("elman")


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mount.returncode:
        pytest.skip("mounting a tmpfs needs root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)
