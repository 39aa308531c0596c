"""Pairs by the command line: trained, resumed, translated, measured; and every wrong way to ask for it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import elman
from elman.cli.app import run as run_arguments
from elman.core.settings import make, read_recipe, recipes
from elman.tasks.seq2seq.config import PairsConfig, Seq2SeqConfig
from elman.tasks.seq2seq.model import Translator, _copied
from elman.tasks.seq2seq.translations import SearchOptions
from elman.training.config import TrainConfig
from tests.commands import Run

WORDS = {"rot": "red", "blau": "blue", "gelb": "yellow", "haus": "house", "hund": "dog", "auto": "car", "und": "and"}
SMALL = ["--set", "model.hidden=32", "--set", "model.dropout=0", "--set", "train.batch=20"]


def make_rows(count: int, seed: int) -> list[tuple[str, str]]:
    """German words and the English ones, in order."""
    rng = np.random.default_rng(seed)
    words = sorted(WORDS)
    rows = []
    for _ in range(count):
        chosen = [words[i] for i in rng.integers(len(words), size=rng.integers(1, 6))]
        rows.append((" ".join(chosen), " ".join(WORDS[word] for word in chosen)))
    return rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pairs as a table and as two files, and a model of them."""
    folder = tmp_path_factory.mktemp("pairs")
    for name, rows in (("train", make_rows(800, 0)), ("valid", make_rows(60, 1))):
        (folder / f"{name}.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in rows))
        (folder / f"{name}.de").write_text("".join(f"{s}\n" for s, _ in rows))
        (folder / f"{name}.en").write_text("".join(f"{t}\n" for _, t in rows))
    code = run_arguments(arguments(folder, folder / "model", "--epochs", "12"))
    assert code == 0
    return folder


def arguments(folder: Path, out: Path, *more: str) -> list[str]:
    files = [str(folder / "train.tsv"), "--valid", str(folder / "valid.tsv")]
    return ["train", "seq2seq", *files, "--out", str(out), "--threads", "1", *SMALL, *more]


def test_it_learns_and_its_numbers_are_those_of_evaluate(run: Run, folder: Path) -> None:
    kept = json.loads((folder / "model" / "config.json").read_text())["valid"]
    assert kept["exact_match"] > 0.9
    found = run("evaluate", folder / "model", folder / "valid.tsv", "--json").json
    for key in ("bleu", "chrf", "exact_match", "edit_distance", "perplexity"):
        assert found[key] == pytest.approx(kept[key], rel=1e-5), key
    assert found["bleu_signature"].startswith("nrefs:1|case:mixed|eff:no|tok:none|")
    assert found["tokens"] == sum(len(t.split()) + 1 for _, t in make_rows(60, 1))
    assert sum(row["examples"] for row in found["by_length"]) == found["examples"]
    assert {"from", "to", "bleu", "exact_match"} <= found["by_length"][0].keys()


def test_two_files_are_the_same_as_their_table(run: Run, folder: Path) -> None:
    table = run("evaluate", folder / "model", folder / "valid.tsv", "--beam", "1", "--json").json
    sides = ["--source", folder / "valid.de", "--target", folder / "valid.en"]
    assert run("evaluate", folder / "model", *sides, "--beam", "1", "--json").json == table
    printed = run("evaluate", folder / "model", *sides)
    assert "source tokens" in printed.out and "exact_match" in printed.out


def test_a_line_in_is_a_line_out(run: Run, folder: Path) -> None:
    found = run("predict", folder / "model", stdin=b"rot haus\n\nblau und gelb\n")
    assert found.out == "red house\n\nblue and yellow\n"
    assert run("predict", folder / "model", folder / "valid.de").out.splitlines()[0] == make_rows(60, 1)[0][1]


def test_the_best_come_first_with_their_nats(run: Run, folder: Path) -> None:
    found = run("predict", folder / "model", "--n-best", "3", "--beam", "4", stdin=b"rot haus\nhund\n")
    rows = [line.split("\t") for line in found.out.splitlines()]
    assert [row[0] for row in rows] == ["1", "1", "1", "2", "2", "2"]
    assert rows[0][1] == "red house" and rows[3][1] == "dog"
    assert len({row[1] for row in rows[:3]}) == 3
    model = elman.load(folder / "model")
    assert isinstance(model, Translator)
    best = model.translate(["rot haus"], SearchOptions(beam=4, n_best=3, length_penalty=0.6))[0]
    assert [f"{one.nats:.4f}" for one in best] == [row[2] for row in rows[:3]]


def test_a_prefix_is_forced_and_costs_what_it_costs(run: Run, folder: Path) -> None:
    found = run("predict", folder / "model", "--prefix", "blue", stdin=b"rot haus\n")
    assert found.out.startswith("blue ")
    model = elman.load(folder / "model")
    assert isinstance(model, Translator)
    forced = model.translate(["rot haus"], SearchOptions(prefix="blue"))[0][0]
    tokens = np.array([[*model.target.encode(forced.text), 1]], dtype=np.int64)
    source = np.array([[*model.source.encode("rot haus"), 1]], dtype=np.int64)
    scored, _ = model.net.score(tokens, np.array([tokens.shape[1]]), model.net.encode(source, np.array([3])))
    assert forced.nats == pytest.approx(-scored.sum(), rel=1e-5)


def test_attention_is_shown_and_aligns(run: Run, folder: Path) -> None:
    found = run("predict", folder / "model", "--json", stdin=b"rot haus\n").json
    (best,) = found["predictions"]
    assert best["tokens"] == ["red", "house", "</s>"] and best["source_tokens"] == ["rot", "haus", "</s>"]
    np.testing.assert_allclose(np.sum(best["attention"], axis=1), 1, atol=1e-3)
    aligned = run("predict", folder / "model", "--alignments", stdin=b"rot haus\n").out
    assert aligned.split("\t")[0] == "red house" and aligned.count("-") == 2


def test_an_unknown_word_is_copied_from_where_attention_looked(folder: Path) -> None:
    model = elman.load(folder / "model")
    assert isinstance(model, Translator)
    tokens = np.array([0, model.target.tokens.index("dog"), 1])
    weights = np.array([[0.1, 0.8, 0.1], [0.5, 0.4, 0.1], [0, 0, 1]])
    copied = _copied(tokens, weights, ["Hamburg", "Berlin"])
    assert model._text(tokens, copied) == "Berlin dog"
    assert model._text(tokens, {}) == "<unk> dog"


def test_from_python(folder: Path) -> None:
    model = elman.load(folder / "model")
    assert isinstance(model, Translator)
    assert model.predict("rot hund") == "red dog"
    assert model.predict(["auto", "blau auto"], beam=1) == ["car", "blue car"]
    assert model.info()["task"] == "seq2seq"


def test_the_picture_is_drawn(run: Run, folder: Path, tmp_path: Path) -> None:
    done = run("evaluate", folder / "model", folder / "valid.tsv", "--beam", "1", "--picture", tmp_path / "p.svg")
    assert done.code == 0
    assert (tmp_path / "p.svg").read_text().startswith("<svg")


def test_both_tokenizers_are_in_the_directory(folder: Path) -> None:
    names = {path.name for path in (folder / "model").iterdir()}
    assert {"tokenizer.json", "source_tokenizer.json", "source_tokenizer_config.json"} <= names


def test_a_shared_vocabulary_is_stored_once(run: Run, folder: Path, tmp_path: Path) -> None:
    more = ["--epochs", "1", "--set", "data.shared=true", "--set", "model.shared_words=true"]
    assert run(*arguments(folder, tmp_path / "m", *more)).code == 0
    assert not (tmp_path / "m" / "source_tokenizer.json").exists()
    assert run("predict", tmp_path / "m", stdin=b"rot\n").code == 0


@pytest.mark.parametrize(
    "more", [["--set", "model.context=initial"], ["--set", "model.context=fixed", "--model", "gru"]]
)
def test_a_decoder_without_attention_has_none_to_show(run: Run, folder: Path, tmp_path: Path, more: list[str]) -> None:
    assert run(*arguments(folder, tmp_path / "m", "--epochs", "1", *more)).code == 0
    assert "attention" not in run("predict", tmp_path / "m", "--json", stdin=b"rot\n").json["predictions"][0]
    refused = run("predict", tmp_path / "m", "--alignments", stdin=b"rot\n")
    assert refused.code == 2 and "has no attention to show" in refused.err


def test_two_runs_with_one_seed_are_equal_to_the_bit(run: Run, folder: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert run(*arguments(folder, tmp_path / name, "--epochs", "1")).code == 0
    assert (tmp_path / "a" / "model.safetensors").read_bytes() == (tmp_path / "b" / "model.safetensors").read_bytes()


def test_a_run_stopped_and_resumed_equals_one_that_never_stopped(run: Run, folder: Path, tmp_path: Path) -> None:
    more = [
        "--epochs",
        "3",
        "--set",
        "train.checkpoint_steps=7",
        "--set",
        "model.dropout=0.2",
        "--set",
        "model.own_words=0.3",
    ]
    assert run(*arguments(folder, tmp_path / "whole", *more)).code == 0
    command = [sys.executable, "-m", "elman", *arguments(folder, tmp_path / "cut", *more)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob("cut/checkpoints/*step*")) and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    assert process.returncode == 130
    assert run("resume", tmp_path / "cut").code == 0
    whole, cut = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "cut"))
    assert whole == cut


