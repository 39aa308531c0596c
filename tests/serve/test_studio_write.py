"""Write, in a real browser over a real server: what is typed, taken, shaped, branched and linked."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import elman
from tests.browsing import WIDTHS, opened
from tests.serve.running import KEY, Running, running

ROWS = """column => [...document.querySelectorAll(`[data-model=${column}] .word`)].map(word => [
  word.querySelector(".token").textContent, word.querySelector(".share").textContent])"""


@pytest.fixture(scope="module", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


def write_at(server: Running, text: str = "", *more: str) -> str:
    words = "&".join([f"text={text.replace(' ', '+')}", *more])
    return f"{server.url}/#write?{words}"


def words_of(page: Any, column: str = "model") -> list[list[str]]:
    found: list[list[str]] = page.evaluate(ROWS, column)
    return found


def wait_for_words(page: Any, expected: list[list[str]], column: str = "model") -> None:
    """Wait until the column has these words first."""
    page.wait_for_function(
        f"([column, wanted]) => JSON.stringify(({ROWS})(column).slice(0, wanted.length)) === JSON.stringify(wanted)",
        arg=[column, expected],
    )


def following(folder: Path, text: str, k: int = 3) -> list[list[str]]:
    """What the page has to show after a text, by the model itself."""
    return [[shown(token), percent(share)] for token, share in elman.load(folder).next(text, k=k)]


def shown(token: str) -> str:
    return "↵" if token == "</s>" else token.replace(" ", "·")


def percent(share: float) -> str:
    digits = 2 if share < 0.01 else 1 if share < 0.1 else 0
    return "< 0.01 %" if share < 0.0001 else f"{100 * share:.{digits}f} %"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS.values(), ids=list(WIDTHS))
def test_it_opens_without_an_error_and_fits(
    browser: Any, server: Running, model: Path, width: int, scheme: str
) -> None:
    options = {"viewport": {"width": width, "height": 844}, "color_scheme": scheme}
    with opened(browser, write_at(server, "the cat sat"), **options) as page:
        wait_for_words(page, following(model, "the cat sat"))
        page.wait_for_selector("[data-model=stream] .heat .token")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        bars = page.evaluate("[...document.querySelectorAll('.bar i')].map(bar => bar.getBoundingClientRect().width)")
        assert bars[0] > 40 and bars[0] > bars[3] > 0


def test_every_key_shows_what_may_follow(browser: Any, server: Running, model: Path, stream_model: Path) -> None:
    with opened(browser, write_at(server)) as page:
        page.focus("textarea")
        for text, key in (("t", "t"), ("th", "h"), ("the", "e"), ("the ", " "), ("the c", "c"), ("the cat", "at")):
            page.keyboard.type(key)
            if text in ("the", "the ", "the cat"):  # not in the middle of a word
                wait_for_words(page, following(model, text))
            wait_for_words(page, following(stream_model, text), "stream")
        page.keyboard.press("Backspace")
        wait_for_words(page, following(stream_model, "the ca"), "stream")


def test_a_word_that_is_not_typed_to_its_end_is_finished(browser: Any, server: Running, model: Path) -> None:
    with opened(browser, write_at(server, "the d", "models=model")) as page:
        (share,) = (share for token, share in elman.load(model).next("the", k=20) if token == "dog")
        wait_for_words(page, [["dog", percent(share)]])
        assert len(words_of(page)) == 1
        assert page.inner_text(".rest") == f"words that begin with “d”, together {percent(share)}"
        page.click(".word")
        page.wait_for_function("() => document.querySelector('textarea').value === 'the dog'")
        wait_for_words(page, following(model, "the dog"))


def test_a_word_is_taken_by_a_click_by_enter_and_by_a_digit(browser: Any, server: Running, model: Path) -> None:
    with opened(browser, write_at(server, "the cat", "models=model")) as page:
        text = "the cat"
        for act in (lambda: page.click(".word >> nth=1"), lambda: page.keyboard.press("Enter")):
            expected = following(model, text, k=12)
            wait_for_words(page, expected)
            page.focus(".word >> nth=0")
            page.keyboard.press("ArrowDown")
            act()
            text = f"{text} {expected[1][0]}"
            page.wait_for_function("text => document.querySelector('textarea').value === text", arg=text)
        expected = following(model, text, k=12)
        wait_for_words(page, expected)
        page.keyboard.press("3")  # the word that had the focus has it still
        page.wait_for_function(
            "text => document.querySelector('textarea').value.trim() === text", arg=f"{text} {expected[2][0]}"
        )


def test_from_the_text_to_the_words_and_on_without_a_mouse(browser: Any, server: Running) -> None:
    with opened(browser, write_at(server, "the", "models=model")) as page:
        page.wait_for_selector(".word")
        page.focus("textarea")
        page.keyboard.press("Control+ArrowDown")
        assert page.evaluate("document.activeElement.classList.contains('word')")
        names = []
        for _ in range(14):
            page.keyboard.press("Tab")
            names.append(page.evaluate("document.activeElement.textContent.trim()"))
        assert {"Copy link", "Picture (SVG)", "Data (JSON)"} <= {*names}


def test_the_sliders_change_what_is_shown(browser: Any, server: Running, model: Path) -> None:
    with opened(browser, write_at(server, "the", "models=model")) as page:
        wait_for_words(page, following(model, "the"))
        token = following(model, "the")[0][0]
        for name, value in (("topK", "1"), ("temperature", "0"), ("topP", "0.05")):
            page.evaluate(
                """([name, value]) => { const input = document.querySelector(`[name=${name}]`);
                  input.value = value; input.dispatchEvent(new Event("input")); }""",
                [name, value],
            )
            wait_for_words(page, [[token, "100 %"]])
            assert all(share == "0 %" for _, share in words_of(page)[1:])
            page.evaluate(
                """name => { const input = document.querySelector(`[name=${name}]`);
                  input.value = { topK: 0, temperature: 1, topP: 1 }[name]; input.dispatchEvent(new Event("input")); }""",
                name,
            )
            wait_for_words(page, following(model, "the"))
        page.focus("[name=temperature]")
        page.keyboard.press("ArrowRight")
        page.wait_for_function("() => location.hash.includes('temperature=1.05')")


def test_going_back_reads_nothing_again(browser: Any, server: Running, model: Path) -> None:
    with opened(browser, write_at(server, "the cat", "models=model")) as page:
        wait_for_words(page, following(model, "the cat"))
        page.click("text=Branch here")
        page.click(".word >> nth=0")
        first = f"the cat {following(model, 'the cat')[0][0]}"
        wait_for_words(page, following(model, first))
        page.click(".word >> nth=0")
        wait_for_words(page, following(model, f"{first} {following(model, first)[0][0]}"))
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url.removeprefix(server.url)))
        page.click("text=Back")
        wait_for_words(page, following(model, first))
        page.click(".chip button >> nth=0")
        wait_for_words(page, following(model, "the cat"))
        assert page.input_value("textarea") == "the cat"
        assert not [path for path in asked if "advance" in path or path == "/v1/sessions"]
        page.click("[aria-label^=Forget]")
        assert page.locator(".chip").count() == 0


def test_states_that_the_server_has_forgotten_are_read_again(browser: Any, server: Running, model: Path) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(write_at(server, "the", "models=model"))
    wait_for_words(page, following(model, "the"))
    sessions = server.context.sessions
    while len(sessions):
        sessions.close(next(iter(sessions._by_id)))
    page.focus("textarea")
    page.keyboard.press("End")
    page.keyboard.type(" cat")
    wait_for_words(page, following(model, "the cat"))
    context.close()


def test_the_text_is_coloured_by_what_each_token_cost(browser: Any, server: Running, model: Path) -> None:
    with opened(browser, write_at(server, "the zebra sat", "models=model")) as page:
        page.wait_for_selector(".heat .token")
        found = page.evaluate(
            """[...document.querySelectorAll(".heat .token")].map(token => [token.textContent, token.title,
               Number(token.style.getPropertyValue("--heat")), token.classList.contains("unknown")])"""
        )
        expected = elman.load(model).score("the zebra sat").per_token
        assert [word for word, *_ in found] == ["the", "zebra", "sat", "↵"]
        assert [unknown for *_, unknown in found] == [False, True, False, False]
        for (_, title, heat, _), (_, cost, *_) in zip(found, expected, strict=True):
            nats = float(re.search(r": ([\d.]+) nats", title)[1])
            assert nats == pytest.approx(cost, rel=1e-2) and heat == pytest.approx(min(1, cost / 10), abs=1e-3)
        page.click(".heat .token >> nth=2")
        page.wait_for_function("() => document.querySelector('textarea').value === 'the zebra'")


def test_models_stand_side_by_side_as_chosen(browser: Any, server: Running) -> None:
    with opened(browser, write_at(server, "the", "models=stream")) as page:
        page.wait_for_selector("[data-model=stream] .word")
        assert page.locator(".column").count() == 1
        page.check("input[value=model]")
        page.wait_for_selector("[data-model=model] .word")
        boxes = [page.locator(".column").nth(place).bounding_box() for place in (0, 1)]
        assert boxes[0]["y"] == boxes[1]["y"] and boxes[0]["x"] < boxes[1]["x"]
        page.uncheck("input[value=stream]")
        assert page.locator(".column").count() == 1
        assert page.is_disabled("input[value=model]")  # one has to stay


def test_the_link_shows_the_same_again(browser: Any, server: Running, model: Path) -> None:
    link = write_at(server, "a & b <i>#?", "models=model", "temperature=0.5", "topK=7", "branches=a+cat")
    link = link.replace("&+b", "%26+b").replace("#?", "%23%3F")
    with opened(browser, link) as page:
        page.wait_for_selector(".word")
        page.focus("textarea")
        page.keyboard.press("End")
        page.keyboard.type("!")
        page.wait_for_function("() => location.hash.includes('%21')")
        page.wait_for_timeout(300)
        words, address = words_of(page), page.url
        assert page.input_value("textarea") == "a & b <i>#?!"
        assert page.input_value("[name=topK]") == "7"
    with opened(browser, address) as page:
        wait_for_words(page, words)
        assert page.url == address and page.inner_text(".chip button >> nth=0") == "a cat"


def test_picture_and_data_are_saved(browser: Any, server: Running, model: Path) -> None:
    with opened(browser, write_at(server, "the cat", "models=model"), accept_downloads=True) as page:
        page.wait_for_selector(".heat .token")
        with page.expect_download() as saved:
            page.click("text=Picture (SVG)")
        drawn = ElementTree.parse(saved.value.path()).getroot()
        assert drawn.tag.endswith("svg") and "What may follow, by model" in "".join(drawn.itertext())
        with page.expect_download() as saved:
            page.click("text=Picture (PNG)")
        assert Path(saved.value.path()).read_bytes().startswith(b"\x89PNG")
        with page.expect_download() as saved:
            page.click("text=Data (JSON)")
        data = json.loads(Path(saved.value.path()).read_text())
        assert saved.value.suggested_filename == "elman-write.json"
        assert data["text"] == "the cat" and data["models"][0]["score"]["num_tokens"] == 3
        assert page.inner_text("#status") == "elman-write.json is saved."


def test_it_writes_on_by_itself(browser: Any, server: Running) -> None:
    with opened(browser, write_at(server, "the cat", "models=stream")) as page:
        page.wait_for_selector(".word")
        page.focus("textarea")
        page.keyboard.press("Control+Enter")
        page.wait_for_function("() => document.querySelector('button.first').textContent === 'Write on'")
        page.wait_for_function("() => document.querySelector('textarea').value.length >= 'the cat'.length + 20")
        page.click("text=Back")
        assert page.input_value("textarea") == "the cat"


def test_what_means_no_good_is_text(browser: Any, server: Running) -> None:
    link = write_at(server, "<img src=x onerror=window.hacked=1>", "branches=<script>window.hacked=1</script>")
    with opened(browser, link) as page:
        page.wait_for_selector(".heat .token")
        assert page.evaluate("window.hacked") is None and page.locator("img").count() == 0


def test_a_server_with_a_key_asks_for_it(browser: Any, model: Path) -> None:
    with running([model], api_key=KEY) as locked:
        context = browser.new_context()
        page = context.new_page()
        page.goto(write_at(locked, "the"))
        page.fill("input[type=password]", KEY)
        page.click("text=Go on")
        wait_for_words(page, following(model, "the"))
        context.close()
