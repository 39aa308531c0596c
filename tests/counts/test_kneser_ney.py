"""Kneser-Ney: worked by hand, against its definition, against published numbers of counts, and its laws."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elman.counts.counting import count_ngrams
from elman.counts.interpolation import suffix_links
from elman.counts.kneser_ney import adjusted_counts, count_of_counts, estimate_discounts
from elman.counts.scratch import Scratch
from elman.testing import LAWS
from tests.counts.fitting import kneser_ney, silent
from tests.counts.reference import BOS, EOS, Reference, kneser_ney_share

LINES = st.lists(st.lists(st.integers(2, 5), max_size=8), min_size=1, max_size=12)


def stream(lines):
    return np.array([word for line in lines for word in (*line, EOS)], np.uint16)


def fit(lines, *, family="mkn", order=3, vocab_size=6, reset_lines=True, prune=(), report=silent):
    with Scratch() as scratch:
        return kneser_ney(
            stream(lines),
            order=order,
            vocab_size=vocab_size,
            reset_lines=reset_lines,
            scratch=scratch,
            modified=family == "mkn",
            prune=prune,
            report=report,
        )


def discounts_of(lines, *, family, order, vocab_size, reset_lines):
    with Scratch() as scratch:
        raw = count_ngrams(stream(lines), order=order, vocab_size=vocab_size, reset_lines=reset_lines, scratch=scratch)
        adjusted = adjusted_counts(raw, suffix_links(raw.trie, scratch), scratch)
        return [estimate_discounts(count_of_counts(c, scratch), modified=family == "mkn")[0] for c in adjusted.counts]


def probability(model, history, word):
    state = model.start(1)
    for symbol in history:
        if symbol != BOS:
            state = model.advance(np.array([symbol]), state)
    return float(np.exp(model.predict(state)[0, word].astype(np.float64)))


def test_ten_words_by_hand():
    # a=2 b=3 c=4; lines "a b", "a b", "a c", "b c": bigrams with <s>, </s>
    #   <s> a 3, <s> b 1, a b 2, a c 1, b </s> 2, b c 1, c </s> 2
    # unigram continuation counts: a 1 (<s>), b 2 (<s>, a), c 2 (a, b), </s> 2 (b, c); n1 = 1, n2 = 3, n3 = 0
    # bigram counts: n1 = 3, n2 = 3, n3 = 1, n4 = 0.  One discount: D1 = 1/(1 + 6) = 1/7, D2 = 3/(3 + 6) = 1/3
    model = fit([[2, 3], [2, 3], [2, 4], [3, 4]], family="kn", order=2, vocab_size=5)
    lower = {}
    gamma = 4 * (1 / 7) / 7  # four types, seven continuations
    for word, count in {0: 0, 1: 2, 2: 1, 3: 2, 4: 2}.items():
        lower[word] = (count - 1 / 7) / 7 * (count > 0) + gamma / 5
    assert sum(lower.values()) == pytest.approx(1)
    # after a: a b 2, a c 1; total 3, two types
    assert probability(model, [BOS, 2], 3) == pytest.approx((2 - 1 / 3) / 3 + 2 * (1 / 3) / 3 * lower[3], rel=1e-6)
    assert probability(model, [BOS, 2], 4) == pytest.approx((1 - 1 / 3) / 3 + 2 * (1 / 3) / 3 * lower[4], rel=1e-6)
    assert probability(model, [BOS, 2], 0) == pytest.approx(2 * (1 / 3) / 3 * lower[0], rel=1e-6)
    # at the start: <s> a 3, <s> b 1; total 4
    assert probability(model, [BOS], 2) == pytest.approx((3 - 1 / 3) / 4 + 2 * (1 / 3) / 4 * lower[2], rel=1e-6)


@settings(max_examples=60, deadline=None)
@given(LINES, st.sampled_from(["kn", "mkn"]), st.integers(1, 4), st.booleans(), st.lists(st.integers(0, 5), max_size=5))
def test_every_probability_follows_the_definition(lines, family, order, reset_lines, words):
    model = fit(lines, family=family, order=order, reset_lines=reset_lines)
    reference = Reference(lines, order, 6, reset_lines=reset_lines)
    discounts = discounts_of(lines, family=family, order=order, vocab_size=6, reset_lines=reset_lines)
    share, counts = kneser_ney_share(discounts), reference.continuations()
    words = [w if w != EOS or not reset_lines else 2 for w in words]  # a line's history has no end of line in it
    history = [BOS if reset_lines else EOS, *words]
    state = model.start(1)
    for word in words:
        state = model.advance(np.array([word]), state)
    found = np.exp(model.predict(state)[0].astype(np.float64))
    expected = [reference.probability(share, counts, history, word) for word in range(6)]
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-9)
    assert found.sum() == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("reset_lines", [True, False])
@pytest.mark.parametrize(("family", "order", "prune"), [("mkn", 4, ()), ("kn", 1, ()), ("mkn", 3, (0, 0, 1))])
def test_the_laws_hold(law, family, order, prune, reset_lines):
    rng = np.random.default_rng(5)
    lines = [list(rng.integers(2, 4, size=rng.integers(0, 9))) for _ in range(60)]
    law(fit(lines, family=family, order=order, vocab_size=4, prune=prune, reset_lines=reset_lines), rng, 1e-5)


def test_order_nine_and_beyond_the_longest_line_still_sums_to_one():
    model = fit([[2, 3, 4], [3, 3]], order=9)
    for history in ([], [2], [2, 3, 4], [5, 5, 5]):
        assert sum(probability(model, [BOS, *history], w) for w in range(6)) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("family", ["kn", "mkn"])
def test_a_discount_that_cannot_be_estimated_is_explained(family):
    said = []
    fit([[2, 3], [2, 3]], family=family, report=said.append)
    assert any("discount" in line and "fall-back" in line and "order 3" in line for line in said)


def test_pruning_gives_the_mass_to_the_shorter_history():
    rng = np.random.default_rng(1)
    lines = [list(rng.integers(2, 8, size=12)) for _ in range(200)]
    full, cut = (fit(lines, vocab_size=8, prune=prune) for prune in ((), (0, 0, 2)))
    counts = Reference(lines, 3, 8, reset_lines=True).raw[3]
    assert full.trie.num_nodes(3) == len(counts)
    assert cut.trie.num_nodes(3) == sum(count > 2 for count in counts.values())
    for _ in range(20):
        state = cut.start(1)
        for word in rng.integers(2, 8, size=3):
            state = cut.advance(np.array([word]), state)
        assert np.exp(cut.predict(state).astype(np.float64)).sum() == pytest.approx(1, abs=1e-6)


def test_counting_in_files_gives_the_same_model_as_counting_in_memory(tmp_path):
    rng = np.random.default_rng(2)
    ids = np.minimum(rng.zipf(1.3, 60_000) + 1, 3_000).astype(np.uint16)
    ids[-1] = EOS
    models = []
    for spills in (False, True):
        with Scratch(directory=tmp_path) as scratch:
            scratch.spills, scratch.chunk_rows = spills, 1 << 12 if spills else 1 << 20
            model = kneser_ney(ids, order=4, vocab_size=3_001, reset_lines=True, scratch=scratch)
            models.append({name: np.array(tensor) for name, tensor in model.tensors().items()})
            assert isinstance(scratch.empty(1, np.uint8), np.memmap) == spills
            assert not any(tmp_path.iterdir())  # a kill leaves nothing
    for name, tensor in models[0].items():
        if tensor.dtype.kind == "f":  # sums over other chunks
            np.testing.assert_allclose(models[1][name], tensor, rtol=1e-5, atol=1e-6)
        else:
            np.testing.assert_array_equal(models[1][name], tensor)


def test_adding_shards_is_not_how_continuation_counts_merge():
    """The number of different words before is of the whole text; it is not the sum over its parts."""
    whole = [[2, 3], [4, 3], [2, 3]]
    with Scratch() as scratch:
        raw = count_ngrams(stream(whole), order=2, vocab_size=6, reset_lines=True, scratch=scratch)
        adjusted = adjusted_counts(raw, suffix_links(raw.trie, scratch), scratch)
    assert raw.counts[0][3] == 3
    assert adjusted.counts[0][3] == 2
