"""How long the studio lets one wait, in a real browser: one line `name figure target pass|fail` for each, medians.

    python benchmarks/studio.py [--work DIR] [--loads 7] [--keys 40]
    python benchmarks/studio.py --screenshot FILE.png elman-demo/models    the picture of the documentation

The server is a process of its own (`elman studio --no-browser`) with a count model and an LSTM of 512 units, both of the
demo's corpus (the LSTM after a few steps: how good it is does not matter). A page is opened afresh each time, without any
cache; the first picture is there when its first bar is. The time of a key is that until the new bars are
there; then comes the next one.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

import elman
from elman.cli.demo_corpus import write_corpus

TEXT = "The value of the expression is a string that the object has been created with"
KEY_PAUSE = 120  # ms: a fast typist
SHOWN = "The+value+of+the+expression+is+a"
# When the first bar was drawn, and how long after each key the bars were drawn anew.
WATCH = """
window.waits = [];
addEventListener("input", () => { window.pressed = performance.now(); }, true);
new MutationObserver(changes => {
  if (!changes.some(({ target, addedNodes }) => target.matches?.(".words") && addedNodes.length)) return;
  window.first ??= performance.now();
  if (window.pressed) window.waits.push(performance.now() - window.pressed);
  window.pressed = 0;
}).observe(document, { childList: true, subtree: true });
"""


def make_models(work: Path) -> list[Path]:
    """A count model and an LSTM of 512 units."""
    corpus = write_corpus(work / "corpus")["train"]
    chosen: dict[str, dict[str, Any]] = {"mkn": {}, "lstm": {"model.hidden": 512, "train.steps": 5}}
    for name, settings in chosen.items():
        if not (work / name).is_dir():
            elman.train("lm", corpus, out=work / name, model=name, units="word", valid="none", settings=settings)
    return [work / name for name in chosen]


@contextlib.contextmanager
def studio(directories: Sequence[Path]) -> Iterator[str]:
    """The address of a studio with some models."""
    command = [sys.executable, "-m", "elman", "studio", *map(str, directories), "--no-browser"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if found := re.search(r"http://\S+(?=;)", line):
                yield found[0]
                break
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """A browser: the one that $CHROMIUM names, one of the system's, or playwright's own."""
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    with sync_playwright() as running:
        browser = running.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


def first_picture(browser: Any, address: str) -> float:
    """Milliseconds from the beginning of a visit to the first bar."""
    context = browser.new_context()
    page = context.new_page()
    page.add_init_script(WATCH)
    page.goto(address)
    page.wait_for_selector(".bar")
    found: float = page.evaluate("window.first")
    context.close()
    return found


def first_drawing(browser: Any, address: str) -> float:
    """The same for a picture by Vega, whose script has to be loaded first."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(address)
    page.wait_for_selector("figure svg")
    found: float = page.evaluate("performance.now()")
    context.close()
    return found


def key_waits(browser: Any, address: str, keys: int) -> list[float]:
    """Milliseconds from each of some keys to the new bars."""
    context = browser.new_context()
    page = context.new_page()
    page.add_init_script(WATCH)
    page.goto(address)
    page.wait_for_selector(".bar")
    page.focus("textarea")
    for number, key in enumerate((TEXT * 9)[:keys], 1):
        page.keyboard.press(key if key != " " else "Space")
        page.wait_for_function("number => window.waits.length === number", arg=number)
        page.wait_for_timeout(KEY_PAUSE)
    found: list[float] = page.evaluate("window.waits")
    context.close()
    return found


def report(name: str, waits: Sequence[float], target: float) -> bool:
    """Print one line."""
    median = statistics.median(waits)
    verdict = "pass" if median <= target else "fail"
    print(f"{name} {median:.0f}ms ({len(waits)} times, worst {max(waits):.0f}ms) {target:.0f}ms {verdict}", flush=True)
    return median <= target


def measure(work: Path, *, loads: int, keys: int) -> bool:
    """All of it."""
    with studio(make_models(work)) as address, chromium() as browser:
        first_drawing(browser, f"{address}/#look?text=a&model=lstm&kind=gates")  # the script is made once
        write = f"{address}/#write?text={SHOWN}"
        visits = [first_picture(browser, f"{write}&models=mkn&models=lstm") for _ in range(loads)]
        drawn = [first_drawing(browser, f"{address}/#look?text={SHOWN}&model=lstm&kind=gates") for _ in range(loads)]
        passed = [report("first-picture", visits, 1000), report("first-picture-by-vega", drawn, 1000)]
        for name, target in (("mkn", 100), ("lstm", 150)):
            waits = key_waits(browser, f"{address}/#write?models={name}", keys)
            passed.append(report(f"keystroke-{name}", waits, target))
    return all(passed)


def screenshot(path: Path, directories: Sequence[Path]) -> None:
    """The page as the documentation shows it."""
    with studio(directories) as address, chromium() as browser:
        page = browser.new_page(viewport={"width": 1120, "height": 815})
        page.goto(f"{address}/#write?text={SHOWN}&models=mkn&models=lstm&temperature=0.7&rows=8&branches=The+value+of")
        page.wait_for_selector(".heat .token")
        page.screenshot(path=path)


def main() -> int:
    """Measure, or take the picture."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("directories", nargs="*", type=Path)
    parser.add_argument("--work", type=Path, help="where models go, and are kept")
    parser.add_argument("--loads", type=int, default=7)
    parser.add_argument("--keys", type=int, default=40)
    parser.add_argument("--screenshot", type=Path)
    asked = parser.parse_args()
    if asked.screenshot:
        screenshot(asked.screenshot, asked.directories)
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        work = asked.work or Path(temporary)
        return 0 if measure(work, loads=asked.loads, keys=asked.keys) else 1


if __name__ == "__main__":
    sys.exit(main())
