"""The sparse non-negative matrix model against a plain one with dictionaries, and by the laws."""

from __future__ import annotations

import functools
import math
from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from elman.core.arrays import Array
from elman.core.errors import DataError
from elman.counts import adjustment as adjusting
from elman.counts import snm
from elman.counts.adjustment import BUCKETS, FACTORS, KNOTS, Adjustment, bucket, coarse_bucket
from elman.counts.snm import SnmConfig, SnmModel, fit_snm, templates
from elman.lm.heldout import score_text
from elman.testing import LAWS, saving_and_loading_is_exact
from elman.text.units.vocabulary import EOS_ID

SMALL = SnmConfig(order=3, skip_words=2, max_skip=1, reach=5)


def silent(sentence: str) -> None:
    del sentence


def random_text(rng: np.random.Generator, *, vocab_size: int, num_lines: int) -> Array:
    lines = [rng.choice([0, *range(2, vocab_size)], size=rng.integers(0, 9)) for _ in range(num_lines)]
    return np.concatenate([np.append(line, EOS_ID) for line in lines])


def fitted(ids: Array, config: SnmConfig = SMALL, *, vocab_size: int = 6, reset_lines: bool = False) -> SnmModel:
    return fit_snm(config, ids, vocab_size=vocab_size, reset_lines=reset_lines, heldout_ids=None, report=silent)


@functools.cache
def tiny_model(reset_lines: bool) -> SnmModel:
    return fitted(random_text(np.random.default_rng(1), vocab_size=6, num_lines=60), reset_lines=reset_lines)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("reset_lines", [False, True], ids=["stream", "lines"])
def test_the_model_keeps_the_law(reset_lines: bool, law) -> None:
    law(tiny_model(reset_lines), np.random.default_rng(0), 1e-5)


@pytest.mark.parametrize("reset_lines", [False, True], ids=["stream", "lines"])
def test_saving_and_loading_is_exact(reset_lines: bool) -> None:
    def roundtrip(lm: SnmModel) -> SnmModel:
        return SnmModel.from_tensors(lm.config, lm.tensors(), vocab_size=lm.vocab_size, reset_lines=reset_lines)

    saving_and_loading_is_exact(tiny_model(reset_lines), np.random.default_rng(0), roundtrip=roundtrip)


def test_tables_that_do_not_fit_together_are_refused() -> None:
    model = tiny_model(False)
    whole = model.tensors()
    for name, broken in {"floor": None, "2.sums": whole["2.sums"][1:], "1.words": whole["1.words"][1:]}.items():
        tensors = {key: value for key, value in whole.items() if key != name}
        if broken is not None:
            tensors[name] = broken
        with pytest.raises(DataError):
            SnmModel.from_tensors(model.config, tensors, vocab_size=6, reset_lines=False)


def test_templates_are_ngrams_then_skip_grams_then_one_bag_of_far_words() -> None:
    assert templates(SnmConfig(order=3, skip_words=2, max_skip=2, reach=6)) == [
        ((),),
        ((1,),),
        ((1, 2),),
        ((2,),),  # one word, 1 and 2 skipped
        ((3,),),
        ((2, 3),),  # two remote words, 1 and 2 skipped
        ((3, 4),),
        ((1, 3),),  # one adjacent and one remote word, 1 and 2 skipped
        ((1, 4),),
        ((4,), (5,), (6,)),
    ]
    assert templates(SnmConfig(order=2, skip_words=0, reach=0)) == [((),), ((1,),)]


