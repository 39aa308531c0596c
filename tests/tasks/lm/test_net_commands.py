"""Nets by the command line: trained, stopped, gone on with, fine-tuned, mixed; and every wrong way to ask for one."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.commands import Run

SMALL = ["--set", "model.hidden=8", "--set", "model.head=full", "--set", "train.batch=4", "--set", "train.bptt=5"]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Lines in which every word follows from the one before, so that there is something to learn."""
    rng = np.random.default_rng(0)
    words = ["the", "cat", "sat", "on", "mat", "dog", "ran", "far"]
    lines = []
    for _ in range(300):
        first = rng.integers(len(words))
        lines.append(" ".join(words[(first + step) % len(words)] for step in range(rng.integers(2, 8))))
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n".join(lines) + "\n")
    return path


def arguments(text: Path, out: Path, *more: str) -> list[str]:
    return ["train", "lm", str(text), "--units", "space", "--out", str(out), "--threads", "1", *SMALL, *more]


@pytest.mark.parametrize("model", ["window", "rnn", "gru", "lstm", "transformer"])
def test_a_net_learns_and_its_number_is_that_of_evaluate(run: Run, text: Path, tmp_path: Path, model: str) -> None:
    valid = tmp_path / "valid.txt"
    valid.write_text("\n".join(text.read_text().splitlines()[:40]) + "\n")
    made = run(*arguments(text, tmp_path / "m", "--model", model, "--valid", str(valid), "--epochs", "6", "--json"))
    assert made.code == 0, made.err
    assert made.json["valid"]["perplexity"] < 5  # uniform: 10; the words alone: 8
    again = run("evaluate", tmp_path / "m", valid, "--json")
    assert again.json["perplexity"] == pytest.approx(made.json["valid"]["perplexity"], rel=1e-5)
    assert again.json["bits_per_byte"] == pytest.approx(made.json["valid"]["bits_per_byte"], rel=1e-5)
    assert "cat" in run("next", tmp_path / "m", "the", "--k", "2").out.split()


@pytest.mark.parametrize(
    ("task", "tensor"),
    [("lm", "embedding.weight"), ("bilm", "onward.embedding.weight"), ("masked", "embedding.weight")],
)
def test_word_vectors_from_counts_are_near_one_another_as_the_words_are_whatever_the_seed(
    run: Run, text: Path, tmp_path: Path, task: str, tensor: str
) -> None:
    counted = ["--set", "model.initial_vectors=counted", "--set", "train.steps=1", "--set", "train.learning_rate=1e-9"]
    counted += ["--model", "gru"] if task == "lm" else []
    cosines = []
    for seed in ("1", "2"):
        command = ["train", task, *arguments(text, tmp_path / seed, "--seed", seed, "--valid", "none")[2:], *counted]
        made = run(*command)
        assert made.code == 0, made.err
        vectors = load_file(tmp_path / seed / "model.safetensors")[tensor]
        norms = np.linalg.norm(vectors, axis=1)
        is_word = norms > 0.6 * np.median(norms)  # not the symbols that stand for no word
        cosines.append((vectors @ vectors.T / np.outer(norms, norms))[is_word][:, is_word])
    assert cosines[0].shape[0] >= 8 and cosines[0].min() < 0.5
    np.testing.assert_allclose(*cosines, atol=0.05)


