"""Spans are what seqeval says they are; a scheme allows what it allows."""

from __future__ import annotations

import itertools
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elman.tasks.tag.spans import Span, find_scheme, first_breach, may_follow, spans_of

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    seqeval = pytest.importorskip("seqeval.metrics.sequence_labeling")

TAGS = ["O", *(f"{letter}-{kind}" for letter in "BIES" for kind in ("PER", "LOC", "A-B"))]


@given(st.lists(st.sampled_from(TAGS), max_size=12))
def test_spans_are_those_of_seqeval_whatever_the_order_of_tags(tags: list[str]) -> None:
    assert [tuple(span) for span in spans_of(tags)] == seqeval.get_entities(tags)


def test_a_span_goes_on_until_something_else_comes() -> None:
    assert spans_of(["B-PER", "I-PER", "O", "I-LOC", "B-LOC"]) == [
        Span("PER", 0, 1),
        Span("LOC", 3, 3),
        Span("LOC", 4, 4),
    ]


def test_parts_of_speech_mark_no_spans() -> None:
    assert find_scheme(["NOUN", "VERB", "O"]) is None
    assert find_scheme(["O"]) is None
    assert find_scheme(["O", "B-X", "I-X"]) == "bio"
    assert find_scheme(["O", "B-X", "S-X"]) == "bioes"


@given(st.lists(st.tuples(st.sampled_from(["PER", "LOC", None]), st.integers(1, 4)), max_size=6))
def test_whatever_is_written_by_a_scheme_keeps_to_it(pieces: list[tuple[str | None, int]]) -> None:
    bio, bioes = list[str](), list[str]()
    for kind, size in pieces:
        if kind is None:
            bio += ["O"] * size
            bioes += ["O"] * size
        else:
            bio += [f"B-{kind}", *[f"I-{kind}"] * (size - 1)]
            bioes += [f"S-{kind}"] if size == 1 else [f"B-{kind}", *[f"I-{kind}"] * (size - 2), f"E-{kind}"]
    assert first_breach(bio, "bio") is None
    assert first_breach(bioes, "bioes") is None
    assert spans_of(bio) == spans_of(bioes)


def test_what_a_scheme_forbids() -> None:
    assert first_breach(["O", "I-PER"], "bio") == 1
    assert first_breach(["B-PER", "I-LOC"], "bio") == 1
    assert first_breach(["I-PER"], "bio") == 0
    assert first_breach(["B-PER"], "bioes") == 1  # a span that was begun has to end
    assert first_breach(["B-PER", "E-PER", "E-PER"], "bioes") == 2
    assert may_follow("B-PER", "B-PER", "bio") and not may_follow("B-PER", "B-PER", "bioes")
    assert all(may_follow(before, "O", "bio") for before in (None, "O", "B-X", "I-X"))


def test_allowed_pairs_allow_exactly_the_sequences_that_keep_to_the_scheme() -> None:
    labels = ["O", "B-X", "I-X", "E-X", "S-X"]
    for tags in itertools.product(labels, repeat=3):
        edges: list[str | None] = [None, *tags, None]
        by_pairs = all(may_follow(before, tag, "bioes") for before, tag in itertools.pairwise(edges))
        assert by_pairs == (first_breach(tags, "bioes") is None)
