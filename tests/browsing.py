"""A real browser for tests of pages, and what every page has to keep: no errors, no violated policy, nothing foreign."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

WIDTHS = {"phone": 390, "desktop": 1280}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium by playwright: the one that $CHROMIUM names, one of the system's, or playwright's own."""
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    with playwright.sync_playwright() as running:
        try:
            browser = running.chromium.launch(executable_path=path, args=["--no-sandbox"])
        except playwright.Error as error:
            pytest.skip(
                f"no browser: apt install chromium, or playwright install chromium ({str(error).splitlines()[0]})"
            )
        yield browser
        browser.close()


@contextlib.contextmanager
def opened(browser: Any, address: str, **options: Any) -> Iterator[Any]:
    """A page, which must say nothing in the console and ask nothing of any other server while it is open."""
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
    page = context.new_page()
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    try:
        page.goto(address)
        yield page
        origin = address.split("#")[0]
        assert said == []
        assert [url for url in asked if not url.startswith((origin, "blob:", "data:"))] == []
    finally:
        context.close()
