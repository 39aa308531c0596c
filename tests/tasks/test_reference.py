"""Every setting is documented, from the records themselves."""

from __future__ import annotations

import pytest

from elman.core.errors import UsageError
from elman.core.settings import Config
from elman.tasks.catalogue import TASKS, find_task
from elman.tasks.reference import all_settings, find_settings
from tests.commands import Run

RECORDS = {record: (name, section) for name in TASKS for section, record, _ in find_task(name).records()}


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_every_setting_has_a_meaning(record: type[Config]) -> None:
    missing = [name for name, field in record.model_fields.items() if name != "family" and not field.description]
    assert not missing, f"Field(description=...) is missing in {record.__name__}: {', '.join(missing)}"


def test_every_field_of_every_record_is_listed_with_what_it_can_be() -> None:
    everything = all_settings()
    assert all(one.meaning and one.values and one.owners for one in everything)
    listed = {one.key for one in everything}
    assert listed == {f"{section}.{name}" for record, (_, section) in RECORDS.items() for name in record.model_fields}


def test_a_setting_says_what_it_means_what_it_can_be_and_who_has_it() -> None:
    (order,) = [one for one in find_settings("model.order") if "mkn" in one.owners[0]]
    assert order.as_json() == {
        "key": "model.order",
        "meaning": "words of the longest n-gram",
        "values": "a whole number, at least 1 and at most 20",
        "default": "5",
        "for": ["lm (kn mkn)"],
    }
    (bptt,) = find_settings("train.bptt_*")
    assert bptt.owners == ("lm", "masked", "bilm")  # those that read streams


def test_a_setting_that_is_none_names_the_nearest() -> None:
    with pytest.raises(UsageError) as caught:
        find_settings("model.hiden")
    assert caught.value.hint == "did you mean model.hidden?"


def test_settings_are_printed(run: Run) -> None:
    shown = run("settings", "fit_temp")
    assert shown.out.splitlines() == [
        "train.fit_temperature",
        "  fit the temperature of the softmax on the validation text after training",
        "  true or false; default true",
        "  for lm",
    ]
    assert len(run("settings", "--json").json["settings"]) == len(all_settings())
    assert run("settings", "dropuot").code == 2
