"""A model directory: what is loaded is what was saved, or an error."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import elman
from elman import store
from elman.core.errors import BusyError, DataError, ElmanError, WriteError
from elman.core.stored import MANIFEST

TEXT = "the cat sat on the mat\nthe dog sat on the log\na cat and a dog\nwho saw the cat\n" * 12
FAMILIES: list[tuple[str, dict[str, Any]]] = [
    ("uniform", {}),
    ("unigram", {}),
    ("bigram", {"model.smoothing": "ml"}),
    ("bigram", {}),
    *[("ngram", {"model.smoothing": name}) for name in ("add", "interpolated", "witten-bell", "absolute")],
    ("kn", {"model.order": 3}),
    ("mkn", {"model.order": 4}),
    ("snm", {"model.order": 3}),
]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store") / "text.txt"
    path.write_text(TEXT)
    return path


@pytest.fixture(scope="module")
def model(corpus: Path) -> Path:
    elman.train("lm", corpus, out=corpus.parent / "m", model="mkn", units="word", settings={"model.order": 3})
    return corpus.parent / "m"


@pytest.mark.parametrize("reset_lines", [False, True])
@pytest.mark.parametrize(("family", "settings"), FAMILIES)
def test_save_then_load_is_exact(
    corpus: Path, tmp_path: Path, family: str, settings: dict[str, Any], reset_lines: bool
) -> None:
    options: dict[str, Any] = {"model": family, "settings": settings, "units": "space", "reset_lines": reset_lines}
    kept = elman.train("lm", corpus, **options)
    with store.reserve(tmp_path / "m", overwrite=False):
        store.save(tmp_path / "m", kept.record, tensors=kept.tensors(), contents=kept.files())
    loaded = elman.load(tmp_path / "m")
    ids = np.array([loaded.tokenizer.encode("the cat sat on a log")], dtype=np.int64)
    lengths = np.array([ids.shape[1]])
    for lm in (kept.lm, loaded.lm):
        assert lm.vocab_size == loaded.record.vocab_size
    before, _ = kept.lm.score(ids, lengths, kept.lm.start(1))
    after, _ = loaded.lm.score(ids, lengths, loaded.lm.start(1))
    np.testing.assert_array_equal(before, after)
    np.testing.assert_array_equal(kept.lm.predict(kept.lm.start(2)), loaded.lm.predict(loaded.lm.start(2)))


def test_the_directory_is_what_the_ecosystem_expects(model: Path) -> None:
    names = {path.name for path in model.iterdir()}
    assert names == {
        "config.json",
        "model.safetensors",
        "spelling.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "manifest.json",
        "metrics.jsonl",
        "README.md",
    }
    config = json.loads((model / "config.json").read_text())
    assert config["model_type"] == "elman"
    assert config["format_version"] == 1
    assert config["model"] == {"family": "mkn", "order": 3, "prune": []}
    assert config["data"]["units"] == "word"
    manifest = json.loads((model / "manifest.json").read_text())
    assert manifest["files"].keys() == names - {"manifest.json"}
    assert manifest["data_fingerprint"] == config["source"]["fingerprint"]
    assert manifest["seed"] == 1
    (metrics,) = (model / "metrics.jsonl").read_text().splitlines()
    assert json.loads(metrics)["perplexity"] == config["valid"]["perplexity"]


def test_a_loaded_model_goes_on_working_when_it_is_replaced(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "m"
    elman.train("lm", corpus, out=out, units="space")
    loaded = elman.load(out)
    before = loaded.next("the cat", k=5)
    elman.train("lm", corpus, out=out, units="char", model="bigram", overwrite=True)
    assert loaded.next("the cat", k=5) == before
    assert elman.load(out).tokenizer.units == "char"


def edit(directory: Path, changes: dict[str, Any]) -> None:
    path = directory / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocab_size": 7}, "does not fit together"),
        ({"vocab_size": "many"}, "vocab_size"),
        ({"model_type": "bert"}, "model_type"),
        ({"surprise": 1}, "surprise"),
        ({"model": {"family": "mkn", "order": 5}}, "missing or has the wrong type or size"),
        ({"model": {"family": "oracle"}}, "model"),
    ],
)
def test_a_config_that_does_not_fit_is_refused(
    model: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    shutil.copytree(model, tmp_path / "m")
    edit(tmp_path / "m", changes)
    with pytest.raises(DataError, match=r"SHA-256|manifest says"):
        elman.load(tmp_path / "m")
    with pytest.raises(DataError, match=message):
        elman.load(tmp_path / "m", verify=False)


@settings(max_examples=150)
@given(data=st.data())
def test_any_damage_to_any_file_that_is_loaded_is_found(
    model: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    directory = tmp_path_factory.getbasetemp() / "damaged"
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(model, directory)
    loaded = {path.name for path in directory.iterdir()} - {"README.md", "metrics.jsonl"}
    name = data.draw(st.sampled_from(sorted(loaded)))
    good = (directory / name).read_bytes()
    bad = bytearray(good)
    place = data.draw(st.integers(0, len(bad) - 1))
    match data.draw(st.sampled_from(["flip", "cut", "insert"])):
        case "flip":
            bad[place] ^= 1 << data.draw(st.integers(0, 7))
        case "cut":
            del bad[place:]
        case _:
            bad[place:place] = data.draw(st.binary(min_size=1, max_size=4))
    (directory / name).write_bytes(bad)
    if name == MANIFEST:  # it vouches for the others; what can still be read of it must be true or refused
        with contextlib.suppress(ElmanError):
            assert elman.load(directory).record == elman.load(model).record
    else:
        with pytest.raises(ElmanError):
            elman.load(directory)
    with contextlib.suppress(ElmanError):  # unverified: a message, or some model
        elman.load(directory, verify=False)


def test_a_card_may_be_edited_and_what_is_not_loaded_may_be_removed(model: Path, tmp_path: Path) -> None:
    """The licence in the card is the user's to fill in; with every file verified, that made the model "damaged"."""
    shutil.copytree(model, tmp_path / "m")
    card = tmp_path / "m" / "README.md"
    card.write_text(card.read_text().replace("license: unknown", "license: mit"))
    (tmp_path / "m" / "metrics.jsonl").unlink()
    assert elman.load(tmp_path / "m").next("the cat", k=3) == elman.load(model).next("the cat", k=3)
    elman.load(tmp_path / "m").save(tmp_path / "copy")
    assert elman.load(tmp_path / "copy").record == elman.load(model).record


def test_who_finds_a_directory_busy_is_told_so_not_to_resume_it(tmp_path: Path) -> None:
    """A second training into the same directory was told of "a run that has not finished", which was still going on."""
    out = tmp_path / "m"
    with store.reserve(out, overwrite=False):
        (out / "checkpoints").mkdir()
        (out / "checkpoints" / "run.json").write_text("{}")
        for overwrite in (False, True):
            with pytest.raises(BusyError, match="another process"), store.reserve(out, overwrite=overwrite):
                raise AssertionError
    with pytest.raises(WriteError, match="holds an unfinished run"), store.reserve(out, overwrite=False):
        raise AssertionError


def test_the_card_names_no_numbers_where_nothing_was_held_out(corpus: Path, tmp_path: Path) -> None:
    elman.train("lm", corpus, out=tmp_path / "m", valid="none", model="unigram")
    assert "On held-out text" not in (tmp_path / "m" / "README.md").read_text()
    assert not (tmp_path / "m" / "metrics.jsonl").exists()