def test_a_window_longer_than_the_text_is_refused_and_the_default_one_shrunk(run: Run, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("a b a b a b\n" * 8)  # 56 tokens with the ends of lines
    command = [*arguments(text, tmp_path / "m", "--model", "transformer", "--valid", "none", "--epochs", "1")]
    refused = run(*command, "--set", "model.window=57")
    assert refused.code == 2 and "a window of 57 is longer than the text of 56 tokens" in refused.err
    assert "set model.window to 56 or less" in refused.err
    assert run(*command, "--overwrite", "--json").json["settings"]["window"] == 56


def test_killed_at_any_moment_and_resumed_gives_the_same_weights_to_the_bit(text: Path, tmp_path: Path) -> None:
    steps = [
        "--model",
        "lstm",
        "--set",
        "train.steps=120",
        "--set",
        "train.checkpoint_steps=7",
        "--set",
        "model.dropout=0.3",
    ]
    elman = [sys.executable, "-m", "elman"]
    subprocess.run([*elman, *arguments(text, tmp_path / "whole", *steps)], check=True, capture_output=True)
    for number in (signal.SIGKILL, signal.SIGTERM):
        out = tmp_path / number.name
        process = subprocess.Popen(
            [*elman, *arguments(text, out, *steps)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + 60
        while not list((out / "checkpoints").glob("step-*")) and process.poll() is None:
            assert time.monotonic() < deadline, "no checkpoint within a minute"
            time.sleep(0.005)
        process.send_signal(number)
        code = process.wait(60)
        assert code in (0, 143, -number), code  # 0: it was faster than we
        done = subprocess.run([*elman, "resume", str(out)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        for name in ("model.safetensors", "curves.svg"):
            assert (out / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
        assert not (out / "checkpoints").exists()


def test_resuming_what_has_finished_does_nothing_and_ends_well(run: Run, text: Path, tmp_path: Path) -> None:
    assert run(*arguments(text, tmp_path / "m", "--model", "rnn", "--epochs", "1")).code == 0
    before = (tmp_path / "m/model.safetensors").read_bytes()
    assert run("resume", tmp_path / "m").code == 0
    assert (tmp_path / "m/model.safetensors").read_bytes() == before


def test_resuming_nothing_is_refused(run: Run, tmp_path: Path) -> None:
    found = run("resume", tmp_path / "nothing")
    assert found.code == 2
    assert "no run to go on with" in found.err


def test_fine_tuning_keeps_the_vocabulary_and_says_what_is_new(run: Run, text: Path, tmp_path: Path) -> None:
    assert run(*arguments(text, tmp_path / "old", "--model", "gru", "--epochs", "1")).code == 0
    new = tmp_path / "new.txt"
    new.write_text("the zebra sat on the mat\n" * 40)
    found = run(
        "train", "lm", new, "--init", tmp_path / "old", "--out", tmp_path / "tuned", "--epochs", "2",
        "--threads", "1", "--set", "train.batch=4", "--set", "train.bptt=5",
    )  # fmt: skip
    assert found.code == 0, found.err
    assert "does not know" in found.err
    tokens = [
        json.loads((tmp_path / name / "tokenizer.json").read_text())["model"]["vocab"] for name in ("old", "tuned")
    ]
    assert tokens[0] == tokens[1]


@pytest.mark.parametrize("setting", ["data.min_count=3", "data.max_words=5", "data.separator=|"])
def test_fine_tuning_refuses_settings_of_the_vocabulary(run: Run, text: Path, tmp_path: Path, setting: str) -> None:
    """They were ignored: the vocabulary is the old model's."""
    assert run(*arguments(text, tmp_path / "old", "--model", "gru", "--epochs", "1")).code == 0
    found = run(
        "train", "lm", text, "--init", tmp_path / "old", "--out", tmp_path / "tuned", "--epochs", "1", "--set", setting
    )
    assert found.code == 2
    assert f"{setting.partition('=')[0]} is settled by" in found.err
    assert not (tmp_path / "tuned").exists()


def test_ngrams_alone_learn_and_are_tuned_on_another_text(run: Run, text: Path, tmp_path: Path) -> None:
    made = run(*arguments(text, tmp_path / "old", "--model", "rnn", "--epochs", "4", "--json",
               "--set", "model.hidden=0", "--set", "model.maxent=3"))  # fmt: skip
    assert made.code == 0, made.err
    assert made.json["valid"]["perplexity"] < 5
    new = tmp_path / "new.txt"
    new.write_text("the dog sat on the mat\n" * 40)
    tuned = run(
        "train", "lm", new, "--init", tmp_path / "old", "--out", tmp_path / "tuned", "--epochs", "1",
        "--threads", "1", "--set", "train.batch=4", "--set", "train.bptt=5",
    )  # fmt: skip
    assert tuned.code == 0, tuned.err
    assert run("generate", tmp_path / "tuned", "--tokens", "5").code == 0


def test_a_net_and_counts_mix(run: Run, text: Path, tmp_path: Path) -> None:
    assert run(*arguments(text, tmp_path / "net", "--model", "lstm", "--epochs", "2")).code == 0
    counted = run("train", "lm", text, "--units", "space", "--model", "mkn", "--out", tmp_path / "mkn")
    assert counted.code == 0
    mixed = run(
        "mix", tmp_path / "net", tmp_path / "mkn", "cache", "--valid", text, "--out", tmp_path / "mix", "--json"
    )
    assert mixed.code == 0, mixed.err
    alone = [run("evaluate", tmp_path / name, text, "--json").json["perplexity"] for name in ("net", "mkn")]
    assert mixed.json["valid"]["perplexity"] <= min(alone) * 1.0001


def test_mixing_what_knows_other_words_is_refused(run: Run, text: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text("quite other words are here\n" * 30)
    assert run(*arguments(text, tmp_path / "net", "--model", "rnn", "--epochs", "1")).code == 0
    assert run("train", "lm", other, "--units", "space", "--model", "mkn", "--out", tmp_path / "mkn").code == 0
    found = run("mix", tmp_path / "net", tmp_path / "mkn", "--valid", text, "--out", tmp_path / "mix")
    assert found.code == 65
    assert "vocabular" in found.err


@pytest.mark.parametrize(
    ("more", "code", "words"),
    [
        (["--model", "lstm", "--set", "model.recurrence=gated"], 2, "recurrence is for rnn"),
        (["--model", "lstm", "--set", "model.hiden=8"], 2, "did you mean model.hidden"),
        (["--model", "lstm", "--set", "train.learning_rat=1"], 2, "did you mean train.learning_rate"),
        (["--model", "mkn", "--set", "train.batch=4"], 2, "does not apply to mkn"),
        (["--model", "mkn", "--device", "cpu"], 2, "--device does not apply"),
        (["--model", "lstm", "--epochs", "1", "--device", "tpu9"], 2, "no device 'tpu9'"),
        (["--model", "lstm", "--epochs", "1", "--device", "meta9:7"], 2, "no device 'meta9:7'"),
        (["--model", "lstm", "--budget", "0.2s"], 2, "too short"),
        (["--model", "lstm", "--epochs", "1", "--set", "model.head=nce", "--set", "model.samples=11"], 2, "(10 words)"),
        (
            ["--model", "rnn", "--epochs", "1", "--set", "model.maxent=5", "--set", f"model.maxent_size={10**12}"],
            2,
            "model.maxent_size=1000000000000 needs 60,000.0 GB of memory",
        ),
        (["--model", "lstm", "--budget", "soon"], 2, "no duration"),
        (["--model", "lstm", "--set", "model.vectors=nowhere.txt"], 66, "nowhere.txt"),
        (["--model", "lstm", "--init", "nowhere"], 66, "no model at nowhere"),
        (["--model", "lstm", "--epochs", "40", "--set", "train.learning_rate=1e30"], 1, "diverges"),
    ],
)
def test_what_cannot_be_is_refused_with_a_reason(
    run: Run, text: Path, tmp_path: Path, more: list[str], code: int, words: str
) -> None:
    found = run("train", "lm", text, "--units", "space", "--out", tmp_path / "m", "--threads", "1", *more)
    assert words in found.err, found.err
    assert found.code == code
    assert not (tmp_path / "m/model.safetensors").exists()


def test_a_run_that_has_not_finished_is_not_overwritten_by_mistake(run: Run, text: Path, tmp_path: Path) -> None:
    (tmp_path / "m/checkpoints").mkdir(parents=True)
    (tmp_path / "m/checkpoints/run.json").write_text("{}")
    found = run(*arguments(text, tmp_path / "m", "--model", "rnn", "--epochs", "1"))
    assert found.code == 74
    assert "elman resume" in found.err


def test_text_shorter_than_a_batch_still_trains_or_says_why_not(run: Run, tmp_path: Path) -> None:
    short = tmp_path / "short.txt"
    short.write_text("a b a b\na b\n")
    found = run(
        "train", "lm", short, "--units", "space", "--set", "data.min_count=1", "--model", "rnn", "--valid", "none",
        "--epochs", "1", "--out", tmp_path / "m", "--set", "model.hidden=4", "--set", "train.batch=1000",
    )  # fmt: skip
    assert found.code in (0, 65), found.err
    assert "batch" in found.err or "short" in found.err
