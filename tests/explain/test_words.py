"""Neighbours, analogies and maps: equal to the same computed word by word, scipy and other formulas."""

from __future__ import annotations

import gzip
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr

import elman
from elman import charts
from elman.core.errors import DataError, MissingError, UsageError
from elman.explain import explain
from elman.explain.analogy import read_questions
from elman.explain.map import LETTER, LINE, label_places, principal_components
from elman.explain.neighbours import rank_correlation, read_pairs
from elman.explain.words import VectorFile, Words
from tests.explain.test_saliency import MODELS, WORDS

NAMES = ["king", "queen", "man", "woman", "cat", "dog", "Paris", "France", "rome", "italy", "zero"]


def vectors() -> np.ndarray[Any, Any]:
    found = np.random.default_rng(3).normal(size=(len(NAMES), 4))
    found[1] = found[0] - found[2] + found[3] + 0.05  # queen
    found[-1] = 0
    return found


@pytest.fixture
def file(tmp_path: Path) -> VectorFile:
    path = tmp_path / "words.vec"
    rows = [" ".join([name, *map(repr, row)]) for name, row in zip(NAMES, vectors().tolist(), strict=True)]
    path.write_text(f"{len(NAMES)} 4\n" + "\n".join(rows) + "\n")
    return VectorFile(path)


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    sizes = math.sqrt(sum(x * x for x in one)) * math.sqrt(sum(x * x for x in other))
    return sum(x * y for x, y in zip(one, other, strict=True)) / sizes if sizes else 0.0


def unit(row: Sequence[float]) -> list[float]:
    size = math.sqrt(sum(x * x for x in row))
    return [x / size if size else 0.0 for x in row]


def test_neighbours_are_those_of_a_plain_loop(file: VectorFile) -> None:
    found = explain([file], ["cat king"], kind="neighbours", options={"k": 20}).data["words"]
    assert [one["word"] for one in found] == ["cat", "king"]
    rows = dict(zip(NAMES, vectors().tolist(), strict=True))
    for one in found:
        wanted = sorted(
            ((cosine(rows[one["word"]], rows[other]), other) for other in NAMES if other != one["word"]), reverse=True
        )
        assert [word for word, _ in one["neighbours"]] == [word for _, word in wanted]
        np.testing.assert_allclose([score for _, score in one["neighbours"]], [score for score, _ in wanted], atol=1e-4)


def test_an_analogy_is_that_of_a_plain_loop_without_the_words_given(file: VectorFile) -> None:
    found = explain([file], ["man king woman"], kind="analogy", options={"k": 3}).data["models"][0]["answers"]
    rows = {name: unit(row) for name, row in zip(NAMES, vectors().tolist(), strict=True)}
    target = [b - a + c for a, b, c in zip(rows["man"], rows["king"], rows["woman"], strict=True)]
    wanted = sorted(
        ((cosine(target, rows[name]), name) for name in NAMES if name not in ("man", "king", "woman")), reverse=True
    )
    assert [word for word, _ in found] == [name for _, name in wanted[:3]]
    assert found[0][1] == pytest.approx(wanted[0][0], abs=1e-4)
    three = explain([file], ["man", "king", "woman"], kind="analogy", options={"k": 3}).data["models"][0]["answers"]
    assert three == found


QUESTIONS = [("man", "king", "woman", "queen"), ("paris", "france", "rome", "italy"), ("cat", "dog", "rome", "italy")]


def test_the_score_of_a_file_of_analogies_is_that_of_a_plain_loop(file: VectorFile, tmp_path: Path) -> None:
    path = tmp_path / "questions.txt"
    path.write_text(
        ": family\nman king woman queen\n"
        ": capital cities\nparis france rome italy\ncat dog rome italy\nparis france oslo norway\n"
    )
    found = explain([file], [], kind="analogy", options={"file": str(path)})
    rows = {name.lower(): unit(row) for name, row in zip(NAMES, vectors().tolist(), strict=True)}
    right = []
    for a, b, c, d in QUESTIONS:
        target = [y - x + z for x, y, z in zip(rows[a], rows[b], rows[c], strict=True)]
        best = max((name for name in rows if name not in (a, b, c)), key=lambda name: cosine(target, rows[name]))
        right.append(best == d)
    assert right[0]
    model = found.data["models"][0]
    assert (model["questions"], model["known"], model["right"]) == (4, 3, sum(right))
    assert model["accuracy"] == pytest.approx(sum(right) / 3, abs=1e-4)
    sections = [(row["section"], row["known"], row["right"]) for row in model["sections"]]
    assert sections == [("family", 1, 1), ("capital cities", 2, sum(right[1:]))]
    assert any("1 of 4 questions have unknown words" in note for note in found.notes)


