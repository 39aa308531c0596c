"""Pairs from every format, and every way in which a pair can be bad."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from elman.core.errors import DataError
from elman.tasks.seq2seq.config import PairsConfig
from elman.tasks.seq2seq.reading import read_pairs
from elman.text.tables import Pairs


def read(path: Path, text: str, **settings: object) -> Pairs:
    path.write_text(text, encoding="utf-8")
    return read_pairs([path], PairsConfig(**settings))  # type: ignore[arg-type]


def rows(pairs: Pairs) -> list[tuple[str, str]]:
    return list(zip(pairs.sources, pairs.targets, strict=True))


def test_a_table_of_two_columns_is_pairs(tmp_path: Path) -> None:
    found = read(tmp_path / "p.tsv", "guten Tag\tgood day\n\nja \t yes\n")
    assert rows(found) == [("guten Tag", "good day"), ("ja", "yes")]
    assert found.place(1) == f"line 3 of {tmp_path / 'p.tsv'}"


def test_columns_are_picked_and_joined(tmp_path: Path) -> None:
    found = read(tmp_path / "i.tsv", "gehen\tging\tV;PST\nsehen\tsah\tV;PST\n", source="1,3", target=(2,))
    assert rows(found) == [("gehen V;PST", "ging"), ("sehen V;PST", "sah")]


def test_columns_are_spelt_or_taken_as_symbols(tmp_path: Path) -> None:
    text = "gehen\tging\tV;PST;3\nsich v\tx y\tV|PRS\n"
    found = read(tmp_path / "i.tsv", text, source="1,3", target=(2,), spelled="1")
    assert rows(found) == [("g e h e n +V +PST +3", "ging"), ("s i c h \u2581 v +V +PRS", "x y")]
    assert PairsConfig(source=(1, 3), target=(2,), spelled=(1,)).units_of("source") == "space"  # type: ignore[call-arg]


def test_the_names_of_columns_are_no_pair(tmp_path: Path) -> None:
    table = "Source\ttarget\nguten Tag\tgood day\nsource\ttarget\n"  # only a first row names columns
    found = read(tmp_path / "p.tsv", table)
    assert rows(found) == [("guten Tag", "good day"), ("source", "target")]
    place = f"line 1 of {tmp_path / 'p.tsv'}, 'Source\\ttarget',"
    assert found.notes() == [f"{place} names the columns, and is left out (data.header=false keeps it)"]
    assert found.left_out() == {"header_lines": 1}
    assert len(read(tmp_path / "p.tsv", table, header=False)) == 3
    kept = read(tmp_path / "p.tsv", "Quelle\tZiel\nja\tyes\n")
    assert (len(kept), kept.notes(), kept.left_out()) == (2, [], {})  # it may be a pair
    assert rows(read(tmp_path / "p.tsv", "Quelle\tZiel\nja\tyes\n", header=True)) == [("ja", "yes")]


def test_every_file_may_name_its_columns(tmp_path: Path) -> None:
    for name, word in (("a.tsv", "eins"), ("b.tsv", "zwei")):
        (tmp_path / name).write_text(f"\nde\ten\n{word}\tx\n")
    found = read_pairs([tmp_path / "a.tsv", tmp_path / "b.tsv"], PairsConfig())
    assert (found.sources, len(found.headers)) == (["eins", "zwei"], 2)


def test_scan_commands_are_pairs(tmp_path: Path) -> None:
    found = read(tmp_path / "scan.txt", "IN: jump twice OUT: I_JUMP I_JUMP\nIN: run OUT: I_RUN\n")
    assert rows(found) == [("jump twice", "I_JUMP I_JUMP"), ("run", "I_RUN")]


def test_records_are_pairs_packed_or_not(tmp_path: Path) -> None:
    text = "".join(json.dumps({"source": s, "target": t, "id": 1}) + "\n" for s, t in (("a b", "c"), ("ü", "d")))
    assert rows(read(tmp_path / "p.jsonl", text)) == [("a b", "c"), ("ü", "d")]
    (tmp_path / "q.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    assert rows(read_pairs([tmp_path / "q.jsonl.gz"], PairsConfig())) == [("a b", "c"), ("ü", "d")]


def test_two_files_are_read_line_by_line(tmp_path: Path) -> None:
    (tmp_path / "de").write_text("eins\nzwei\n\ndrei\n")
    (tmp_path / "en").write_text("one\ntwo\n\nthree\n")
    found = read_pairs([tmp_path / "de"], PairsConfig(), targets=[tmp_path / "en"])
    assert rows(found) == [("eins", "one"), ("zwei", "two"), ("drei", "three")]


def test_two_files_of_different_length_are_refused_with_both_lengths(tmp_path: Path) -> None:
    (tmp_path / "de").write_text("eins\nzwei\ndrei\nvier\n")
    (tmp_path / "en").write_text("one\ntwo\n")
    with pytest.raises(DataError, match="the sources have 4 lines and the targets 2"):
        read_pairs([tmp_path / "de"], PairsConfig(), targets=[tmp_path / "en"])
    with pytest.raises(DataError, match="the sources have 2 lines and the targets 4"):
        read_pairs([tmp_path / "en"], PairsConfig(), targets=[tmp_path / "de"])


def test_a_bad_line_of_one_file_takes_its_partner_with_it(tmp_path: Path) -> None:
    """A reader that dropped the broken line by itself moved every later source beside the wrong target."""
    (tmp_path / "de").write_bytes(b"eins\n\xff\xff\ndrei\n\nf\xc3\xbcnf\n")
    (tmp_path / "en").write_text("one\ntwo\nthree\nfour\nfive\n")
    sides = {"targets": [tmp_path / "en"]}
    found = read_pairs([tmp_path / "de"], PairsConfig(skip_bad=True), **sides)
    assert rows(found) == [("eins", "one"), ("drei", "three"), ("fünf", "five")]
    assert found.num_dropped == 2
    with pytest.raises(DataError, match=r"line 2 of .*de has a source that is not UTF-8 at byte 1"):
        read_pairs([tmp_path / "de"], PairsConfig(), **sides)
    replaced = read_pairs([tmp_path / "de"], PairsConfig(errors="replace", skip_bad=True), **sides)
    assert replaced.sources[1] == "\ufffd\ufffd"


GOOD = "".join(f"quelle {n}\tziel {n}\n" for n in range(30))


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("nur eine Seite", "has 1 column, expected 2"),
        ("a\tb\tc", "has 3 columns, expected 2"),
        ("\tb", "has an empty source"),
        ("a\t  ", "has an empty target"),
    ],
)
def test_a_bad_row_is_named_or_dropped_and_counted(tmp_path: Path, line: str, what: str) -> None:
    path = tmp_path / "p.tsv"
    with pytest.raises(DataError, match=f"line 31 of .* {what}"):
        read(path, GOOD + line + "\n")
    found = read(path, GOOD + line + "\n" + GOOD, skip_bad=True)
    assert (len(found), found.num_dropped) == (60, 1)


@pytest.mark.parametrize(
    ("record", "what"),
    [
        ("{", "is not JSON"),
        ("[1]", "is not a JSON object"),
        ('{"source": "a"}', "has no `target`"),
        ('{"source": "a", "target": 3}', "has a `target` that is not text"),
        ('{"source": "a", "target": "\\ud800"}', "has a `target` that is not text"),
        ('{"source": "a", "target": ""}', "has an empty target"),
    ],
)
def test_a_bad_record_is_named(tmp_path: Path, record: str, what: str) -> None:
    good = '{"source": "a", "target": "b"}\n'
    with pytest.raises(DataError, match=f"line 2 of .* {what}"):
        read(tmp_path / "p.jsonl", good + record + "\n")


def test_a_cell_of_csv_and_a_value_of_jsonl_are_the_same_text(tmp_path: Path) -> None:
    """Of CSV tabs and double spaces were taken out where a cell had a tab, of JSONL not, and a line break was refused."""
    texts = ["a\tb  c", "two\r\nlines", "three \n\n paragraphs"]
    records = "".join(json.dumps({"source": text, "target": "x"}) + "\n" for text in texts)
    rows_of_csv = "source,target\n" + "".join(f'"{text}",x\n' for text in texts)
    wanted = ["a\tb  c", "two lines", "three paragraphs"]
    assert read(tmp_path / "p.jsonl", records).sources == wanted
    assert read(tmp_path / "p.csv", rows_of_csv).sources == wanted


def test_the_hint_of_a_missing_key_has_the_keys_that_are_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no `reply`") as caught:
        read(tmp_path / "p.jsonl", '{"ask": "a"}\n', source="ask", target="reply")
    assert "the first record has ask" in (caught.value.hint or "")


def test_a_table_with_fewer_columns_than_picked_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"line 1 of .* has 2 columns, expected 4"):
        read(tmp_path / "p.tsv", "a\tb\n", source="1", target="4")


def test_an_empty_file_has_no_pairs(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there are no pairs"):
        read(tmp_path / "p.tsv", "\n\n")


CONLLU = "# sent_id = 1\n1\tDogs\tdog\tNOUN\tNNS\t_\t2\tnsubj\t_\t_\n2\tbark\tbark\tVERB\tVBP\t_\t0\troot\t_\t_\n\n"
OTHERS = {
    "lm": "A sentence of prose.\nAnd another one, a little longer.\n",
    "tag": CONLLU,
    "classify": "".join(f"{'ham' if n % 3 else 'spam'}\thello number {n} how are you\n" for n in range(60)),
    "qa": "1 Mary went home.\n2 John left the house.\n3 Where is Mary? \thome\t1\n",
}


@pytest.mark.parametrize("task", OTHERS)
def test_a_file_of_another_task_says_which(tmp_path: Path, task: str) -> None:
    with pytest.raises(DataError, match="is not pairs of source and target: it looks like") as caught:
        read(tmp_path / "x.txt", OTHERS[task])
    assert f"elman train {task} " in (caught.value.hint or "")


def test_picked_columns_are_taken_at_their_word(tmp_path: Path) -> None:
    found = read(tmp_path / "x.tsv", OTHERS["classify"], source="2", target="1")
    assert rows(found)[0] == ("hello number 0 how are you", "spam")
