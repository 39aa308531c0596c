"""Numbers about tags are those of seqeval and scikit-learn, and worked by hand."""

from __future__ import annotations

import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elman.tasks.tag.metrics import one_tag_notes, tag_numbers

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    seqeval = pytest.importorskip("seqeval.metrics")

TAGS = ["O", *(f"{letter}-{kind}" for letter in "BI" for kind in ("PER", "LOC"))]
PAIRS = st.lists(st.lists(st.tuples(st.sampled_from(TAGS), st.sampled_from(TAGS)), min_size=1, max_size=6), min_size=1)


@settings(deadline=None)
@given(PAIRS)
def test_accuracy_f1_and_report_are_those_of_seqeval(rows: list[list[tuple[str, str]]]) -> None:
    given_tags = [[tag for tag, _ in row] for row in rows]
    wanted = [[tag for _, tag in row] for row in rows]
    if all(tag == "O" for row in wanted for tag in row):
        return
    found = tag_numbers(given_tags, wanted)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert found["accuracy"] == pytest.approx(seqeval.accuracy_score(wanted, given_tags))
        assert found["f1"] == pytest.approx(seqeval.f1_score(wanted, given_tags))
        report = seqeval.classification_report(wanted, given_tags, output_dict=True)
    for row in found["by_label"]:
        theirs = report.get(row["label"])
        if theirs is not None:
            assert row["f1"] == pytest.approx(theirs["f1-score"])
            assert row["support"] == theirs["support"]


def test_without_spans_f1_is_the_mean_over_labels() -> None:
    # A: right 2, given 3, wanted 2 -> P 2/3, R 1, F 0.8; B: right 1, given 1, wanted 2 -> P 1, R 1/2, F 2/3
    found = tag_numbers([["A", "A"], ["B", "A"]], [["A", "A"], ["B", "B"]])
    assert found["accuracy"] == 0.75
    assert found["f1"] == pytest.approx((0.8 + 2 / 3) / 2)
    assert [row["label"] for row in found["by_label"]] == ["A", "B"]
    assert (found["tokens"], found["sentences"]) == (4, 2)


def test_a_tagger_that_tags_almost_nothing_is_told_of() -> None:
    wanted = [["O", "B-X", "I-X", "O"]] * 10
    (note,) = one_tag_notes([["O"] * 4] * 10, wanted)
    assert note.startswith("it tags almost nothing: 0 words were given another tag than O, and 20 should have been")
    assert not one_tag_notes(wanted, wanted)
    assert not one_tag_notes([["O", "B-X", "O", "O"]] * 10, wanted)  # half of them
    assert not one_tag_notes([["O"] * 4], wanted[:1])  # two words prove nothing
    assert not one_tag_notes([], [])
