"""Compare, in a real browser over a real server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.browsing import WIDTHS, opened
from tests.compare.made import comparison
from tests.serve.running import Running, running

MARKS = (
    """[...document.querySelectorAll("figure svg .role-mark path")].filter(path => path.getTotalLength() > 0).length"""
)


@pytest.fixture(scope="module")
def server(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A model, and two comparisons whose models are not there any more."""
    folder = tmp_path_factory.mktemp("studio")
    data = comparison()
    for name, failed in (("compared", "a_word_without_any_end_" * 20), ("other", "it was too large")):
        (folder / name).mkdir()
        data["failed"] = [{"name": "gru", "error": failed}]
        (folder / name / "comparison.json").write_text(json.dumps(data))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        with running([model, folder / "compared", folder / "other"]) as found:
            yield found


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS.values(), ids=list(WIDTHS))
def test_a_comparison_is_shown_with_its_curves(browser: Any, server: Running, width: int, scheme: str) -> None:
    options = {"viewport": {"width": width, "height": 844}, "color_scheme": scheme}
    with opened(browser, f"{server.url}/#compare", **options) as page:
        page.wait_for_function("() => document.querySelectorAll('figure svg').length === 3")
        assert page.evaluate(MARKS) > 10
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        ink = page.evaluate("getComputedStyle(document.querySelector('figure svg text')).fill")
        light = [int(part) > 128 for part in ink.removeprefix("rgb(").rstrip(")").split(",")]
        assert all(light) if scheme == "dark" else not any(light)
        names = "[...document.querySelectorAll('tbody th')].map(cell => cell.dataset.value)"
        assert page.evaluate(names)[0] == "unigram"
        page.click("th button:has-text('perplexity')")
        assert page.evaluate(names)[:2] == ["mkn+lstm", "lstm"]
        page.click("th button:has-text('perplexity')")
        assert page.evaluate(names)[:2] == ["unigram", "bigram"]
        page.click("th button:has-text('tokens/s')")  # more is better: the fastest first, those without a number last
        assert page.evaluate(names)[0] == "window"
        page.wait_for_selector("text=gru failed")
        with page.expect_download() as saved:
            page.click("text=Picture (SVG)")
        assert "Learning" in "".join(ElementTree.parse(saved.value.path()).getroot().itertext())


def test_without_a_comparison_it_says_how_to_get_one(browser: Any, model: Path) -> None:
    with running([model]) as found, opened(browser, f"{found.url}/#compare") as page:
        page.wait_for_selector("text=No comparison was given")


def test_one_of_several_comparisons_is_chosen_and_linked(browser: Any, server: Running) -> None:
    with opened(browser, f"{server.url}/#compare") as page:
        page.wait_for_selector("text=a_word_without_any_end")
        page.select_option("select", "other")
        page.wait_for_selector("text=it was too large")
        page.wait_for_function("() => location.hash === '#compare?comparison=other'")
        address = page.url
    with opened(browser, address) as page:
        page.wait_for_selector("text=it was too large")
