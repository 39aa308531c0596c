"""The text level: what Python users call."""

from __future__ import annotations

import importlib
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import elman
from elman import EvaluateOptions
from elman.api import parse_size
from elman.core.errors import MissingError, UsageError, WriteError
from elman.lm.stopping import until
from elman.training.budget import parse_duration

LINES = ["the cat sat on the mat .", "the dog sat on the log .", "a cat and a dog .", "who saw the cat ?"]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("api") / "text.txt"
    path.write_text("\n".join(LINES * 15) + "\n")
    return path


@pytest.fixture(scope="module")
def lines_model(corpus: Path) -> elman.Model:
    return elman.train("lm", corpus, units="space", reset_lines=True, settings={"model.order": 3})


@pytest.fixture(scope="module")
def stream_model(corpus: Path) -> elman.Model:
    return elman.train("lm", corpus, units="word", settings={"model.order": 3})


def test_no_room_hides_a_public_name() -> None:
    rooms = {path.stem for path in Path(elman.__file__).parent.iterdir()}
    for name in rooms & set(elman.__all__):
        importlib.import_module(f"elman.{name}")
    assert callable(elman.train)
    assert elman.train.__module__ == "elman.api"
    assert set(elman.__all__) <= set(dir(elman))
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        _ = elman.trian  # type: ignore[attr-defined]


def test_loaded_models_are_mixed_like_directories(lines_model: elman.Model, corpus: Path, tmp_path: Path) -> None:
    bigram = elman.train("lm", corpus, units="space", reset_lines=True, settings={"model.family": "bigram"})
    lines_model.save(tmp_path / "one")
    bigram.save(tmp_path / "two")
    from_models = elman.mix([lines_model, bigram], valid=corpus)
    from_directories = elman.mix([tmp_path / "one", str(tmp_path / "two")], valid=corpus)
    assert from_models.evaluate(corpus) == from_directories.evaluate(corpus)
    with pytest.raises(UsageError, match="mix takes a list of members"):
        elman.mix(lines_model, valid=corpus)  # type: ignore[arg-type]
    other = elman.train("lm", corpus, units="char", reset_lines=True)
    with pytest.raises(elman.ElmanError, match=r"a mkn that is not saved and .* have different vocabularies"):
        elman.mix([lines_model, other], valid=corpus)


def test_a_list_of_texts_has_a_list_of_scores(lines_model: elman.Model) -> None:
    assert lines_model.score(LINES) == [lines_model.score(line) for line in LINES]
    with pytest.raises(UsageError, match="a text is needed, not 3"):
        lines_model.score(["the cat", 3])  # type: ignore[list-item]


def test_epochs_are_a_parameter_like_the_flag(corpus: Path) -> None:
    model = elman.train("lm", corpus, model="rnn", epochs=1, settings={"model.hidden": 4, "train.batch": 4})
    assert model.record.train is not None and model.record.train.epochs == 1
    with pytest.raises(UsageError, match=r"train\.epochs is given twice: 1 and 2"):
        elman.train("lm", corpus, model="rnn", epochs=1, settings={"train.epochs": 2})
    with pytest.raises(UsageError, match=r"train\.epochs does not apply to mkn"):
        elman.train("lm", corpus, epochs=1)


def test_an_error_in_python_speaks_of_parameters(corpus: Path) -> None:
    with pytest.raises(UsageError) as caught:
        elman.train("lm", corpus, model="snm", memory="1G")
    assert str(caught.value).startswith("memory=... does not apply to snm") and "\nhint: leave it out" in str(
        caught.value
    )


def test_without_out_nothing_is_written(corpus: Path) -> None:
    before = sorted(corpus.parent.rglob("*"))
    model = elman.train("lm", [corpus, corpus], model="unigram")
    assert model.directory is None
    assert sorted(corpus.parent.rglob("*")) == before


def test_a_model_kept_in_memory_can_be_saved_later(lines_model: elman.Model, tmp_path: Path) -> None:
    lines_model.save(tmp_path / "m")
    assert elman.load(tmp_path / "m").next("the cat", k=5) == lines_model.next("the cat", k=5)
    with pytest.raises(WriteError, match="holds a model already"):
        lines_model.save(tmp_path / "m")
    lines_model.save(tmp_path / "m", overwrite=True)


def test_next_lists_the_whole_distribution_best_first(lines_model: elman.Model) -> None:
    found = lines_model.next("the cat", k=1000)
    assert len(found) == lines_model.record.vocab_size
    assert sum(p for _, p in found) == pytest.approx(1, abs=1e-6)
    assert found[0][0] in {"sat", "?"}
    with pytest.raises(UsageError):
        lines_model.next("the", k=0)


def test_next_of_words_is_what_would_be_written(stream_model: elman.Model) -> None:
    assert stream_model.next("the cat", k=1)[0][0] in {" sat", " ?"}
    assert stream_model.next("the cat ", k=3) == stream_model.next("the cat", k=3)
    assert stream_model.next("who saw the cat ?\n", k=1)[0][0] == "the"
    assert stream_model.next("who saw the cat ?", k=1)[0][0] == "</s>"


def test_a_score_is_the_sum_over_tokens_and_ends_of_lines(lines_model: elman.Model) -> None:
    score = lines_model.score("the cat sat")
    assert score.tokens == 4
    assert [token for token, _ in score.per_token] == ["the", "cat", "sat", "</s>"]
    assert score.nats == pytest.approx(sum(nats for _, nats in score.per_token))
    assert score.perplexity == pytest.approx(math.exp(score.nats / 4))
    two = lines_model.score("the cat sat\nthe cat sat\n")
    assert two.nats == pytest.approx(2 * score.nats)  # each line alone
    assert lines_model.score("").tokens == 1


