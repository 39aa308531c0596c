"""Every input that ever broke something is read, or refused with a message."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from elman.core.errors import ElmanError
from reliability.fuzz import CASE_SECONDS, Target, make_models, targets

FILES = sorted(path for path in (Path(__file__).parents[1] / "data" / "regressions").glob("*/*"))


@pytest.fixture(scope="module")
def formats(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Target]:
    models = tmp_path_factory.mktemp("models")
    make_models(models)
    return targets(models, tmp_path_factory.mktemp("formats"))


@pytest.fixture
def deadline() -> Iterator[None]:
    def fail(*_: object) -> None:
        raise TimeoutError("it hangs")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(10 * CASE_SECONDS)  # machines are busy
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_what_once_broke_something_is_read_or_refused(path: Path, formats: dict[str, Target], deadline: None) -> None:
    try:
        formats[path.parent.name].read(path.read_bytes())
    except ElmanError as error:
        assert error.what


def test_there_is_something_to_read() -> None:
    assert len(FILES) >= 3
