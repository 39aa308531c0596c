"""One letter, several spellings in Unicode: `data.normalize` reads them alike, and without it another form is warned of."""

from __future__ import annotations

import json
import unicodedata
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import elman
from elman.core.errors import DataError, UsageError
from elman.text.units.forms import FormWarning, form_of, normalize_bytes
from tests.commands import Run

LINES = ["café à la crème", "le garçon a mangé une crêpe", "où est la forêt ?", "naïve été Noël"] * 5
PAIRS = [("très bien", "déjà"), ("forêt", "été"), ("garçon", "crème")] * 8
NET = {"model.hidden": 6, "train.steps": 3, "train.batch": 4}


def in_form(form: str, text: str) -> str:
    return unicodedata.normalize(form, text)  # type: ignore[arg-type]


def write(path: Path, content: str) -> dict[str, Path]:
    """The same text in both forms."""
    found = {}
    for form in ("NFC", "NFD"):
        found[form] = path.with_name(f"{form}-{path.name}")
        found[form].write_text(in_form(form, content), encoding="utf-8")
    return found


def data_of(task: str, folder: Path) -> dict[str, Path]:
    """A little of what a task reads."""
    match task:
        case "lm" | "masked" | "bilm":
            return write(folder / "text.txt", "\n".join(LINES) + "\n")
        case "seq2seq":
            return write(folder / "pairs.tsv", "".join(f"{a}\t{b}\n" for a, b in PAIRS))
        case "classify":
            return write(
                folder / "texts.tsv", "".join(f"{'né' if i % 2 else 'pas'}\t{x}\n" for i, x in enumerate(LINES))
            )
        case "tag":
            sentences = (f"{word}\t{'É' if 'é' in word else 'N'}\n" for line in LINES for word in [*line.split(), ""])
            return write(folder / "words.conll", "".join("\n" if row.startswith("\t") else row for row in sentences))
        case _:
            rows = [{"context": f"{a}. {b}.", "question": f"où est {a} ?", "answer": b} for a, b in PAIRS]
            return write(folder / "asked.jsonl", "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def train(task: str, data: Path, **settings: Any) -> Any:
    own = {"model": "lstm"} if task == "lm" else {}
    return elman.train(task, data, valid="none", settings=NET | settings, threads=1, **own)


def numbers(model: Any, data: Path) -> dict[str, Any]:
    """All that `evaluate` says but what depends on the bytes of a text."""
    return {key: value for key, value in model.evaluate(data).items() if not key.startswith("bits_per_byte")}


@pytest.mark.parametrize("task", ["lm", "masked", "bilm", "seq2seq", "classify", "tag", "qa"])
def test_every_task_reads_both_forms_alike_if_asked(task: str, tmp_path: Path) -> None:
    data = data_of(task, tmp_path)
    model = train(task, data["NFD"], **{"data.normalize": "NFC"})
    assert model.record.data.normalize == "NFC" and model.record.data.form is None
    model.save(tmp_path / "model")
    model = elman.load(tmp_path / "model")
    assert numbers(model, data["NFD"]) == numbers(model, data["NFC"])
    lines = data if task != "qa" else data_of("lm", tmp_path)
    vectors = [[vector for _, vector in model.encode_lines([lines[form]])] for form in ("NFC", "NFD")]
    assert np.array_equal(*vectors)
    texts = [in_form(form, LINES[0]) for form in ("NFC", "NFD")]
    assert np.array_equal(model.encode(texts[0]), model.encode(texts[1]))
    if task not in ("lm", "bilm"):
        found = [[one.line() for one in model.predict_lines([data[form]])] for form in ("NFC", "NFD")]
        assert task in ("tag", "masked") or found[0] == found[1]  # the others write what is no answer as it was
        assert len(found[0]) == len(found[1])


@pytest.mark.parametrize("task", ["lm", "masked", "bilm", "seq2seq", "classify", "tag", "qa"])
def test_without_it_another_form_is_warned_of(task: str, tmp_path: Path) -> None:
    data = data_of(task, tmp_path)
    model = train(task, data["NFC"])
    assert model.record.data.form == "NFC"
    lines = data if task != "qa" else data_of("lm", tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.evaluate(data["NFC"])
        list(model.encode_lines([lines["NFC"]]))
    with pytest.warns(FormWarning, match=r"NFD-.* is not in Unicode's form NFC, as the training text was"):
        list(model.encode_lines([lines["NFD"]]))
    with pytest.warns(FormWarning), pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(model), "_refuse_strange_labels", lambda *given: None, raising=False)
        patch.setattr(type(model), "_refuse_strange_tags", lambda *given: None, raising=False)
        model.evaluate(data["NFD"])


@pytest.mark.parametrize("units", ["space", "word", "char", "byte", "bpe:300"])
def test_bits_are_by_the_bytes_of_the_text_as_it_is(units: str, tmp_path: Path) -> None:
    data = data_of("lm", tmp_path)
    out = tmp_path / "model"
    elman.train("lm", data["NFC"], units=units, valid="none", out=out, settings={"data.normalize": "NFC"})
    model = elman.load(out)
    found = {form: model.evaluate(file) for form, file in data.items()}
    assert found["NFC"]["nats_per_token"] == found["NFD"]["nats_per_token"]
    sizes = {form: file.stat().st_size for form, file in data.items()}
    assert sizes["NFD"] > sizes["NFC"]
    total = [found[form]["bits_per_byte"] * sizes[form] for form in data]
    assert total[0] == pytest.approx(total[1], rel=1e-9)
    scores = [[one for block in model.score_lines(file) for one in block] for file in data.values()]
    assert [one.nats for one in scores[0]] == [one.nats for one in scores[1]] and len(scores[0]) == len(LINES)
    assert model.next(in_form("NFD", "le garç")) == model.next("le garç")
    library = pytest.importorskip("tokenizers").Tokenizer.from_file(str(out / "tokenizer.json"))
    for line in (LINES[0], in_form("NFD", LINES[0])):
        assert library.encode(line).ids == model.tokenizer.encode(LINES[0]).tolist()


def test_nfkc_makes_plain_letters_and_finds_reserved_symbols(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("la ﬁn du ﬁlm ２\n" * 4, encoding="utf-8")
    model = elman.train("lm", path, units="space", valid="none", settings={"data.normalize": "NFKC"})
    assert {"fin", "film", "2"} <= set(model.tokenizer.tokens)
    path.write_text("la fin\nle ＜/s＞ film\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"line 2 of .* contains </s>, which is reserved"):
        model.evaluate(path)


def test_the_command_line_says_it_and_the_result_stays_clean(run: Run, tmp_path: Path) -> None:
    data = data_of("lm", tmp_path)
    train("lm", data["NFC"]).save(tmp_path / "model")
    quiet, warned = (run("score", tmp_path / "model", data[form]) for form in ("NFC", "NFD"))
    assert "warning:" not in quiet.err and quiet.code == 0
    assert warned.err.count("warning: ") == 1 and "data.normalize=NFC" in warned.err and "warning" not in warned.out
    prompted = run("next", tmp_path / "model", in_form("NFD", "le garç"))
    assert "warning: the text is not in Unicode's form NFC" in prompted.err


def test_a_record_of_before_is_read_and_says_nothing(tmp_path: Path) -> None:
    data = data_of("lm", tmp_path)
    model = train("lm", data["NFC"])
    record = json.loads(model.record.model_dump_json())
    assert "normalize" not in record["data"]  # not written where it says nothing
    del record["data"]["form"]
    old = type(model.record).model_validate(record)
    assert old.data.normalize == "none" and old.data.form is None


def test_validation_text_in_another_form_is_warned_of(tmp_path: Path) -> None:
    data = data_of("lm", tmp_path)
    with pytest.warns(FormWarning, match="NFD-text.txt"):
        elman.train("lm", data["NFC"], valid=data["NFD"])


def test_a_form_to_expect_and_one_to_make_do_not_go_together(tmp_path: Path) -> None:
    data = data_of("lm", tmp_path)
    with pytest.raises(UsageError, match="form is for texts that are read as they are"):
        elman.train("lm", data["NFC"], settings={"data.normalize": "NFC", "data.form": "NFD"})


def test_a_text_is_in_a_form_if_all_of_it_is_and_not_in_the_other() -> None:
    assert form_of(["abc", "été"]) == "NFC"
    assert form_of(["abc", in_form("NFD", "été")]) == "NFD"
    assert form_of(["abc", "東京"]) is None
    assert form_of(["été", in_form("NFD", "été")]) is None


def test_bytes_that_are_no_text_stay_and_no_line_is_lost() -> None:
    lines = in_form("NFD", "été\n").encode() + b"\xff\xe9\n" + "\u0301x\n".encode()
    assert normalize_bytes(lines, "NFC") == "été\n".encode() + b"\xff\xe9\n" + "\u0301x\n".encode()
