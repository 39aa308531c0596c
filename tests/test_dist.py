"""The package works where the sources are not: built, installed into an empty environment, and tried there."""

from __future__ import annotations

import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_wheel_runs_the_demo_in_an_empty_environment(tmp_path: Path) -> None:
    if not (ROOT / ".venv" / ".test").exists():
        pytest.skip("make dist uses the environment that `make test` makes")
    done = subprocess.run(
        ["make", "dist", f"DIST={tmp_path / 'dist'}"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "mkn+lstm+cache" in done.stdout
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {"elman/recipes/names.toml", "elman/compare/report.css", "elman/py.typed"} <= set(names)
    assert not any(name.startswith("tests") for name in names)
    (source,) = (tmp_path / "dist").glob("*.tar.gz")
    with tarfile.open(source) as packed:
        assert any(name.endswith("src/elman/api.py") for name in packed.getnames())
