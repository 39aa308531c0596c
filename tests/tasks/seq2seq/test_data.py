"""Both sides as ids, and the batches made of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elman.core.errors import DataError, UsageError
from elman.core.settings import make
from elman.tasks.seq2seq.config import PairsConfig
from elman.tasks.seq2seq.data import PairBatches, encode_pairs, learn_vocabularies
from elman.text.batches import Position
from elman.text.rows import SOURCE_FACTOR, lengths_of
from elman.text.tables import Pairs
from elman.text.units.vocabulary import EOS_ID


def make_pairs(rows: list[tuple[str, str]]) -> Pairs:
    pairs = Pairs()
    for number, row in enumerate(rows, start=1):
        pairs.add(row, "p.tsv", number)
    return pairs


def rows_of(ids: np.ndarray) -> list[np.ndarray]:
    """Each row by itself, its end included."""
    return np.split(ids, np.flatnonzero(ids == EOS_ID)[:-1] + 1)


SMALL = [("ab", "x y"), ("ba", "y x"), ("aab", "x x y"), ("b", "y")]


def test_each_side_has_its_own_units_and_vocabulary() -> None:
    data = PairsConfig(source_units="char", target_units="space", min_count=1)
    learned = learn_vocabularies(make_pairs(SMALL), data, heldout=False)
    assert learned.source.tokens[2:] == ["a", "b"] or learned.source.tokens[2:] == ["b", "a"]
    assert sorted(learned.target.tokens[2:]) == ["x", "y"]
    sources = [learned.source.decode(row[:-1].tolist()) for row in rows_of(learned.train.source.ids)]
    targets = [learned.target.decode(row[:-1].tolist()) for row in rows_of(learned.train.target.ids)]
    assert list(zip(sources, targets, strict=True)) == SMALL
    assert learned.train.num_rows == 4


def test_a_shared_vocabulary_is_of_both_sides() -> None:
    data = PairsConfig(units="char", shared=True)
    learned = learn_vocabularies(make_pairs([("ab", "bc"), ("a", "cd")]), data, heldout=False)
    assert learned.source is learned.target
    assert sorted(learned.source.tokens[2:]) == ["a", "b", "c", "d"]


def test_byte_pairs_may_be_shared_or_not() -> None:
    rows = [("der Hund " * 3, "the dog " * 3), ("die Katze", "the cat")]
    for shared in (False, True):
        data = PairsConfig(units="bpe:270", shared=shared)
        learned = learn_vocabularies(make_pairs(rows), data, heldout=False)
        text = learned.target.decode(rows_of(learned.train.target.ids)[1][:-1].tolist())
        assert text == "the cat"
        assert (learned.source.fingerprint == learned.target.fingerprint) == shared


def test_units_are_guessed_side_by_side_and_said() -> None:
    words = ["apple", "pear", "plum", "cherry", "grape", "lemon"]
    pairs = make_pairs([(word, " ".join(word.upper())) for word in words])
    learned = learn_vocabularies(pairs, PairsConfig(min_count=1), heldout=False)
    assert (learned.source.units, learned.target.units) == ("char", "space")
    assert any(note.startswith("source units: char, because") for note in learned.notes)


def test_rows_of_one_source_are_never_on_both_sides_of_the_split() -> None:
    pairs = make_pairs([(f"w{n // 3}", f"t{n}") for n in range(300)])
    learned = learn_vocabularies(pairs, PairsConfig(units="char", heldout=0.1), heldout=True)
    assert learned.heldout is not None
    decode = learned.source.decode
    held = {decode(row[:-1].tolist()) for row in rows_of(learned.heldout.source.ids)}
    kept = {decode(row[:-1].tolist()) for row in rows_of(learned.train.source.ids)}
    assert held and not held & kept
    assert learned.heldout.num_rows % 3 == 0
    assert 15 <= learned.heldout.num_rows <= 45


def test_one_source_alone_cannot_be_held_out() -> None:
    learned = learn_vocabularies(make_pairs([("a", "b"), ("a", "c")]), PairsConfig(units="char"), heldout=True)
    assert learned.heldout is None
    assert any("nothing is held out" in note for note in learned.notes)


LONG = make_pairs([("a b", "x"), (" ".join(["a"] * 1200), "y"), ("b", "x y")])
UNITS = {"units": "space", "min_count": 1}


def test_a_very_long_source_is_refused_with_its_place() -> None:
    with pytest.raises(DataError, match=r"line 2 of p.tsv has a source of 1,200 tokens, more than 1,000"):
        learn_vocabularies(LONG, PairsConfig(**UNITS), heldout=False)


def test_a_very_long_source_is_cut_or_left_out_when_asked_and_counted() -> None:
    cut = learn_vocabularies(LONG, PairsConfig(**UNITS, too_long="truncate"), heldout=False)
    assert lengths_of(cut.train.source.ids).tolist() == [3, 1001, 2]
    assert "1 pairs are cut: longer than 1,000 tokens" in cut.notes
    left = learn_vocabularies(LONG, PairsConfig(**UNITS, too_long="drop"), heldout=False)
    assert lengths_of(left.train.source.ids).tolist() == [3, 2]
    assert lengths_of(left.train.target.ids).tolist() == [2, 3]
    assert "1 pairs are left out: longer than 1,000 tokens" in left.notes


def test_a_maximum_length_trains_on_short_sources_but_judges_by_all() -> None:
    data = PairsConfig(**UNITS, max_length=1)
    learned = learn_vocabularies(LONG, data, heldout=False)
    assert lengths_of(learned.train.source.ids).tolist() == [2]
    judged, _ = encode_pairs(LONG.select([0, 2]), learned.source, learned.target, data, is_training=False)
    assert judged.num_rows == 2
    with pytest.raises(DataError, match="no pair is left"):
        learn_vocabularies(LONG.select([0, 1]), data, heldout=False)


def test_a_larger_maximum_allows_longer_pairs() -> None:
    learned = learn_vocabularies(LONG, PairsConfig(**UNITS, max_length=2000), heldout=False)
    assert learned.train.num_rows == 3


def test_reserved_symbols_are_refused_with_their_place_or_dropped() -> None:
    pairs = make_pairs([("a b", "x"), ("a", "<s> x"), ("b", "x y")])
    with pytest.raises(DataError, match=r"line 2 of p.tsv contains <s>, which is reserved"):
        learn_vocabularies(pairs, PairsConfig(**UNITS), heldout=False)
    learned = learn_vocabularies(pairs, PairsConfig(**UNITS, skip_bad=True), heldout=False)
    assert learned.train.num_rows == 2
    assert "<s>" not in learned.target.tokens
    assert learn_vocabularies(pairs, PairsConfig(units="char"), heldout=False).train.num_rows == 3


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"source": "1"}, "give both or neither"),
        ({"source": "0", "target": "1"}, "numbered from 1"),
        ({"shared": True, "source_units": "char"}, "same units"),
        ({"source": "1,3", "target": "2", "spelled": "2"}, "columns of the source"),
        ({"source": "1,3", "target": "2", "spelled": "1", "source_units": "char"}, "leave its units"),
    ],
)
def test_settings_that_cannot_be_are_refused(given: dict[str, object], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        make(PairsConfig, given, section="data")


def streams(rng: np.random.Generator, num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows whose first source and target token is their number."""
    sources, targets = [], []
    for row in range(num_rows):
        for side in (sources, targets):
            side += [row + 2, *rng.integers(2, 9, size=rng.integers(0, 12)).tolist(), EOS_ID]
    return np.array(sources, dtype=np.uint16), np.array(targets, dtype=np.uint16)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 60), st.integers(1, 200), st.integers(0, 3))
