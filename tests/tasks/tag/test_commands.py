"""Tagging by the command line: trained, resumed, used, measured; and every bad file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import elman
from elman.cli.app import run as run_arguments
from elman.core.errors import UsageError
from elman.tasks.tag.model import Tagger
from tests.commands import Run

SMALL = ["--set", "model.hidden=16", "--set", "model.dropout=0", "--set", "train.batch=20", "--threads", "1"]
TAGS = {"the": "DET", "a": "DET", "cat": "NOUN", "dog": "NOUN", "house": "NOUN", "sees": "VERB", "likes": "VERB"}


def make_sentences(count: int, seed: int) -> list[list[tuple[str, str]]]:
    """The cat sees a dog; persons of two words are entities, and unknown words that end in -ing are verbs."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        words = ["the", str(rng.choice(["cat", "dog", "house"])), str(rng.choice(["sees", "likes"])), "a"]
        words.append(str(rng.choice(["cat", "dog"])))
        sentence = [(word, TAGS[word]) for word in words]
        if rng.random() < 0.5:
            sentence.append(("".join(rng.choice(list("bdgklm"), size=4)) + "ing", "VERB"))
        found.append(sentence)
    return found


def conllu(sentences: list[list[tuple[str, str]]]) -> str:
    rows = [
        "".join(f"{i}\t{w}\t_\t{t}\t_\t_\t_\t_\t_\t_\n" for i, (w, t) in enumerate(sentence, start=1))
        for sentence in sentences
    ]
    return "".join(f"# sent_id = {n}\n{row}\n" for n, row in enumerate(rows))


def columns(count: int, seed: int) -> str:
    rng = np.random.default_rng(seed)
    names = ["Ann Lee", "Bo", "Cy Poe Fox"]
    rows = []
    for _ in range(count):
        name = names[rng.integers(3)].split()
        marked = [f"{word} {'B' if i == 0 else 'I'}-PER" for i, word in enumerate(name)]
        rows.append("\n".join(["today O", *marked, "slept O"]))
    return "-DOCSTART- O\n\n" + "\n\n".join(rows) + "\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tags")
    (folder / "train.conllu").write_text(conllu(make_sentences(200, 0)))
    (folder / "valid.conllu").write_text(conllu(make_sentences(30, 1)))
    (folder / "train.txt").write_text(columns(120, 0))
    (folder / "valid.txt").write_text(columns(20, 1))
    files = [str(folder / "train.conllu"), "--valid", str(folder / "valid.conllu")]
    assert run_arguments(["train", "tag", *files, "--out", str(folder / "pos"), "--epochs", "8", *SMALL]) == 0
    files = [str(folder / "train.txt"), "--valid", str(folder / "valid.txt"), "--set", "model.characters=cnn"]
    assert run_arguments(["train", "tag", *files, "--out", str(folder / "spans"), "--epochs", "10", *SMALL]) == 0
    return folder


def test_it_learns_and_its_numbers_are_those_of_evaluate(run: Run, folder: Path) -> None:
    kept = json.loads((folder / "pos" / "config.json").read_text())
    assert kept["valid"]["accuracy"] > 0.97
    assert kept["model"]["output"] == "softmax"
    found = run("evaluate", folder / "pos", folder / "valid.conllu", "--json").json
    for key in ("accuracy", "f1", "tokens", "by_label"):
        assert found[key] == kept["valid"][key], key
    shown = run("evaluate", folder / "pos", folder / "valid.conllu", "--picture", folder / "c.svg")
    assert "{" not in run("info", folder / "pos").out
    assert "NOUN" in shown.out and (folder / "c.svg").read_text().startswith("<svg")


def test_the_journal_has_the_errors_the_weights_are_chosen_by(folder: Path) -> None:
    lines = [json.loads(line) for line in (folder / "pos" / "metrics.jsonl").read_text().splitlines()]
    errors = [line["valid_error"] for line in lines if "valid_error" in line]
    kept = json.loads((folder / "pos" / "config.json").read_text())
    assert min(errors) == pytest.approx(1 - kept["valid"]["accuracy"])


def test_a_line_of_words_is_a_line_of_tags(run: Run, folder: Path) -> None:
    found = run("predict", folder / "pos", stdin=b"the dog sees a cat\n\nbdbding\n")
    lines = found.out.split("\n")
    assert lines[0] == "DET NOUN VERB DET NOUN"
    assert lines[1] == "" and len(lines) == 4
    assert len(lines[2].split()) == 1


def test_json_has_probabilities_that_are_those_of_the_tags(run: Run, folder: Path) -> None:
    record = run("predict", folder / "spans", "--json", stdin=b"today Ann Lee slept\n").json
    assert record["tags"] == ["O", "B-PER", "I-PER", "O"]
    assert all(0.5 < share <= 1 for share in record["probabilities"])
    assert record["distributions"][1]["B-PER"] == record["probabilities"][1]


def test_a_conllu_file_comes_back_with_its_column_filled(run: Run, folder: Path) -> None:
    text = (folder / "valid.conllu").read_text()
    blank = folder / "blank.conllu"
    blank.write_text("".join(line.replace("\tNOUN\t", "\t_\t") + "\n" for line in text.removesuffix("\n").split("\n")))
    assert run("predict", folder / "pos", blank).out == text


