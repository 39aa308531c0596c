"""`elman demo`: the main job, on the corpus that is on every machine."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from elman.cli import demo, demo_names
from tests.commands import Run


def test_no_name_is_in_two_parts(tmp_path: Path) -> None:
    paths = demo_names.write_names(tmp_path, seed=1)
    targets = {part: [line.split("\t")[1] for line in path.read_text().splitlines()] for part, path in paths.items()}
    assert {part: len(names) for part, names in targets.items()} == demo_names.NUM_NAMES
    assert not set(targets["train"]) & (set(targets["valid"]) | set(targets["test"]))
    assert demo_names.SOURCE == "rnommuudloutsv"


@pytest.fixture(name="by_steps")
def fixture_by_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nets by steps, not by time, so that a busy machine trains them as far as an idle one."""
    steps = {"train.steps": 250, "model.hidden": 64, "train.batch": 20, "train.bptt": 20}

    def shorten(entry: demo.Entry) -> demo.Entry:
        return replace(entry, budget=None, settings={**entry.settings, **steps}) if entry.budget else entry

    monkeypatch.setattr(demo, "ENTRIES", {name: shorten(entry) for name, entry in demo.ENTRIES.items()})
    masked = {**demo.MASKED.settings, "train.steps": 500}
    monkeypatch.setattr(demo, "MASKED", replace(demo.MASKED, budget=None, settings=masked))
    monkeypatch.setattr(demo, "HEAD_BUDGET", None)
    monkeypatch.setattr(demo, "HEAD_SETTINGS", steps)


def test_the_quick_demo_compares_a_few_models(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = {"train.steps": 200, "model.hidden": 64, "train.batch": 20, "train.bptt": 20}
    lstm = replace(demo.QUICK["lstm"], budget=None, settings=steps)
    monkeypatch.setattr(demo, "QUICK", {**demo.QUICK, "lstm": lstm})
    done = run("demo", "--quick", "--json", "--out", tmp_path / "demo")
    assert done.code == 0, done.err
    perplexity = {row["name"]: row["perplexity"] for row in done.json["models"]}
    assert list(perplexity) == [*demo.QUICK, "mkn+lstm+cache"]
    assert perplexity["uniform"] > perplexity["unigram"] > perplexity["bigram"] > perplexity["mkn"]
    assert perplexity["mkn+lstm+cache"] < perplexity["mkn"]
    assert run("next", tmp_path / "demo" / "mkn-lstm-cache", "The value of the").code == 0


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.usefixtures("by_steps")
def test_the_demo_compares_every_family_and_better_models_are_better(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = run("demo", "--out", tmp_path / "demo")
    assert done.code == 0, done.err
    assert "\x1b" not in done.out  # no colours where there is no terminal
    lines = done.out.splitlines()
    assert max(map(len, lines)) <= 80
    perplexity = {}
    for name in [*demo.ENTRIES, *demo.MIXTURES, demo.DYNAMIC, *demo.HEADS]:
        row = next(line for line in lines if line.startswith(f"  {name}  "))
        perplexity[name] = float(re.findall(r"[\d,]+\.\d+", row)[0].replace(",", ""))
    for name in [*demo.ENTRIES, *demo.MIXTURES]:
        assert f"\n{name}\nThe" in done.out.replace("\n  ", "\n"), f"a sample of {name}"
    order = ["uniform", "unigram", "bigram", "ngram", "kn", "mkn", "mkn+cache"]
    assert [perplexity[name] for name in order] == sorted((perplexity[name] for name in order), reverse=True)
    nets = [name for name, entry in demo.ENTRIES.items() if "train.steps" in entry.settings]
    assert len(nets) == 7 and all(perplexity[name] < perplexity["unigram"] for name in nets)
    assert perplexity["rnn+maxent"] < perplexity["rnn"]
    assert perplexity["mkn+lstm+cache"] < perplexity["mkn"]
    assert perplexity[demo.DYNAMIC] < perplexity["mkn+cache"]
    (backward,) = re.findall(r"bilm +perplexity ([\d.]+) forward \(as above\), [\d.]+ backward", done.out)
    assert float(backward) == perplexity["bilm forward"]
    (accuracy,) = re.findall(r"masked +([\d.]+)% of hidden words restored; pseudo-perplexity", done.out)
    assert float(accuracy) > 15  # always the most frequent word: 5
    assert demo.GAPS in done.out
    assert re.search(r' If the [^<\s]+ is not a [^<\s]+, a "TypeError" is [^<\s]+\.\s', done.out)
    right = {}
    for context in demo_names.CONTEXTS:
        row = next(line for line in lines if line.startswith(f"  {context}  "))
        right[context] = float(re.findall(r"([\d.]+)%", row)[0])
    assert right["attention"] > max(50, right["initial"])
    assert (tmp_path / "demo" / demo_names.PICTURE).read_text().startswith("<svg")
    assert run("next", tmp_path / "demo" / "mkn", "The value of the").code == 0


def test_seed_and_threads_reach_every_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, object]] = []
    monkeypatch.setattr("elman.api.train", lambda task, data, **options: asked.append(options))
    texts = {"train": tmp_path, "valid": tmp_path}
    demo._train(demo.MASKED, texts, tmp_path, demo.RunOptions(seed=3, threads=2))
    assert [(options["seed"], options["threads"]) for options in asked] == [(3, 2)]
