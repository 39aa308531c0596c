"""Reach: nothing beyond the order of an n-gram, the numbers of a plain loop, and probes that a model can or cannot solve."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import elman
from elman.core.errors import UsageError
from elman.explain import explain, probes
from elman.explain.reach import WAYS, divergence, predictions

TEXT = "the cat sat on the mat\nthe dog sat on the log\na cat and a dog met the cat\n" * 30
LONG = "the cat sat on a mat and the dog met a cat on the log " * 6


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("reach")
    data = folder / "text.txt"
    data.write_text(TEXT)
    made = {
        "trigram": elman.train(
            "lm", data, model="mkn", valid="none", settings={"model.order": 3}, out=folder / "trigram"
        ),
        "lstm": elman.train(
            "lm",
            data,
            model="lstm",
            valid="none",
            epochs=3,
            settings={"model.hidden": 8, "train.learning_rate": 0.02},
            out=folder / "lstm",
        ),
        "lines": elman.train("lm", data, model="mkn", valid="none", reset_lines=True, out=folder / "lines"),
    }
    other = folder / "other.txt"
    other.write_text(f"{LONG}\n" * 5)  # of which none of them is sure, so that each has its share
    made["mix"] = elman.mix([made["trigram"], made["lstm"], "cache"], valid=other, out=folder / "mix")
    return made


def test_an_n_gram_uses_nothing_beyond_its_order(models: dict[str, Any]) -> None:
    (found,) = models["trigram"].explain(TEXT[:700], kind="reach", distances="1,2,3,5,8").data["models"]
    rows = {row["distance"]: row for row in found["by_distance"]}
    assert all(rows[1][way]["kl"] > 0 for way in WAYS)  # it does use the two words before
    assert rows[2]["replace"]["kl"] > 0
    for distance in (2, 3, 5, 8):
        assert rows[distance]["delete"] == rows[distance]["shuffle"] == {"nats": 0.0, "kl": 0.0}
    for distance in (3, 5, 8):
        assert rows[distance]["replace"] == {"nats": 0.0, "kl": 0.0}
    assert found["reach"] == 2


@pytest.mark.parametrize("name", ["lstm", "mix"])
def test_what_deleting_costs_is_that_of_a_plain_loop(models: dict[str, Any], name: str) -> None:
    """Every place of a text, its last k tokens read alone, token by token."""
    model = models[name]
    (found,) = model.explain(LONG, kind="reach", distances="2,6", positions=1000, context=200).data["models"]
    ids = model.ids_of(LONG)
    for row in found["by_distance"]:
        distance = row["distance"]
        assert row["positions"] == len(ids) - distance - 1
        lost, changed = [], []
        for place in range(distance + 1, len(ids)):
            two = []
            for context in (ids[:place], ids[place - distance : place]):
                state = model.lm.start(1)
                for token in context:
                    state = model.lm.advance(np.array([token]), state)
                two.append(model.lm.predict(state)[0].astype(np.float64))
            lost.append(two[0][ids[place]] - two[1][ids[place]])
            changed.append(np.sum(np.exp(two[0]) * (two[0] - two[1])))
        assert row["delete"]["nats"] == pytest.approx(np.mean(lost), abs=2e-5)
        assert row["delete"]["kl"] == pytest.approx(np.mean(changed), abs=2e-5)
        assert abs(np.mean(changed)) > 1e-4


def test_a_divergence_is_by_its_formula() -> None:
    p, q = np.array([[0.5, 0.5, 0.0]]), np.array([[0.25, 0.25, 0.5]])
    with np.errstate(divide="ignore"):
        assert divergence(np.log(p), np.log(q)) == pytest.approx(np.log(2))
        assert divergence(np.log(q), np.log(p)) == np.inf


def test_rows_of_any_length_are_predicted_as_alone(models: dict[str, Any]) -> None:
    lm, ids = models["lstm"].lm, models["lstm"].ids_of(LONG)
    together = predictions(lm, [ids[:3], ids[:9], ids[2:7]])
    for row, context in enumerate((ids[:3], ids[:9], ids[2:7])):
        np.testing.assert_allclose(together[row], predictions(lm, [context])[0], atol=1e-5)


def test_a_model_of_lines_has_no_context_from_the_line_before(models: dict[str, Any]) -> None:
    found = models["lines"].explain("the cat sat on the mat\na dog met the cat", kind="reach", distances="1,3,20")
    rows = found.data["models"][0]["by_distance"]
    assert [(row["distance"], row["positions"]) for row in rows] == [(1, 5 + 4), (3, 3 + 2)]
    assert any("20 left out" in note for note in found.notes)
    assert any("fewer than 10 places" in note for note in found.notes)


def test_several_models_stand_in_one_picture_and_what_was_left_out_is_said(models: dict[str, Any]) -> None:
    shares: list[float] = []
    found = explain(
        [models["trigram"], models["lstm"]],
        [LONG],
        kind="reach",
        options={"positions": 20, "distances": "1,4", "context": 10},
        report=shares.append,
    )
    assert {row["model"] for row in found.picture["data"]["values"]} == {"trigram", "lstm"}
    assert any("20 of 91 places" in note for note in found.notes)
    assert any("at most 10 tokens" in note for note in found.notes)
    assert shares == [0.0, 0.5]
    assert max(map(len, str(found).splitlines())) <= 100
    again = explain(
        [models["trigram"], models["lstm"]],
        [LONG],
        kind="reach",
        options={"positions": 20, "distances": "4,1", "context": 10},
    )
    assert again.data == found.data  # the same seed, the same places


def test_an_impossible_token_is_left_out_of_the_means(tmp_path: Path) -> None:
    data = tmp_path / "text.txt"
    data.write_text("a b c\nb c a\n" * 20)
    model = elman.train("lm", data, model="ngram", valid="none", settings={"model.order": 2, "model.smoothing": "ml"})
    found = model.explain("a b c b c a a b c b c a", kind="reach", distances="1,2")
    assert any("impossible" in note for note in found.notes)
    assert found.to_json()


def test_what_cannot_be_is_refused(models: dict[str, Any]) -> None:
    model = models["trigram"]
    for text, options, message in (
        ([], {}, "needs a text"),
        ("", {}, "too short"),
        ("cat", {"probe": "copy"}, "sentences of its own"),
        ("cat", {"distances": "0,3"}, "from 1"),
        (LONG, {"distances": "1,50", "context": 50}, "does not reach beyond"),
        ([], {"probe": "recall"}, "does not know"),
    ):
        with pytest.raises(UsageError, match=message):
            model.explain(text, kind="reach", **options)


@pytest.fixture(scope="module")
def copiers(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """A trigram, and a net with time enough to learn what a trigram cannot know."""
    folder = tmp_path_factory.mktemp("copy")
    data = folder / "copy.txt"
    data.write_text("".join(f"{line}\n" for line in probes.lines("copy", longest=6, count=3000, seed=1)))
    common: dict[str, Any] = {"units": "space", "valid": "none", "reset_lines": True}
    settings = {"model.hidden": 32, "model.embedding": 32, "model.dropout": 0, "model.tied": False}
    steps = {"train.learning_rate": 0.02, "train.batch": 16, "train.bptt": 8, "train.steps": 1200}
    return [
        elman.train("lm", data, model="mkn", settings={"model.order": 3}, out=folder / "mkn", **common),
        elman.train("lm", data, model="lstm", settings=settings | steps, out=folder / "lstm", **common),
    ]


def test_what_lies_beyond_a_trigram_only_a_state_can_recall(copiers: list[Any]) -> None:
    found = explain(copiers, [], kind="reach", options={"probe": "copy", "distances": "2,4,6", "items": 200})
    trigram, lstm = ({row["distance"]: row for row in one["by_distance"]} for one in found.data["models"])
    assert trigram[2]["accuracy"] == 1  # the symbol is the word before the last
    for distance in (4, 6):
        assert abs(trigram[distance]["accuracy"] - found.data["chance"]) < 0.1
        assert lstm[distance]["accuracy"] > 0.8
        assert lstm[distance]["items"] == 200
    assert "guessing" in {row["model"] for row in found.picture["data"]["values"]}
    assert "6 back" in str(found)


def test_accuracy_and_share_are_those_of_next(copiers: list[Any]) -> None:
    found = explain(copiers[:1], [], kind="reach", options={"probe": "copy", "distances": "5", "items": 30, "seed": 7})
    (row,) = found.data["models"][0]["by_distance"]
    right, shares = [], []
    for item in probes.items("copy", distances=(5,), count=30, rng=np.random.default_rng(7)):
        after = dict(copiers[0].next(item.before, k=20))
        choices = [after.get(choice, after.get(f" {choice}", 0.0)) for choice in item.choices]
        best = [i for i, p in enumerate(choices) if p == max(choices)]
        right.append((item.right in best) / len(best))
        shares.append(choices[item.right] / sum(choices))
    assert row["accuracy"] == pytest.approx(np.mean(right), abs=1e-5)
    assert row["share"] == pytest.approx(np.mean(shares), abs=1e-4)


def test_sentences_with_unknown_words_are_left_out_and_the_words_are_said(tmp_path: Path) -> None:
    data = tmp_path / "some.txt"
    lines = [line for line in probes.lines("agreement", longest=10, count=2000, seed=1) if "bank" not in line]
    data.write_text("\n".join(lines) + "\n")
    model = elman.train("lm", data, model="mkn", units="space", valid="none")
    found = model.explain(kind="reach", probe="agreement", distances="1,4", items=100)
    assert any("does not know bank, banks" in note for note in found.notes)
    assert any("of 200 sentences" in note for note in found.notes)
    rows = found.data["models"][0]["by_distance"]
    assert 0 < rows[0]["items"] < 100 and rows[0]["accuracy"] == 1  # the verb is right behind its noun


def test_a_model_of_letters_chooses_whole_words(tmp_path: Path) -> None:
    data = tmp_path / "some.txt"
    data.write_text("".join(f"{line}\n" for line in probes.lines("agreement", longest=1, count=2000, seed=1)))
    model = elman.train("lm", data, model="mkn", units="char", valid="none", settings={"model.order": 6})
    (row,) = model.explain(kind="reach", probe="agreement", distances="1").data["models"][0]["by_distance"]
    assert row["accuracy"] > 0.9