def test_settings_that_cannot_apply_are_refused(run: Run, folder: Path, tmp_path: Path) -> None:
    cases: dict[tuple[str, ...], str] = {
        ("--set", "train.bptt=5"): "train.bptt does not apply to seq2seq",
        ("--set", "model.contxt=all"): "did you mean model.context?",
        ("--set", "data.max_lenght=3"): "did you mean data.max_length?",
        ("--model", "mkn"): "model.family",
        ("--reset-lines",): "--reset-lines does not apply to seq2seq",
        ("--set", "data.source=1"): "give both or neither",
        ("--recipe", "nothing"): "a file, or one of dialogue, g2p",
        ("--source", "x"): "--target is missing",
        ("--source", "x", "--target", "y"): "DATA and --source are both given",
    }
    for more, message in cases.items():
        refused = run(*arguments(folder, tmp_path / "m", *more))
        assert refused.code in (2, 66) and message in refused.err, (more, refused.err)
    refused = run("train", "lm", "--source", "x", "--target", "y", "--out", tmp_path / "m")
    assert refused.code == 2 and "--target does not apply to lm" in refused.err
    assert "there is no DATA" in run("train", "seq2seq", "--out", tmp_path / "m").err
    refused = run("evaluate", folder / "model", folder / "valid.tsv", "--stream")
    assert refused.code == 2