def test_every_pair_comes_once_a_pass_and_whole(num_rows: int, tokens: int, seed: int) -> None:
    sources, targets = streams(np.random.default_rng(seed), num_rows)
    batches = PairBatches(sources, targets, tokens=tokens, seed=seed)
    expected = {
        row: (s.tolist(), t.tolist()) for row, (s, t) in enumerate(zip(rows_of(sources), rows_of(targets), strict=True))
    }
    position, seen = Position(), {}
    while position.epoch == 0:
        fraction = batches.fraction(position)
        batch, position = batches.batch(position)
        assert position.epoch == 1 or batches.fraction(position) > fraction
        assert len(batch.targets) == 1 or batch.targets.size <= tokens
        assert len(batch.targets) == 1 or batch.sources.size <= SOURCE_FACTOR * tokens
        for source, s, target, t in zip(
            batch.sources, batch.source_lengths, batch.targets, batch.target_lengths, strict=True
        ):
            assert (source[s:] == EOS_ID).all() and (target[t:] == EOS_ID).all()
            assert int(source[0]) - 2 not in seen
            seen[int(source[0]) - 2] = (source[:s].tolist(), target[:t].tolist())
    assert seen == expected


def test_a_batch_is_a_function_of_its_position_alone() -> None:
    sources, targets = streams(np.random.default_rng(0), 50)
    one, other = (PairBatches(sources, targets, tokens=40, seed=3) for _ in range(2))
    positions = [Position()]
    for _ in range(30):
        positions.append(one.batch(positions[-1])[1])
    for position in reversed(positions):
        np.testing.assert_array_equal(one.batch(position)[0].targets, other.batch(position)[0].targets)
    first = one.batch(Position())[0].targets
    assert any(
        first.shape != batch.shape or (first != batch).any()
        for batch in (PairBatches(sources, targets, tokens=40, seed=s).batch(Position())[0].targets for s in range(3))
    )
    assert PairBatches(sources, targets, tokens=9999).notes


def test_little_is_spent_on_padding() -> None:
    rng = np.random.default_rng(0)
    sources, targets = [], []
    for _ in range(3000):
        length = int(rng.integers(5, 30))
        sources += [*[2] * max(1, length + int(rng.integers(-3, 4))), EOS_ID]
        targets += [*[2] * length, EOS_ID]
    batches = PairBatches(np.array(sources), np.array(targets), tokens=1000)
    position, cells, tokens = Position(), 0, 0
    while position.epoch == 0:
        batch, position = batches.batch(position)
        cells += batch.sources.size + batch.targets.size
        tokens += int(batch.source_lengths.sum()) + batch.num_tokens
    assert tokens > 0.95 * cells
