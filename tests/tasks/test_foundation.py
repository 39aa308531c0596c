"""A language model as the foundation of other tasks: what plain text taught it reaches those with few labels."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import elman
from elman.training.run import Run as TrainingRun
from tests.commands import Run

NOUNS, VERBS = [f"n{i}" for i in range(12)], [f"v{i}" for i in range(12)]
TAGS = dict.fromkeys(NOUNS, "N") | dict.fromkeys(VERBS, "V") | {"the": "D"}
TEXT = {"model.hidden": 12, "model.embedding": 12, "train.learning_rate": 0.02, "train.batch": 8, "train.epochs": 12}
LABELS = {"model.dropout": 0, "train.learning_rate": 0.01, "train.batch": 4, "train.epochs": 30}
KINDS = ("lm", "bilm", "masked")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Plain text in which places tell nouns from verbs, language models of it, and labels for half of the words."""
    folder = tmp_path_factory.mktemp("foundation")
    rng = np.random.default_rng(0)
    sentences = [["the", rng.choice(NOUNS), rng.choice(VERBS), "a", rng.choice(NOUNS)] for _ in range(400)]
    (folder / "text.txt").write_text("\n".join(map(" ".join, sentences)) + "\n")
    for kind in KINDS:
        model = "lstm" if kind == "lm" else None
        settings = {**TEXT, "model.layers": 1}
        train(kind, folder / "text.txt", settings, model=model, out=folder / kind, units="space", reset_lines=True)
    known, others = [*NOUNS[:6], *VERBS[:6]], [*NOUNS[6:], *VERBS[6:]]
    for name, words in (("train", [*known * 4, "the"]), ("test", others)):
        (folder / f"{name}.conll").write_text("\n\n".join(f"{word} {TAGS[word]}" for word in words) + "\n")
        (folder / f"{name}.labels").write_text("".join(f"{TAGS[word]}\t{word}\n" for word in words))
        (folder / f"{name}.tsv").write_text("".join(f"{word}\t{TAGS[word]}\n" for word in words))
        stories = [{"context": f"the {word} .", "question": f"what {word} ?", "answer": TAGS[word]} for word in words]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(story) + "\n" for story in stories))
    return folder


def train(task: str, data: Path, settings: dict[str, Any], **more: Any) -> Any:
    return elman.train(task, data, valid="none", settings=settings, threads=1, **more)


