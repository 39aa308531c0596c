"""Sizes of encoders and decoders for the time there is."""

from __future__ import annotations

from typing import Any

from elman.tasks.seq2seq.plan import plan_pairs
from elman.training.plan import Means, Plan


def plan(
    seconds: float, *, model: dict[str, Any] | None = None, train: dict[str, Any] | None = None, **data: int
) -> Plan:
    usual = {"num_pairs": 29_000, "source_tokens": 395_000, "target_tokens": 409_000, "vocab_size": 6_300}
    return plan_pairs(Means(seconds, 9e10, model or {}, train or {}), **{**usual, **data})


def test_more_time_makes_wider_nets_and_says_so() -> None:
    widths = [plan(60 * minutes).model["hidden"] for minutes in (1, 5, 30, 300)]
    assert widths == sorted(widths) and widths[0] == 64 and widths[2] == 256 and widths[3] == 512
    assert "chosen for 30 min of training: model.hidden=256" in plan(1800).sentences(seconds=1800)[0]


def test_without_a_budget_no_time_is_named() -> None:
    """`--epochs 3`, done in half a minute, began with `chosen for 27 min of training`."""
    (said,) = plan(1800).sentences(seconds=None)
    assert said.startswith("chosen: model.hidden=256")


def test_words_are_smoothed_and_tied_and_letters_are_not() -> None:
    words, letters = plan(600), plan(600, vocab_size=30)
    assert words.model["label_smoothing"] == 0.1 and words.model["tied"] is True
    assert not {"label_smoothing", "tied"} & letters.model.keys()
    assert letters.model["dropout"] < words.model["dropout"]


def test_what_was_given_is_left_alone() -> None:
    given = {"hidden": 100, "dropout": 0.5, "label_smoothing": 0.0, "tied": False}
    found = plan(600, model=given, train={"batch": 9, "learning_rate": 0.1, "beta1": 0.5})
    assert found.model == {} and found.train == {} and found.sentences(seconds=600) == ()
    assert not {"beta1", "learning_rate"} & plan(600, train={"optimiser": "sgd"}).train.keys()


def test_a_transformer_has_blocks_and_a_lower_rate() -> None:
    found = plan(1800, model={"family": "transformer", "hidden": 256})
    assert found.model["layers"] == 3
    assert found.train["learning_rate"] < plan(1800, model={"hidden": 256}).train["learning_rate"]


def test_few_pairs_come_in_small_steps() -> None:
    assert plan(60, num_pairs=800, source_tokens=4000, target_tokens=4000).train["batch"] == 70
    assert 50 <= plan(1800).train["batch"] <= 250


def test_letters_come_in_smaller_steps_than_words() -> None:
    many = {"num_pairs": 124_000, "source_tokens": 1_000_000, "target_tokens": 910_000}
    assert plan(900, **many, vocab_size=71).train["batch"] < plan(900, **many).train["batch"]


def test_a_run_of_less_than_a_pass_makes_smaller_and_bolder_steps() -> None:
    """A minute on 80,000 sentences was 206 steps of 200: half of one pass, at the rate of long runs."""
    many = {"num_pairs": 80_000, "source_tokens": 660_000, "target_tokens": 727_000, "vocab_size": 12_800}
    short, long = plan(46, **many), plan(1800, **many)
    assert short.passes < 1 <= long.passes
    assert short.train["batch"] < long.train["batch"] / 3
    assert (
        short.train["learning_rate"] * short.model["hidden"] > 1.5 * long.train["learning_rate"] * long.model["hidden"]
    )
