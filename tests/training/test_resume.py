"""A run that was stopped and goes on is the run that never stopped, to the bit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from elman.core.errors import DataError, UsageError, WriteError
from elman.core.files import RUN_FOLDER
from elman.nets.inputs import NetInputs
from elman.tasks.lm.families.recurrent import RecurrentConfig
from elman.tasks.lm.families.window import WindowConfig
from elman.training.checkpoint import newest_checkpoint
from elman.training.config import TrainConfig
from elman.training.loop import Trainer
from elman.training.signals import Stopped
from tests.training.stops import PLACES, SIGNALS
from tests.training.tiny import VOCAB, Tiny, notes, run, text, trainer, weights

ROOT = Path(__file__).parents[2]


def stops(directory: Path, *arguments: str) -> Any:
    environment = {**os.environ, "OMP_NUM_THREADS": arguments[0], "OMP_WAIT_POLICY": "passive"}
    command = [sys.executable, "-m", "tests.training.stops", str(directory), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, check=False, timeout=250)
    assert done.returncode == 0 and done.stdout, done.stderr
    return json.loads(done.stdout)


@cache
def stopped_runs(directory: Path, threads: str) -> Any:
    return stops(directory / threads, threads)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stops")


@pytest.mark.slow
@pytest.mark.parametrize("threads", ["1", "2"])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", SIGNALS)
def test_a_run_stopped_by_a_signal_goes_on_to_the_same_bits(threads: str, place: str, name: str, shared: Path) -> None:
    found = stopped_runs(shared, threads)[f"{place} {name}"]
    assert found["code"] == {"SIGTERM": 143, "SIGINT": 130, "SIGKILL": -9}[name]
    assert found["again"] == 0
    assert found["differing"] == []


@pytest.mark.slow
def test_two_hundred_kills_at_random_moments_lose_nothing(tmp_path: Path) -> None:
    found = stops(tmp_path, "1", "200")
    assert found["bad"] == 0 and found["back"] == 0 and found["newest"] > 100


def abandon(made: Trainer, step: int) -> None:
    """What a kill leaves: whatever was saved by then."""
    for progress in made.run():
        if progress.step == step:
            return
    raise AssertionError("the run was over before")


@pytest.mark.parametrize("reset_lines", [False, True])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"optimiser": "sgd", "momentum": 0.5, "average": "tail"},
        {"optimiser": "rmsprop", "average": "none", "schedule": "one-cycle"},
        {"epochs": None, "patience": 1, "learning_rate": 0.1},
    ],
)
def test_stopping_anywhere_changes_nothing(settings: dict[str, Any], reset_lines: bool, tmp_path: Path) -> None:
    whole = trainer(tmp_path / "whole", reset_lines=reset_lines, **settings)
    run(whole)
    for step in (3, 17, 30):
        directory = tmp_path / str(step)
        abandon(trainer(directory, reset_lines=reset_lines, **settings), step)
        torch.manual_seed(step)
        again = trainer(directory, reset_lines=reset_lines, resume=True, **settings)
        run(again)
        assert weights(again.model) == weights(whole.model)  # type: ignore[arg-type]
        assert again.state.best_loss == whole.state.best_loss and again.state.step == whole.state.step
        assert again.outcome is not None and whole.outcome is not None and again.outcome.tally == whole.outcome.tally
        journals = [(path / RUN_FOLDER / "metrics.jsonl").read_text() for path in (directory, tmp_path / "whole")]
        assert losses(journals[0]) == losses(journals[1])


def losses(journal: str) -> list[tuple[int, float | None]]:
    lines = [json.loads(line) for line in journal.splitlines()]
    return [(line["step"], line.get("nats_per_token")) for line in lines]


@pytest.mark.parametrize("family", ["rnn", "gru", "lstm", "window"])
def test_every_family_goes_on_to_the_same_bits(family: str, tmp_path: Path) -> None:
    from elman.tasks.lm.families.recurrent_net import RecurrentModel
    from elman.tasks.lm.families.window_net import WindowModel

    def make(directory: Path, *, resume: bool = False) -> Trainer:
        rng = torch.Generator().manual_seed(3)
        model: Any
        if family == "window":
            model = WindowModel(WindowConfig(hidden=12, dropout=0.2), NetInputs(VOCAB, rng=rng), reset_lines=False)
        else:
            config = RecurrentConfig(family=family, hidden=12, layers=2, dropout=0.2, weight_drop=0.2)  # type: ignore[arg-type]
            model = RecurrentModel(config, NetInputs(VOCAB, rng=rng), reset_lines=False)
        return trainer(directory, model=model, resume=resume)

    whole = make(tmp_path / "whole")
    run(whole)
    abandon(make(tmp_path / "stopped"), 22)
    again = make(tmp_path / "stopped", resume=True)
    run(again)
    assert weights(again.model) == weights(whole.model)  # type: ignore[arg-type]


@pytest.mark.parametrize("settings", [{"maxent": 4}, {"head": "sampled", "samples": 4}, {"maxent": 3, "head": "nce"}])
def test_ngrams_and_words_drawn_go_on_to_the_same_bits_too(settings: dict[str, Any], tmp_path: Path) -> None:
    from elman.tasks.lm.families.recurrent_net import RecurrentModel

    def make(directory: Path, *, resume: bool = False) -> Trainer:
        rng = torch.Generator().manual_seed(3)
        counts = np.bincount(text(400), minlength=VOCAB)
        config = RecurrentConfig(family="rnn", hidden=6, dropout=0.2, **settings)
        model = RecurrentModel(config, NetInputs(VOCAB, rng=rng, counts=counts), reset_lines=False)
        model.learn_ngrams(text(400))
        return trainer(directory, model=model, resume=resume)

    whole = make(tmp_path / "whole")
    run(whole)
    abandon(make(tmp_path / "stopped"), 22)
    again = make(tmp_path / "stopped", resume=True)
    run(again)
    assert weights(again.model) == weights(whole.model)  # type: ignore[arg-type]


def test_a_finished_run_is_over_at_once_and_gives_its_model(tmp_path: Path) -> None:
    first = trainer(tmp_path)
    run(first)
    model = Tiny(seed=9)
    again = trainer(tmp_path, model=model, resume=True)
    assert run(again) == []
    assert weights(model) == weights(first.model)  # type: ignore[arg-type]
    assert again.outcome == first.outcome


def test_without_a_checkpoint_it_starts_and_says_so(tmp_path: Path) -> None:
    made = trainer(tmp_path, resume=True)
    assert "there is no checkpoint yet" in notes(run(made))


def test_a_new_run_forgets_the_old_one(tmp_path: Path) -> None:
    abandon(trainer(tmp_path), 20)
    made = trainer(tmp_path)
    assert next(made.run()).step == 0 and newest_checkpoint(tmp_path) is None


def test_a_signal_during_a_validation_is_obeyed_at_once(tmp_path: Path) -> None:
    import signal

    whole = trainer(tmp_path / "whole")
    run(whole)
    model = Tiny()
    made = trainer(tmp_path / "cut", model=model)
    batches_read = []

    def on_loss() -> None:
        if not model.training:
            batches_read.append(1)
            if len(batches_read) == 2:
                os.kill(os.getpid(), signal.SIGTERM)

    model.on_loss = on_loss
    with pytest.raises(Stopped) as caught:
        run(made)
    assert caught.value.exit_code == 143 and "after step 17" in caught.value.what
    assert "resume" in (caught.value.hint or "") and len(batches_read) == 2
    again = trainer(tmp_path / "cut", resume=True)
    run(again)
    assert weights(again.model) == weights(whole.model)  # type: ignore[arg-type]


def test_a_signal_while_the_end_is_measured_loses_nothing(tmp_path: Path) -> None:
    import signal

    whole = trainer(tmp_path / "whole")
    run(whole)

    class Late(Tiny):
        def score(self, *arguments: Any) -> Any:
            os.kill(os.getpid(), signal.SIGINT)
            return super().score(*arguments)

    with pytest.raises(Stopped) as caught:
        run(trainer(tmp_path / "cut", model=Late()))
    assert caught.value.exit_code == 130
    again = trainer(tmp_path / "cut", resume=True)
    run(again)
    assert weights(again.model) == weights(whole.model)  # type: ignore[arg-type]
    assert again.outcome is not None and again.outcome.is_whole


def test_handlers_are_put_back(tmp_path: Path) -> None:
    import signal

    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    run(trainer(tmp_path))
    abandon(trainer(tmp_path), 5)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_changed_settings_are_reported_or_refused(tmp_path: Path) -> None:
    abandon(trainer(tmp_path), 20)
    said = notes(run(trainer(tmp_path, resume=True, learning_rate=0.01)))
    assert "train.learning_rate was 0.02; from here on it is 0.01" in said
    for change in ({"batch": 8}, {"seed": 3}, {"optimiser": "sgd"}, {"ids": text(401)}):
        with pytest.raises(UsageError, match="cannot go on"):
            trainer(tmp_path, resume=True, **change)


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    abandon(trainer(tmp_path), 20)
    with pytest.raises(DataError, match="another model"):
        trainer(tmp_path, model=Tiny(hidden=5), resume=True)


def test_a_damaged_newest_checkpoint_costs_only_its_steps(tmp_path: Path) -> None:
    whole = trainer(tmp_path / "whole")
    run(whole)
    abandon(trainer(tmp_path / "cut"), 20)
    newest = sorted((tmp_path / "cut" / RUN_FOLDER).iterdir())[-1]
    (newest / "state.safetensors").write_bytes(b"torn")
    again = trainer(tmp_path / "cut", resume=True)
    assert "step-000000020 is not intact" in notes(run(again))
    assert weights(again.model) == weights(whole.model)  # type: ignore[arg-type]


def test_a_full_disk_ends_the_run_and_spares_the_checkpoint_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = trainer(tmp_path / "whole")
    run(whole)
    made = trainer(tmp_path / "full")
    real = os.write

    def write(descriptor: int, data: Any) -> int:
        if made.state.step >= 15:
            raise OSError(28, "No space left on device")
        return real(descriptor, data)

    monkeypatch.setattr(os, "write", write)
    with pytest.raises(WriteError) as caught:
        run(made)
    monkeypatch.setattr(os, "write", real)
    assert caught.value.exit_code == 74 and "no space left" in caught.value.what
    found = newest_checkpoint(tmp_path / "full")
    assert found is not None and found.state["step"] == 10
    again = trainer(tmp_path / "full", resume=True)
    run(again)
    assert weights(again.model) == weights(whole.model)  # type: ignore[arg-type]


def test_another_number_of_threads_is_reported(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    abandon(trainer(tmp_path), 20)
    try:
        torch.set_num_threads(before + 1)
        made = trainer(tmp_path, resume=True)
        assert "not be the same to the bit" in notes([next(made.run())])
    finally:
        torch.set_num_threads(before)


def test_a_checkpoint_holds_no_more_than_a_run_needs(tmp_path: Path) -> None:
    run(trainer(tmp_path))
    found = newest_checkpoint(tmp_path)
    assert found is not None
    assert {name.split("/")[0] for name in found.tensors} == {"model", "optimiser", "average", "carried", "random"}
    assert found.tensors["random/torch"].dtype == np.uint8
    later = {"freeze", "precision", "sync"}  # of runs with a foundation, in bfloat16, and of several processes
    written = TrainConfig.model_fields.keys() - later
    assert written <= found.state["settings"].keys()
