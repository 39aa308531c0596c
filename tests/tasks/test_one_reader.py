"""What `evaluate` understands `predict` understands: from a file and through a pipe, with targets or without."""

from __future__ import annotations

import bz2
import csv
import gzip
import json
import lzma
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import elman
from elman.core.errors import DataError, MissingError, UsageError
from tests.commands import Run
from tests.guards.cases import train_case, write_data

TEXTS = [("pos", "the film was great"), ("neg", "the film was awful"), ("pos", "great, again"), ("neg", "awful\tfilm")]
PAIRS = [("rot haus", "red house"), ("blau und", "blue and"), ("auto", "car")]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier, a translator and a tagger, hardly trained."""
    folder = tmp_path_factory.mktemp("models")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        write_data(Path())
        for name in ("classify", "seq2seq-attention", "tag", "tag-crf", "qa"):
            train_case(name, name)
    return folder


def both_ways(run: Run, model: Path, file: Path) -> list[str]:
    """What predict says of a file, which must be what it says of the same bytes through a pipe."""
    from_file = run("predict", model, file)
    assert from_file.code == 0, from_file.err
    piped = run("predict", model, stdin=file.read_bytes())
    assert piped.out == from_file.out
    return from_file.out.splitlines()


def test_a_classifier_reads_the_text_of_labelled_lines_and_records(run: Run, models: Path, tmp_path: Path) -> None:
    rows = [(label, text.replace("\t", " ")) for label, text in TEXTS]
    plain, table, records, bare = (
        tmp_path / name for name in ("plain.txt", "table.tsv", "records.jsonl", "bare.jsonl")
    )
    plain.write_text("".join(f"{text}\n" for _, text in rows))
    table.write_text("".join(f"{label}\t{text}\n" for label, text in rows))
    records.write_text("".join(json.dumps({"text": text, "label": label}) + "\n" for label, text in rows))
    bare.write_text("".join(json.dumps({"text": text}) + "\n" for _, text in rows))
    wanted = both_ways(run, models / "classify", plain)
    assert set(wanted) <= {"pos", "neg"}
    for file in (table, records, bare):
        assert both_ways(run, models / "classify", file) == wanted, file.name


def test_a_text_with_a_tab_that_is_no_label_is_a_text(run: Run, models: Path) -> None:
    found = run("predict", models / "classify", "--json", stdin=b"what a\tgreat film\n")
    assert found.json["text"] == "what a\tgreat film"


def test_a_translator_reads_the_sources_of_pairs(run: Run, models: Path, tmp_path: Path) -> None:
    plain, table, records, scan = (tmp_path / name for name in ("plain.txt", "pairs.tsv", "pairs.jsonl", "scan.txt"))
    plain.write_text("".join(f"{source}\n" for source, _ in PAIRS))
    table.write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS))
    records.write_text("".join(json.dumps({"source": source, "target": target}) + "\n" for source, target in PAIRS))
    scan.write_text("".join(f"IN: {source} OUT: {target}\n" for source, target in PAIRS))
    wanted = both_ways(run, models / "seq2seq-attention", plain)
    assert len(wanted) == len(PAIRS)
    for file in (table, records, scan):
        assert both_ways(run, models / "seq2seq-attention", file) == wanted, file.name


def test_a_csv_file_in_a_pipe_is_read_by_its_names(run: Run, models: Path, tmp_path: Path) -> None:
    """Its rows, the one with the names too, were sources as they stood, commas and all."""
    plain, table = tmp_path / "plain.txt", tmp_path / "pairs.csv"
    plain.write_text("".join(f"{source}\n" for source, _ in PAIRS))
    with table.open("w", newline="") as file:
        csv.writer(file).writerows([("source", "target"), *PAIRS])
    wanted = both_ways(run, models / "seq2seq-attention", plain)
    assert both_ways(run, models / "seq2seq-attention", table) == wanted


def test_a_tagger_reads_records_with_and_without_tags(run: Run, models: Path, tmp_path: Path) -> None:
    lines, bare, full = (tmp_path / name for name in ("lines.txt", "bare.jsonl", "full.jsonl"))
    lines.write_text("the cat sat\nthe dog ran\n")
    sentences = [line.split() for line in lines.read_text().splitlines()]
    bare.write_text("".join(json.dumps({"tokens": words}) + "\n" for words in sentences))
    full.write_text("".join(json.dumps({"tokens": words, "tags": ["D", "N", "V"]}) + "\n" for words in sentences))
    wanted = both_ways(run, models / "tag", lines)
    assert both_ways(run, models / "tag", bare) == wanted
    assert both_ways(run, models / "tag", full) == wanted


def test_a_tagger_knows_a_column_file_in_a_pipe(run: Run, models: Path) -> None:
    content = (models / "words.valid.conll").read_text()
    found = run("predict", models / "tag", stdin=content.encode()).out
    assert [line.split()[:1] for line in found.splitlines()] == [line.split()[:1] for line in content.splitlines()]
    assert {line.split()[1] for line in found.splitlines() if line} <= {"D", "N", "V"}


def test_records_about_stories_are_known_in_a_pipe(run: Run, models: Path) -> None:
    record = {"context": "Mary went to the hall.", "question": "Where is Mary?"}
    found = run("predict", models / "qa", "--json", stdin=(json.dumps(record) + "\n").encode())
    assert found.code == 0, found.err
    assert found.json["question"] == "Where is Mary?"


# ------------------------------------------------------------------------------------------------- data as people have it


def train_classifier(run: Run, data: object, out: Path, *more: object) -> str:
    small = ["--set", "model.hidden=4", "--set", "train.steps=2", "--threads", "1", "--valid", "none"]
    done = run("train", "classify", data, "--out", out, *small, *more)
    assert done.code == 0, done.err
    return done.err


def write_csv(path: Path, names: list[str]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        for number in range(8):
            label, text = TEXTS[number % 4]
            writer.writerow([number, f'{text}, "so they say"\nand more', label])


def test_csv_with_quotes_line_breaks_and_a_header_is_read_by_its_usual_names(run: Run, tmp_path: Path) -> None:
    write_csv(tmp_path / "reviews.csv", ["id", "Review", "Sentiment"])
    said = train_classifier(run, tmp_path / "reviews.csv", tmp_path / "m")
    assert "'Review' and 'Sentiment' are read" in said and "2 labels" in said
    lines = run("predict", tmp_path / "m", tmp_path / "reviews.csv").out.splitlines()
    assert len(lines) == 8 and set(lines) <= {"pos", "neg"}
    assert run("evaluate", tmp_path / "m", tmp_path / "reviews.csv", "--json").json["examples"] == 8


def test_columns_are_chosen_by_name_in_csv_tables_and_records(run: Run, tmp_path: Path) -> None:
    write_csv(tmp_path / "a.csv", ["id", "words said", "verdict"])
    table = "number\twords said\tverdict\n" + "".join(
        f"{n}\t{text.replace(chr(9), ' ')}\t{label}\n" for n, (label, text) in enumerate(TEXTS * 2)
    )
    (tmp_path / "b.tsv").write_text(table)
    rows = [{"words said": text.replace("\t", " "), "verdict": label} for label, text in TEXTS * 2]
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    chosen = ["--set", "data.source=words said", "--set", "data.target=verdict", "--set", "data.header=true"]
    for name in ("a.csv", "b.tsv", "c.jsonl"):
        assert "2 labels" in train_classifier(run, tmp_path / name, tmp_path / f"m-{name}", *chosen)
        assert len(run("predict", tmp_path / f"m-{name}", tmp_path / name).out.splitlines()) == 8
    wrong = run(
        "train", "classify", tmp_path / "b.tsv", "--out", tmp_path / "x", *chosen[2:], "--set", "data.source=text"
    )
    assert wrong.code == 65 and "has no column 'text': its first row is 'number', 'words said', 'verdict'" in wrong.err


def pack_zip(path: Path, content: bytes) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("inside.txt", content)


def pack_zst(path: Path, content: bytes) -> None:
    zstandard = pytest.importorskip("zstandard", reason="pip install zstandard")
    path.write_bytes(zstandard.ZstdCompressor().compress(content))


PACKERS: dict[str, Callable[[Path, bytes], object]] = {
    ".gz": lambda path, content: path.write_bytes(gzip.compress(content)),
    ".bz2": lambda path, content: path.write_bytes(bz2.compress(content)),
    ".xz": lambda path, content: path.write_bytes(lzma.compress(content)),
    ".zip": pack_zip,
    ".zst": pack_zst,
}


@pytest.mark.parametrize("ending", PACKERS)
def test_compressed_text_is_read_and_damage_is_named(run: Run, tmp_path: Path, model: Path, ending: str) -> None:
    content = b"the cat sat on the mat .\n" * 400
    (tmp_path / "plain.txt").write_bytes(content)
    packed = tmp_path / f"packed.txt{ending}"
    PACKERS[ending](packed, content)
    wanted = run("evaluate", model, tmp_path / "plain.txt", "--json").json
    assert run("evaluate", model, packed, "--json").json == wanted
    packed.write_bytes(packed.read_bytes()[: len(packed.read_bytes()) * 2 // 3])
    damaged = run("evaluate", model, packed)
    assert damaged.code == 65 and str(packed) in damaged.err and "bug" not in damaged.err


def test_parquet_and_data_frames_are_records(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas", reason="pip install pandas")
    pytest.importorskip("pyarrow", reason="pip install pyarrow")
    frame = pandas.DataFrame(
        {"sentence": [text.replace("\t", " ") for _, text in TEXTS * 3], "label": [1, 0, 1, 0] * 3}
    )
    frame.to_parquet(tmp_path / "rows.parquet")
    settings = {"model.hidden": 4, "train.steps": 2}
    for data in (frame, tmp_path / "rows.parquet", frame.to_dict("records")):
        made = elman.train("classify", data, valid="none", settings=settings, threads=1)
        assert made.record.labels == ("0", "1") and made.record.source.lines == 12


def test_lists_of_texts_rows_and_open_files_are_data(tmp_path: Path) -> None:
    lines = ["the cat sat on the mat", "the dog sat on the log"] * 5
    (tmp_path / "lines.txt").write_text("".join(f"{line}\n" for line in lines))
    wanted = elman.train("lm", tmp_path / "lines.txt", valid="none").record.source
    with (tmp_path / "lines.txt").open() as file:
        for data in (lines, iter(lines), elman.texts(lines), file):
            assert elman.train("lm", data, valid="none").record.source == wanted
    words = elman.texts(["cat", "dog", "cat"])
    assert elman.train("lm", words, valid="none", units="space").record.source.lines == 3
    pairs = elman.train("seq2seq", PAIRS * 4, valid="none", settings={"model.hidden": 4, "train.steps": 1}, threads=1)
    assert pairs.record.source.lines == 12


def test_a_name_that_is_no_file_is_not_taken_for_a_text(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match=r"no file 'corpsu\.txt'") as caught:
        elman.train("lm", ["corpsu.txt"])
    assert "elman.texts" in (caught.value.hint or "")


def test_a_name_with_a_space_is_no_text_on_the_command_line(run: Run, tmp_path: Path) -> None:
    missing = run("train", "lm", tmp_path / "my corpus.txt", "--out", tmp_path / "m")
    assert missing.code == 66 and "cannot read" in missing.err and not (tmp_path / "m").exists()


def test_labels_and_tags_may_stand_in_files_of_their_own(run: Run, tmp_path: Path) -> None:
    (tmp_path / "texts").write_text("".join(f"{text.replace(chr(9), ' ')}\n" for _, text in TEXTS * 2))
    (tmp_path / "labels").write_text("".join(f"{label}\n" for label, _ in TEXTS * 2))
    sides = ["--source", tmp_path / "texts", "--target", tmp_path / "labels"]
    small = ["--set", "model.hidden=4", "--set", "train.steps=1", "--threads", "1", "--valid", "none"]
    assert run("train", "classify", *sides, "--out", tmp_path / "c", *small).code == 0
    assert run("evaluate", tmp_path / "c", *sides, "--json").json["examples"] == 8
    (tmp_path / "words").write_text("the cat sat\nthe dog ran\n")
    (tmp_path / "tags").write_text("D N V\nD N V\n")
    sides = ["--source", tmp_path / "words", "--target", tmp_path / "tags"]
    assert run("train", "tag", *sides, "--out", tmp_path / "t", *small).code == 0
    assert run("evaluate", tmp_path / "t", *sides, "--json").json["sentences"] == 2
    (tmp_path / "tags").write_text("D N V\nD N\n")
    assert "line 2" in run("evaluate", tmp_path / "t", *sides).err


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"%PDF-1.7 and more", "is a PDF, not text"),
        (b"\x89PNG\r\n\x1a\n", "is a PNG picture"),
        ("word".encode("utf-16"), "is UTF-16"),
        ("word".encode("utf-32"), "is UTF-32"),
    ],
)
def test_what_is_no_text_is_named(run: Run, tmp_path: Path, model: Path, content: bytes, what: str) -> None:
    (tmp_path / "file").write_bytes(content)
    found = run("evaluate", model, tmp_path / "file")
    assert found.code == 65 and what in found.err


def test_latin_1_is_told_how_to_become_utf_8(run: Run, tmp_path: Path, model: Path) -> None:
    (tmp_path / "old.txt").write_bytes("Müller und Söhne\n".encode("latin-1"))
    assert "iconv -f LATIN1" in run("evaluate", model, tmp_path / "old.txt").err


def test_the_files_of_a_directory_are_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    for name in ("a.txt", "b.txt"):
        (tmp_path / "texts" / name).write_text("the cat sat\n" * 5)
    done = run("train", "lm", tmp_path / "texts", "--out", tmp_path / "m")
    assert "has 2 files, all of them are read: a.txt, b.txt" in done.err


# ------------------------------------------------------------------------------------------------------------- bad lines


def test_lines_that_are_not_text_have_empty_answers_in_their_place(run: Run, models: Path) -> None:
    bad = b"great film\nM\xfcller\nawful film\n"
    refused = run("predict", models / "classify", stdin=bad)
    assert refused.code == 65 and "--errors skip" in refused.err and "--set" not in refused.err
    skipped = run("predict", models / "classify", "--errors", "skip", stdin=bad)
    assert skipped.code == 0 and len(skipped.out.splitlines()) == 3
    replaced = run("predict", models / "classify", "--errors", "replace", stdin=bad).out.splitlines()
    assert len(replaced) == 3 and all(replaced)
    translated = run("predict", models / "seq2seq-attention", "--errors", "skip", stdin=b"rot\nM\xfcller\nblau\n")
    assert translated.code == 0 and translated.out.splitlines()[1] == ""
    records = b'{"tokens": ["the", "cat"]}\n{"tokens": 3}\n{"tokens": ["a"]}\n'
    tagged = run("predict", models / "tag", "--errors", "skip", stdin=records)
    assert tagged.code == 0 and tagged.out.splitlines()[1] == "" and len(tagged.out.splitlines()) == 3


def test_replacing_goes_on_at_what_is_still_no_text(run: Run, models: Path, model: Path, tmp_path: Path) -> None:
    """`--errors replace` stopped `predict` and `evaluate` there, and not `score`."""
    bad = b'{"text": "great"}\n{"text": "M\xfcller"}\n{"text": 3}\n{"text": "awful"}\n'
    predicted = run("predict", models / "classify", "--errors", "replace", stdin=bad)
    assert predicted.code == 0 and [bool(line) for line in predicted.out.splitlines()] == [True, True, False, True]
    (tmp_path / "bad.tsv").write_bytes(b"pos\tgreat\nneg\tM\xfcller\nneg\n\nneg\tawful\n")
    found = run("evaluate", models / "classify", tmp_path / "bad.tsv", "--errors", "replace", "--json").json
    assert found["examples"] == 3 and found["dropped_lines"] == 1
    (tmp_path / "bad.jsonl").write_bytes(bad)
    scored = run("score", model, tmp_path / "bad.jsonl", "--errors", "replace")
    assert scored.code == 0 and [bool(line) for line in scored.out.splitlines()] == [True, True, False, True]


def test_evaluate_leaves_out_bad_lines_if_asked(run: Run, models: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.tsv").write_bytes(b"pos\tgreat\nneg\tM\xfcller\nneg\tawful\n")
    assert run("evaluate", models / "classify", tmp_path / "bad.tsv").code == 65
    found = run("evaluate", models / "classify", tmp_path / "bad.tsv", "--errors", "skip", "--json").json
    assert found["examples"] == 2 and found["dropped_lines"] == 1


def test_data_of_another_task_is_refused(run: Run, models: Path) -> None:
    strange = run("evaluate", models / "tag", models / "spans.valid.conll")
    assert strange.code == 65 and "tags are none that this model knows" in strange.err
    pairs = run("evaluate", models / "classify", models / "pairs.valid.tsv")
    assert pairs.code == 65 and "labels are none that this model knows" in pairs.err


def test_a_sentence_without_spaces_cannot_be_endless(tmp_path: Path) -> None:
    """`'a,' * 50000` has no space in it, and was taken for one word."""
    record = {"context": "a," * 50_000, "question": "Where?", "answer": "here"}
    (tmp_path / "q.jsonl").write_text(json.dumps(record) + "\n")
    with pytest.raises(DataError, match="sentence of 100,000 words"):
        elman.train("qa", tmp_path / "q.jsonl", valid="none", epochs=1)


def test_csv_is_known_in_a_pipe_by_its_first_row(run: Run, models: Path, tmp_path: Path) -> None:
    """It was taken for plain lines: the header got a label, and so did the commas and quotes of every row."""
    path = tmp_path / "rows.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("label", "text"), *((label, f'{text}, "so"') for label, text in TEXTS)])
    assert len(both_ways(run, models / "classify", path)) == len(TEXTS)
    piped, named = (
        run("evaluate", models / "classify", *file, "--json", stdin=path.read_bytes()) for file in (["-"], [path])
    )
    assert piped.json == named.json


def test_prose_with_a_comma_is_no_csv(run: Run, models: Path) -> None:
    found = run("predict", models / "classify", "--json", stdin=b"text, message\n")
    assert found.json["text"] == "text, message"


def test_hints_where_a_model_is_used_name_nothing_that_only_training_can_set(run: Run, models: Path) -> None:
    records = b'{"question": "who", "kind": "pos"}\n'
    for verb, name in (("predict", "classify"), ("evaluate", "classify"), ("evaluate", "seq2seq-attention")):
        found = run(verb, models / name, "-", stdin=records)
        assert found.code == 65
        assert "data.source" not in found.err
        assert "name the keys as they were named in training" in found.err


@pytest.mark.parametrize("name", ["mkn", "lstm", "masked", "seq2seq-attention", "tag", "classify"])
def test_what_is_no_list_of_texts_is_refused_from_python(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a data frame the names of its columns were read as texts: two answers for three rows."""
    pandas = pytest.importorskip("pandas", reason="pip install pandas")
    monkeypatch.chdir(tmp_path)
    write_data(Path())
    train_case(name, "model")
    model: Any = elman.load("model")
    verbs = [model.score] if name == "mkn" else [model.encode]
    verbs += [model.predict] if hasattr(model, "predict") else []
    frame = pandas.DataFrame({"text": ["the cat", "a dog", "the"], "label": ["x", "y", "x"]})
    for verb in verbs:
        with pytest.raises(UsageError, match=r"a data frame is no list of texts\n.*one of its columns"):
            verb(frame)
        assert len(verb(frame["text"])) == 3 and len(verb(iter(["the cat", "a dog"]))) == 2
        for wrong in (5, None, b"the cat", ["the cat", None], ["the cat", 2.5]):
            with pytest.raises(UsageError):
                verb(wrong)
