"""What cannot be compared is refused before anything is read."""

from __future__ import annotations

from typing import Any

import pytest

from elman.compare.request import Request, Sweep, as_paths, find_net_task, make_entries, parse_models
from elman.compare.sizes import nearest_width
from elman.core.errors import UsageError


def entries(models: str | None, task: str = "lm", sweep: str | None = None, equal: str | None = None) -> Any:
    axis = Sweep.parse([] if sweep is None else [sweep], equal)
    return make_entries(find_net_task(task), parse_models(models), axis)


def names(*arguments: Any, **options: Any) -> list[str]:
    return [entry.name for entry in entries(*arguments, **options)]


def test_the_history_is_what_is_compared_unless_something_is_asked_for() -> None:
    found = names(None)
    assert found[0] == "unigram"
    assert found.index("mkn") < found.index("lstm") < found.index("mkn+lstm+cache") == len(found) - 1
    for task in ("seq2seq", "tag", "classify", "masked", "qa", "bilm"):
        assert names(None, task)


def test_members_of_a_mixture_stand_before_it() -> None:
    assert names("mkn+lstm+cache,unigram") == ["mkn", "lstm", "mkn+lstm+cache", "unigram"]
    assert names("lstm,lstm+neural-cache:window=100") == ["lstm", "lstm+neural-cache:window=100"]


def test_a_directory_is_a_name_that_every_system_has() -> None:
    (entry,) = entries("lstm", sweep="model.layers=1,2")[:1]
    assert (entry.name, entry.directory) == ("lstm layers=1", "lstm-layers-1")


@pytest.mark.parametrize(
    ("models", "task", "what"),
    [
        ("lsmt", "lm", "there is no model 'lsmt'\nhint: did you mean lstm?"),
        ("mkn+lsmt", "lm", "there is no model 'lsmt'"),
        ("mkn,lstm,mkn", "lm", "mkn is given twice"),
        ("mkn+mkn", "lm", "has a member twice"),
        ("cache+neural-cache", "lm", "caches alone"),
        (",", "lm", "there is no model to compare"),
        ("window", "classify", "there is no model 'window'"),
        ("gru+lstm", "tag", "there is no model"),
        ("lstm", "tagg", "there is no task 'tagg'\nhint: did you mean tag?"),
    ],
)
def test_models_that_are_none_are_refused(models: str, task: str, what: str) -> None:
    with pytest.raises(UsageError, match=what.replace("+", r"\+").replace("?", r"\?")):
        entries(models, task)


@pytest.mark.parametrize(
    ("models", "sweep", "equal", "what"),
    [
        ("lstm,gru", "model.layers=1,2", None, "a sweep is of one model"),
        (None, "model.layers=1,2", None, "a sweep is of one model"),
        ("lstm", "model.layers=1", None, "not of the form"),
        ("lstm", "layers=1,2", None, "not of the form"),
        ("lstm", "model.layers=1,1", None, "a value twice"),
        ("lstm", "model.layres=1,2", None, "is not a setting of lstm\nhint: did you mean model.layers"),
        ("mkn", "train.epochs=1,2", None, "is not a setting of mkn"),
        ("mkn+cache", "model.layers=1,2", None, "a mixture has no setting"),
        ("mkn", "model.order=1,2", "parameters", "mkn counts"),
        ("lstm", "model.hidden=8,16", "parameters", "model.hidden, which is swept"),
        ("lstm", "model.layers=1,2", "seconds", "there is no way to be equal"),
        ("lstm", None, "parameters", "equal=... is for a sweep"),
    ],
)
def test_sweeps_that_mean_nothing_are_refused(
    models: str | None, sweep: str | None, equal: str | None, what: str
) -> None:
    with pytest.raises(UsageError, match=what):
        entries(models, sweep=sweep, equal=equal)


def make(models: str, settings: dict[str, Any]) -> Request:
    return Request(find_net_task("lm"), entries(models), None, None, settings)


def test_a_setting_is_for_every_model_that_has_it() -> None:
    request = make("mkn,lstm,mkn+lstm", {"model.order": 3, "model.hidden": 8, "train.steps": 2, "data.units": "char"})
    request.check()
    mkn, lstm, mixture = request.entries
    assert request.settings_of(mkn) == {"model.order": 3, "data.units": "char"}
    assert request.settings_of(lstm) == {"model.hidden": 8, "train.steps": 2, "data.units": "char"}
    assert request.settings_of(mixture) == {}


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"model.hiden": 8}, "model.hiden is not a setting of mkn, lstm\nhint: did you mean model.hidden"),
        ({"hidden": 8}, "is not of the form section.key"),
        ({"model.hidden": -1}, "model.hidden is"),
        ({"train.stesp": 1}, "train.stesp is not a setting"),
        ({"data.unit": "char"}, "data.unit is not a setting"),
    ],
)
def test_a_setting_that_no_model_has_is_refused(settings: dict[str, Any], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        make("mkn,lstm", settings).check()


def test_what_can_be_read_only_once_is_refused() -> None:
    with pytest.raises(UsageError, match="stdin only once"):
        as_paths("-")


@pytest.mark.parametrize("target", [1, 100, 12_345, 1_000_000])
def test_the_nearest_width_is_found_as_by_trying_all(target: int) -> None:
    def size(hidden: int) -> int:
        return 8 * hidden**2 + 50 * hidden

    best = min(range(4, 4000, 4), key=lambda hidden: abs(size(hidden) - target))
    assert nearest_width(size, target) == best
