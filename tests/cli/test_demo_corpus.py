"""The demo's corpus: what every Python has with it, read and never run, cut so that nothing is in two parts."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest

from elman.cli import demo_corpus

LIBRARY = {
    "alpha.py": '''
        """The first module.

        A paragraph over
        two lines.

            code = 1
            more = 2
        """
        raise SystemExit("this module was run")
        class Thing:
            """A thing."""
            async def wait(self):
                """Wait for it."""
        if True:
            def hidden():
                """Behind a condition."""
    ''',
    "beta/__init__.py": '"""The first module."""\ndef f():\n    """Only in beta.\n\n    >>> 1 + 1\n    2\n    """\n',
    "broken.py": "def (:",
    "test/tested.py": '"""Tests are not on every machine."""',
    "site-packages/other.py": '"""Not of the library."""',
    "turtle.py": '"""Needs tkinter."""',
}


@pytest.fixture(name="library")
def fixture_library(tmp_path: Path) -> Path:
    for name, source in LIBRARY.items():
        path = tmp_path / "library" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(source).lstrip(), encoding="utf-8")
    return tmp_path / "library"


@pytest.fixture(name="corpus", scope="module")
def fixture_corpus(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return demo_corpus.write_corpus(tmp_path_factory.mktemp("corpus"))


def lines_of(corpus: dict[str, Path]) -> dict[str, list[str]]:
    return {name: path.read_text(encoding="utf-8").splitlines() for name, path in corpus.items()}


def test_docstrings_are_read_from_sources_and_no_module_is_run(library: Path) -> None:
    found = demo_corpus.module_texts(set(), library)
    assert list(found) == ["alpha.py", "beta/__init__.py"]
    assert found["alpha.py"].split("\n") == [
        *("The first module.", "A paragraph over two lines.", "code = 1", "more = 2"),
        *("A thing.", "Wait for it.", "Behind a condition."),
    ]


def test_a_paragraph_that_was_there_already_is_left_out(library: Path) -> None:
    assert demo_corpus.module_texts(set(), library)["beta/__init__.py"].split("\n") == [
        "Only in beta.",
        ">>> 1 + 1",
        "2",
    ]


def test_without_sources_the_reference_is_all_there_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_corpus.sysconfig, "get_path", lambda name: str(tmp_path / "nowhere"))
    paths = demo_corpus.write_corpus(tmp_path / "corpus")
    words = {name: len(path.read_text(encoding="utf-8").split()) for name, path in paths.items()}
    assert words["train"] > 20_000 and words["valid"] > 1_000 and words["test"] > 1_000


def test_no_line_is_in_two_parts(corpus: dict[str, Path]) -> None:
    lines = {name: set(some) for name, some in lines_of(corpus).items()}
    assert (
        not lines["train"] & lines["valid"]
        and not lines["train"] & lines["test"]
        and not lines["valid"] & lines["test"]
    )


def test_most_of_it_is_for_training_and_the_docstrings_are_in_it(corpus: dict[str, Path]) -> None:
    words = {name: sum(len(line.split()) for line in some) for name, some in lines_of(corpus).items()}
    assert words["train"] > 5 * words["valid"] > 50_000
    assert words["train"] > 5 * words["test"] > 50_000


def test_the_same_python_gives_the_same_corpus(corpus: dict[str, Path], tmp_path: Path) -> None:
    before = set(sys.modules)
    again = demo_corpus.write_corpus(tmp_path)
    assert {name: path.read_bytes() for name, path in again.items()} == {
        name: path.read_bytes() for name, path in corpus.items()
    }
    assert set(sys.modules) == before
