"""Models show themselves: one line in a terminal, a table and a curve in a notebook; and every one can be saved."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest

import elman
from tests.guards.cases import CASES, train_case, write_data

ONE_OF_EACH = {
    "mkn": "<Model: lm mkn, 17 symbols (space), perplexity ",
    "lstm": "<Model: lm lstm, 17 symbols (space), perplexity ",
    "masked": "<MaskedTextModel: masked lstm, 17 symbols (space), pseudo_perplexity ",
    "bilm": "<BilmTextModel: bilm lstm, 17 symbols (space), perplexity ",
    "seq2seq-attention": "<Translator: seq2seq lstm, ",
    "tag": "<Tagger: tag lstm, ",
    "classify": "<Classifier: classify lstm, ",
    "qa": "<ChosenAnswers: qa gru, ",
}


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_data(Path())


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_every_model_shows_itself_and_can_be_saved(name: str) -> None:
    train_case(name, "model")
    model = elman.load("model")
    shown = repr(model)
    assert shown.startswith(ONE_OF_EACH[name]) and shown.endswith(" in model>")
    assert "\n" not in shown and len(shown) < 160
    page = model._repr_html_()
    HTMLParser().feed(page)
    assert all(f">{key}</th>" in page for key, value in model.record.valid.items() if isinstance(value, float))
    model.save("again")
    assert elman.load("again").info() | {"directory": None, "bytes": None} == model.info() | {
        "directory": None,
        "bytes": None,
    }


def test_the_one_line_has_numbers_and_not_their_bounds() -> None:
    """A model validated line by line showed its perplexity and perplexity_low."""
    case = CASES["mkn-lines"]
    Path("long.txt").write_text(Path("text.valid").read_text() * 40)
    model = elman.train("lm", "text.train", model=case.model, reset_lines=True, valid="long.txt")
    assert model.record.valid is not None and model.record.valid["perplexity_low"] is not None
    assert "perplexity " in repr(model) and "nats_per_token " in repr(model) and "_low" not in repr(model)


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_a_model_that_was_never_saved_can_be(name: str) -> None:
    case = CASES[name]
    stem, dot, end = case.data.partition(".")
    model = elman.train(
        case.task, f"{stem}.train{dot}{end}", model=case.model, settings=case.settings, valid=f"{stem}.valid{dot}{end}"
    )
    assert " in " not in repr(model) and "not saved" in model._repr_html_()
    model.save("later")
    again = elman.load("later")
    assert again.record == model.record
    with pytest.raises(elman.ElmanError, match="overwrite=True replaces it"):
        model.save("later")


def test_a_notebook_shows_the_curve_as_a_picture_and_no_name_as_code() -> None:
    train_case("lstm", "<b>bold")
    model = elman.load("<b>bold")
    assert (Path("<b>bold") / "curves.svg").is_file()
    page = model._repr_html_()
    assert "<img " in page and "data:image/svg+xml;base64," in page
    assert "<b>" not in page and "&lt;b&gt;bold" in page
    assert "<svg" not in page  # which could bring a script along
