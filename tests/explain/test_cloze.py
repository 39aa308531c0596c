"""Cloze: what stands in a gap, by models of either side; and how many facts are known, counted again by hand."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import elman
from elman.core.errors import DataError, UsageError
from elman.explain import explain
from elman.text.units.vocabulary import EOS_ID, UNK_ID
from tests.explain.test_saliency import TINY

PLACES = {"france": "paris", "spain": "madrid", "italy": "rome"}
TEXT = "".join(
    f"the capital of {land} is {town} .\n{town} is a town in {land} .\n{land} has a town .\n"
    for land, town in PLACES.items()
)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("cloze")
    data, other = folder / "text.txt", folder / "other.txt"
    data.write_text(TEXT * 20)
    other.write_text("".join(line + "\n" for line in (TEXT * 20).splitlines() if "italy" not in line))

    def make(task: str, name: str, text: Path, **more: Any) -> Any:
        return elman.train(task, text, valid="none", out=folder / name, **more)

    return {
        "mkn": make("lm", "mkn", data, model="mkn"),
        "small": make("lm", "small", other, model="mkn", settings={"model.order": 2}),
        "lstm": make("lm", "lstm", data, model="lstm", epochs=3, settings=TINY),
        "bilm": make("bilm", "bilm", data, epochs=3, settings=TINY),
        "masked": make("masked", "masked", data, epochs=3, settings=TINY),
        "words": make("lm", "words", data, model="mkn", settings={"data.units": "word"}),
    }


def by_hand(model: Any, before: str, behind: str) -> np.ndarray:
    """Log-probabilities of every symbol in a gap, a token at a time."""
    ids = [model.tokenizer.encode(part.strip()).tolist() for part in (before, behind)]
    if model.record.task == "masked":
        tokens = np.array([[*ids[0], UNK_ID, *ids[1], EOS_ID]])
        is_hidden = np.arange(tokens.shape[1])[None] == len(ids[0])
        return model.net.predict(tokens, np.array([tokens.shape[1]]), is_hidden)[0]
    if model.record.task == "bilm":
        return (step(model.net.onward, ids[0]) + step(model.net.backward, ids[1][::-1])) / 2
    return step(model.lm, ids[0])


def step(lm: Any, tokens: list[int]) -> np.ndarray:
    state = lm.start(1)
    for token in tokens:
        state = lm.advance(np.array([token]), state)
    return lm.predict(state)[0]


@pytest.mark.parametrize("name", ["mkn", "lstm", "bilm", "masked"])
@pytest.mark.parametrize("mask", ["[MASK]", "<mask>"])
def test_words_are_ranked_by_the_log_probabilities_of_the_model(models: dict[str, Any], name: str, mask: str) -> None:
    model = models[name]
    found = model.explain(f"the capital of {mask} is rome .", kind="cloze", best=100).data["texts"][0]
    wanted = by_hand(model, "the capital of", "is rome .")
    words = found["models"][0]["words"]
    assert len(words) == model.tokenizer.vocab_size - 2 == found["common_words"]
    for word in words:
        assert word["log_prob"] == pytest.approx(wanted[model.tokenizer.tokens.index(word["word"])], abs=1e-4)
    assert [word["log_prob"] for word in words] == sorted((word["log_prob"] for word in words), reverse=True)


def test_a_gap_makes_cloze_the_usual_kind(models: dict[str, Any]) -> None:
    for model in models.values():
        assert model.explain("the capital of [MASK] is rome .").kind == "cloze"
        assert model.explain("the capital of italy is rome .").kind != "cloze"


def test_units_with_spaces_give_words_as_they_are_written(models: dict[str, Any]) -> None:
    found = models["words"].explain("the capital of spain is [MASK].", best=3).data["texts"][0]["models"][0]
    assert found["words"][0]["word"] == "madrid"
    assert models["words"].next("the capital of spain is", k=1)[0][1] == pytest.approx(
        np.exp(found["words"][0]["log_prob"]), rel=1e-4
    )


@pytest.mark.parametrize("name", ["mkn", "lstm"])
def test_whole_sentences_are_scored_as_score_does(models: dict[str, Any], name: str) -> None:
    model = models[name]
    found = model.explain("the capital of [MASK] is rome .", method="sentence", candidates=0, best=100)
    words = found.data["texts"][0]["models"][0]["words"]
    for word in words:
        wanted = -model.score(f"the capital of {word['word']} is rome .").nats
        assert word["log_prob"] == pytest.approx(wanted, abs=1e-3)
    assert len(words) == model.tokenizer.vocab_size - 2
    assert any("every common word" in note for note in found.notes)
    if name == "mkn":
        assert words[0]["word"] == "italy"  # what stands behind the gap decides
        few = model.explain("the capital of [MASK] is rome .", method="sentence", candidates=4)
        assert len(few.data["texts"][0]["models"][0]["words"]) == 4


def test_several_models_are_ranked_over_the_words_that_all_know(models: dict[str, Any]) -> None:
    found = explain([models["mkn"], models["small"], models["bilm"]], ["the capital of spain is [MASK] ."])
    assert "italy" not in models["small"].tokenizer.tokens
    for one in found.data["texts"][0]["models"]:
        words = {word["word"] for word in one["words"]}
        assert words <= set(models["small"].tokenizer.tokens) and "rome" not in words
    assert len(found.picture["concat"]) == 3
    assert max(len(line) for line in str(found).splitlines()) <= 100
    assert any("all models know" in note for note in found.notes) and found.to_png()[:4] == b"\x89PNG"


# --------------------------------------------------------------------------------------------------------------- facts


def write_facts(path: Path) -> list[tuple[str, str, str, str]]:
    rows = [("P36", land, town, f"the capital of {land} is [MASK] .") for land, town in PLACES.items()]
    rows += [("P17", town, land, f"{town} is a town in [MASK] . [MASK]") for land, town in PLACES.items()]
    rows += [("P17", "oslo", "norway", "oslo is a town in [MASK] ."), ("P36", "italy", "old rome", "[MASK] is a town")]
    rows += [("P17", "rome", "italy", "rome is a town in italy ."), ("P17", "x", "italy", "[MASK] has a town .")]
    path.write_text("".join("\t".join(row) + "\n" for row in rows))
    return rows


def numbers_by_hand(model: Any, rows: list[tuple[str, str, str, str]], common: set[str]) -> dict[str, list[float]]:
    tokens = list(model.tokenizer.tokens)
    ids = [tokens.index(word) for word in common]
    ranks = defaultdict(list)
    for relation, _, answer, sentence in rows:
        if answer not in common or "[MASK]" not in sentence:
            continue
        before, behind = sentence.split("[MASK]", 1)
        log_probs = by_hand(model, before, behind.replace("[MASK]", "zebra"))
        rank = int((log_probs[ids] >= log_probs[tokens.index(answer)]).sum())
        ranks[relation].append(rank)
        ranks["all"].append(rank)
    return {
        name: [
            len(some),
            np.mean([r == 1 for r in some]),
            np.mean([r <= 10 for r in some]),
            np.mean([1 / r for r in some]),
        ]
        for name, some in ranks.items()
    }


def numbers_of(row: dict[str, Any]) -> list[float]:
    return [row[key] for key in ("facts", "p_at_1", "p_at_10", "mrr")]


def test_facts_are_counted_as_by_hand_over_common_words(models: dict[str, Any], tmp_path: Path) -> None:
    rows = write_facts(tmp_path / "facts.tsv")
    chosen = [models[name] for name in ("mkn", "small", "lstm", "bilm")]
    found = explain(chosen, [], kind="cloze", options={"facts": str(tmp_path / "facts.tsv")})
    common = set.intersection(*(set(model.tokenizer.tokens) for model in chosen)) - {"<unk>", "</s>"}
    assert found.data["common_words"] == len(common)
    assert found.data["left_out"] == {"no_gap": 1, "object_not_one_common_word": 5}
    assert found.data["asked"] == len(rows) - 6
    for model, row in zip(chosen, found.data["models"], strict=True):
        wanted = numbers_by_hand(model, rows, common)
        assert numbers_of(row) == pytest.approx(wanted["all"])
        assert set(row["relations"]) == {"P17", "P36"}
        for relation, numbers in row["relations"].items():
            assert numbers_of(numbers) == pytest.approx(wanted[relation])
    assert found.data["models"][0]["p_at_1"] >= 0.5  # most of it stands in the training text
    assert any("left out: 1 have no sentence" in note for note in found.notes)
    assert "P@1" in str(found) and found.to_png()[:4] == b"\x89PNG"


def test_the_masked_model_is_asked_with_all_gaps_hidden(models: dict[str, Any], tmp_path: Path) -> None:
    rows = [row for row in write_facts(tmp_path / "facts.tsv") if row[3].count("[MASK]") == 1]
    (tmp_path / "one.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
    row = models["masked"].explain(kind="cloze", facts=tmp_path / "one.tsv").data["models"][0]
    common = set(models["masked"].tokenizer.tokens) - {"<unk>", "</s>"}
    assert numbers_of(row) == pytest.approx(numbers_by_hand(models["masked"], rows, common)["all"])


def test_whole_sentences_rank_facts_exactly(models: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "f.tsv").write_text(
        "".join(f"P\tx\t{land}\tthe capital of [MASK] is {town} .\n" for land, town in PLACES.items())
    )
    by_prefix = models["mkn"].explain(kind="cloze", facts=tmp_path / "f.tsv").data["models"][0]
    by_sentence = models["mkn"].explain(kind="cloze", facts=tmp_path / "f.tsv", method="sentence").data["models"][0]
    assert by_prefix["p_at_1"] < by_sentence["p_at_1"] == 1.0


def test_lama_files_and_templates_are_read(models: dict[str, Any], tmp_path: Path) -> None:
    facts = [
        {
            "obj_label": town,
            "sub_label": land,
            "predicate_id": "P36",
            "evidences": [{"masked_sentence": "[MASK] is a town ."}],
        }
        for land, town in PLACES.items()
    ]
    (tmp_path / "f.jsonl").write_text("".join(json.dumps(fact) + "\n" for fact in facts))
    (tmp_path / "relations.jsonl").write_text(
        json.dumps({"relation": "P36", "template": "the capital of [X] is [Y] .", "label": "capital of"}) + "\n"
    )
    own = models["mkn"].explain(kind="cloze", facts=tmp_path / "f.jsonl").data["models"][0]
    made = models["mkn"].explain(kind="cloze", facts=tmp_path / "f.jsonl", templates=tmp_path / "relations.jsonl")
    assert made.data["names"] == {"P36": "capital of"} and "P36 capital of" in str(made)
    assert own["p_at_1"] == pytest.approx(0) or own["p_at_1"] < 1
    assert made.data["models"][0]["p_at_1"] == 1.0
    google = {"obj_label": "rome", "pred": "/place", "masked_sentences": ["the capital of italy is [MASK] ."]}
    (tmp_path / "g.jsonl").write_text(json.dumps(google) + "\n")
    assert models["mkn"].explain(kind="cloze", facts=tmp_path / "g.jsonl").data["models"][0]["p_at_1"] == 1.0


def test_case_can_be_folded(models: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "f.tsv").write_text("P36\tItaly\tRome\tThe capital of Italy is [MASK] .\n")
    with pytest.raises(DataError, match=r"nothing of .* can be asked: 1 have an object that is not one common word"):
        models["mkn"].explain(kind="cloze", facts=tmp_path / "f.tsv")
    assert models["mkn"].explain(kind="cloze", facts=tmp_path / "f.tsv", lower=True).data["models"][0]["p_at_1"] == 1.0


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("f.tsv", "subject\tobject\na\tb\n", r"line 1 of .* has other columns \(2\): 'subject', 'object'"),
        ("f.tsv", "relation\tsubject\tobject\tsentence\n", "'relation', 'subject', 'object', 'sentence'"),
        ("f.jsonl", '{"question": "?", "answer": 1}\n', "other keys than a fact: question, answer"),
        ("f.jsonl", '{"question": \n', "is not JSON"),
        ("f.tsv", "\n", "holds no facts"),
    ],
)
def test_a_file_with_other_columns_is_an_error_that_names_them(
    models: dict[str, Any], tmp_path: Path, name: str, content: str, message: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=message):
        models["mkn"].explain(kind="cloze", facts=tmp_path / name)


def test_what_cannot_be_asked_is_refused(models: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no <mask>"):
        models["mkn"].explain("the capital of italy is rome .", kind="cloze")
    with pytest.raises(UsageError, match="there is no <mask>"):
        models["mkn"].explain("", kind="cloze")
    with pytest.raises(UsageError, match="cloze needs a text"):
        models["mkn"].explain(kind="cloze")
    with pytest.raises(UsageError, match="masked reads both sides"):
        models["masked"].explain("the [MASK] .", kind="cloze", method="sentence")
    with pytest.raises(elman.ElmanError, match=r"nothing\.tsv"):
        models["mkn"].explain(kind="cloze", facts=tmp_path / "nothing.tsv")
    found = models["mkn"].explain("the zebra of [MASK]")
    assert any("does not know 1 of the words" in note for note in found.notes)