def test_spans_keep_to_their_scheme_and_are_counted_whole(run: Run, folder: Path) -> None:
    kept = json.loads((folder / "spans" / "config.json").read_text())
    assert (kept["model"]["output"], kept["model"]["scheme"]) == ("crf", "bio")
    assert kept["valid"]["f1"] > 0.9
    assert [row["label"] for row in kept["valid"]["by_label"]] == ["PER"]
    found = run("predict", folder / "spans", folder / "train.txt")
    assert found.out.startswith("-DOCSTART- O\n\ntoday O\n")


def test_from_python(folder: Path) -> None:
    model = elman.load(folder / "pos")
    assert isinstance(model, Tagger)
    assert model.predict("the cat likes a dog") == "DET NOUN VERB DET NOUN"
    assert model.predict(["the cat", ""]) == ["DET NOUN", ""]
    assert model.predict([["the", "cat"], []]) == [["DET", "NOUN"], []]
    assert model.predict(["cat"]) == ["NOUN"]
    with pytest.raises(UsageError) as caught:  # once two sentences, each tagged without the other word
        model.predict(["the", "cat"])
    assert "may be the words of one sentence" in caught.value.what and "predict([words])" in str(caught.value)
    with pytest.raises(UsageError, match="is not a list of words"):
        model.predict([["the", "cat"], "the cat"])


def test_a_sentence_of_five_thousand_words_is_tagged(folder: Path) -> None:
    model = elman.load(folder / "spans")
    assert isinstance(model, Tagger)
    assert len(model.tag([["today"] * 5000])[0].tags) == 5000


def test_tags_never_seen_in_training_are_wrong_and_named(run: Run, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "new.conllu"
    path.write_text(conllu([[("the", "DET"), ("cat", "ANIMAL")]]))
    found = run("evaluate", folder / "pos", path, "--json").json
    assert found["accuracy"] == 0.5
    assert found["unseen_labels"] == ["ANIMAL"]


def test_tags_that_break_their_scheme_are_learnt_as_they_are_and_said(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "odd.txt"
    path.write_text("a O\nb I-X\n\nc B-X\nd I-X\n\n" * 30)
    found = run("train", "tag", path, "--out", tmp_path / "m", "--epochs", "1", *SMALL)
    assert found.code == 0
    assert f"do not keep to BIO (the first at line 2 of {path})" in found.err
    assert json.loads((tmp_path / "m" / "config.json").read_text())["model"]["scheme"] == "none"
    refused = run("train", "tag", path, "--out", tmp_path / "n", "--set", "model.scheme=bio", *SMALL)
    assert refused.code == 65 and "line 2 of" in refused.err


@pytest.mark.parametrize(
    ("text", "more", "code", "message"),
    [
        ("a X\nb X\n\nc X\n", [], 65, "every word has the same tag"),
        ("a X\nb\n", [], 65, "line 2 of"),
        ("", [], 65, "no sentences"),
        ("a X\nb Y\n", ["--set", "train.bptt=10"], 2, "train.bptt does not apply to tag"),
        ("a X\nb Y\n", ["--set", "model.output=softmax", "--set", "model.scheme=bio"], 2, "scheme is for output=crf"),
        ("a X\nb Y\n", ["--units", "char"], 2, "data.units is not a setting"),
    ],
)
def test_what_cannot_be_is_refused(
    run: Run, tmp_path: Path, text: str, more: list[str], code: int, message: str
) -> None:
    path = tmp_path / "data.txt"
    path.write_text(text)
    found = run("train", "tag", path, "--out", tmp_path / "m", "--valid", "none", "--epochs", "1", *SMALL, *more)
    assert found.code == code
    assert message in found.err


def test_options_of_translation_are_refused(run: Run, folder: Path) -> None:
    assert run("predict", folder / "pos", "--beam", "3", stdin=b"a\n").code == 2
    assert run("evaluate", folder / "pos", folder / "valid.conllu", "--beam", "3").code == 2
    assert "there is no format" in run("predict", folder / "pos", "--format", "xml", stdin=b"a\n").err


def test_vectors_reach_words_that_training_never_saw(run: Run, folder: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    noun, verb = rng.normal(size=6), rng.normal(size=6)
    rows = dict.fromkeys(("cat", "dog", "house", "horse"), noun) | {"sees": verb, "likes": verb, "hears": verb}
    lines = [f"{word} {' '.join(f'{x:.4f}' for x in vector)}" for word, vector in rows.items()]
    (tmp_path / "v.txt").write_text("\n".join(lines) + "\n")
    settings = ["--set", f"model.vectors={tmp_path / 'v.txt'}", "--set", "model.characters=none"]
    settings += ["--set", "model.tune_vectors=false"]
    made = run("train", "tag", folder / "train.conllu", "--out", tmp_path / "m", "--epochs", "12", *SMALL, *settings)
    assert made.code == 0 and "vectors for 7 of" in made.err
    out = run("predict", tmp_path / "m", stdin=b"the HORSE hears a Dog\n").out
    assert out == "DET NOUN VERB DET NOUN\n"


def test_stopped_and_resumed_is_never_stopped(
    run: Run, folder: Path, tmp_path: Path, cut_short: Callable[..., None]
) -> None:
    arguments = ["train", "tag", folder / "train.txt", "--epochs", "2", *SMALL, "--set", "train.checkpoint_steps=3"]
    assert run(*arguments, "--out", tmp_path / "whole").code == 0
    cut_short(*arguments, "--out", tmp_path / "cut")
    assert elman.resume(tmp_path / "cut").record.valid == elman.load(tmp_path / "whole").record.valid
    one, other = (elman.load(tmp_path / name).net.tensors() for name in ("whole", "cut"))  # type: ignore[union-attr]
    assert all(np.array_equal(one[name], other[name]) for name in one)
