"""The documentation as a site: it builds without a warning, and a browser shows it without asking anything of the network."""

from __future__ import annotations

import contextlib
import functools
import http.server
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BROWSER = shutil.which("chromium-headless-shell") or shutil.which("chromium")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make site` does."""
    if importlib.util.find_spec("material") is None or importlib.util.find_spec("mkdocstrings") is None:
        pytest.skip("mkdocs-material is not installed: pip install 'elman[test]'")
    place = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(place)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    return place


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Where a server on this machine shows the site."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *arguments: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def _note_failure(request: Any, faults: list[str]) -> None:
    """What the next page interrupts has not failed."""
    if "ERR_ABORTED" not in (request.failure or ""):
        faults.append(f"failed: {request.url}")


@contextlib.contextmanager
def opened(address: str, **options: Any) -> Iterator[tuple[Any, list[str]]]:
    """A page of a real browser, and the list of all that goes wrong on it."""
    if BROWSER is None or importlib.util.find_spec("playwright") is None:
        pytest.skip("no browser: pip install playwright, apt-get install chromium-headless-shell")
    from playwright.sync_api import sync_playwright

    faults: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        page = browser.new_page(**options)
        page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("requestfailed", lambda request: _note_failure(request, faults))
        local = (address, "data:", "blob:", "about:")
        page.on("request", lambda sent: None if sent.url.startswith(local) else faults.append(f"outside: {sent.url}"))
        yield page, faults
        browser.close()


def pages_of(site: Path) -> list[str]:
    return sorted(path.relative_to(site).as_posix() for path in site.rglob("*.html"))


def test_the_site_has_all_pages_and_names_no_other_server(site: Path) -> None:
    names = pages_of(site)
    assert {"index.html", "tour.html", "tasks/classify.html", "python.html", "troubleshooting.html"} <= set(names)
    for name in names:
        loaded = re.findall(
            r"<(?:script|link|img|iframe)[^>]*(?:src|href)=\"(https?:[^\"]+)", (site / name).read_text()
        )
        assert not loaded, name


def test_the_python_reference_has_every_public_name(site: Path) -> None:
    import elman

    page = (site / "python.html").read_text()
    missing = [name for name in elman.__all__ if name != "__version__" and f'.{name}"' not in page]
    assert not missing


PHONE = {"viewport": {"width": 390, "height": 844}}
FEW = ("index.html", "tour.html", "settings.html")


@pytest.mark.parametrize(("look", "names"), [({}, FEW), ({"color_scheme": "dark"}, FEW), (PHONE, None)])
def test_every_page_opens_in_a_browser_without_an_error_or_a_request_outside(
    site: Path, address: str, look: dict[str, Any], names: Sequence[str] | None
) -> None:
    with opened(address, **look) as (page, faults):
        for name in names or pages_of(site):
            page.goto(address + name)
            assert page.locator("h1").first.is_visible() or name == "404.html", name
            assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), f"{name} is too wide"
            assert page.evaluate("[...document.images].every(one => one.complete && one.naturalWidth > 0)"), name
        is_dark = page.evaluate("document.body.dataset.mdColorScheme") == "slate"
        assert is_dark == ("color_scheme" in look)
    assert not faults


@pytest.mark.parametrize("how", ["by a server", "as files"])
def test_search_finds_a_word(site: Path, address: str, how: str) -> None:
    base = address if how == "by a server" else f"{site.as_uri()}/"
    with opened(base) as (page, faults):
        page.goto(base + "index.html")
        page.locator("input[name=query]").click()
        page.keyboard.type("kneser", delay=20)
        page.locator(".md-search-result__item").first.wait_for(state="attached", timeout=20_000)
        assert "tour.html" in page.locator(".md-search-result__list").inner_html()
    assert not faults
