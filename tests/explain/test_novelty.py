"""Novelty: what is copied from the training text, found by its index, by its file, or by nothing at all."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import elman
from elman.core.errors import DataError, MissingError, UsageError
from elman.training.progress import Progress
from tests.commands import Run, run  # noqa: F401
from tests.explain.test_saliency import TINY

LINES = ["the cat sat on the mat", "the dog sat on the log", "a cat and a dog met the cat on the mat"]
TEXT = "\n".join(LINES * 5) + "\n"
INDEXED = {"data.index": True}
QUERY = "a zebra met the cat on the mat\nthe dog sat on a dog"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("novelty")
    (folder / "text.txt").write_text(TEXT)
    return folder


@pytest.fixture(scope="module")
def models(folder: Path) -> dict[str, Any]:
    data = folder / "text.txt"
    return {
        "mkn": elman.train("lm", data, model="mkn", valid="none", settings=INDEXED, out=folder / "mkn"),
        "lstm": elman.train(
            "lm", data, model="lstm", valid="none", epochs=1, settings=TINY | INDEXED, out=folder / "lstm"
        ),
        "plain": elman.train("lm", data, model="mkn", valid="none", out=folder / "plain"),
        "memory": elman.train("lm", data, model="mkn", valid="none", settings=INDEXED),
        "char": elman.train("lm", data, model="mkn", valid="none", settings=INDEXED | {"data.units": "char"}),
        "word": elman.train("lm", data, model="mkn", valid="none", settings=INDEXED | {"data.units": "word"}),
    }


@pytest.mark.parametrize("name", ["mkn", "lstm", "memory"])
def test_spans_and_shares_are_those_of_a_naive_search(models: dict[str, Any], name: str) -> None:
    found = models[name].explain(QUERY, kind="novelty").data
    tokens, text = QUERY.replace("\n", " </s> ").split(), TEXT.replace("\n", " </s> ").split()

    def is_there(part: list[str]) -> bool:
        return any(text[place : place + len(part)] == part for place in range(len(text)))

    wanted = []
    for begin in range(len(tokens)):
        length = 0
        while begin + length < len(tokens) and is_there(tokens[begin : begin + length + 1]):
            length += 1
        wanted.append(length)
    assert [row["longest"] for row in found["tokens"]] == wanted
    begin, spans = 0, []
    while begin < len(tokens):
        if wanted[begin] >= 5:
            spans.append((begin, begin + wanted[begin]))
        begin += wanted[begin] if wanted[begin] >= 5 else 1
    assert [(one["begin"], one["end"]) for one in found["spans"]] == spans and spans
    assert found["spans"][0]["text"].startswith("met the cat on the mat")
    assert found["spans"][0]["line"] == 3
    assert found["copied_share"] == pytest.approx(
        sum(one["end"] - one["begin"] for one in found["spans"]) / len(tokens)
    )
    for row in found["ngrams"]:
        ngrams = [tokens[begin : begin + row["order"]] for begin in range(len(tokens) - row["order"] + 1)]
        assert row["share"] == pytest.approx(sum(map(is_there, ngrams)) / len(ngrams))


def test_the_index_is_a_file_of_the_model_that_the_manifest_covers(models: dict[str, Any], folder: Path) -> None:
    assert "index.safetensors" in json.loads((folder / "mkn" / "manifest.json").read_text())["files"]
    assert not (folder / "plain" / "index.safetensors").exists()
    assert "index" not in json.loads((folder / "plain" / "config.json").read_text())["data"]
    loaded = elman.load(folder / "lstm")
    assert loaded.explain(QUERY, kind="novelty").data == models["lstm"].explain(QUERY, kind="novelty").data
    loaded.save(folder / "copy")
    assert elman.load(folder / "copy").explain(QUERY, kind="novelty").data["spans"]
    (folder / "copy" / "index.safetensors").write_bytes(b"x" * (folder / "copy" / "index.safetensors").stat().st_size)
    with pytest.raises(DataError, match=r"index\.safetensors"):
        elman.load(folder / "copy").explain(QUERY, kind="novelty")


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "truncated": lambda data: data[:-1],
    "its header changed": lambda data: data[:9] + bytes([data[9] ^ 64]) + data[10:],
    "its places changed": lambda data: data[:-400] + bytes(byte ^ 255 for byte in data[-400:-200]) + data[-200:],
    "longer": lambda data: data + b"x",
}


@pytest.mark.parametrize("verify", [(), ("--no-verify",)])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_index_is_refused(
    run: Run,  # noqa: F811
    models: dict[str, Any],
    folder: Path,
    tmp_path: Path,
    damage: str,
    verify: tuple[str, ...],
) -> None:
    """With --no-verify, changed places were searched, and nothing seemed to be copied."""
    shutil.copytree(folder / "mkn", tmp_path / "m")
    index = tmp_path / "m" / "index.safetensors"
    index.write_bytes(DAMAGES[damage](index.read_bytes()))
    for command in (("explain", tmp_path / "m", QUERY, "--kind", "novelty"), ("generate", tmp_path / "m", "--novelty")):
        done = run(*command, *verify)
        assert done.code == 65 and "index.safetensors" in done.err and "again" in done.err and not done.out


def test_a_mixture_has_the_index_of_its_first_member(models: dict[str, Any], folder: Path) -> None:
    mixture = elman.mix([models["mkn"], "cache"], valid=folder / "text.txt", out=folder / "mix")
    assert mixture.explain(QUERY, kind="novelty").data == models["mkn"].explain(QUERY, kind="novelty").data


def test_a_run_that_was_stopped_and_gone_on_with_has_its_index(run: Run, folder: Path, tmp_path: Path) -> None:  # noqa: F811
    def stop(progress: Progress) -> None:
        raise KeyboardInterrupt

    settings = TINY | INDEXED | {"train.steps": 4, "train.checkpoint_steps": 1}
    with pytest.raises(KeyboardInterrupt):
        elman.train("lm", folder / "text.txt", model="rnn", out=tmp_path / "m", settings=settings, on_progress=stop)
    assert run("resume", tmp_path / "m").code == 0
    assert elman.load(tmp_path / "m").explain(QUERY, kind="novelty").data["spans"]


def test_without_an_index_the_text_is_read_or_asked_for(models: dict[str, Any], folder: Path) -> None:
    found = models["plain"].explain(QUERY, kind="novelty", data=folder / "text.txt").data
    assert found == models["mkn"].explain(QUERY, kind="novelty").data
    with pytest.raises(MissingError, match=r"nothing says which text .*\n.*data=FILE"):
        models["plain"].explain(QUERY, kind="novelty")


def test_letters_and_words_with_spaces_are_marked_as_they_are_written(models: dict[str, Any]) -> None:
    for name in ("char", "word"):
        found = models[name].explain("zebra and a dog met the cat on the mat, yes", kind="novelty")
        (span,) = found.data["spans"]
        assert span["text"] == "and a dog met the cat on the mat"
        assert " «and a dog met the cat on the mat»" in str(found)
    assert models["char"].explain("the cat sat on me", kind="novelty").data["spans"] == []  # 25 letters at least
    assert models["char"].explain("the cat sat on me", kind="novelty", least=5).data["spans"]


def test_marks_stand_beside_words_and_ends_of_lines_are_seen(models: dict[str, Any]) -> None:
    """A span that began with the end of a line was opened behind the line before it."""
    found = models["mkn"].explain("zebra mat\nthe dog sat on the log\nzebra", kind="novelty")
    assert found.data["spans"][0]["text"].startswith("mat\nthe")
    assert "<unk> «mat\nthe dog sat on the log»\n<unk>" in str(found)
    begun = models["mkn"].explain("zebra\nthe dog sat on the log\n", kind="novelty")
    assert "<unk>\n«the dog sat on the log»" in str(begun)
    drawn = [row for row in begun.picture["vconcat"][0]["data"]["values"] if row["text"] == "↵"]
    assert drawn and all("in a span of 5 tokens" in row["is"] for row in drawn)


def test_unknown_words_stand_nowhere(folder: Path, tmp_path: Path) -> None:
    data = tmp_path / "rare.txt"
    data.write_text(TEXT + "the rare cat sat on the mat\n")
    model = elman.train("lm", data, model="mkn", valid="none", settings=INDEXED)
    found = model.explain("the zebra cat sat on the mat", kind="novelty")
    assert [row["longest"] for row in found.data["tokens"]][:2] == [1, 0]
    assert any("1 of the tokens are unknown" in note for note in found.notes)


def test_without_a_text_the_model_writes_one(models: dict[str, Any]) -> None:
    found = models["mkn"].explain(kind="novelty", tokens=30, seed=3)
    assert len(found.data["tokens"]) <= 30 and any("seed 3" in note for note in found.notes)
    assert found.data["tokens"] == models["mkn"].explain(kind="novelty", tokens=30, seed=3).data["tokens"]
    assert found.to_png()[:4] == b"\x89PNG"
    assert max(len(line) for line in str(found).splitlines()) <= 100
    with pytest.raises(UsageError, match="no words"):
        models["mkn"].explain("", kind="novelty")
    long = models["mkn"].explain("the cat " * 3000, kind="novelty")
    assert len(long.data["tokens"]) == 5000 and any("first 5,000 of 6,000" in note for note in long.notes)


def test_generate_marks_what_is_copied(run: Run, models: dict[str, Any], folder: Path) -> None:  # noqa: F811
    options = ("--tokens", "40", "--seed", "1", "--novelty")
    plain = run("generate", folder / "mkn", *options[:-1])
    marked = run("generate", folder / "mkn", *options)
    assert marked.code == 0 and "«" in marked.out and "»" in marked.out
    assert marked.out.replace("«", "").replace("»", "").split() == plain.out.split()
    found = json.loads(run("generate", folder / "mkn", *options, "--json").out)
    (one,) = found["novelty"]
    assert one["spans"] and all(span["text"] in TEXT for span in one["spans"])
    beam = json.loads(run("generate", folder / "mkn", "--beam", "2", "--novelty", "--json").out)
    assert len(beam["novelty"]) == len(beam["texts"])
    refused = run("generate", folder / "plain", *options)
    assert refused.code == 66 and "data.index=true" in refused.err and not refused.out


def test_only_language_models_keep_an_index(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"data\.index is not a setting"):
        elman.train("masked", folder / "text.txt", settings=INDEXED)