def test_the_agreement_with_similarities_is_spearmans_by_scipy(file: VectorFile, tmp_path: Path) -> None:
    pairs = [
        ("king", "queen", 9.0),
        ("cat", "dog", 7.5),
        ("man", "cat", 2.0),
        ("rome", "zero", 2.0),
        ("paris", "france", 8.0),
    ]
    path = tmp_path / "pairs.tsv"
    path.write_text(
        "# people\nWord 1\tWord 2\tmean\n" + "".join(f"{a}\t{b}\t{n}\n" for a, b, n in pairs) + "cat\toslo\t3\n"
    )
    found = explain([file], [], kind="neighbours", options={"file": str(path)}).data["models"][0]
    rows = {name.lower(): row for name, row in zip(NAMES, vectors().tolist(), strict=True)}
    wanted = spearmanr([cosine(rows[a], rows[b]) for a, b, _ in pairs], [n for _, _, n in pairs]).statistic
    assert (found["pairs"], found["known"]) == (6, 5)
    assert found["spearman"] == pytest.approx(wanted, abs=1e-4)


def test_rank_correlation_with_ties_is_scipys() -> None:
    rng = np.random.default_rng(0)
    one, other = rng.integers(0, 6, size=40).astype(float), rng.normal(size=40)
    assert rank_correlation(one, other) == pytest.approx(spearmanr(one, other).statistic)
    assert rank_correlation(np.ones(3), np.arange(3.0)) == 0


def test_a_map_keeps_what_the_two_largest_eigenvectors_keep(file: VectorFile) -> None:
    found = explain([file], [], kind="map", options={"words": 8}).data
    assert [row["word"] for row in found["words"]] == NAMES[:8]
    rows = np.array([unit(row) for row in vectors().tolist()[:8]])
    values, axes = np.linalg.eigh(np.cov(rows.T))
    points = (rows - rows.mean(axis=0)) @ axes[:, ::-1][:, :2]
    drawn = np.array([(row["x"], row["y"]) for row in found["words"]])
    np.testing.assert_allclose(np.abs(drawn), np.abs(points), atol=2e-4)
    np.testing.assert_allclose(found["variance"], (values[::-1] / values.sum())[:2], atol=1e-4)
    farthest = np.abs(drawn).argmax(axis=0)
    assert (drawn[farthest, [0, 1]] > 0).all()


def test_words_that_are_all_alike_are_one_point() -> None:
    points, shares = principal_components(np.ones((3, 5)))
    assert not points.any() and shares == [0, 0]


def test_a_map_in_a_terminal_has_its_words_and_says_which_had_no_room(file: VectorFile) -> None:
    found = explain([file], ["king queen man woman cat oslo"], kind="map")
    assert all(word in str(found) for word in ("king", "man", "cat"))
    assert any("unknown to words.vec: oslo" in note for note in found.notes)
    assert max(len("".join(span.text for span in line)) for line in found.drawing) <= 100
    assert found.to_png()[:4] == b"\x89PNG"


