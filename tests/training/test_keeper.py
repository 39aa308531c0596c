"""The keeper saves and restores a run, cuts its metrics where it goes on, and catches signals."""

from __future__ import annotations

import json
import math
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from elman.core.errors import UsageError
from elman.core.files import RUN_FOLDER
from elman.text.batches import StreamBatches
from elman.training.checkpoint import newest_checkpoint
from elman.training.config import TrainConfig
from elman.training.decision import Decision
from elman.training.keeper import FIXED_SETTINGS, Keeper
from elman.training.run import Run
from elman.training.run_state import BadStep
from tests.training.tiny import Tiny, text, weights

CONFIG = TrainConfig(epochs=1.0)


def run(config: TrainConfig = CONFIG, *, steps: int = 0, seed: int = 0) -> Run:
    made = Run(Tiny(seed=seed), StreamBatches(text(400), rows=4, bptt=6), config=config, seed=11)
    for _ in range(steps):
        made.step(0.01, 0.5)
    return made


def keeper(directory: Path | None, config: TrainConfig = CONFIG, **changes: Any) -> Keeper:
    options: dict[str, Any] = {"identity": {"tokens": 400}, "seed": 11, **changes}
    return Keeper(directory, config=config, **options)


def lines(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / RUN_FOLDER / "metrics.jsonl").read_text().splitlines()]


def test_a_run_that_was_saved_is_restored_with_its_numbers_and_weights(tmp_path: Path) -> None:
    first = run(steps=3)
    keeper(tmp_path).save(first, seconds=1.5)
    again = run(seed=5)
    assert keeper(tmp_path).restore(again, resume=True) == ["going on after step 3"]
    assert again.state == first.state and again.state.seconds == 1.5
    assert weights(again.module) == weights(first.module)


def test_a_new_run_removes_the_checkpoints_of_the_old_one(tmp_path: Path) -> None:
    keeper(tmp_path).save(run(steps=3), seconds=1.5)
    fresh = run()
    assert keeper(tmp_path).restore(fresh, resume=False) == []
    assert fresh.state.step == 0 and newest_checkpoint(tmp_path) is None


def test_without_a_directory_nothing_is_restored_or_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made, kept = run(), keeper(None)
    assert kept.restore(made, resume=True) == []
    with kept.open(made.state):
        kept.write_metrics(made.state, epoch=0.0, loss=1.0)
        kept.cut_metrics(made.state)
    assert list(tmp_path.iterdir()) == [] and made.state.journal_bytes == 0


def test_weights_that_are_nan_are_never_saved(tmp_path: Path) -> None:
    made = run(steps=1)
    with torch.no_grad():
        made.parameters["output.bias"][0] = math.nan
    with pytest.raises(BadStep, match=r"step 1: the weight output.bias is not finite"):
        keeper(tmp_path).save(made, seconds=0.0)
    assert newest_checkpoint(tmp_path) is None


def test_metrics_written_after_the_checkpoint_are_cut_when_the_run_goes_on(tmp_path: Path) -> None:
    made, kept = run(steps=1), keeper(tmp_path)
    with kept.open(made.state):
        kept.write_metrics(made.state, epoch=0.06, loss=2.0)
        kept.save(made, seconds=1.0)
        made.step(0.01, 0.5)
        kept.write_metrics(made.state, epoch=0.12, loss=1.0)
    assert len(lines(tmp_path)) == 2
    again, kept = run(), keeper(tmp_path)
    kept.restore(again, resume=True)
    with kept.open(again.state):
        assert lines(tmp_path) == [{"step": 1, "epoch": 0.06, "tokens": 24, "loss": 2.0}]


def test_rolled_back_metrics_are_cut(tmp_path: Path) -> None:
    made, kept = run(), keeper(tmp_path)
    with kept.open(made.state):
        kept.write_metrics(made.state, epoch=0.0, loss=2.0)
        before = made.state.journal_bytes
        kept.write_metrics(made.state, epoch=0.0, loss=1.0)
        made.state.journal_bytes = before
        kept.cut_metrics(made.state)
    assert [line["loss"] for line in lines(tmp_path)] == [2.0]


@pytest.mark.parametrize(
    ("changed", "config"),
    [
        ({"seed": 12}, CONFIG),
        ({"identity": {"tokens": 401}}, CONFIG),
        ({}, TrainConfig(epochs=1.0, average="none")),
        ({}, TrainConfig(epochs=1.0, bptt_spread=2.0)),
    ],
)
def test_a_run_cannot_go_on_with_other_fixed_settings(
    changed: dict[str, Any], config: TrainConfig, tmp_path: Path
) -> None:
    keeper(tmp_path).save(run(steps=1), seconds=0.0)
    with pytest.raises(UsageError, match="cannot go on with") as caught:
        keeper(tmp_path, config, **changed).restore(run(config), resume=True)
    assert any(f"{name}=" in caught.value.what for name in FIXED_SETTINGS)


def test_other_settings_may_change_and_are_reported(tmp_path: Path) -> None:
    keeper(tmp_path).save(run(steps=1), seconds=0.0)
    notes = keeper(tmp_path, TrainConfig(epochs=3.0)).restore(run(), resume=True)
    assert notes == ["train.epochs was 1.0; from here on it is 3.0", "going on after step 1"]


@pytest.mark.parametrize(("place", "saved"), [("run", "saved"), (None, "nothing is saved")])
def test_a_signal_is_caught_only_while_the_keeper_is_open(place: str | None, saved: str, tmp_path: Path) -> None:
    directory = None if place is None else tmp_path / place
    for signum in (signal.SIGHUP, signal.SIGTERM):
        made, kept = run(steps=2), keeper(directory)
        before = signal.signal(signum, signal.SIG_DFL)  # under nohup it is ignored, and stays so
        try:
            with kept.open(made.state):
                assert kept.signum is None
                os.kill(os.getpid(), signum)
                assert kept.signum == signum
            assert signal.getsignal(signum) == signal.SIG_DFL
        finally:
            signal.signal(signum, before)
    stopped = kept.stopped(made.state, Decision("stop", "stopped by SIGTERM", signal.SIGTERM))
    assert stopped.exit_code == 143 and stopped.what == f"stopped by SIGTERM after step 2, {saved}"
    assert (stopped.hint is None) == (place is None)