TASKS = {
    "tag": ("conll", {"model.characters": "none"}, "accuracy"),
    "classify": ("labels", {"model.baseline": "false", "data.min_count": 1}, "accuracy"),
    "qa": ("jsonl", {"model.answer": "word"}, "accuracy"),
    "seq2seq": ("tsv", {"data.units": "space", "data.min_count": 1}, "exact_match"),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("task", TASKS)
def test_few_labels_and_a_foundation_beat_few_labels_alone(folder: Path, task: str, kind: str) -> None:
    """Words without a label are told apart by what plain text taught: alone, a net can only guess."""
    ending, own, key = TASKS[task]
    settings = LABELS | own
    hidden = 24 if task == "seq2seq" else 12
    alone = train(task, folder / f"train.{ending}", {**settings, "model.hidden": hidden})
    founded = train(task, folder / f"train.{ending}", settings, init=folder / kind)
    assert alone.evaluate(folder / f"test.{ending}")[key] <= 0.6
    assert founded.evaluate(folder / f"test.{ending}")[key] > 0.8
    assert founded.record.model.hidden == hidden and founded.record.model.embedding == 12
    both = {"lm": "words and 1 forward layer"}.get(kind, "words, 1 forward layer and 1 backward layer")
    assert f"taken from {folder / kind}: {both}" in founded.record.notes


def test_what_is_taken_is_what_was_there_and_holds_still_at_first(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = elman.load(folder / "bilm")
    weights = base.tensors()
    moved: list[tuple[float, bool]] = []
    step = TrainingRun.step

    def watch(self: TrainingRun, rate: float, fraction: float, **more: Any) -> Any:
        found = step(self, rate, fraction, **more)
        net = self.model
        layer = net.reader.stack.stack.layers[0]  # type: ignore[attr-defined]
        pairs = [(layer.onward, "onward"), (layer.backward, "backward")]
        kept = all(
            np.array_equal(parameter.detach().numpy(), weights[f"{side}.stack.layers.0.{name}"])
            for part, side in pairs
            for name, parameter in part.named_parameters()
        )
        words = net.reader.embedding.weight.detach().numpy()  # type: ignore[attr-defined]
        number = base.tokenizer.tokens.index("n9")
        place = [i for i, row in enumerate(words) if np.array_equal(row, weights["onward.embedding.weight"][number])]
        moved.append((fraction, not (kept and place)))
        return found

    monkeypatch.setattr(TrainingRun, "step", watch)
    settings = LABELS | {"model.characters": "none", "train.freeze": 0.5, "train.epochs": 4}
    train("tag", folder / "train.conll", settings, init=folder / "bilm")
    assert {is_moved for fraction, is_moved in moved if fraction < 0.5} == {False}
    assert {is_moved for fraction, is_moved in moved if fraction >= 0.5} == {True}


def test_layers_that_read_both_ways_are_taken_all_and_others_as_far_as_they_fit(folder: Path, tmp_path: Path) -> None:
    quick = TEXT | {"train.epochs": 0.1, "model.layers": 2, "model.skip": "none"}
    for kind, model in (("lm", "gru"), ("masked", "gru")):
        train(kind, folder / "text.txt", quick, model=model, out=tmp_path / kind, units="space")
    few = LABELS | {"train.epochs": 0.1, "model.baseline": "false"}

    def note(init: str, **more: Any) -> tuple[str, int]:
        made = train("classify", folder / "train.labels", {**few, **more}, init=tmp_path / init)
        assert made.record.model.family == "gru"
        return made.record.notes[-1].removeprefix(f"taken from {tmp_path / init}: "), made.record.model.layers

    assert note("masked") == ("words, 2 forward layers and 2 backward layers", 2)
    assert note("masked", **{"model.layers": 1}) == ("words, 1 forward layer and 1 backward layer", 1)
    assert note("lm") == ("words and 1 forward layer", 1)
    assert note("lm", **{"model.bidirectional": "false"}) == ("words and 2 forward layers", 2)
    skips = {**quick, "model.skip": "residual"}
    train("masked", folder / "text.txt", skips, model="gru", out=tmp_path / "skips", units="space")
    assert note("skips") == ("words, 1 forward layer and 1 backward layer", 1)
    train("lm", folder / "text.txt", {**quick, "model.layer_norm": "true"}, model="gru", out=tmp_path / "n")
    made = train("classify", folder / "train.labels", {**few, "model.family": "rnn"}, init=tmp_path / "n")
    assert made.record.notes[-1] == f"taken from {tmp_path / 'n'}: words alone" and made.record.model.family == "rnn"


def test_layers_that_something_leads_past_are_not_taken_for_plain_ones(folder: Path, tmp_path: Path) -> None:
    """Dense connections make a second layer wider than the foundation's; a norm changes what the first one reads."""
    quick = TEXT | {"train.epochs": 0.1, "model.layers": 2, "model.skip": "none"}
    train("masked", folder / "text.txt", quick, model="gru", out=tmp_path / "masked", units="space")
    few = LABELS | TASKS["seq2seq"][1] | {"train.epochs": 0.1}

    def note(**more: Any) -> str:
        made = train("seq2seq", folder / "train.tsv", {**few, **more}, init=tmp_path / "masked")
        found: str = made.record.notes[-1]
        return found.partition(": ")[2]

    assert note() == "words, 2 forward layers and 2 backward layers"
    assert note(**{"model.skip": "dense"}) == "words, 1 forward layer and 1 backward layer"
    assert note(**{"model.layer_norm": "true"}) == "words alone"


def test_spelling_beside_the_words_is_read_by_a_foundation_too(folder: Path) -> None:
    made = train("tag", folder / "train.conll", LABELS | {"train.epochs": 3}, init=folder / "lm")
    assert made.net.spelling is not None
    assert made.evaluate(folder / "train.conll")["accuracy"] > 0.5


@pytest.mark.parametrize("task", TASKS)
def test_stopped_and_resumed_without_the_foundation_is_never_stopped(
    run: Run, folder: Path, tmp_path: Path, cut_short: Callable[..., None], task: str
) -> None:
    """Stopped before its first checkpoint, it goes on from the words and cells it was given, not from random ones."""
    ending, own, _ = TASKS[task]
    shutil.copytree(folder / "bilm", tmp_path / "bilm")
    settings = LABELS | own | {"train.epochs": 2, "train.checkpoint_seconds": 1000, "train.freeze": 0.4}
    arguments = ["train", task, folder / f"train.{ending}", "--valid", "none", "--threads", 1]
    arguments += [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    arguments += ["--init", tmp_path / "bilm"]
    whole = run(*arguments, "--out", tmp_path / "whole")
    assert whole.code == 0, whole.err
    cut_short(*arguments, "--out", tmp_path / "cut")
    shutil.rmtree(tmp_path / "bilm")
    one, other = elman.resume(tmp_path / "cut"), elman.load(tmp_path / "whole")
    for name, array in other.tensors().items():
        assert np.array_equal(array, one.tensors()[name]), name


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (["--set", "model.hidden=64"], "model.hidden=64 does not fit", "leave it out"),
        (["--set", "model.embedding=7"], "model.embedding=7 does not fit", "leave it out"),
        (["--model", "gru"], "model.family=gru does not fit", "leave it out"),
        (["--units", "char"], "data.units=char does not fit", "leave it out"),
        (["--set", "model.vectors=v.txt"], "both give words their vectors", "leave one of them out"),
    ],
)
def test_settings_that_do_not_fit_are_refused_at_once(
    run: Run, folder: Path, tmp_path: Path, words: list[str], message: str, hint: str
) -> None:
    arguments = ["train", "classify", tmp_path / "nothing-is-read", "--init", folder / "lm", "--out", tmp_path / "m"]
    found = run(*arguments, *words)
    assert found.code == 2 and message in found.err and hint in found.err, found.err
    assert not (tmp_path / "m").exists()


def test_models_that_are_no_foundation_are_refused(run: Run, folder: Path, model: Path, tmp_path: Path) -> None:
    quick = TEXT | {"train.epochs": 0.1}
    train("lm", folder / "text.txt", quick, model="transformer", out=tmp_path / "t", units="space")
    train("lm", folder / "text.txt", quick, model="lstm", out=tmp_path / "c", units="char")
    train("classify", folder / "train.labels", LABELS | {"train.epochs": 0.1}, out=tmp_path / "k")
    for init, message in (
        (model, "holds a mkn, which has no cells to give"),
        (tmp_path / "t", "holds a transformer, which has no cells to give"),
        (tmp_path / "k", "holds a model for classify, which is no foundation"),
        (tmp_path / "c", "reads char units, and the words of tag are not its symbols"),
    ):
        found = run("train", "tag", folder / "train.conll", "--init", init, "--out", tmp_path / "m")
        assert found.code == 2 and message in found.err, found.err
        assert "hint:" in found.err and not (tmp_path / "m").exists()
    found = run("train", "tag", folder / "train.conll", "--set", "train.freeze=0.5", "--out", tmp_path / "m")
    assert found.code == 2 and "train.freeze does not apply to tag" in found.err
    found = run("train", "masked", folder / "text.txt", "--init", folder / "lm", "--out", tmp_path / "m")
    assert found.code == 2 and "--init does not apply to masked" in found.err
