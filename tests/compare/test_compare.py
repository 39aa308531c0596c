"""A comparison of tiny models: its numbers are those of `evaluate`, it goes on where it was stopped, failures are rows."""

from __future__ import annotations

import errno
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import elman
from elman.compare import Comparison, running
from elman.core.errors import DataError, UsageError, WriteError

WORDS = ["the", "a", "cat", "dog", "bird", "sat", "saw", "ran", "on", "in", "mat", "log", "tree", "and"]
MODELS = ["unigram", "bigram", "mkn", "lstm", "mkn+lstm+cache"]
TINY = {"model.hidden": 4, "train.steps": 3, "train.batch": 2, "data.units": "space"}


def write_text(path: Path, *, lines: int = 160, seed: int = 1) -> Path:
    """Lines in which each word depends on the one before."""
    rng = np.random.default_rng(seed)
    follow = rng.dirichlet(np.full(len(WORDS), 0.3), len(WORDS))
    written = []
    for _ in range(lines):
        words, word = [], int(rng.integers(len(WORDS)))
        for _ in range(int(rng.integers(4, 12))):
            words.append(WORDS[word])
            word = int(rng.choice(len(WORDS), p=follow[word]))
        written.append(" ".join(words))
    path.write_text("\n".join(written) + "\n")
    return path


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_text(tmp_path_factory.mktemp("texts") / "text.txt")


