"""Numbers of what was written: sacrebleu's own where they are its, by hand where they are ours."""

from __future__ import annotations

import numpy as np
import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st

from elman.tasks.seq2seq.metrics import Marks, Written, bucket_width, edit_counts, edit_distance

SENTENCES = st.lists(st.sampled_from(["the", "cat", "sat", "on", "a", "mat", ".", "dog"]), min_size=1, max_size=9).map(
    " ".join
)


def row(text: str, *references: str, source_length: int = 5) -> Written:
    def tokens(text: str) -> np.ndarray:
        return np.array([hash(word) for word in text.split()])

    return Written(text, references, tokens(text), [tokens(r) for r in references], source_length)


def marks(rows: list[Written]) -> Marks:
    found = Marks()
    for one in rows:
        found.add([one])
    return found


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(SENTENCES, SENTENCES), min_size=1, max_size=8))
def test_bleu_and_chrf_are_sacrebleus(pairs: list[tuple[str, str]]) -> None:
    found = marks([row(text, reference) for text, reference in pairs]).numbers()
    texts, references = [text for text, _ in pairs], [[reference for _, reference in pairs]]
    assert found["bleu"] == sacrebleu.corpus_bleu(texts, references, force=True).score
    assert found["chrf"] == sacrebleu.corpus_chrf(texts, references).score


@pytest.mark.parametrize(
    ("units", "references", "tokenizer", "first"),
    [
        ("word", ["The cat sat on the mat.", "A dog."], "13a", "bleu"),
        ("bpe:500", ["The cat sat on the mat.", "A dog."], "13a", "bleu"),
        ("space", ["the cat sat", "a dog"], "none", "bleu"),
        ("space", ["k", "ae", "t"], "none", "exact_match"),  # a word each: BLEU of four words is always 0
        ("char", ["sulumor", "ann"], "char", "exact_match"),
        ("word", ["猫がマットの上に座った。", "犬も座った。"], "char", "bleu"),
        ("char", ["猫がマットの上に座った。", "犬も座った。"], "char", "bleu"),
        ("word", ["แมวนั่งบนเสื่อ", "หมาก็นั่ง"], "char", "bleu"),
        ("word", ["고양이가 매트 위에 앉았다.", "개도 앉았다."], "13a", "bleu"),
    ],
)
def test_bleu_is_counted_in_what_the_text_is_made_of_and_what_says_most_comes_first(
    units: str, references: list[str], tokenizer: str, first: str
) -> None:
    found = Marks.of_texts(references, units=units)
    found.add([row(text, text) for text in references])
    assert f"|tok:{tokenizer}|" in found.signatures()["bleu_signature"]
    assert (
        next(iter(found.numbers())) == next(iter(k for k in found.by_length()[0] if k not in ("from", "to"))) == first
    )


def test_japanese_that_is_nearly_right_has_a_bleu() -> None:
    """By tok:13a, which splits at spaces, a sentence is one word, and BLEU is 0 unless all of it is right."""
    reference = "猫がマットの上に座った。"
    found = Marks.of_texts([reference], units="word")
    found.add([row("猫がマットの上に座る。", reference)])
    assert found.numbers()["bleu"] > 50


def test_any_reference_counts() -> None:
    rows = [
        row("the cat sat on a mat", "a dog", "the cat sat on a mat"),
        row("a dog sat on the mat", "a dog sat on the mat"),
    ]
    found = marks(rows).numbers()
    assert found == {"bleu": pytest.approx(100), "chrf": 100, "exact_match": 1, "edit_distance": 0, "examples": 2}
    assert (
        marks(rows).signatures()["bleu_signature"].startswith("nrefs:var|case:mixed|eff:no|tok:13a|smooth:exp|version:")
    )
    assert marks(rows[1:]).signatures()["chrf_signature"].startswith("nrefs:1|")


def test_many_references_are_sacrebleus_too() -> None:
    rows = [
        row("the cat sat on the mat", "a cat sat on a mat", "the dog sat on the mat"),
        row("a dog", "a dog on a mat"),
        row("on the mat sat the cat", "the cat sat on the mat", "on it sat the cat", "mat ."),
    ]
    columns = [[r.references[i] if i < len(r.references) else None for r in rows] for i in range(3)]
    texts = [r.text for r in rows]
    found = marks(rows)
    for name, metric in (("bleu", sacrebleu.BLEU(force=True)), ("chrf", sacrebleu.CHRF())):
        assert found.numbers()[name] == metric.corpus_score(texts, columns).score  # type: ignore[arg-type]
        assert found.signatures()[f"{name}_signature"] == str(metric.get_signature())


def test_edits_by_hand() -> None:
    """kitten -> sitting: two replacements and an insertion."""
    assert edit_distance(np.array(list("kitten")), np.array(list("sitting"))) == 3
    assert edit_distance(np.array([]), np.array([1, 2])) == 2
    assert edit_distance(np.array([1, 2]), np.array([])) == 2
    assert edit_counts(np.array([1, 2]), [np.array([3, 4, 5]), np.array([1, 2, 2])]) == (1, 3)
    rows = [row("a b c", "a x c d"), row("a", "a")]
    assert marks(rows).numbers()["edit_distance"] == pytest.approx(2 / 5)
    assert marks(rows).numbers()["exact_match"] == 0.5


@given(st.text("abc", max_size=8), st.text("abc", max_size=8))
def test_edits_are_those_of_the_plain_recursion(one: str, other: str) -> None:
    table = [[max(i, j) if not i or not j else 0 for j in range(len(other) + 1)] for i in range(len(one) + 1)]
    for i in range(1, len(one) + 1):
        for j in range(1, len(other) + 1):
            change = table[i - 1][j - 1] + (one[i - 1] != other[j - 1])
            table[i][j] = min(table[i - 1][j] + 1, table[i][j - 1] + 1, change)
    assert edit_distance(np.array(list(one)), np.array(list(other))) == table[-1][-1]


def test_lengths_have_corpora_of_their_own() -> None:
    rows = [row("the cat sat down", "the cat sat down", source_length=n) for n in (1, 9, 10)]
    rows += [row("a dog", "the cat sat down", source_length=n) for n in (11, 25)]
    assert bucket_width([25]) == 5
    found = marks(rows).by_length()
    assert [(b["from"], b["to"], b["examples"], b["exact_match"]) for b in found] == [
        (1, 5, 1, 1.0), (6, 10, 2, 1.0), (11, 15, 1, 0.0), (21, 25, 1, 0.0),
    ]  # fmt: skip
    assert found[0]["bleu"] == pytest.approx(100)
    assert bucket_width([60]) == 10
    assert bucket_width([]) == 1
    assert bucket_width([99_999]) == 500
