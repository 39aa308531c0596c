"""Look, in a real browser over a real server with a tiny model of every task."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from xml.etree import ElementTree

import pytest

import elman
from tests.browsing import opened
from tests.guards.cases import train_case, write_data
from tests.serve.running import Running, running

CASES = ("lstm", "transformer", "seq2seq-attention", "tag", "classify", "masked", "qa")
KINDS = [
    ("lstm", "surprisal"),
    ("lstm", "gradients"),
    ("lstm", "saliency"),
    ("lstm", "gates"),
    ("lstm", "states"),
    ("transformer", "attention"),
    ("seq2seq-attention", "attention"),
    ("classify", "saliency"),
]
MARKS = (
    """[...document.querySelectorAll("figure svg .role-mark path")].filter(path => path.getTotalLength() > 0).length"""
)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model of every task, each in a directory of its own name."""
    folder = tmp_path_factory.mktemp("studio")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_data(Path())
        for name in CASES:
            train_case(name, name)
    return folder


@pytest.fixture(scope="module")
def server(models: Path) -> Iterator[Running]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(models / "cache"))
        with running([models / name for name in CASES]) as found:
            yield found


def look_at(server: Running, model: str, text: str, **more: str) -> str:
    return f"{server.url}/#look?{urlencode({'text': text, 'model': model, **more})}"


@pytest.mark.parametrize(("model", "kind"), KINDS)
def test_every_kind_is_drawn_from_what_explain_says(
    browser: Any, server: Running, models: Path, model: str, kind: str
) -> None:
    text = {"seq2seq-attention": "rot haus", "classify": "the film was great"}.get(model, "the cat sat on the mat")
    with opened(browser, look_at(server, model, text, kind=kind), color_scheme="dark") as page:
        page.wait_for_selector("figure svg .role-mark path", state="attached")
        assert page.evaluate(MARKS) > 0
        assert page.inner_text("[aria-pressed=true]") == kind
        with page.expect_download() as saved:
            page.click("text=Data (JSON)")
        data = json.loads(Path(saved.value.path()).read_text())["answer"]
    expected = elman.load(models / model).explain(text, kind=kind)
    assert {key: data[key] for key in expected.to_dict()} == json.loads(expected.to_json())
    assert data["picture"] == json.loads(json.dumps(expected.picture))


def test_a_word_of_a_translation_shows_where_it_looked(browser: Any, server: Running, models: Path) -> None:
    with opened(browser, look_at(server, "seq2seq-attention", "rot haus und auto")) as page:
        page.wait_for_selector(".translation .tokens .token")
        answer = server.post("/v1/predict", model="seq2seq-attention", input=["rot haus und auto"]).json()
        best = answer["predictions"][0]["predictions"][0]
        assert page.inner_text(".big") == best["text"]
        heats = """place => [...document.querySelectorAll(".translation .tokens")][place].querySelectorAll(".token")
          .values().map(token => Number(token.style.getPropertyValue("--heat"))).toArray()"""
        page.hover(".line:nth-of-type(2) .token >> nth=0")
        assert page.evaluate(heats, 0) == pytest.approx(best["attention"][0])
        page.focus(".line:nth-of-type(2) .token >> nth=0")
        if len(best["attention"]) > 1:
            page.keyboard.press("ArrowRight")
            assert page.evaluate(heats, 0) == pytest.approx(best["attention"][1])
        page.hover(".line:nth-of-type(1) .token >> nth=1")
        assert page.evaluate(heats, 1) == pytest.approx([weights[1] for weights in best["attention"]])
        with page.expect_download() as saved:
            page.click("text=Picture (SVG)")
        assert ElementTree.parse(saved.value.path()).getroot().tag.endswith("svg")


def test_words_are_tagged_and_sentences_classified_and_gaps_filled(browser: Any, server: Running, models: Path) -> None:
    with opened(browser, look_at(server, "tag", "the cat sat\na dog")) as page:
        page.wait_for_selector(".tag")
        words = page.evaluate("[...document.querySelectorAll('.tag')].map(tag => tag.children[0].textContent)")
        tags = page.evaluate("[...document.querySelectorAll('.tag small')].map(tag => tag.textContent)")
        assert words == ["the", "cat", "sat", "a", "dog"]
        assert " ".join(tags) == " ".join(elman.load(models / "tag").predict(["the cat sat", "a dog"]))
        page.select_option("select", "classify")
        page.fill("textarea", "the film was great")
        page.wait_for_selector(".result .words")
        assert page.inner_text(".big") == elman.load(models / "classify").predict("the film was great")
        page.select_option("select", "masked")
        page.fill("textarea", "the <mask> sat")
        page.wait_for_selector("h3:has-text('Gap 1')")
        page.select_option("select", "qa")
        page.fill("textarea", "Mary went to the hall.")
        page.fill("[aria-label=Question]", "Where is Mary?")
        answer = elman.load(models / "qa").predict("Mary went to the hall.", "Where is Mary?")
        page.wait_for_function("text => document.querySelector('.big')?.textContent === text", arg=str(answer))


def test_what_cannot_be_shown_is_said(browser: Any, server: Running) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(look_at(server, "lstm", "", kind="gates"))
    page.wait_for_selector("text=type a text above")
    page.goto(look_at(server, "lstm", "only two", kind="analogy"))
    page.wait_for_selector(".trouble:has-text('three words')")
    context.close()


def test_the_text_goes_from_one_view_to_the_other(browser: Any, server: Running) -> None:
    with opened(browser, f"{server.url}/#write?text=the+cat&models=lstm") as page:
        page.wait_for_selector(".word")
        page.click("nav >> text=Look")
        page.wait_for_selector("figure svg")
        assert page.input_value("textarea") == "the cat" and page.input_value("select") == "lstm"
        page.go_back()
        page.wait_for_selector(".word")
        assert page.get_attribute("nav a >> nth=0", "aria-current") == "page"