@pytest.fixture(scope="module")
def compared(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    out = tmp_path_factory.mktemp("compared") / "all"
    return elman.compare(text, out=out, models=MODELS, settings=TINY, threads=1)


def row(found: Comparison, name: str) -> dict[str, Any]:
    return next(one for one in found.data["models"] if one["name"] == name)


def test_what_is_returned_is_what_is_written(compared: Comparison) -> None:
    written = json.loads((compared.directory / "comparison.json").read_text())
    assert (
        written | {"seconds": compared.data["seconds"]} == compared.data
    )  # the call that is made again, below, adds to them
    assert [one["name"] for one in compared.data["models"]] == MODELS
    assert compared.data["failed"] == []
    assert compared.data["measured_on"] == "held out"


@pytest.mark.parametrize("name", MODELS)
def test_the_numbers_are_those_of_evaluate_on_the_test_text(compared: Comparison, name: str) -> None:
    found = row(compared, name)
    wanted = compared.load(name).evaluate(compared.data["data"]["test"])
    for key in ("perplexity", "perplexity_low", "nats_per_token", "bits_per_byte", "unknown_tokens"):
        assert found[key] == wanted[key]
    assert wanted["tokens"] == compared.data["data"]["test_tokens"]
    assert wanted["signature"] == compared.data["signature"]


def test_the_nats_of_every_token_are_kept_and_add_up(compared: Comparison) -> None:
    for name in MODELS:
        found = row(compared, name)
        nats = np.load(compared.directory / "scores" / f"{found['directory']}.npy")
        assert math.exp(nats.mean(dtype=np.float64)) == pytest.approx(found["perplexity"], rel=1e-6)
    for table in ("by_frequency", "by_position"):
        total = sum(one["tokens"] * one["nats"]["mkn"] for one in compared.data[table])
        assert total / compared.data["data"]["test_tokens"] == pytest.approx(row(compared, "mkn")["nats_per_token"])


def test_a_row_says_what_a_model_costs(compared: Comparison) -> None:
    for name in MODELS:
        found = row(compared, name)
        directory = compared.directory / found["directory"]
        assert found["bytes"] == sum(path.stat().st_size for path in directory.iterdir() if path.is_file())
        assert found["parameters"] == compared.load(name).info()["parameters"]
        assert found["ms_per_token_10"] > 0 and found["ms_per_token_1000"] > 0
        assert found["sample"]
    assert row(compared, "lstm")["state_bytes"] > row(compared, "mkn")["state_bytes"] > 0
    assert (row(compared, "mkn")["what"], row(compared, "lstm")["what"]) == ("4 tokens back", "all, gated")
    assert row(compared, "lstm")["tuned"] and not row(compared, "mkn")["tuned"]
    assert row(compared, "lstm")["curve"] and not row(compared, "mkn")["curve"]


def test_the_command_of_a_row_makes_its_model_again(compared: Comparison, tmp_path: Path) -> None:
    import shlex

    from elman.cli.app import run

    for name in ("mkn", "lstm"):
        words = shlex.split(row(compared, name)["command"])[1:]
        words[words.index("--out") + 1] = str(tmp_path / name)
        assert run([*words, "--threads", "1"]) == 0
        test = compared.data["data"]["test"]
        assert elman.load(tmp_path / name).evaluate(test)["perplexity"] == row(compared, name)["perplexity"]


def test_differences_are_of_every_pair_and_between_neighbours(compared: Comparison) -> None:
    found = {(one["a"], one["b"]): one for one in compared.data["differences"]}
    assert len(found) == len(MODELS) * (len(MODELS) - 1) // 2
    one = found["unigram", "bigram"]
    assert one["ratio"] == pytest.approx(row(compared, "unigram")["perplexity"] / row(compared, "bigram")["perplexity"])
    assert row(compared, "unigram")["significant_next"] == one["significant"]
    assert row(compared, MODELS[-1])["significant_next"] is None


def test_lines_gradients_and_weights_are_told(compared: Comparison) -> None:
    test = Path(compared.data["data"]["test"]).read_text().splitlines()
    assert compared.data["lines"]
    for one in compared.data["lines"]:
        assert one["text"] in test
        assert one["best"] == min(one["nats"], key=one["nats"].get)
    (gradients,) = compared.data["gradients"]
    assert gradients["model"] == "lstm"
    assert len(gradients["layers"][1]["by_distance"]) > 20
    (mixture,) = compared.data["mixtures"]
    assert list(mixture["weights"]) == ["mkn", "lstm", "cache"]
    assert sum(mixture["weights"].values()) == pytest.approx(1.0)


def test_mixture_weights_are_those_tuned_on_the_validation_text(compared: Comparison) -> None:
    parts: list[Any] = [compared.directory / "mkn", compared.directory / "lstm", "cache"]
    again = elman.mix(parts, valid=compared.data["data"]["valid"])
    assert list(compared.data["mixtures"][0]["weights"].values()) == pytest.approx(again.tensors()["weights"].tolist())


# ------------------------------------------------------------------------------------------------- stopped, and gone on


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the models that are trained or mixed."""
    made: list[str] = []
    for name in ("train", "mix"):
        original: Callable[..., Any] = getattr(running, name)

        def call(*arguments: Any, original: Callable[..., Any] = original, **options: Any) -> Any:
            made.append(Path(options["out"]).name)
            return original(*arguments, **options)

        monkeypatch.setattr(running, name, call)
    return made


def test_the_same_call_again_trains_nothing(compared: Comparison, text: Path, counted: list[str]) -> None:
    before = {key: value for key, value in compared.data.items() if key != "seconds"}
    again = elman.compare(text, out=compared.directory, models=MODELS, settings=TINY, threads=1)
    assert counted == []
    assert {key: value for key, value in again.data.items() if key != "seconds"} == before
    assert json.loads((compared.directory / "comparison.json").read_text()) == again.data


def test_a_comparison_that_was_stopped_goes_on(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    original = running.train

    def stop_at_mkn(*arguments: Any, **options: Any) -> Any:
        made.append(options["model"])
        if options["model"] == "mkn" and made.count("mkn") == 1:
            raise KeyboardInterrupt
        return original(*arguments, **options)

    monkeypatch.setattr(running, "train", stop_at_mkn)
    asked: dict[str, Any] = {"out": tmp_path / "c", "models": "unigram,bigram,mkn", "settings": {"data.units": "space"}}
    with pytest.raises(KeyboardInterrupt):
        elman.compare(text, **asked)
    written = json.loads((tmp_path / "c" / "comparison.json").read_text())
    assert [one["name"] for one in written["models"]] == ["unigram", "bigram"]
    assert len(written["differences"]) == 1
    found = elman.compare(text, **asked)
    assert made == ["unigram", "bigram", "mkn", "mkn"]
    assert [one["name"] for one in found.data["models"]] == ["unigram", "bigram", "mkn"]


def test_a_net_that_was_stopped_goes_on_from_its_checkpoint(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import signal

    asked: dict[str, Any] = {
        "out": tmp_path / "c",
        "models": "lstm",
        "settings": {**TINY, "train.steps": 40},
        "threads": 1,
    }
    whole = elman.compare(text, **(asked | {"out": tmp_path / "whole"}))

    def stop(progress: Any) -> None:
        if progress.step >= 10:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(elman.ElmanError, match=r"lstm: .*\nhint: the same command goes on"):
        elman.compare(text, **asked, on_progress=stop)
    resumed: list[Any] = []
    original = running.resume
    monkeypatch.setattr(running, "resume", lambda *a, **k: resumed.append(a) or original(*a, **k))  # type: ignore[func-returns-value]
    found = elman.compare(text, **asked)
    assert len(resumed) == 1
    assert row(found, "lstm")["perplexity"] == row(whole, "lstm")["perplexity"]


def test_another_comparison_is_not_written_over_unasked(text: Path, tmp_path: Path) -> None:
    out = tmp_path / "c"
    settings = {"data.units": "space"}
    elman.compare(text, out=out, models="unigram,bigram", settings=settings)
    with pytest.raises(
        WriteError, match="holds another comparison: its models is unigram, bigram, not mkn\nhint: over"
    ):
        elman.compare(text, out=out, models="mkn", settings=settings)
    with pytest.raises(WriteError, match="its seed is 1, not 2"):
        elman.compare(text, out=out, models="unigram,bigram", settings=settings, seed=2)
    other = write_text(tmp_path / "other.txt", lines=50, seed=3)
    with pytest.raises(WriteError, match="its fingerprints"):
        elman.compare(other, out=out, models="unigram,bigram", settings=settings)
    (out / "notes.txt").write_text("mine")
    found = elman.compare(text, out=out, models="mkn", settings=settings, overwrite=True)
    assert [one["name"] for one in found.data["models"]] == ["mkn"]
    assert sorted(path.name for path in out.iterdir()) == [
        "comparison.json",
        "mkn",
        "notes.txt",
        "report.html",
        "scores",
        "texts",
    ]


def test_a_directory_with_something_else_and_a_damaged_comparison_are_refused(text: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(WriteError, match="is not empty and holds no comparison"):
        elman.compare(text, out=tmp_path, models="mkn")
    (tmp_path / "comparison.json").write_text("{")
    with pytest.raises(DataError, match=r"comparison.json is damaged"):
        elman.compare(text, out=tmp_path, models="mkn")


# ------------------------------------------------------------------------------------------------------- what goes wrong


def test_a_model_that_fails_is_reported_and_the_others_go_on(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = running.train
    is_broken = [True]

    def fail(*arguments: Any, **options: Any) -> Any:
        if options["model"] == "bigram" and is_broken[0]:
            raise ZeroDivisionError("oh")
        if options["model"] == "unigram" and is_broken[0]:
            raise DataError("no words")
        return original(*arguments, **options)

    monkeypatch.setattr(running, "train", fail)
    asked: dict[str, Any] = {"out": tmp_path / "c", "models": "unigram,bigram,mkn,bigram+cache"}
    said: list[str] = []
    found = elman.compare(text, **asked, settings={"data.units": "space"}, report=said.append)
    assert found.data["failed"] == [
        {"name": "unigram", "error": "no words"},
        {"name": "bigram", "error": "a bug in elman: ZeroDivisionError: oh"},
        {"name": "bigram+cache", "error": "its member bigram failed"},
    ]
    assert "unigram failed: no words" in said
    assert row(found, "mkn")["perplexity"] > 1
    is_broken[0] = False
    again = elman.compare(text, **asked, settings={"data.units": "space"})  # what failed is tried again
    assert again.data["failed"] == []
    assert len(again.data["models"]) == 4


@pytest.mark.parametrize("full", ["a model", "its scores"])
def test_a_full_disk_stops_the_comparison_and_the_same_call_goes_on(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: str
) -> None:
    """It was a failure of one model after the other, with exit code 0, and the scores of one were half written."""
    is_full = [True]
    original_train, original_write, original_bytes = running.train, os.write, Path.write_bytes

    def train(*arguments: Any, **options: Any) -> Any:
        if options["model"] == "bigram" and is_full[0] and full == "a model":
            monkeypatch.setattr(os, "write", no_space)
        try:
            return original_train(*arguments, **options)
        finally:
            monkeypatch.setattr(os, "write", original_write)

    def no_space(descriptor: int, data: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    def write_half(path: Path, data: bytes) -> int:
        if is_full[0] and full == "its scores" and "bigram.npy" in path.name:
            original_bytes(path, data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        return original_bytes(path, data)

    monkeypatch.setattr(running, "train", train)
    monkeypatch.setattr(Path, "write_bytes", write_half)
    asked: dict[str, Any] = {"out": tmp_path / "c", "models": "unigram,bigram,mkn", "settings": {"data.units": "space"}}
    with pytest.raises(
        WriteError, match=r"bigram: cannot write .* no space left on device\n.*the same command goes on"
    ):
        elman.compare(text, **asked)
    written = json.loads((tmp_path / "c" / "comparison.json").read_text())
    assert [one["name"] for one in written["models"]] == ["unigram"]
    assert not list(tmp_path.rglob("*.new")) and not list(tmp_path.rglob("bigram.npy"))
    is_full[0] = False
    found = elman.compare(text, **asked)
    assert found.data["failed"] == [] and len(found.data["models"]) == 3


def test_models_of_different_vocabularies_are_refused(text: Path, tmp_path: Path) -> None:
    found = elman.compare(text, out=tmp_path / "c", models="mkn", sweep="data.units=space,char")
    assert row(found, "mkn units=space")["error"] is None
    assert "another vocabulary" in row(found, "mkn units=char")["error"]


def test_if_every_model_fails_there_is_no_comparison(text: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no model could be compared: the vocabulary is empty"):
        elman.compare(
            text, out=tmp_path / "c", models="mkn", settings={"data.units": "space", "data.min_count": 10_000}
        )


def test_an_impossible_token_is_no_number(text: Path, tmp_path: Path) -> None:
    settings = {"data.units": "space", "model.smoothing": "ml"}
    unseen = tmp_path / "unseen.txt"
    unseen.write_text("".join(f"{one} {two}\n" for one in WORDS for two in WORDS))
    found = elman.compare(text, test=unseen, out=tmp_path / "c", models="bigram,mkn", settings=settings)
    assert row(found, "bigram")["perplexity"] is None
    assert found.data["differences"] == []


@pytest.mark.parametrize(
    ("budget", "what"), [("5s", "too short for 2 nets\nhint: give at least 12 s"), ("x", "no duration")]
)
def test_a_budget_in_which_nothing_is_learned_is_refused(text: Path, tmp_path: Path, budget: str, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        elman.compare(text, out=tmp_path / "c", models="rnn,lstm", budget=budget)
    assert not (tmp_path / "c").exists()  # so a longer one finds nothing in its way


def test_a_text_that_is_too_short_leaves_nothing_in_the_way(text: Path, tmp_path: Path) -> None:
    short = write_text(tmp_path / "short.txt", lines=2)
    with pytest.raises(DataError, match="has 2 lines, too few"):
        elman.compare(short, out=tmp_path / "c", models="mkn")
    assert not (tmp_path / "c").exists()


def test_nothing_is_measured_on_what_it_was_trained_or_tuned_on(text: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.txt"
    copy.write_bytes(text.read_bytes())
    with pytest.raises(UsageError, match=r"test=... is the same text as DATA"):
        elman.compare(text, test=copy, out=tmp_path / "c", models="mkn")
    valid = write_text(tmp_path / "valid.txt", seed=2)
    with pytest.raises(UsageError, match=r"test=... is the same text as valid=..."):
        elman.compare(text, valid=valid, test=valid, out=tmp_path / "c", models="mkn")


def test_the_time_is_divided_among_the_nets_that_are_left() -> None:
    """Counting takes what it needs; an lstm gets three times what an rnn gets."""
    import time

    from elman.compare.request import Request, find_net_task, make_entries
    from elman.compare.texts import Parts

    task = find_net_task("lm")
    request = Request(task, make_entries(task, ["mkn", "rnn", "lstm", "rnn+lstm"], None), None, 100.0)
    state: dict[str, Any] = {"seconds": 20.0, "models": [], "sizes": {}}
    runner = running.Runner(
        request, Parts(("a",), "b", "c", "test"), Path("x"), state, time.monotonic(), print, lambda progress: None
    )
    _, rnn, lstm, _ = request.entries
    assert runner._seconds_for(request.entries[0]) is None
    # 20 of 100 s are spent, 6 are kept, a second for measuring each net, three for tuning the mixture
    state["models"].append({"name": "mkn", "error": None})
    assert runner._seconds_for(rnn) == pytest.approx((80 - 6 - 2 - 3) / 4, abs=0.5)
    state["models"].append({"name": "rnn", "error": None})
    assert runner._seconds_for(lstm) == pytest.approx(80 - 6 - 1 - 3, abs=0.5)
    runner.measuring_seconds = 5.0
    assert runner._seconds_for(lstm) == pytest.approx(80 - 6 - 5 - 15, abs=0.5)


# --------------------------------------------------------------------------------------------------- sweeps, other tasks


def test_a_sweep_puts_a_setting_on_the_axis_and_leaves_all_else_equal(text: Path, tmp_path: Path) -> None:
    settings = {"train.steps": 2, "data.units": "space"}
    found = elman.compare(
        text, out=tmp_path / "c", models="window", sweep="model.window=1,3", settings=settings, threads=1
    )
    sweep = found.data["sweep"]
    assert (sweep["setting"], sweep["equal"], [point["value"] for point in sweep["points"]]) == (
        "model.window",
        None,
        [1, 3],
    )
    one, three = (row(found, point["name"]) for point in sweep["points"])
    assert [point["perplexity"] for point in sweep["points"]] == [one["perplexity"], three["perplexity"]]
    different = {key for key in one["settings"] if one["settings"][key] != three["settings"][key]}
    assert different == {"window"}
    assert (one["what"], three["what"]) == ("1 token back", "3 tokens back")


def test_depth_against_width_has_about_equal_parameters(text: Path, tmp_path: Path) -> None:
    settings = {"train.steps": 1, "data.units": "space", "model.hidden": 40}
    asked: dict[str, Any] = {"models": "gru", "sweep": "model.layers=1,2,3", "equal": "parameters"}
    found = elman.compare(text, out=tmp_path / "c", **asked, settings=settings, threads=1)
    points = found.data["sweep"]["points"]
    sizes = [point["parameters"] for point in points]
    assert max(sizes) < 1.1 * min(sizes)
    widths = [row(found, point["name"])["settings"]["hidden"] for point in points]
    assert widths[0] == 40 > widths[1] > widths[2]


def test_classes_are_compared_beside_the_linear_baseline(tmp_path: Path) -> None:
    data = tmp_path / "labelled.tsv"
    data.write_text(
        "".join(f"{'good' if n % 2 else 'bad'}\t{'fine' if n % 2 else 'poor'} thing {n % 7}\n" for n in range(60))
    )
    settings = {"model.hidden": 4, "train.steps": 2}
    found = elman.compare(data, task="classify", out=tmp_path / "c", models="rnn,gru", settings=settings, threads=1)
    assert [one["name"] for one in found.data["models"]] == ["linear", "rnn", "gru"]
    assert row(found, "linear")["accuracy"] == row(found, "rnn")["linear_accuracy"] == 1.0
    assert row(found, "gru")["accuracy"] == found.load("gru").record.valid["accuracy"]
    assert found.data["differences"] == []


def test_pairs_are_compared_by_context_and_length(tmp_path: Path) -> None:
    paths = []
    for name, count in (("train", 40), ("test", 8)):
        path = tmp_path / f"{name}.tsv"
        path.write_text("".join(f"{'ab' * (n % 4 + 1)}\t{'ba' * (n % 4 + 1)}\n" for n in range(count)))
        paths.append(path)
    settings = {"model.hidden": 4, "train.steps": 2, "data.units": "char"}
    asked: dict[str, Any] = {"task": "seq2seq", "models": "initial,attention", "settings": settings, "threads": 1}
    found = elman.compare(paths[0], test=paths[1], out=tmp_path / "c", **asked)
    assert found.data["measured_on"] == "test"
    wanted = found.load("attention").evaluate(paths[1])
    for key in ("exact_match", "bleu", "by_length"):
        assert row(found, "attention")[key] == wanted[key]
    assert row(found, "initial")["settings"]["context"] == "initial"