def test_bad_pairs_are_named(run: Run, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.tsv").write_text((folder / "train.tsv").read_text() + "rot\n")
    refused = run("train", "seq2seq", tmp_path / "bad.tsv", "--out", tmp_path / "m")
    assert refused.code == 65 and "line 801" in refused.err and "has 1 column, expected 2" in refused.err
    assert "data.skip_bad=true" in refused.err
    refused = run("train", "seq2seq", folder / "train.de", "--out", tmp_path / "m")
    assert refused.code == 65 and "looks like plain text" in refused.err and "elman train lm" in refused.err


def test_a_source_that_is_too_long_is_refused_or_cut_and_counted(run: Run, folder: Path) -> None:
    long = (" ".join(["rot"] * 10_000) + "\nhund\n").encode()
    refused = run("predict", folder / "model", stdin=long)
    assert refused.code == 65 and "line 1 of - has 10,000 tokens, more than 1,000" in refused.err
    cut = run("predict", folder / "model", "--truncate", "--max-tokens", "3", "--beam", "1", stdin=long)
    assert cut.code == 0 and cut.out.splitlines()[1] == "dog" and "1 of 2 sources were cut" in cut.err


def test_a_reserved_symbol_is_named_with_its_line(run: Run, folder: Path) -> None:
    refused = run("predict", folder / "model", stdin=b"rot\n<s> rot\n")
    assert refused.code == 65 and "line 2 of -: the text contains <s>, which is reserved" in refused.err


def test_columns_of_a_source_are_read_as_in_training(run: Run, tmp_path: Path) -> None:
    rows = [
        f"{stem}en\t{stem}{end}\tV;{tag}"
        for stem in ("lach", "mach", "sag", "frag")
        for tag, end in (("3", "t"), ("1", "e"))
    ]
    (tmp_path / "forms.tsv").write_text("\n".join(rows * 10) + "\n")
    command = ["train", "seq2seq", tmp_path / "forms.tsv", "--valid", tmp_path / "forms.tsv", "--recipe", "inflection"]
    small = ["--set", "model.hidden=16", "--set", "model.dropout=0", "--epochs", "2", "--threads", "1"]
    assert run(*command, "--out", tmp_path / "m", *small).code == 0
    found = run("predict", tmp_path / "m", "--json", stdin=b"sagen\tV;3\n").json["predictions"][0]
    assert found["source_tokens"] == ["s", "a", "g", "e", "n", "+V", "+3", "</s>"]
    refused = run("predict", tmp_path / "m", stdin=b"sagen\n")
    assert refused.code == 65 and "line 1 of - has 1 column, expected 2" in refused.err


def test_another_model_is_not_asked_to_translate(run: Run, folder: Path, tmp_path: Path) -> None:
    assert run("train", "lm", folder / "train.de", "--model", "unigram", "--out", tmp_path / "lm").code == 0
    refused = run("predict", tmp_path / "lm", stdin=b"rot\n")
    assert refused.code == 2 and "holds a language model, and predict is for taggers" in refused.err
    assert "hint: elman generate continues a text" in refused.err
    refused = run("score", folder / "model", stdin=b"rot\n")
    assert refused.code == 2 and "not a language model" in refused.err


def test_every_recipe_can_be_read() -> None:
    assert {
        "translation",
        "summarisation",
        "dialogue",
        "question-answering",
        "g2p",
        "inflection",
        "names",
        "scan",
    } <= set(recipes())
    kinds: dict[str, Any] = {"data": PairsConfig, "model": Seq2SeqConfig, "train": TrainConfig}
    for name in recipes():
        for section, settings in read_recipe(Path(name)).items():
            make(kinds[section], settings, section=section)