class Plain:
    """The model by its definition, with dictionaries: contexts are tuples of words, nothing is hashed."""

    def __init__(self, ids: Array, adjustment: Adjustment, config: SnmConfig, *, vocab_size: int, reset_lines: bool):
        self.vocab_size, self.adjustment, self.kinds = vocab_size, adjustment, templates(config)
        self.start = vocab_size if reset_lines else EOS_ID
        self.links: list[defaultdict[tuple[int, ...], Counter[int]]] = []
        for kind in self.kinds:
            counts: defaultdict[tuple[int, ...], Counter[int]] = defaultdict(Counter)
            for t, word in enumerate(ids):
                for context in self.contexts(self.history(ids[:t], reset_lines), kind):
                    counts[context][int(word)] += 1
            if len(kind[0]) > 1 and kind[0][-1] > len(kind[0]):
                counts = defaultdict(Counter, {c: n for c, n in counts.items() if n.total() > 1})
            self.links.append(counts)
        self.targets = coarse_bucket(np.bincount(ids, minlength=vocab_size))

    def history(self, before: Array, reset_lines: bool) -> list[int]:
        words = [self.start, *map(int, before)]
        if reset_lines and EOS_ID in words[1:]:
            last = len(words) - 1 - words[::-1].index(EOS_ID)
            words = [self.start, *words[last + 1 :]]
        return words

    def contexts(self, history: list[int], kind: snm.Template) -> list[tuple[int, ...]]:
        fits = [words for words in kind if not words or words[-1] <= len(history)]
        return [tuple(history[-distance] for distance in words) for words in fits]

    def predict(self, history: list[int]) -> Array:
        above = np.full(self.vocab_size, self.adjustment.floor / self.vocab_size)
        for p, kind in enumerate(self.kinds):
            for context in self.contexts(history, kind):
                if context in self.links[p]:
                    words = self.links[p][context]
                    for word, count in words.items():
                        total = words.total()
                        looked_up = [int(bucket(np.array(n))) for n in (total, count, len(words))]
                        looked_up.append(int(self.targets[word]))
                        tables = self.adjustment.tables[p]
                        a = sum(tables[i][looked_up[x], looked_up[y]] for i, (x, y) in enumerate(FACTORS))
                        above[word] += math.exp(a) * count / total
        return np.log(above / above.sum())