def test_scores_agree_with_the_next_symbol_one_by_one(stream_model: elman.Model) -> None:
    text = "the dog sat on"
    score = stream_model.score(text)
    words = text.split()
    for i, (_, nats) in enumerate(score.per_token):
        found = dict(stream_model.next(" ".join(words[:i]), k=10**6))
        symbol = "</s>" if i == len(words) else words[i] if i == 0 else " " + words[i]
        assert -math.log(found[symbol]) == pytest.approx(nats, abs=1e-5)


@pytest.mark.parametrize("reset_lines", [False, True])
def test_a_text_scores_as_evaluate_counts_it(corpus: Path, reset_lines: bool) -> None:
    model = elman.train("lm", corpus, units="word", reset_lines=reset_lines)
    found = model.evaluate(corpus)
    score = model.score(corpus.read_text())
    assert score.tokens == found["tokens"]
    assert score.nats / score.tokens == pytest.approx(found["nats_per_token"], rel=1e-6)


def test_generation_continues_the_prompt_with_its_space(stream_model: elman.Model) -> None:
    with_space, without = (stream_model.generate(prompt, tokens=6, seed=4) for prompt in ("the cat ", "the cat"))
    assert without == " " + with_space
    assert stream_model.generate("the", tokens=6, seed=4) == stream_model.generate("the", tokens=6, seed=4)


def test_a_model_of_lines_ends_with_its_line_and_a_stream_goes_on(
    lines_model: elman.Model, stream_model: elman.Model
) -> None:
    assert "\n" not in lines_model.generate(tokens=1000, seed=1)
    assert stream_model.generate(tokens=200, seed=1).count("\n") > 3


def test_a_prompt_of_several_lines_counts_from_its_last_where_lines_are_alone(lines_model: elman.Model) -> None:
    assert lines_model.next("who saw\nthe cat", k=9) == lines_model.next("the cat", k=9)
    assert lines_model.next("who saw\n", k=9) == lines_model.next("", k=9)


def test_forbidden_words_never_come(stream_model: elman.Model) -> None:
    text = stream_model.generate(tokens=300, seed=2, forbid=["the", "cat", "no such word"])
    assert not {"the", "cat"} & set(text.split())
    assert "dog" in text.split()


def test_only_single_symbols_can_be_forbidden(corpus: Path) -> None:
    model = elman.train("lm", corpus, units="char", model="bigram")
    with pytest.raises(UsageError, match="not one symbol"):
        model.generate(forbid=["cat"])


@given(
    pieces=st.lists(st.text("ab\n", max_size=4), max_size=12),
    stops=st.lists(st.text("ab\n", min_size=1, max_size=4), max_size=3),
)
def test_text_ends_before_the_first_stop_however_it_is_cut_into_pieces(pieces: list[str], stops: list[str]) -> None:
    text = "".join(pieces)
    places = [text.find(stop) for stop in stops if stop in text]
    # Pieces are looked at as they come: a stop is found with the first piece that completes one.
    found = "".join(until(pieces, stops))
    ends = [next(n for n in range(len(text) + 1) if stop in text[:n]) for stop in stops if stop in text]
    if not places:
        assert found == text
    else:
        assert text.startswith(found)
        assert not any(stop in found for stop in stops)
        assert len(found) <= min(ends)


def test_what_may_become_a_stop_is_held_back() -> None:
    drawn = []
    for piece in until(["ab", "c", "d", "en", "x"], ["end"]):
        drawn.append(piece)
    assert drawn == ["ab", "c", "d", "enx"]
    with pytest.raises(UsageError):
        list(until(["a"], [""]))


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("10m", 600), ("1h30m", 5400), ("1.5h", 5400), (2.5, 2.5)]
)
def test_durations(text: str | float, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "m", "10 minutes", "-3s", "0", "nan", 0])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(UsageError):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size"), [("4G", 4 << 30), ("500M", 500 << 20), ("1.5GB", 3 << 29), ("2GiB", 2 << 30), (1024, 1024)]
)
def test_sizes(text: str | int, size: int) -> None:
    assert parse_size(text) == size


def test_messages_are_reported_and_kept(corpus: Path) -> None:
    said: list[str] = []
    model = elman.train("lm", corpus, report=said.append)
    assert said == list(model.record.notes)
    assert any("discount" in message for message in said)


def test_a_missing_directory_is_an_error_of_ours(tmp_path: Path) -> None:
    with pytest.raises(MissingError):
        elman.load(tmp_path / "nowhere")


def test_the_interval_has_the_perplexity_inside(lines_model: elman.Model, corpus: Path) -> None:
    found = lines_model.evaluate(corpus, EvaluateOptions(seed=3))
    assert found["perplexity_low"] <= found["perplexity"] <= found["perplexity_high"]
    assert found["seed"] == 3
    assert np.isfinite(found["bits_per_byte"])


def test_what_is_no_prompt_no_directory_and_no_data_is_said(
    stream_model: elman.Model, lines_model: elman.Model, corpus: Path
) -> None:
    """They were an AttributeError, an empty text, a TypeError, and `there is no file 'text'`."""
    for wrong in (5, ["the", "cat"], None):
        with pytest.raises(UsageError, match="a text is needed, not "):
            stream_model.next(wrong)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="a text is needed, not "):
            stream_model.generate(wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="tokens is -3"):
        stream_model.generate("the", tokens=-3)
    with pytest.raises(UsageError, match=r"init is the directory of a model(.|\n)*save it first"):
        elman.train("lm", corpus, model="lstm", init=lines_model)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"one dictionary is no list of data"):
        elman.train("lm", {"text": ["the cat sat", "a dog"]})
    with pytest.raises(UsageError, match=r"(.|\n)*this one holds int$"):
        elman.train("lm", [1, 2, 3])
