"""A net is sized for the machine as it is, not as it was for half a second."""

from __future__ import annotations

import gc
import time
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import elman
from elman.tasks import run, sizing
from elman.tasks.lm import task as lm_task
from elman.training import loop, plan_rows

BUSY, SLOW, IDLE = 2e8, 2e10, 4e10  # operations a second
FLOAT32 = {"train.steps": 10, "train.precision": "float32"}


@pytest.fixture
def text(tmp_path: Path) -> Path:
    words = np.random.default_rng(0).integers(50, size=(4000, 10))
    (tmp_path / "text.txt").write_text("\n".join(" ".join(f"w{word}" for word in line) for line in words) + "\n")
    return tmp_path / "text.txt"


def train(text: Path, monkeypatch: pytest.MonkeyPatch, measured: list[float], **options: Any) -> tuple[Any, list[str]]:
    said: list[str] = []
    found = iter(measured)
    monkeypatch.setattr("elman.training.speed.measure_peak", lambda **_: next(found))
    monkeypatch.setattr(loop, "measure_peak", lambda **_: IDLE)
    given = {
        "budget": "5m",
        "units": "space",
        "settings": {"train.steps": 60},
        "threads": 1,
        "model": "lstm",
        **options,
    }
    return elman.train("lm", text, report=said.append, **given), said


def test_a_net_that_was_sized_in_a_busy_moment_is_begun_again(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow, _ = train(text, monkeypatch, [BUSY, BUSY])
    wide, said = train(text, monkeypatch, [BUSY, IDLE], out=tmp_path / "m")
    assert wide.record.model.hidden > narrow.record.model.hidden
    sentence = next(one for one in said if "begun again" in one)
    assert f"with {wide.record.model.hidden} units instead of {narrow.record.model.hidden}" in sentence
    assert wide.record.outcome["steps"] == 60


def test_several_nets_are_begun_again_as_more_nets(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a width that suits both moments."""
    few, _ = train(text, monkeypatch, [SLOW, SLOW], settings=FLOAT32)
    more, said = train(text, monkeypatch, [SLOW, IDLE], settings=FLOAT32)
    assert few.record.model.hidden == more.record.model.hidden
    assert 1 < few.record.model.nets < more.record.model.nets
    sentence = next(one for one in said if "begun again" in one)
    assert sentence.endswith(f"with {more.record.model.nets} nets instead of {few.record.model.nets}")


def test_a_little_faster_is_no_reason(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, said = train(text, monkeypatch, [BUSY, (sizing.FASTER - 0.1) * BUSY])
    assert not any("begun again" in one for one in said)


def classify(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> tuple[Any, list[str]]:
    """Sized for a machine that makes eight passes with one net in this budget; this one needs a small part of it.

    To the second look, even the slowest machine that runs this is fast: its clock goes at a twentieth of the speed.
    """
    began = time.monotonic()
    slowed = SimpleNamespace(monotonic=lambda: began + (time.monotonic() - began) / 20)
    monkeypatch.setattr(sizing, "time", slowed)
    rows = np.random.default_rng(0).integers(200, size=(400, 8))
    lines = [f"{'odd' if row[0] % 2 else 'even'}\t" + " ".join(f"w{word}" for word in row) for row in rows]
    (tmp_path / "rows.tsv").write_text("\n".join(lines) + "\n")
    said: list[str] = []
    monkeypatch.setattr("elman.training.speed.measure_peak", lambda **_: 2e8)
    monkeypatch.setattr(loop, "measure_peak", lambda **_: IDLE)
    monkeypatch.setattr(plan_rows, "ENOUGH_STEPS", 50)
    given = {"budget": "2m", "units": "space", "settings": settings, "threads": 1, "report": said.append}
    return elman.train("classify", tmp_path / "rows.tsv", **given), said


def test_a_net_that_would_be_done_long_before_its_time_is_begun_again_as_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A classifier of short texts once had 71 seconds of its five minutes: steps were faster than the plan knew."""
    made, said = classify(tmp_path, monkeypatch)
    assert [one for one in said if "would have all its passes after" in one and "3 nets instead of 1" in one]
    assert made.record.model.nets == 3 and made.record.outcome["epochs"] >= 8


def test_passes_that_were_asked_for_are_no_reason_for_more_nets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, said = classify(tmp_path, monkeypatch, **{"train.epochs": 8})
    assert not any("begun again" in one for one in said)
    assert made.record.model.nets == 1 and made.record.outcome["epochs"] == 8


def test_a_size_that_was_given_stays(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = train(text, monkeypatch, [BUSY], settings={"train.steps": 60, "model.hidden": 64})
    assert made.record.model.hidden == 64


def test_it_is_sized_again_for_the_share_of_the_time_that_is_planned(
    text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was sized again for all of it, and then built for nine tenths: as small as before, after a twentieth of the time."""
    seen: list[float] = []
    means = sizing._means

    def spy(seconds: float, *args: Any) -> Any:
        seen.append(seconds)
        return means(seconds, *args)

    monkeypatch.setattr(sizing, "_means", spy)
    train(text, monkeypatch, [BUSY, IDLE])
    first, looked, again = seen
    assert first > looked > again == pytest.approx(looked, rel=0.01)


def test_the_net_that_is_given_up_leaves_memory(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error held its trainer: net, optimiser and averages stayed until the second net was trained and mixed."""
    runs: list[weakref.ref[Any]] = []
    alive: list[bool] = []
    begin = run._begin

    def spy(begun: Any, *args: Any, **options: Any) -> Any:
        gc.collect()
        alive.extend(net() is not None for net in runs)
        runs.append(weakref.ref(begun.net))
        return begin(begun, *args, **options)

    monkeypatch.setattr(run, "_begin", spy)
    train(text, monkeypatch, [BUSY, IDLE])
    assert len(runs) == 2 and alive == [False]


def test_a_net_to_go_on_from_is_planned_as_it_is(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings that are defaults counted as not given: it was planned for another width, head and number of nets."""
    settings = {"train.steps": 4, "model.hidden": 512, "model.head": "full"}
    train(text, monkeypatch, [IDLE], settings=settings, out=tmp_path / "m")
    plans: list[Any] = []
    plan_text = lm_task.plan_text

    def spy(record: Any, means: Any, **data: Any) -> Any:
        plans.append((means.model, plan_text(record, means, **data)))
        return plans[-1][1]

    monkeypatch.setattr(lm_task, "plan_text", spy)
    _, said = train(text, monkeypatch, [IDLE], settings={"train.steps": 4}, init=tmp_path / "m", model=None)
    given, plan = plans[0]
    assert (given["hidden"], given["head"], given["nets"]) == (512, "full", 1)
    assert plan.model == {} and any(f"train.batch={plan.train['batch']}" in one for one in said)