def test_no_label_of_a_map_covers_another_or_a_point() -> None:
    """Words that lie close together were printed over one another."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(80, 2)) * [0.3, 0.3]
    names = ["".join("x" for _ in range(rng.integers(1, 12))) for _ in points]
    domains = [[-1.0, 1.0], [-1.0, 1.0]]
    places = label_places(points, names, domains)
    pixels = (np.array(charts.MAP_SIZE) / 2).tolist()
    boxes = []
    for name, place in zip(names, places, strict=True):
        if place is not None:
            (x, y), half = (a * b for a, b in zip(place, pixels, strict=True)), LETTER * len(name) / 2
            boxes.append((x - half, y - LINE / 2, x + half, y + LINE / 2))
    assert len(boxes) > 70
    for number, (left, bottom, right, top) in enumerate(boxes):
        for x, y in (points * pixels).tolist():
            assert not (left < x < right and bottom < y < top)
        for other in boxes[:number]:
            assert other[2] <= left or other[0] >= right or other[3] <= bottom or other[1] >= top


def test_words_without_room_for_a_label_are_points_and_are_counted() -> None:
    assert label_places(np.zeros((200, 2)), ["word"] * 200, [[-1.0, 1.0], [-1.0, 1.0]]).count(None) > 100


@pytest.mark.parametrize("name", MODELS)
def test_every_net_gives_its_words_in_the_order_of_their_frequency(tmp_path: Path, name: str) -> None:
    make, text = MODELS[name]
    model = make(tmp_path)
    words, matrix = model.word_vectors()
    assert len(words) == len(set(words)) == len(matrix)
    assert not {"<unk>", "</s>"} & set(words)
    known = [word for word in text.split() if word in words]
    assert known
    reading = model.reading(text)
    read = reading.words().detach().numpy()[:, 0]
    for place, token in enumerate(reading.tokens):  # the very vectors that are read
        if token in words:
            np.testing.assert_array_equal(matrix[words.index(token)], read[place])
    found = model.explain(known[0], kind="neighbours", k=2)
    assert len(found.data["words"][0]["neighbours"]) == 2


def test_masked_models_and_both_ways_give_theirs_too(tmp_path: Path) -> None:
    data = tmp_path / "text.txt"
    data.write_text("\n".join(WORDS * 20) + "\n")
    for task in ("masked", "bilm"):
        model = elman.train(task, data, valid="none", epochs=1, settings={"model.hidden": 8})
        assert {"the", "cat"} < set(model.word_vectors()[0])
        assert model.explain("cat", kind="neighbours").data["words"][0]["word"] == "cat"


def test_words_are_as_they_are_written_whatever_the_units(tmp_path: Path) -> None:
    data = tmp_path / "text.txt"
    data.write_text("The cat, the dog. the cat\n" * 40)
    for units in ("word", "bpe:300", "char"):
        model = elman.train(
            "lm", data, model="rnn", valid="none", epochs=1, settings={"data.units": units, "model.hidden": 4}
        )
        words, matrix = model.word_vectors()
        assert ("cat" if units != "char" else "c") in words
        assert len(words) == len(set(words)) == len(matrix)


def test_models_that_count_have_no_word_vectors(tmp_path: Path) -> None:
    data = tmp_path / "text.txt"
    data.write_text("a b c\n" * 20)
    model = elman.train("lm", data, model="mkn", valid="none")
    with pytest.raises(UsageError, match="has no neighbours"):
        model.explain("a", kind="neighbours")
    with pytest.raises(UsageError, match="no word vectors"):
        model.word_vectors()


def test_unknown_words_are_said_and_an_error_where_nothing_is_known(file: VectorFile) -> None:
    found = explain([file], ["cat oslo"], kind="neighbours")
    assert [one["word"] for one in found.data["words"]] == ["cat"]
    assert "unknown to words.vec: oslo" in found.notes
    with pytest.raises(UsageError, match=r"'quen' is not among the 11 words of words.vec\n.*queen"):
        explain([file], ["quen"], kind="neighbours")
    with pytest.raises(UsageError, match="'oslo' is not among"):
        explain([file], ["man king oslo"], kind="analogy")


def test_what_is_missing_is_asked_for(file: VectorFile) -> None:
    with pytest.raises(UsageError, match="needs words"):
        explain([file], [], kind="neighbours")
    with pytest.raises(UsageError, match="three words, not 2"):
        explain([file], ["man king"], kind="analogy")
    with pytest.raises(UsageError, match="1 words are no map"):
        explain([file], ["man oslo"], kind="map")
    with pytest.raises(UsageError, match="no surprisal"):
        explain([file], ["man"], kind="surprisal")


def test_files_of_questions_and_pairs_that_are_none_are_refused(file: VectorFile, tmp_path: Path) -> None:
    path = tmp_path / "q.txt"
    path.write_text(": family\nman king woman\n")
    with pytest.raises(DataError, match=r"line 2 of .* has 3 words, expected 4"):
        read_questions(path)
    path.write_text(": family\n")
    with pytest.raises(DataError, match="has no questions"):
        read_questions(path)
    path.write_text("a b 3\nc d\n")
    with pytest.raises(DataError, match=r"line 2 of .* is not two words and a number"):
        read_pairs(path)
    path.write_text("a,b,3\nc d 4\n\n")
    assert read_pairs(path) == [("a", "b", 3.0), ("c", "d", 4.0)]
    with pytest.raises(DataError, match="knows the words of 0 of the 2 pairs"):
        explain([file], [], kind="neighbours", options={"file": str(path)})
    with pytest.raises(MissingError, match="cannot read"):
        explain([file], [], kind="analogy", options={"file": str(tmp_path / "none")})


def test_case_counts_where_both_are_there_and_else_does_not() -> None:
    words = Words("w", ["us", "US", "Rome"], np.eye(3))
    assert [words.find(word) for word in ("us", "US", "rome", "ROME", "oslo")] == [0, 1, 2, 2, None]


def test_vector_files_may_be_packed_or_arrays(tmp_path: Path, file: VectorFile) -> None:
    assert file.directory is not None
    packed = tmp_path / "words.txt.gz"
    packed.write_bytes(gzip.compress(file.directory.read_bytes()))
    arrays = tmp_path / "words.npz"
    np.savez(arrays, words=np.array(NAMES), vectors=vectors())
    for path in (packed, arrays):
        words, matrix = VectorFile(path).word_vectors()
        assert list(words) == NAMES
        np.testing.assert_allclose(matrix, vectors(), rtol=1e-6)
    np.savez(arrays, words=np.array(NAMES))
    with pytest.raises(DataError, match="no arrays words and vectors"):
        VectorFile(arrays).word_vectors()
    arrays.write_bytes(b"nothing of the kind")
    with pytest.raises(DataError, match=r"no \.npz file"):
        VectorFile(arrays).word_vectors()
