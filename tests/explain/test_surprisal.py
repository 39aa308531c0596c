"""Surprisal: the numbers of `score`, what was preferred, and who answered."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import elman
from elman.core.errors import UsageError

TEXT = "the cat sat on the mat\nthe dog sat on the log\na cat and a dog met the cat\n" * 30
LINE = "the cat sat on a zebra"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, elman.Model]:
    folder = tmp_path_factory.mktemp("surprisal")
    data = folder / "text.txt"
    data.write_text(TEXT)
    made = {
        "mkn": elman.train("lm", data, model="mkn", valid="none", out=folder / "mkn"),
        "lstm": elman.train(
            "lm", data, model="lstm", valid="none", epochs=1, settings={"model.hidden": 8}, out=folder / "lstm"
        ),
    }
    made["mix"] = elman.mix([made["mkn"], made["lstm"], "cache"], valid=data, out=folder / "mix")
    return made


@pytest.mark.parametrize("name", ["mkn", "lstm", "mix"])
def test_the_nats_are_those_of_score(models: dict[str, elman.Model], name: str) -> None:
    model = models[name]
    found = model.explain(LINE).data["models"][0]
    score = model.score(LINE)
    assert sum(row["nats"] for row in found["tokens"]) == pytest.approx(score.nats, abs=1e-4)
    assert found["perplexity"] == pytest.approx(score.perplexity, rel=1e-5)
    assert [row["token"] for row in found["tokens"]][-2:] == ["<unk>", "</s>"]
    assert [row["unknown"] for row in found["tokens"]] == [False] * 5 + [True, False]


def test_what_was_preferred_is_what_next_says(models: dict[str, elman.Model]) -> None:
    rows = models["mkn"].explain(LINE, preferred=4).data["models"][0]["tokens"]
    for place, prompt in enumerate(["", "the", "the cat"]):
        wanted = models["mkn"].next(prompt, k=4)
        assert [token.strip() for token, _ in rows[place]["preferred"]] == [token.strip() for token, _ in wanted]
        np.testing.assert_allclose([p for _, p in rows[place]["preferred"]], [p for _, p in wanted], atol=1e-6)


def test_of_n_grams_the_order_that_answered_is_named(models: dict[str, elman.Model]) -> None:
    orders = [row["order"] for row in models["mkn"].explain("the cat sat on the log").data["models"][0]["tokens"]]
    assert orders[:3] == [2, 3, 4]  # behind the end of a line, then longer and longer
    assert max(orders) <= 5
    assert models["mkn"].explain("mat mat").data["models"][0]["tokens"][1]["order"] == 1  # never seen together


def test_of_mixtures_the_shares_of_the_members_add_up(models: dict[str, elman.Model]) -> None:
    found = models["mix"].explain(LINE).data["models"][0]
    assert found["members"] == ["mkn", "lstm", "cache"]
    for row in found["tokens"]:
        assert sum(row["shares"]) == pytest.approx(1, abs=2e-3)


def test_several_models_stand_in_one_picture(models: dict[str, elman.Model], tmp_path: Path) -> None:
    from elman.explain import explain

    found = explain([models["mkn"], models["lstm"]], [LINE], kind="surprisal")
    assert [one["model"] for one in found.data["models"]] == ["mkn", "lstm"]
    assert {row["model"] for row in found.picture["data"]["values"]} == {"mkn", "lstm"}
    found.save(tmp_path / "s.json")
    assert json.loads((tmp_path / "s.json").read_text())["kind"] == "surprisal"
    assert found.to_png()[:4] == b"\x89PNG"
    page = found.to_html()
    assert "<svg" in page and "http://" not in page.replace("http://www.w3.org", "")
    assert "data:image/svg" in found._repr_html_()


def test_the_drawing_has_a_line_a_token(models: dict[str, elman.Model]) -> None:
    found = models["mkn"].explain(LINE)
    assert len(found.drawing) == 1 + 7
    assert max(span.shade for line in found.drawing for span in line) == 1
    assert "sat" in str(found)


def test_an_empty_text_is_the_end_of_a_line(models: dict[str, elman.Model]) -> None:
    found = models["mkn"].explain("").data["models"][0]
    assert [row["token"] for row in found["tokens"]] == ["</s>"]


def test_what_cannot_be_is_refused_with_what_can(models: dict[str, elman.Model]) -> None:
    with pytest.raises(UsageError, match="no kind of explanation"):
        models["mkn"].explain(LINE, kind="surprise")
    with pytest.raises(UsageError, match=r"explain\.prefered is not a setting"):
        models["mkn"].explain(LINE, prefered=3)
    with pytest.raises(UsageError, match="needs a text"):
        models["mkn"].explain(kind="surprisal")


def test_an_impossible_token_is_named_as_such(tmp_path: Path) -> None:
    data = tmp_path / "text.txt"
    data.write_text("a b\n" * 20)
    model = elman.train("lm", data, model="ngram", valid="none", settings={"model.order": 2, "model.smoothing": "ml"})
    found = model.explain("b a").data["models"][0]
    assert found["perplexity"] is None
    assert any(row["nats"] is None for row in found["tokens"])
    assert "inf" in str(model.explain("b a"))


def test_models_whose_directories_have_one_name_are_told_apart(models: dict[str, elman.Model]) -> None:
    from elman.explain import explain

    for kind in ("surprisal", "reach"):
        found = explain([models["lstm"], models["lstm"]], [LINE], kind=kind)
        assert [one["model"] for one in found.data["models"]] == ["lstm 1", "lstm 2"]
