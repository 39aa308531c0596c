"""report.html in a real browser: nothing is asked of the network, nothing fails, everything is drawn, and it fits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from elman.compare.report import write_report
from tests.browsing import WIDTHS, browser, opened
from tests.compare.made import comparison

__all__ = ["browser"]


@pytest.fixture(name="report", scope="module")
def fixture_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = comparison()
    points = [{"value": value, "name": f"w{value}", "parameters": 3, "perplexity": 100.0} for value in (2, 5)]
    data["sweep"] = {"setting": "model.window", "equal": None, "points": points}
    data["failed"] = [{"name": "gru", "error": "a_word_without_any_end_" * 20}]
    return write_report(tmp_path_factory.mktemp("report"), data)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS.values(), ids=list(WIDTHS))
def test_it_opens_without_an_error_and_asks_nothing_of_the_network(
    browser: Any, report: Path, width: int, scheme: str
) -> None:
    viewport = {"width": width, "height": 844}
    with opened(browser, report.as_uri(), viewport=viewport, color_scheme=scheme) as page:
        assert page.evaluate("window.hacked") is None
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_every_picture_is_drawn_and_can_be_read_in_the_dark(browser: Any, report: Path) -> None:
    page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="dark")
    page.goto(report.as_uri())
    pictures = page.evaluate(
        """[...document.querySelectorAll("figure svg")].map(svg => ({
             width: svg.getBoundingClientRect().width, height: svg.getBoundingClientRect().height,
             marks: [...svg.querySelectorAll(".role-mark path")].filter(path => path.getTotalLength() > 0).length,
             ink: getComputedStyle(svg.querySelector("text")).fill }))"""
    )
    assert len(pictures) == 5  # sweep, curves, gradients, by frequency, by position
    for picture in pictures:
        assert picture["width"] > 300 and picture["height"] > 200 and picture["marks"] > 0
        red, green, blue = (int(part) for part in picture["ink"].removeprefix("rgb(").rstrip(")").split(","))
        assert min(red, green, blue) > 180  # light on dark
    page.close()


@pytest.mark.parametrize("width", [718, 1280], ids=["A4", "wide"])
def test_nothing_is_wider_than_the_paper_it_is_printed_on(browser: Any, report: Path, width: int) -> None:
    """Tables were drawn 5 pixels over the edge; two beside each other were cut off on A4."""
    page = browser.new_page(viewport={"width": width, "height": 1000})
    page.emulate_media(media="print")
    page.goto(report.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()


def test_a_click_on_a_heading_sorts_and_another_one_sorts_the_other_way(browser: Any, report: Path) -> None:
    page = browser.new_page()
    page.goto(report.as_uri())
    names = "[...document.querySelectorAll('#table tbody th')].map(cell => cell.dataset.v)"
    assert page.evaluate(names)[0] == "unigram"
    page.click("#table th button:has-text('perplexity')")
    assert page.evaluate(names)[:2] == ["mkn+lstm", "lstm"]
    page.click("#table th button:has-text('perplexity')")
    assert page.evaluate(names)[:2] == ["unigram", "bigram"]
    page.click("#table th button:has-text('tokens/s')")  # models without a number come last, either way
    assert page.evaluate(names)[0] == "transformer"
    page.click("#table th button:has-text('tokens/s')")
    assert page.evaluate(names)[0] == "window"
    page.close()
