"""Settings of nets that cannot apply are refused, never ignored."""

from __future__ import annotations

from typing import Any

import pytest

from elman.core.errors import UsageError
from elman.core.settings import make
from elman.tasks.lm.families import find_family
from elman.tasks.lm.families.recurrent import RecurrentConfig
from elman.tasks.lm.families.window import WindowConfig


@pytest.mark.parametrize(
    ("family", "settings", "message"),
    [
        ("lstm", {"recurrence": "gated"}, "recurrence is for rnn"),
        ("gru", {"activation": "relu"}, "activation is for rnn"),
        ("gru", {"forget_bias": 1}, "forget_bias is for lstm"),
        ("rnn", {"skip": "residual"}, "needs at least 2 layers"),
        ("lstm", {"dropout_layers": 0.2}, "needs at least 2 layers"),
        ("lstm", {"tune_vectors": "false"}, "needs vectors"),
        ("gru", {"vectors": "f.txt", "initial_vectors": "counted"}, "does not apply with vectors=FILE"),
        ("rnn", {"hidden": 0, "maxent": 5, "initial_vectors": "counted"}, "does not apply with hidden=0"),
        ("lstm", {"cutoffs": "10,20"}, "head=adaptive"),
        ("lstm", {"tail_shrink": 2}, "head=adaptive"),
        ("lstm", {"dropout_tail": 0.1}, "head=adaptive"),
        ("lstm", {"samples": 100}, "head=sampled"),
        ("rnn", {"maxent": 1}, "at least 2"),
        ("rnn", {"maxent_size": 1000}, "needs maxent"),
        ("rnn", {"hidden": 0}, "needs maxent=ORDER"),
        ("rnn", {"hidden": 0, "maxent": 5, "tied": "true"}, "tied does not apply with hidden=0"),
        ("gru", {"hidden": 0, "maxent": 5, "dropout": 0.2}, "dropout does not apply with hidden=0"),
        ("window", {"hidden": 0, "maxent": 5}, "at least 1"),
        ("window", {"head": "adaptive", "alpha": 0.5}, "head=sampled"),
        ("gru", {"head": "nce", "samples": 0}, "at least 1"),
        ("rnn", {"head": "blackout", "cutoffs": "10"}, "head=adaptive"),
        ("lstm", {"head": "adaptive", "cutoffs": "20,10"}, "increasing ranks"),
        ("lstm", {"head": "adaptive", "cutoffs": "0,10"}, "increasing ranks"),
        ("lstm", {"head": "adaptive", "tied": "true", "tail_shrink": "4"}, "tail_shrink must be 1"),
        ("lstm", {"tied": "true", "vectors": "f.txt", "tune_vectors": "false"}, "frozen at the output"),
        ("lstm", {"tied": "true", "embedding": 5, "projection": 6}, "must be as wide as the embedding"),
        ("lstm", {"dropout": 1}, "below 1"),
        ("lstm", {"window": 3}, "not a setting of lstm"),
        ("window", {"layers": 0}, "needs direct"),
        ("window", {"layers": 0, "direct": "true", "layer_norm": "true"}, "layer_norm"),
        ("window", {"weight_drop": 0.5}, "not a setting of window"),
        ("window", {"skip": "dense"}, "needs at least 2 layers"),
        ("transformer", {"hidden": 100, "attention_heads": 3}, "must be a multiple of attention_heads"),
        ("transformer", {"window": 0}, "at least 1"),
        ("transformer", {"skip": "residual"}, "not a setting of transformer"),
    ],
)
def test_what_cannot_apply_is_refused(family: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make(find_family(family).record, {"family": family, **settings}, section="model")


@pytest.mark.parametrize("record", [RecurrentConfig, WindowConfig])
def test_a_record_comes_back_from_json_as_it_was(record: type[RecurrentConfig] | type[WindowConfig]) -> None:
    config = record(layers=2, skip="dense", head="adaptive", cutoffs=(10, 20), dropout=0.3)
    assert record.model_validate_json(config.model_dump_json()) == config


def test_one_dropout_is_for_all_places_unless_they_have_their_own() -> None:
    config = RecurrentConfig(layers=2, dropout=0.4, dropout_output=0.1)
    assert [config.rate(place) for place in ("input", "layers", "output")] == [0.4, 0.4, 0.1]  # type: ignore[arg-type]


def test_a_misspelt_setting_names_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        make(RecurrentConfig, {"family": "lstm", "hiden": 3}, section="model")
    assert caught.value.hint == "did you mean model.hidden?"
