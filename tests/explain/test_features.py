"""Features of tokens, worked by hand; correlations equal to numpy's; files of features and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from elman.core.errors import DataError, MissingError
from elman.explain.features import built_in, chance, correlations, read_features

LINES = ["a", '"', "B", "(", "c", ")", '"', "</s>", "dd", "e"]


def test_the_features_of_a_text_worked_by_hand() -> None:
    found = built_in(LINES, {"a": 1, "dd": 2})
    assert found["place in line"].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 0, 1]
    assert found["place in text"].tolist() == list(range(10))
    assert found["inside quotes"].tolist() == [0, 1, 1, 1, 1, 1, 0, 0, 0, 0]
    assert found["bracket depth"].tolist() == [0, 0, 0, 1, 1, 0, 0, 0, 0, 0]
    assert found["upper case"].tolist() == [0, 0, 1, 0, 0, 0, 0, 0, 0, 0]
    assert found["length of token"].tolist() == [1, 1, 1, 1, 1, 1, 1, 1, 2, 1]
    assert found["line end near"].tolist() == [0, 0, 1, 1, 1, 1, 1, 1, 0, 0]  # the last line is cut off
    np.testing.assert_allclose(np.exp(found["rarity (log rank)"]), [1, 3, 3, 3, 3, 3, 3, 1, 2, 3])
    assert "place in word" not in found


def test_quotes_are_those_of_many_texts_and_characters_have_places_in_words() -> None:
    assert built_in(["``", "a", "''", "b"], {})["inside quotes"].tolist() == [1, 1, 0, 0]
    assert built_in(["“a", "b”", "c"], {})["inside quotes"].tolist() == [1, 0, 0]
    assert built_in([")", "(", "[", "]"], {})["bracket depth"].tolist() == [0, 1, 2, 1]
    assert built_in(list("ab c"), {})["place in word"].tolist() == [1, 2, 0, 1]
    assert built_in(list("ab c"), {" ": 1, "a": 2})["rarity (log rank)"][2] == 0  # the commonest of characters


def test_correlations_are_numpys() -> None:
    rng = np.random.default_rng(0)
    units, features = rng.normal(size=(50, 7)), rng.normal(size=(50, 3))
    wanted = np.corrcoef(units.T, features.T)[:7, 7:]
    np.testing.assert_allclose(correlations(units, features), wanted, atol=1e-12)


def test_what_never_changes_follows_nothing() -> None:
    units = np.stack([np.full(9, 0.3), np.arange(9.0)], axis=1)
    assert correlations(units, np.arange(9.0)[:, None])[:, 0].tolist() == [0, pytest.approx(1)]
    assert correlations(units, np.ones((9, 1))).tolist() == [[0], [0]]


def test_chance_is_below_what_is_there_and_above_what_is_not() -> None:
    rng = np.random.default_rng(1)
    feature = (rng.normal(size=400).cumsum() > 0).astype(float)  # as smooth as being inside of quotes
    units = rng.normal(size=(400, 30)).cumsum(axis=0)
    units[:, 3] = feature + 0.05 * rng.normal(size=400)
    found = correlations(units, feature[:, None])[:, 0]
    limit = chance(np.delete(units, 3, axis=1), feature[:, None], np.random.default_rng(0))[0]
    assert abs(found[3]) > 0.95 > limit > 2 * 1.96 / 20  # far above what independent tokens would have
    assert limit == chance(np.delete(units, 3, axis=1), feature[:, None], np.random.default_rng(0))[0]


TOKENS = ["a", "b", "</s>", "c"]


def test_a_file_of_features_has_a_row_a_token_with_or_without_ends_or_a_row_a_line(tmp_path: Path) -> None:
    path = tmp_path / "f.csv"
    path.write_text("noun,depth\n1,2\n0,3\n5,6\n")
    found = read_features(path, TOKENS)
    assert {name: values.tolist() for name, values in found.items()} == {"noun": [1, 0, 0, 5], "depth": [2, 3, 3, 6]}
    path.write_text("noun\n1\n2\n3\n4\n")
    assert read_features(path, TOKENS)["noun"].tolist() == [1, 2, 3, 4]
    path.write_text("kind\tmood\n1\t0.5\n2\t-1\n")
    assert read_features(path, TOKENS)["mood"].tolist() == [0.5, 0.5, 0.5, -1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("a,b\n1,2\n3\n", "line 3 of .* has 1 columns, expected 2"),
        ("a\n1\nnoun\n", "line 3 of .* no number"),
        ("a\n1\nnan\n", "line 3 of .* not finite"),
        ("a\n1\n2\n3\n4\n5\n", "5 rows below its names, but the text has 3 tokens in 2 lines"),
    ],
)
def test_a_file_of_features_that_does_not_fit_is_refused(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "f.csv"
    path.write_text(content)
    with pytest.raises(DataError, match=message):
        read_features(path, TOKENS)


def test_a_file_of_features_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="cannot read the features"):
        read_features(tmp_path / "none.csv", TOKENS)
