"""Sizes grow with the time there is, never overrule what the user set, and are explained."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elman.core.settings import make
from elman.tasks.bilm.plan import plan_bilm
from elman.tasks.lm.families import find_family
from elman.tasks.masked.config import MaskedConfig
from elman.tasks.masked.plan import plan_masked
from elman.training.config import TrainConfig
from elman.training.plan import Means, Plan
from elman.training.plan_text import choose_dropout, matmul_weights, plan_text

FLOPS = 1.6e11
PTB = {"num_tokens": 929_589, "vocab_size": 10_000}


def plan(
    family: str, seconds: float, *, model: Any = None, train: Any = None, flops: float = FLOPS, **data: int
) -> Plan:
    means = Means(seconds, flops, model or {}, train or {})
    return plan_text(find_family(family).record, means, family=family, **data)


def test_twenty_minutes_of_penn_treebank_get_a_layer_of_four_to_five_hundred() -> None:
    found = plan("lstm", 1150, **PTB)
    assert 400 <= found.model["hidden"] <= 512
    assert 0.35 <= found.model["dropout"] <= 0.55
    assert found.train == {"batch": 64, "bptt": 35}
    sentences = found.sentences(seconds=1150)
    assert f"model.hidden={found.model['hidden']}" in sentences[0] and "passes over 929,589 tokens" in sentences[1]


def test_weights_of_a_net_by_hand() -> None:
    # LSTM: 4 gates x (10 inputs + 10 states) x 10; output 10 x 1000
    assert matmul_weights(find_family("lstm").record, "lstm", 10, 1000, layers=1) == 800 + 10_000
    assert matmul_weights(find_family("gru").record, "gru", 10, 120, layers=2) == 1200 + 1200
    # Transformer: queries, keys, values and output 4 x 10 x 10, feed-forward 2 x 10 x 40
    assert matmul_weights(find_family("transformer").record, "transformer", 10, 120, layers=2) == 2 * 1200 + 1200
    assert matmul_weights(find_family("window").record, "window", 8, 100, layers=2) == 5 * 2 * 8 + 64 + 800


def test_fewer_words_to_compare_with_leave_time_for_a_wider_net() -> None:
    def hidden(**model: Any) -> Any:
        return plan("lstm", 300, model=model, **{**PTB, "vocab_size": 60_000}).model["hidden"]

    assert hidden(head="full") < hidden(head="nce") <= hidden(head="nce", samples="500")


def test_more_time_is_never_a_smaller_net() -> None:
    for family in ("rnn", "gru", "lstm", "window", "transformer"):
        sizes = [plan(family, seconds, **PTB).model for seconds in (10, 60, 300, 1200)]
        assert all(a["hidden"] <= b["hidden"] for a, b in pairwise(sizes))


def test_what_the_user_set_stays() -> None:
    given_model = {"hidden": "200", "tied": "true", "dropout_output": "0.1"}
    found = plan("lstm", 600, model=given_model, train={"batch": "20"}, **PTB)
    assert not found.model.keys() & given_model.keys()
    assert "dropout" not in found.model and "batch" not in found.train


def test_many_words_are_sampled_and_few_are_not() -> None:
    assert plan("lstm", 600, **PTB).model["head"] == "sampled"
    assert plan("lstm", 600, **{**PTB, "vocab_size": 2_600}).model["head"] == "full"
    assert plan("lstm", 10**6, **PTB).model["head"] == "full"  # there is time for all of them


def test_characters_get_longer_windows_and_all_symbols_at_once() -> None:
    found = plan("lstm", 580, num_tokens=1_100_000, vocab_size=65)
    assert found.model["head"] == "full" and found.train["bptt"] == 50 and found.model["hidden"] >= 320


def test_characters_get_thousands_of_steps() -> None:
    """Ten passes over a million characters were 1,592 steps of 64 x 100 characters, and not much better than six of 32 x 100."""
    for seconds in (60, 600, 3600):
        found = plan("lstm", seconds, num_tokens=1_000_000, vocab_size=65)
        steps = found.passes * 1_000_000 / (found.train["batch"] * found.train["bptt"])
        assert 2_000 <= steps <= 8_000 or found.train["batch"] == 64


def test_a_little_text_of_few_symbols_is_read_in_short_windows_so_that_a_pass_has_more_steps() -> None:
    little, more = (plan("lstm", 60, num_tokens=tokens, vocab_size=60).train for tokens in (3_200, 16_000))
    assert little == {"batch": 8, "bptt": 35} and more == {"batch": 16, "bptt": 50}
    assert plan("lstm", 60, train={"bptt": 50}, num_tokens=3_200, vocab_size=60).train == {"batch": 8}


def test_attention_gets_longer_pieces_a_lower_rate_and_no_window_beyond_the_text() -> None:
    found = plan("transformer", 1150, **PTB)
    assert 200 <= found.model["hidden"] <= 320 and "window" not in found.model
    assert found.train == {"batch": 32, "bptt": 70, "learning_rate": 0.002}
    little = plan("transformer", 60, num_tokens=90, vocab_size=20)
    assert little.model["window"] == 90
    given = plan("transformer", 60, model={"window": "7"}, train={"optimiser": "sgd"}, **PTB)
    assert "window" not in given.model and "learning_rate" not in given.train


def test_a_narrow_net_learns_at_a_higher_rate() -> None:
    plans = [plan("gru", 600, model={"hidden": size}, **PTB) for size in (64, 256, 512)]
    assert [found.train["learning_rate"] for found in plans] == [0.005, 0.0025, 0.0025]


def test_a_state_that_is_a_sum_is_normalised() -> None:
    found = plan("rnn", 600, model={"recurrence": "additive"}, **PTB)
    assert found.model["layer_norm"] is True and "layer_norm" not in plan("rnn", 600, **PTB).model


def test_only_the_lstm_gets_the_highest_rate() -> None:
    rates = {family: plan(family, 600, **PTB).train.get("learning_rate") for family in ("rnn", "gru", "lstm")}
    assert rates == {"rnn": 0.0015, "gru": 0.0025, "lstm": None}


def test_a_little_text_gets_a_small_net_and_small_batches() -> None:
    found = plan("lstm", 3600, num_tokens=20_000, vocab_size=500)
    assert found.model["hidden"] <= 200 and found.train["batch"] <= 16


def test_dropout_grows_with_the_passes() -> None:
    values = [choose_dropout(passes, 400) for passes in (0.1, 0.5, 2, 6, 14, 100)]
    assert values == sorted(values) and values[0] == 0.0 and values[-1] == 0.6
    assert choose_dropout(6, 400) == pytest.approx(0.42)


def test_a_narrow_net_gets_less_dropout() -> None:
    assert choose_dropout(10, 64) < choose_dropout(10, 128) < choose_dropout(10, 512)


@given(
    st.sampled_from(["rnn", "gru", "lstm", "window", "transformer"]),
    st.integers(1, 10**9),
    st.integers(2, 10**6),
    st.floats(0.1, 1e6),
    st.floats(1e9, 1e13),
)
def test_every_plan_is_a_valid_setting(family: str, tokens: int, vocab: int, seconds: float, flops: float) -> None:
    found: Plan = plan(family, seconds, num_tokens=tokens, vocab_size=vocab, flops=flops)
    make(find_family(family).record, {"family": family, **found.model}, section="model")
    make(TrainConfig, found.train, section="train")


def test_masked_models_get_long_pieces_and_all_words_at_once() -> None:
    found = plan_masked(Means(1150, FLOPS), mask=0.15, **PTB)
    assert found.model["tied"] is True and found.model["skip"] == "residual" and "head" not in found.model
    assert found.train["bptt"] == 70 and found.train["learning_rate"] == 0.003
    sentence = found.sentences(seconds=1150)[0]
    assert f"model.hidden={found.model['hidden']}" in sentence and "train.bptt=70" in sentence
    means = Means(1150, FLOPS, {"family": "transformer", "hidden": "64"}, {"bptt": "9"})
    given = plan_masked(means, mask=0.15, **PTB)
    assert "skip" not in given.model and "hidden" not in given.model and "bptt" not in given.train
    make(MaskedConfig, {**found.model}, section="model")
    make(MaskedConfig, {"family": "transformer", "hidden": "64", **given.model}, section="model")


def test_a_two_way_model_is_narrower_than_one_of_one_way() -> None:
    one = plan("lstm", 1150, model={"layers": 2, "head": "full"}, **PTB)
    two = plan_bilm(Means(1150, FLOPS, {"head": "full"}), **PTB)
    assert two.model["hidden"] < one.model["hidden"] and two.model["layers"] == 2 and two.model["skip"] == "residual"
    assert "in each direction" in two.sentences(seconds=1150)[1]
    single = plan_bilm(Means(1150, FLOPS, {"layers": "1"}), **PTB)
    assert not {"layers", "skip"} & single.model.keys()


def test_time_for_many_passes_goes_into_several_nets_rather_than_a_very_wide_one() -> None:
    def limited(seconds: float, **model: Any) -> Plan:
        means = Means(seconds, 4 * FLOPS, model, is_limited=True)
        return plan_text(find_family("lstm").record, means, family="lstm", **PTB)

    short, long = limited(400), limited(7200)
    assert "nets" not in short.model
    assert long.model["nets"] > 1 and long.model["hidden"] == 512 and 14 <= long.passes < 40
    assert 1 < limited(1200).model["nets"] < long.model["nets"] and limited(1200).passes >= 14
    assert "nets" not in limited(7200, nets=1).model and limited(7200, nets=1).model["hidden"] > 512
    assert limited(7200, nets=2).passes < limited(7200, nets=1, hidden=limited(7200, nets=2).model["hidden"]).passes


def test_plain_cells_are_never_very_wide() -> None:
    assert plan("rnn", 57_600, **PTB).model["hidden"] == 512 < plan("lstm", 57_600, **PTB).model["hidden"]
    wide, very_wide = (plan("rnn", 57_600, model={"hidden": size}, **PTB).train["learning_rate"] for size in (512, 768))
    assert very_wide == pytest.approx(wide * (512 / 768) ** 2)


def test_a_text_that_is_read_many_times_gets_more_kinds_of_dropout() -> None:
    seldom, often = plan("lstm", 3600, **PTB), plan("lstm", 57_600, **PTB)
    assert "weight_drop" not in seldom.model and "dropout_embedding" not in seldom.model
    assert often.passes > 40 and often.model["weight_drop"] == 0.4 and often.model["dropout_embedding"] == 0.1
    attention = plan("transformer", 144_000, **PTB).model
    assert "dropout_embedding" in attention and "weight_drop" not in attention
    given = plan("lstm", 57_600, model={"weight_drop": "0.2"}, **PTB).model
    assert "weight_drop" not in given


def test_a_budget_of_a_day_ends_after_enough_passes_and_says_so() -> None:
    means = Means(86_400, FLOPS, is_limited=True)
    found = plan_text(find_family("lstm").record, means, family="lstm", num_tokens=50_000, vocab_size=2_000)
    assert found.train["epochs"] == found.passes == 100
    assert "end before its time is over" in found.sentences(seconds=86_400)[1]
    given = plan_text(
        find_family("lstm").record,
        Means(86_400, FLOPS, {}, {"epochs": "300"}, is_limited=True),
        family="lstm",
        num_tokens=50_000,
        vocab_size=2_000,
    )
    assert "epochs" not in given.train and not given.note
    unlimited = plan("lstm", 86_400, num_tokens=50_000, vocab_size=2_000)
    assert "epochs" not in unlimited.train


def test_the_more_passes_a_budget_has_the_more_large_outputs_of_an_lstm_are_penalised_and_its_weights_shrink() -> None:
    def limited(seconds: float, family: str = "lstm", model: Any = None, **train: Any) -> Plan:
        means = Means(seconds, FLOPS, {"hidden": 256, "nets": 1, **(model or {})}, train, is_limited=True)
        return plan_text(find_family(family).record, means, family=family, **PTB)

    once, some, many = (limited(seconds) for seconds in (10, 200, 2000))
    assert once.passes < 2 < some.passes < 10 < many.passes
    assert "activation_penalty" not in once.model and "weight_decay" not in once.train
    assert some.model["activation_penalty"] == pytest.approx(0.2 * some.passes, abs=0.01)
    assert (many.model["activation_penalty"], many.model["temporal_penalty"]) == (2.0, 1.0)
    assert some.train["weight_decay"] == many.train["weight_decay"] == 0.05
    own = limited(200, model={"temporal_penalty": "0"}, optimiser="sgd")
    assert "activation_penalty" not in own.model and not {"optimiser", "weight_decay"} & own.train.keys()
    masked = plan_masked(Means(200, FLOPS, is_limited=True), mask=0.15, **PTB)
    for other in (limited(200, "gru"), masked, plan("lstm", 200, **PTB)):
        assert "activation_penalty" not in other.model and "weight_decay" not in other.train


@pytest.mark.parametrize("family", ["rnn", "gru", "lstm", "window"])
def test_word_vectors_begin_from_counts_where_symbols_are_words_and_counting_is_quick(family: str) -> None:
    def initial(seconds: float = 60, model: Any = None, **data: int) -> Any:
        return plan(family, seconds, model=model, **{**PTB, **data}).model.get("initial_vectors")

    assert initial() == "counted"
    assert initial(vocab_size=65) is None  # characters
    assert initial(1.0) is None and initial(60, vocab_size=3_000_000) is None  # it would take much of the time
    assert initial(model={"initial_vectors": "random"}) is initial(model={"vectors": "some.txt"}) is None


def test_n_gram_features_alone_and_transformers_do_not_begin_with_counted_vectors() -> None:
    assert "initial_vectors" not in plan("transformer", 60, **PTB).model
    assert "initial_vectors" not in plan("rnn", 60, model={"hidden": "0", "maxent": "5"}, **PTB).model


def test_small_batches_and_narrow_nets_are_known_to_be_slow() -> None:
    def passes(hidden: int, batch: int) -> float:
        found = plan("lstm", 60, model={"hidden": hidden}, train={"batch": batch}, **PTB)
        weights = matmul_weights(find_family("lstm").record, "lstm", hidden, 640.0, layers=1)
        return found.passes * weights

    assert passes(64, 8) < 0.7 * passes(64, 64) and passes(64, 64) < 0.7 * passes(512, 64)


def test_wide_nets_are_compared_with_more_words_and_learn_at_a_lower_rate() -> None:
    narrow, wide = (plan("lstm", 600, model={"hidden": size}, **PTB) for size in (256, 1024))
    assert "samples" not in narrow.model and wide.model["samples"] == 2048
    assert "learning_rate" not in narrow.train and wide.train["learning_rate"] == pytest.approx(0.00354)


NO_LAYERS = {"hidden": "0", "maxent": "4"}
STILL_VECTORS = {"vectors": "glove.txt", "tune_vectors": "false"}


@pytest.mark.parametrize(
    ("family", "model"),
    [(family, NO_LAYERS) for family in ("lstm", "rnn", "gru")]
    + [(family, STILL_VECTORS) for family in ("lstm", "rnn", "gru", "transformer", "window")],
)
def test_what_is_chosen_goes_with_what_was_set(family: str, model: dict[str, str]) -> None:
    """hidden=0 was given penalties and several nets, vectors that hold still were tied: refused as if they had been asked for."""
    record = find_family(family).record
    given = make(record, {"family": family, **model}, section="model")
    for seconds in (60, 36_000):
        means = Means(seconds, FLOPS, {key: getattr(given, key) for key in model}, {}, is_limited=True)
        found = plan_text(record, means, family=family, **PTB)
        make(record, {"family": family, **found.model, **model}, section="model")
