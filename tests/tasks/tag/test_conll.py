"""Sentences are read from every format, written back byte for byte, and every bad line is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elman.core.errors import DataError
from elman.tasks.tag.config import SentencesConfig
from elman.tasks.tag.conll import SentenceReader, read_sentences, write_sentence

CONLLU = """\
# newdoc id = one
# text = I don't know it
1	I	I	PRON	PRP	Case=Nom	4	nsubj	_	_
2-3	don't	_	_	_	_	_	_	_	_
2	do	do	AUX	VBP	_	4	aux	_	_
3	n't	not	PART	RB	_	4	advmod	_	_
4	know	know	VERB	VB	_	0	root	_	_
4.1	it	it	PRON	_	_	_	_	_	_
5	10 000	10 000	NUM	CD	_	4	obj	_	SpaceAfter=No


# sent_id = 2
1	Yes	yes	INTJ	UH	_	0	root	_	_

"""
COLUMNS = """\
-DOCSTART- -X- -X- O

EU NNP B-NP B-ORG
rejects VBZ  B-VP O

# CD B-NP O
"""


def read_all(text: str, folder: Path, name: str, **settings: object) -> tuple[Path, SentencesConfig]:
    path = folder / name
    path.write_text(text)
    return path, SentencesConfig.model_validate(settings)


def test_words_of_conllu_are_those_with_whole_numbers(tmp_path: Path) -> None:
    path, data = read_all(CONLLU, tmp_path, "a.conllu")
    sentences, _ = read_sentences([path], data)
    assert [sentence.words for sentence in sentences] == [("I", "do", "n't", "know", "10 000"), ("Yes",)]
    assert sentences[0].tags == ("PRON", "AUX", "PART", "VERB", "NUM")
    assert sentences[1].place(0) == f"line 13 of {path}"
    xpos, _ = read_sentences([path], SentencesConfig(column="xpos"))
    assert xpos[1].tags == ("UH",)


def test_the_conllu_library_reads_the_same_words_and_tags(tmp_path: Path) -> None:
    conllu = pytest.importorskip("conllu")
    path, data = read_all(CONLLU, tmp_path, "a.conllu")
    sentences, _ = read_sentences([path], data)
    theirs = [
        [(token["form"], token["upos"]) for token in tokens if isinstance(token["id"], int)]
        for tokens in conllu.parse(CONLLU)
    ]
    assert theirs == [list(zip(sentence.words, sentence.tags, strict=True)) for sentence in sentences]


@pytest.mark.parametrize(
    ("text", "name"), [(CONLLU, "a.conllu"), (COLUMNS, "a.txt"), (CONLLU.rstrip("\n"), "b.conllu")]
)
def test_a_file_with_its_own_tags_written_back_is_the_file(tmp_path: Path, text: str, name: str) -> None:
    path, data = read_all(text, tmp_path, name)
    written = "".join(
        write_sentence(sentence, sentence.tags, data)
        for block in SentenceReader([path], data).blocks()
        for sentence in block
    )
    assert written == (text if text.endswith("\n") else text + "\n")


def test_only_the_column_of_the_tag_changes(tmp_path: Path) -> None:
    path, data = read_all(COLUMNS, tmp_path, "a.txt")
    sentences, _ = read_sentences([path], data)
    assert [sentence.words for sentence in sentences] == [("EU", "rejects"), ("#",)]
    assert write_sentence(sentences[0], ["X", "Y"], data) == "EU NNP B-NP X\nrejects VBZ  B-VP Y\n\n"
    second = SentencesConfig(column="2")
    assert read_sentences([path], second)[0][0].tags == ("NNP", "VBZ")
    assert write_sentence(sentences[1], ["X"], second) == "# X B-NP O\n"


def test_words_alone_get_a_column(tmp_path: Path) -> None:
    path, data = read_all("the\ncat\n\nsat\n", tmp_path, "a.txt")
    blocks = list(SentenceReader([path], data, needs_tags=False, as_format="columns").blocks())
    sentences = [sentence for block in blocks for sentence in block]
    assert [write_sentence(sentence, ["T"] * len(sentence.words), data) for sentence in sentences] == [
        "the\tT\ncat\tT\n\n",
        "sat\tT\n",
    ]
    with pytest.raises(DataError, match=r"line 1 of .* has no tag"):
        read_sentences([path], data)


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("a X\nb Y\n\nc\n", "a.txt", "line 4 of .* has 1 column, expected 2"),
        (CONLLU.replace("\tUH\t", "\t"), "a.conllu", "line 13 of .* has 9 columns, expected 10"),
        (CONLLU.replace("\n3\tn't", "\nx\tn't"), "a.conllu", "line 6 of .* begins with 'x'"),
        (CONLLU.replace("\tUH\t", "\t\t"), "a.conllu", "line 13 of .* has an empty column"),
        ("\n\n", "a.txt", "there are no sentences"),
        ("".join(f"ham\tgo to the {i} shops now\n" for i in range(40)), "a.tsv", "looks like a label and a text"),
        ('{"tokens": ["a"], "tags": []}\n', "a.jsonl", "line 1 of .* has 1 words and 0 tags"),
    ],
)
def test_bad_files_are_refused_with_the_line(tmp_path: Path, text: str, name: str, message: str) -> None:
    path, data = read_all(text, tmp_path, name)
    with pytest.raises(DataError, match=message):
        read_sentences([path], data)


def test_sentences_with_bad_lines_are_dropped_and_counted_on_demand(tmp_path: Path) -> None:
    path, data = read_all("a X\n\nb\n\nc Y\n", tmp_path, "a.txt", skip_bad=True)
    sentences, num_dropped = read_sentences([path], data)
    assert [sentence.words for sentence in sentences] == [("a",), ("c",)]
    assert num_dropped == 1


def test_a_column_that_is_not_there_is_refused(tmp_path: Path) -> None:
    path, _ = read_all(CONLLU, tmp_path, "a.conllu")
    with pytest.raises(DataError, match="no column 'ner'"):
        read_sentences([path], SentencesConfig(column="ner"))
    path, _ = read_all(COLUMNS, tmp_path, "a.txt")
    with pytest.raises(DataError, match=r"data\.column=9"):
        read_sentences([path], SentencesConfig(column="9"))


@pytest.mark.parametrize("text", ["The\tD\ncat\tN\n\nIt\tD\n", "The\tD\ncat\tN\n"])
def test_columns_between_tabs_are_known_without_being_asked_for(tmp_path: Path, text: str) -> None:
    """`predict` took each row of such a file for a sentence of two words, while `evaluate` read its columns."""
    path, data = read_all(text, tmp_path, "a.txt")
    reader = SentenceReader([path], data, needs_tags=False)
    found = [sentence for block in reader.blocks() for sentence in block]
    assert reader.format == "columns"
    assert [sentence.words for sentence in found] == [s.words for s in read_sentences([path], data)[0]]


@pytest.mark.parametrize(
    ("record", "what", "hint"),
    [
        ('{"tokens": ["a"]}', "has words, but no tags", "elman predict"),
        ('{"kind": "a"}', "is not words with tags: it looks like records of an unknown kind", '"tags": ['),
    ],
)
def test_the_hint_of_records_without_tags_can_be_followed(tmp_path: Path, record: str, what: str, hint: str) -> None:
    """Both were sent to `elman train lm`, which reads the one for another purpose and the other not at all."""
    path, data = read_all(record + "\n", tmp_path, "a.jsonl")
    with pytest.raises(DataError, match=what) as caught:
        read_sentences([path], data)
    assert hint in (caught.value.hint or "")


def test_records_are_sentences_too(tmp_path: Path) -> None:
    path, data = read_all('{"tokens": ["a b", "c"], "tags": ["X", "Y"]}\n\n', tmp_path, "a.jsonl")
    sentences, _ = read_sentences([path], data)
    assert [(sentence.words, sentence.tags) for sentence in sentences] == [(("a b", "c"), ("X", "Y"))]


@given(
    st.lists(st.lists(st.text("ab#-", min_size=1, max_size=3), max_size=4), min_size=1, max_size=6), st.integers(1, 40)
)
def test_where_a_block_ends_does_not_matter(rows: list[list[str]], size: int) -> None:
    """Sentences are cut by blank lines, not by what was there to read at once."""
    import tempfile

    from elman.text import readers

    text = "".join("".join(f"{word} T\n" for word in row) + "\n" for row in rows)
    before = readers.FIRST_BLOCK_BYTES, readers.BLOCK_BYTES
    with tempfile.TemporaryDirectory() as folder:
        path, data = read_all(text, Path(folder), "a.txt")
        try:
            readers.FIRST_BLOCK_BYTES = readers.BLOCK_BYTES = size
            blocks = list(SentenceReader([path], data, as_format="columns").blocks())
        finally:
            readers.FIRST_BLOCK_BYTES, readers.BLOCK_BYTES = before
        sentences = [sentence for block in blocks for sentence in block]
    assert "".join(write_sentence(sentence, sentence.tags, data) for sentence in sentences) == text
    assert [sentence.words for sentence in sentences if sentence.words] == [tuple(row) for row in rows if row]