@pytest.mark.parametrize("reset_lines", [False, True], ids=["stream", "lines"])
def test_predictions_are_those_of_the_definition(reset_lines: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    ids = random_text(rng, vocab_size=6, num_lines=50)
    shape = (len(templates(SMALL)), len(FACTORS), BUCKETS, BUCKETS)
    adjustment = Adjustment(rng.normal(size=shape), floor=0.3)
    monkeypatch.setattr(snm, "fit_adjustment", lambda *args, **kw: adjusting.Fit(adjustment, 0.0))
    model = fitted(ids, reset_lines=reset_lines)
    plain = Plain(ids, adjustment, SMALL, vocab_size=6, reset_lines=reset_lines)
    for text in (random_text(rng, vocab_size=6, num_lines=1)[:-1] for _ in range(30)):
        state = model.start(1)
        for word in text:
            state = model.advance(np.array([word]), state)
        expected = plain.predict(plain.history(text, reset_lines))
        np.testing.assert_allclose(model.predict(state)[0], expected, rtol=1e-5)


def test_the_gradient_of_the_fit_is_that_of_its_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    seen = {}

    def spy(evidence, *, num_tokens: int, vocab_size: int):
        seen["loss"] = adjusting._Loss(evidence, num_tokens=num_tokens, vocab_size=vocab_size)
        return fit(evidence, num_tokens=num_tokens, vocab_size=vocab_size)

    fit = adjusting.fit_adjustment
    monkeypatch.setattr(snm, "fit_adjustment", spy)
    fitted(random_text(rng, vocab_size=6, num_lines=200))
    loss = seen["loss"]
    weights = rng.normal(size=len(templates(SMALL)) * len(FACTORS) * KNOTS**2 + 1) / 3
    _, gradient = loss(weights)
    for direction in (rng.normal(size=len(weights)), np.eye(len(weights))[-1], np.eye(len(weights))[0]):
        step = 1e-6 * direction
        slope = (loss(weights + step)[0] - loss(weights - step)[0]) / 2e-6
        assert gradient @ direction == pytest.approx(slope, rel=1e-6, abs=1e-9)


def test_a_skip_gram_sees_what_an_ngram_cannot() -> None:
    """Every other word is one of 2,000; the words between them go round in a cycle of 4: the word two back tells all."""
    rng = np.random.default_rng(4)
    ids = np.stack([2 + np.arange(4000) % 4, 6 + rng.integers(0, 2000, 4000)], axis=1).reshape(-1)
    surprise = {}
    for skip_words in (0, 1):
        model = fitted(ids[:6000], SnmConfig(order=4, skip_words=skip_words, reach=0), vocab_size=2006)
        surprise[skip_words] = -score_text(model, ids[6000:], reset_lines=False)[::2].mean()
    assert surprise[0] > 1  # one of four is log 4 = 1.39
    assert surprise[1] < 0.1


def test_a_bag_finds_a_word_however_far_it_stands() -> None:
    """A line opens with one of two words; after noise of any length it closes with a word that the opening decides."""
    rng = np.random.default_rng(5)

    def lines(number: int) -> Array:
        out = []
        for opening in rng.integers(0, 2, number):
            out += [2 + opening, *rng.integers(6, 36, rng.integers(6, 15)), 4 + opening, EOS_ID]
        return np.array(out)

    train, test = lines(1500), lines(100)
    closing = np.isin(test, [4, 5])
    surprise = {}
    for reach in (0, 20):
        model = fitted(train, SnmConfig(order=3, reach=reach), vocab_size=36, reset_lines=True)
        nats = -score_text(model, test, reset_lines=True)
        surprise[reach] = nats[closing].mean()
    assert surprise[20] < surprise[0] - 0.2


def test_lines_that_are_read_alone_may_stand_in_any_order() -> None:
    rng = np.random.default_rng(6)
    lines = [np.append(rng.integers(2, 6, rng.integers(0, 7)), EOS_ID) for _ in range(80)]
    heldout = random_text(rng, vocab_size=6, num_lines=20)
    models = [
        fit_snm(SMALL, np.concatenate(order), vocab_size=6, reset_lines=True, heldout_ids=heldout, report=silent)
        for order in (lines, lines[::-1])
    ]
    first, second = (score_text(model, heldout, reset_lines=True) for model in models)
    np.testing.assert_allclose(first, second, atol=1e-6)


def test_counting_in_parts_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = random_text(np.random.default_rng(7), vocab_size=6, num_lines=60)
    whole = fitted(ids).tensors()
    monkeypatch.setattr(snm, "SORTED_AT_ONCE", 100)
    parts = fitted(ids).tensors()
    assert whole.keys() == parts.keys()
    for name, array in whole.items():
        np.testing.assert_array_equal(array, parts[name])


@settings(max_examples=30)
@given(ids=hnp.arrays(np.int64, st.integers(1, 12), elements=st.integers(0, 2)), reset_lines=st.booleans())
def test_the_smallest_texts_make_a_model_that_sums_to_one(ids: Array, reset_lines: bool) -> None:
    model = fitted(ids, vocab_size=3, reset_lines=reset_lines)
    state = model.start(1)
    for word in [2, 0, 1, 1]:
        log_probs = model.predict(state)
        assert np.isfinite(log_probs).all()
        assert np.exp(log_probs, dtype=np.float64).sum() == pytest.approx(1, abs=1e-6)
        state = model.advance(np.array([word]), state)


def test_a_word_never_seen_is_possible() -> None:
    model = fitted(random_text(np.random.default_rng(8), vocab_size=5, num_lines=50), vocab_size=7)
    log_probs = model.predict(model.start(1))[0]
    assert -20 < log_probs[6] < log_probs[0]


def test_small_counts_have_a_bucket_each_and_larger_ones_four_an_octave() -> None:
    assert bucket(np.arange(1, 9)).tolist() == list(range(8))
    assert bucket(np.array([9, 16, 32, 10**9])).tolist() == [7, 11, 15, BUCKETS - 1]
    assert (np.diff(bucket(np.arange(1, 200_000))) >= 0).all()


def test_the_report_says_what_was_fitted_and_counted() -> None:
    said: list[str] = []
    ids = random_text(np.random.default_rng(9), vocab_size=6, num_lines=50)
    fit_snm(SMALL, ids, vocab_size=6, reset_lines=False, heldout_ids=ids[:40], report=said.append)
    assert said[0].startswith("adjustment fitted on 40 tokens held out, perplexity ")
    assert "templates" in said[1]
    assert "features" in said[1]
