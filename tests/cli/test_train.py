"""`elman train`: what it makes, and what it says to everything that is wrong with its input."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import elman
from elman.core import files
from tests.commands import LINES, Run, run_process


def test_training_prints_its_numbers_and_its_seed(run: Run, corpus: Path, tmp_path: Path) -> None:
    result = run("train", "lm", corpus, "--out", tmp_path / "m", "--units", "space", "--seed", 7)
    assert result.code == 0
    numbers = dict(line.split(maxsplit=1) for line in result.out.splitlines())
    assert numbers["model"] == "mkn"
    assert numbers["seed"] == "7"
    assert float(numbers["perplexity"]) > 1
    assert "discount" in result.err
    assert f"saved in {tmp_path / 'm'}" in result.err


def test_training_as_json(run: Run, corpus: Path, tmp_path: Path) -> None:
    found = run("train", "lm", corpus, "--out", tmp_path / "m", "--model", "kn", "--json").json
    assert found["schema_version"] == 1
    assert found["model"] == "kn"
    assert found["settings"]["order"] == 5
    assert found["valid"]["perplexity"] > 1
    assert found["command"].startswith("elman train lm")


def test_the_card_says_how_it_was_made(run: Run, corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "m"
    run("train", "lm", corpus, "--out", out, "--set", "model.order=2")
    card = (out / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: elman\n")
    assert f"elman train lm {corpus} --out {out} --set model.order=2" in card
    assert "perplexity" in card
    assert "discount" in card


@pytest.mark.parametrize("name", ["uniform", "unigram", "bigram", "ngram", "kn", "mkn", "snm"])
def test_every_family_trains_and_is_used_by_every_verb(run: Run, corpus: Path, tmp_path: Path, name: str) -> None:
    out = tmp_path / name
    assert run("train", "lm", corpus, "--out", out, "--model", name, "--units", "space").code == 0
    assert run("evaluate", out, corpus, "--json").json["perplexity"] >= 1
    assert len(run("score", out, corpus).out.splitlines()) == 100
    assert run("generate", out, "--tokens", 5, "--seed", 1).code == 0
    assert len(run("next", out, "the cat", "--k", 3).out.splitlines()) == 3
    assert run("info", out).code == 0


@pytest.mark.parametrize(
    ("content", "message", "hint"),
    [
        (b"", "empty", None),
        (b"\n\n \n", "blank", None),
        (b"fine line\nbroken \xff\xfe here\n", "line 2 of {path} is not UTF-8 at byte 8", "data.errors=replace"),
        (b"one\0two\n", "line 1 of {path} has a NUL at byte 4", "data.skip_bad=true"),
        (b"the cat </s> sat\n" * 3, "contains </s>, which is reserved", "take them out"),
        (b"<s> the cat sat\n" * 3, "contains <s>, which is reserved", "take them out"),
    ],
)
def test_bad_text_is_refused_with_the_place_and_the_remedy(
    run: Run, tmp_path: Path, content: bytes, message: str, hint: str | None
) -> None:
    path = tmp_path / "bad.txt"
    path.write_bytes(content)
    result = run("train", "lm", path, "--out", tmp_path / "m", "--units", "space")
    assert result.code == 65
    assert message.format(path=path) in result.err
    assert result.err.startswith("error: ")
    if hint:
        assert hint in result.err.partition("\nhint: ")[2]
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize("setting", ["data.errors=replace", "data.skip_bad=true"])
def test_the_remedies_for_broken_utf8_work(run: Run, tmp_path: Path, setting: str) -> None:
    path = tmp_path / "bad.txt"
    path.write_bytes(b"fine line\nbroken \xff here\n" * 20)
    assert run("train", "lm", path, "--out", tmp_path / "m", "--set", setting).code == 0


def test_a_missing_text_is_said_to_be_missing(run: Run, tmp_path: Path) -> None:
    result = run("train", "lm", tmp_path / "nowhere.txt", "--out", tmp_path / "m")
    assert result.code == 66
    assert f"cannot read {tmp_path / 'nowhere.txt'}" in result.err
    assert not (tmp_path / "m").exists()


def test_a_pattern_that_the_shell_did_not_expand(run: Run, tmp_path: Path) -> None:
    result = run("train", "lm", tmp_path / "*.txt", "--out", tmp_path / "m")
    assert (result.code, result.err.splitlines()[-1]) == (
        66,
        "hint: no file matches it, or it was in quotes: a shell puts names in its place",
    )


def test_an_unreadable_text(run: Run, tmp_path: Path, corpus: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read anything")
    path = tmp_path / "secret.txt"
    path.write_text("secret")
    path.chmod(0)
    assert run("train", "lm", path, "--out", tmp_path / "m").code == 66


def test_a_vocabulary_of_one_word(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "one.txt"
    path.write_text("ha ha ha\nha ha\nha\n" * 10)
    assert run("train", "lm", path, "--out", tmp_path / "m", "--units", "space").code == 0
    model = elman.load(tmp_path / "m")
    assert sum(probability for _, probability in model.next("ha", k=3)) == pytest.approx(1, abs=1e-6)


@pytest.mark.slow
def test_a_line_of_fifty_megabytes(tmp_path: Path) -> None:
    path = tmp_path / "long.txt"
    path.write_bytes(b"the cat sat on the mat and " * 1_900_000 + b"\nthe end\n")
    done = run_process("train", "lm", path, "--out", tmp_path / "m", "--set", "model.order=2")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "what", "hint"),
    [
        (["--set", "model.ordr=3"], "model.ordr is not a setting of mkn", "did you mean model.order?"),
        (["--set", "data.minimum=3"], "data.minimum is not a setting", "did you mean data.min_count?"),
        (["--set", "model.order=many"], "model.order is a whole number, at least 1 and at most 20 (got 'many')", None),
        (["--set", "model.order=99"], "model.order is a whole number, at least 1 and at most 20 (got '99')", None),
        (["--set", "train.bptt=35"], "train.bptt does not apply to mkn, which counts", "leave train.bptt out"),
        (["--set", "model.smoothing=witten-bell"], "model.smoothing is not a setting of mkn", None),
        (["--set", "order=3"], "--set order=3 is not of the form section.key=value", "for example model.order=5"),
        (["--set", "modle.order=3"], "'modle.order' is not of the form section.key", "sections: data, model, train"),
        (["--model", "mnk"], "there is no model 'mnk'", "did you mean mkn?"),
        (["--model", "cache"], "a cache is not made from text alone", "elman mix DIR cache --valid F --out DIR"),
        (["--model", "LSTM"], "there is no model 'LSTM'", "did you mean lstm?"),
        (
            ["--units", "bpe"],
            "data.units is auto, space, word, char, byte or bpe:N, like bpe:8000 (got 'bpe')",
            "did you mean bpe:8000?",
        ),
        (
            ["--units", "words"],
            "data.units is auto, space, word, char, byte or bpe:N, like bpe:8000 (got 'words')",
            None,
        ),
        (["--model", "lstm", "--set", "model.head=Adaptiv"], "model.head is full, adaptive", "did you mean adaptive?"),
        (
            ["--model", "snm", "--memory", "1G"],
            "--memory does not apply to snm",
            "leave it out; it is for unigram, bigram, ngram, kn, mkn",
        ),
        (["--units", "char", "--set", "data.units=word"], "data.units is given twice", None),
        (["--budget", "soon"], "'soon' is no duration", "write it like 90s, 10m or 1h30m"),
        (["--memory", "much"], "'much' is no amount of memory", "for example 500M or 4G"),
        (["--memory", "1M"], "--memory 1M is too little", None),
    ],
)
def test_a_setting_that_is_wrong_or_cannot_apply_is_an_error(
    run: Run, corpus: Path, tmp_path: Path, arguments: list[str], what: str, hint: str | None
) -> None:
    result = run("train", "lm", corpus, "--out", tmp_path / "m", *arguments)
    assert result.code == 2
    assert result.err.startswith(f"error: {what}"), result.err
    if hint:
        assert f"hint: {hint}" in result.err
    assert not (tmp_path / "m").exists()


def test_a_task_that_is_none_is_refused_with_those_there_are(run: Run, corpus: Path, tmp_path: Path) -> None:
    result = run("train", "dance", corpus, "--out", tmp_path / "m")
    assert (result.code, result.err) == (
        2,
        "error: there is no task 'dance'\nhint: tasks: lm, masked, bilm, seq2seq, tag, classify, qa\n",
    )


def test_a_recipe_gives_settings_and_flags_win(run: Run, corpus: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('[data]\nunits = "char"\nreset_lines = true\n[model]\nfamily = "ngram"\norder = 4\n')
    found = run("train", "lm", corpus, "--out", tmp_path / "a", "--recipe", recipe, "--json").json
    assert (found["model"], found["settings"]["order"], found["units"], found["reset_lines"]) == (
        "ngram",
        4,
        "char",
        True,
    )
    arguments = ["--recipe", recipe, "--units", "space", "--set", "model.order=2", "--json"]
    found = run("train", "lm", corpus, "--out", tmp_path / "b", *arguments).json
    assert (found["model"], found["settings"]["order"], found["units"]) == ("ngram", 2, "space")


def test_a_directory_that_holds_something_is_refused_without_overwrite(run: Run, corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "m"
    run("train", "lm", corpus, "--out", out, "--model", "unigram")
    result = run("train", "lm", corpus, "--out", out)
    assert result.code == 74
    assert result.err == f"error: {out} holds a model already\nhint: --overwrite replaces it\n"
    assert run("info", out, "--json").json["model"] == "unigram"
    assert run("train", "lm", corpus, "--out", out, "--overwrite").code == 0
    assert run("info", out, "--json").json["model"] == "mkn"
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.txt").write_text("mine")
    assert run("train", "lm", corpus, "--out", other, "--overwrite").code == 74
    assert (other / "thesis.txt").read_text() == "mine"


def test_two_trainings_into_one_directory(run: Run, corpus: Path, tmp_path: Path) -> None:
    with files.lock(tmp_path / "m"):
        result = run("train", "lm", corpus, "--out", tmp_path / "m")
    assert result.code == 75
    assert "hint: wait until it is done" in result.err


@pytest.mark.parametrize("limit", [0, 500, 1500])
def test_no_room_on_the_disk_keeps_the_old_model(corpus: Path, tmp_path: Path, limit: int) -> None:
    out = tmp_path / "m"
    elman.train("lm", corpus, out=out, model="unigram", units="space", valid="none")
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    done = subprocess.run(
        [sys.executable, "-m", "elman", "train", "lm", str(corpus), "--out", str(out), "--overwrite"],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert done.returncode == 74, done.stderr
    assert "error: cannot write" in done.stderr
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_stdin_is_a_text_like_any_other(run: Run, corpus: Path, tmp_path: Path) -> None:
    run("train", "lm", corpus, "--out", tmp_path / "a", "--units", "space")
    assert run("train", "lm", "-", "--out", tmp_path / "b", "--units", "space", stdin=corpus.read_bytes()).code == 0
    manifests = [json.loads((tmp_path / name / "manifest.json").read_text()) for name in "ab"]
    assert manifests[0]["files"]["model.safetensors"] == manifests[1]["files"]["model.safetensors"]
    assert manifests[0]["data_fingerprint"] == manifests[1]["data_fingerprint"]


def test_two_trainings_are_equal_to_the_bit(run: Run, corpus: Path, tmp_path: Path) -> None:
    for name in "ab":
        run("train", "lm", corpus, "--out", tmp_path / name, "--model", "ngram", "--seed", 3)
    tables = [(tmp_path / name / "model.safetensors").read_bytes() for name in "ab"]
    assert tables[0] == tables[1]


def test_a_budget_is_an_upper_bound_that_counting_keeps_or_mentions(run: Run, corpus: Path, tmp_path: Path) -> None:
    given = ["train", "lm", corpus, "--model", "mkn", "--out"]
    assert "the budget of" not in run(*given, tmp_path / "a", "--budget", "10m").err
    for name, model in (("b", ["--model", "mkn"]), ("c", [])):
        result = run("train", "lm", corpus, *model, "--out", tmp_path / name, "--budget", "0.0001")
        assert result.code == 0
        assert "more than the budget" in result.err


def test_lines_and_stream_are_remembered(run: Run, corpus: Path, tmp_path: Path) -> None:
    run("train", "lm", corpus, "--out", tmp_path / "m", "--reset-lines", "--units", "space")
    found = run("evaluate", tmp_path / "m", corpus, "--json").json
    assert "read:lines" in found["signature"]
    assert found["lines"] == len(LINES) * 20
    assert "read:stream" in run("evaluate", tmp_path / "m", corpus, "--stream", "--json").json["signature"]
