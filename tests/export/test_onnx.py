"""`elman export --format onnx`: a directory that other programs use, or a refusal that leaves nothing behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import elman
from elman.core.errors import ElmanError, UsageError, WriteError
from elman.export import onnx
from elman.export.onnx import export_onnx
from tests.commands import Run

TINY = {"model.hidden": 8, "train.steps": 3, "train.batch": 4, "train.learning_rate": 0.5}
LINES = ["the cat sat on the mat .", "the dog sat on the log .", "who saw the mat ?", "a dog saw a cat ."] * 6


def example(directory: Path, *words: str) -> str:
    """What the program beside the graphs prints, without elman and torch to import."""
    program = "import runpy, sys; sys.modules.update(elman=None, torch=None); runpy.run_path(sys.argv[0], run_name='__main__')"
    program = f"import sys; sys.argv = {[str(directory / 'example.py'), *words]!r}; {program}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.removesuffix("\n")


def train_lm(**more: Any) -> Any:
    settings = {**TINY, "train.bptt": 8, **more.pop("settings", {})}
    return elman.train("lm", elman.texts(LINES), valid="none", settings=settings, **{"model": "gru", **more})


@pytest.mark.parametrize(
    ("units", "reset_lines"), [("word", False), pytest.param("bpe:270", True, marks=pytest.mark.slow)]
)
def test_the_example_writes_what_the_language_model_would(units: str, reset_lines: bool, tmp_path: Path) -> None:
    model = train_lm(units=units, reset_lines=reset_lines)
    checked = export_onnx(model, tmp_path / "out")
    assert checked.steps == 1000 and checked.difference < 1e-5
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        *("model.onnx", "tokenizer.json", "tokenizer_config.json", "export.json", "example.py", "manifest.json")
    }

    ids = model.tokenizer.encode("the cat").tolist()
    rng, state = np.random.default_rng(7), model.lm.start(1)
    for token in ids:
        state = model.lm.advance(np.array([token]), state)
    for _ in range(12):
        log_probs = model.lm.predict(state)[0]
        log_probs[0] = -np.inf
        token = int(np.argmax(log_probs + rng.gumbel(size=len(log_probs))))
        if token == 1 and reset_lines:
            break
        ids.append(token)
        state = model.lm.advance(np.array([token]), state)
    assert example(tmp_path / "out", "the cat", "12", "7") == model.tokenizer.decode(ids)


def test_ctrl_c_in_the_exporter_is_no_failure_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exporter made of it an error of its own, to be reported to us: once in five trials."""

    def interrupted(*arguments: Any, **options: Any) -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except BaseException as error:
            raise RuntimeError("failed to export") from error

    monkeypatch.setattr(torch.onnx, "export", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # shells let what runs behind ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            export_onnx(train_lm(), tmp_path / "out")
    finally:
        signal.signal(signal.SIGINT, before)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_the_example_translates_as_the_model_does(tmp_path: Path) -> None:
    pairs = [("rot haus", "red house"), ("blau hund", "blue dog"), ("rot hund", "red dog"), ("haus", "house")] * 5
    settings = {**TINY, "data.min_count": 1, "model.dropout": 0, "train.steps": 60, "train.learning_rate": 0.02}
    model = elman.train("seq2seq", pairs, valid="none", settings={**settings, "data.units": "word"})
    export_onnx(model, tmp_path / "out")
    for source in ("rot haus", "blau hund haus"):
        assert example(tmp_path / "out", source) == model.predict(source, beam=1)


@pytest.mark.slow
@pytest.mark.parametrize("output", ["crf", "softmax"])
def test_the_example_tags_as_the_model_does(output: str, tmp_path: Path) -> None:
    words = {"the": "O", "cat": "B-ANIMAL", "dog": "B-ANIMAL", "house": "I-ANIMAL", "sees": "O"}
    rng = np.random.default_rng(0)
    rows = [[(word, words[word]) for word in rng.choice(list(words), 6)] for _ in range(30)]
    text = "\n\n".join("\n".join(f"{word}\t{tag}" for word, tag in row) for row in rows)
    path = tmp_path / "train.conll"
    path.write_text(text + "\n")
    model = elman.train("tag", path, valid="none", settings={**TINY, "model.output": output, "train.steps": 20})
    export_onnx(model, tmp_path / "out")
    line = "the cat house sees a doghouse"
    assert example(tmp_path / "out", line) == model.predict(line)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("output", "labels"),
    [
        ("softmax", ("good", "bad")),
        ("sigmoid", ("funny,good", "bad")),
        ("linear", ("4.5", "1")),
    ],
)
def test_the_example_classifies_as_the_model_does(output: str, labels: tuple[str, str], tmp_path: Path) -> None:
    texts = ["a good film", "very good it was", "a bad film", "very bad it was"]
    rows = [(labels[i // 2], text) for i, text in enumerate(texts)] * 8
    path = tmp_path / "train.tsv"
    path.write_text("".join(f"{label}\t{text}\n" for label, text in rows))
    settings = {**TINY, "model.output": output, "data.units": "word", "train.steps": 20}
    model = elman.train("classify", path, valid="none", settings=settings)
    export_onnx(model, tmp_path / "out")
    for line in ("A good thing it was.", "bad"):
        expected = model.predict(line)
        assert example(tmp_path / "out", line) == (f"{expected:.6g}" if output == "linear" else expected)


@pytest.mark.slow
def test_the_example_fills_the_gap_as_the_model_does(tmp_path: Path) -> None:
    model = elman.train("masked", elman.texts(LINES), valid="none", units="space", settings={**TINY, "train.bptt": 8})
    export_onnx(model, tmp_path / "out")
    found = example(tmp_path / "out", "the <mask> sat").split("\n")
    expected = [(word, share) for word, share in model.fill("the <mask> sat", k=7)[0] if word[0] != "<"]
    assert [line.split()[1] for line in found] == [word for word, _ in expected[:5]]
    np.testing.assert_allclose([float(line.split()[0]) for line in found], [p for _, p in expected[:5]], atol=1e-4)


# ------------------------------------------------------------------------------------------------------------ refusals


def test_what_is_no_net_is_refused_with_the_way_it_can_go(run: Run, tmp_path: Path) -> None:
    model = elman.train("lm", elman.texts(LINES), valid="none", model="bigram", units="word", out=tmp_path / "counts")
    result = run("export", tmp_path / "counts", "--format", "onnx", "--out", tmp_path / "out")
    assert result.code == 2
    assert "of the family bigram, which is no graph" in result.err and "--format arpa" in result.err
    assert not (tmp_path / "out").exists()
    mixture = elman.mix([model, "cache"], valid=elman.texts(LINES), out=tmp_path / "mixture")
    with pytest.raises(UsageError, match="mixture"):
        export_onnx(mixture, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_graphs_that_differ_from_the_model_are_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx, "TOLERANCE", 0.0)
    monkeypatch.setattr(onnx, "ROUNDINGS", 0.0)
    monkeypatch.setattr(onnx, "STEPS", 20)
    with pytest.raises(ElmanError, match="differ from the model"):
        export_onnx(train_lm(), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_missing_package_is_named_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = train_lm()
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(ElmanError, match="needs onnxscript") as caught:
        export_onnx(model, tmp_path / "out")
    assert caught.value.hint == "pip install 'elman[export]'"


def test_an_export_replaces_an_export_and_never_a_model(run: Run, tmp_path: Path) -> None:
    train_lm(model="rnn", out=tmp_path / "net", units="char")
    for out, more in (("net", ["--overwrite"]), ("net", [])):
        refused = run("export", tmp_path / "net", "--format", "onnx", "--out", tmp_path / out, *more)
        assert refused.code == 74 and "holds a model" in refused.err
    done = run("export", tmp_path / "net", "--format", "onnx", "--out", tmp_path / "out", "--json")
    assert done.code == 0, done.err
    assert done.json["largest_difference"] < 1e-5 and done.json["steps"] == 1000
    facts = json.loads((tmp_path / "out" / "export.json").read_text())
    assert facts["task"] == "lm" and facts["state"] == {"h_1": "new_h_1"} and facts["start"] == {"h_1": 0.0}
    again = run("export", tmp_path / "net", "--format", "onnx", "--out", tmp_path / "out")
    assert again.code == 74
    with pytest.raises(WriteError):
        export_onnx(elman.load(tmp_path / "net"), tmp_path / "out")
    before = (tmp_path / "out" / "model.onnx").read_bytes()
    replaced = run("export", tmp_path / "net", "--format", "onnx", "--out", tmp_path / "out", "--overwrite")
    assert replaced.code == 0, replaced.err
    assert (tmp_path / "out" / "model.onnx").read_bytes() == before
