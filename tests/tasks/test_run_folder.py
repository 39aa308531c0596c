"""A run on disk: beside the old model until the new one is there, whole or not there, and damage to it is found."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import elman
from elman import store
from elman.core import files
from elman.core.errors import DataError, ElmanError, UsageError, WriteError
from elman.core.stored import read_tensors
from elman.tasks import run_folder
from elman.tasks.run_folder import RunFiles, find_run, write_run
from elman.training.loop import Trainer
from elman.training.progress import Progress
from tests.commands import LINES, Run
from tests.core.faults import Crash, failing
from tests.tasks.texts import arguments

SETTINGS = {"model.hidden": 8, "train.batch": 4, "train.bptt": 12, "train.steps": 12, "train.checkpoint_steps": 5}


def train(data: Path, out: Path, *, task: str = "lm", **options: Any) -> Any:
    given = {"units": "space", "settings": SETTINGS, "threads": 1, **options}
    return elman.train(task, data, out=out, **given)


def interrupt_at(step: int) -> Callable[[Progress], None]:
    def stop(progress: Progress) -> None:
        if progress.step >= step:
            raise KeyboardInterrupt

    return stop


def contents_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file() and path.name != ".lock"}


# ------------------------------------------------------------------------------------------------------ the old model


@pytest.fixture
def old(text: Path, tmp_path: Path) -> Path:
    """A net, with its journal and its curves."""
    train(text, tmp_path / "m", model="gru")
    assert {"metrics.jsonl", "curves.svg"} <= contents_of(tmp_path / "m").keys()
    return tmp_path / "m"


def test_the_old_model_is_whole_until_the_new_one_replaces_it(text: Path, old: Path) -> None:
    """Its metrics.jsonl was emptied when the new run began: from then on, every verb said that it was damaged."""
    before, seen = contents_of(old), []

    def look(progress: Progress) -> None:
        seen.append(progress.step)
        assert contents_of(old) == before
        assert elman.load(old).record.model.family == "gru"

    made = train(text, old, model="rnn", overwrite=True, on_progress=look)
    assert len(seen) > 10
    assert made.record.model.family == elman.load(old).record.model.family == "rnn"
    assert {path.name for path in old.iterdir()} == before.keys()
    journal = [json.loads(line) for line in (old / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in journal if "nats_per_token" in line] == [10]


@pytest.mark.parametrize("step", [0, 7])
def test_a_stop_leaves_the_old_model_and_the_run_that_goes_on(run: Run, text: Path, old: Path, step: int) -> None:
    before = contents_of(old)
    with pytest.raises(KeyboardInterrupt):
        train(text, old, model="rnn", overwrite=True, on_progress=interrupt_at(step))
    assert contents_of(old) == before
    assert run("next", old, "the", "--json").json["next"]
    assert run("resume", old).code == 0
    assert elman.load(old).record.model.family == "rnn" and not (old / "checkpoints").exists()


def test_a_kill_leaves_the_old_model(run: Run, text: Path, old: Path) -> None:
    before = contents_of(old)
    more = ["--model", "rnn", "--overwrite", "--epochs", "10000", "--set", "train.checkpoint_steps=2"]
    command = [sys.executable, "-m", "elman", *arguments("lm", text, old, *more)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 100
        while not list(old.glob("checkpoints/step-*/manifest.json")) and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)
        process.wait(60)
    assert list(old.glob("checkpoints/step-*"))
    assert contents_of(old) == before
    assert run("info", old, "--json").json["model"] == "gru"


@pytest.mark.parametrize("place", ["_prepare", "_step", "_validate", "_finish", "_save"])
def test_an_error_anywhere_leaves_the_old_model(
    text: Path, old: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    def full(*arguments: object) -> None:
        raise WriteError("no space left on device")

    before = contents_of(old)
    monkeypatch.setattr(Trainer, place, full)
    with pytest.raises(WriteError, match="no space"):
        train(text, old, model="rnn", overwrite=True)
    assert contents_of(old) == before
    assert elman.load(old).record.model.family == "gru"


def test_a_new_run_replaces_the_old_one_only_when_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path, {"run.json": b'{"old": 1}'})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "commit", lambda *arguments: (_ for _ in ()).throw(WriteError("no space")))
        with pytest.raises(WriteError, match="no space"):
            write_run(tmp_path, {"run.json": b'{"new": 1}'})
    assert RunFiles(tmp_path / "checkpoints").asked() == {"old": 1}
    write_run(tmp_path, {"run.json": b'{"new": 1}'})
    assert RunFiles(tmp_path / "checkpoints").asked() == {"new": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoints"]


@pytest.mark.parametrize("how", [Crash, lambda: OSError(errno.EIO, "I/O error")])
def test_a_stop_at_any_file_operation_leaves_the_old_run_or_the_new_one(
    tmp_path: Path, how: Callable[[], BaseException]
) -> None:
    """Between the two renames there was neither, and what was there was swept away."""
    seen, at = set(), 0
    while True:
        directory, at = tmp_path / str(at), at + 1
        directory.mkdir()
        write_run(directory, {"run.json": b'{"run": "old"}'})
        with contextlib.suppress(Crash, WriteError), failing(at, how, for_good=how is Crash) as count:
            write_run(directory, {"run.json": b'{"run": "new"}'})
        assert files.holds_run(directory)
        with store.reserve_run(directory):
            seen.add(RunFiles(directory / "checkpoints").asked()["run"])
        assert [path.name for path in directory.iterdir()] == ["checkpoints"]
        if count[0] < at:
            break
    assert seen == {"old", "new"} and at > 20


def test_resume_tidies_up_what_a_kill_left_of_a_run_whose_model_is_there(text: Path, tmp_path: Path) -> None:
    out = tmp_path / "m"
    train(text, out, model="bigram", settings={})
    write_run(out, {"run.json": b"{}"})
    (out / "checkpoints").rename(out / run_folder.WASTE)  # killed while it was removed
    (out / ".lock").touch()
    assert elman.resume(out).record.model.family == "bigram"
    assert not list(out.glob("*.new")) and not (out / ".lock").exists()


def test_a_kill_while_the_run_of_a_saved_model_is_removed_leaves_the_model_and_resume_tidies_up(
    text: Path, tmp_path: Path
) -> None:
    train(text, tmp_path / "whole", model="bigram", settings={})
    at, num_left = 0, 0
    while True:
        directory, at = tmp_path / str(at), at + 1
        shutil.copytree(tmp_path / "whole", directory)
        write_run(directory, {"run.json": b"{}", "ids.bin": b"1 2 3"})
        (directory / "checkpoints" / "step-1").mkdir()
        (directory / "checkpoints" / "step-1" / "weights").write_bytes(b"4 5 6")
        with contextlib.suppress(Crash), failing(at, Crash, for_good=True) as count:
            run_folder.remove_run(directory)
        if count[0] < at:
            break
        assert elman.load(directory).record.model.family == "bigram"
        if not (directory / "checkpoints").exists():  # its name is gone first: what is left is no run
            num_left += 1
            assert elman.resume(directory).record.model.family == "bigram"
            assert contents_of(directory) == contents_of(tmp_path / "whole")
            assert not list(directory.glob("checkpoints*"))
    assert num_left > 5


def test_an_empty_folder_of_checkpoints_and_stray_files_are_no_run_and_in_no_models_way(
    text: Path, tmp_path: Path
) -> None:
    out = tmp_path / "m"
    (out / "checkpoints").mkdir(parents=True)
    with pytest.raises(UsageError, match="no run to go on with"):
        elman.resume(out)
    (out / "checkpoints").rmdir()
    train(text, out, model="bigram", settings={})
    (out / "checkpoints").mkdir()
    (out / "config.json.new").write_text("half")
    assert elman.load(out).record.model.family == elman.resume(out).record.model.family == "bigram"
    assert not list(out.glob("*.new"))
    train(text, out, model="unigram", settings={}, overwrite=True)
    assert elman.load(out).record.model.family == "unigram"


def test_what_a_kill_leaves_of_a_run_that_was_being_written_is_in_nobodys_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "m"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_folder.shutil, "rmtree", lambda *arguments, **options: None)
        patch.setattr(files, "commit", lambda *arguments: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt), files.lock(out):
            write_run(out, {"run.json": b"{}"})
    (out / ".lock").touch()  # as a kill leaves it
    assert [path.name for path in out.iterdir() if path.is_dir()] == ["checkpoints.new"]
    with pytest.raises(UsageError, match="no run to go on with"):
        find_run(out)
    with store.reserve(out, overwrite=False):
        assert not (out / "checkpoints.new").exists()


def test_a_folder_of_that_name_that_is_no_run_is_not_taken_for_one(text: Path, tmp_path: Path) -> None:
    (tmp_path / "mine" / "checkpoints").mkdir(parents=True)
    (tmp_path / "mine" / "checkpoints" / "weights.pt").write_text("of another program")
    with pytest.raises(WriteError, match="is not empty and holds no model"):
        train(text, tmp_path / "mine", model="rnn", overwrite=True)
    assert (tmp_path / "mine" / "checkpoints" / "weights.pt").exists()


# ------------------------------------------------------------------------------------------------------------ damage


def begin_lm(text: Path, out: Path) -> None:
    train(text, out.parent / "base", model="gru")
    with pytest.raises(KeyboardInterrupt):
        settings = {key: value for key, value in SETTINGS.items() if not key.startswith("model")}
        train(text, out, init=out.parent / "base", settings=settings, units=None, on_progress=interrupt_at(8))


def begin_classify(text: Path, out: Path) -> None:
    data = out.parent / "labels.tsv"
    data.write_text("".join(f"{'cat' if 'cat' in line else 'none'}\t{line}\n" for line in LINES * 12))
    settings = {"model.hidden": 8, "train.batch": 4, "train.steps": 12, "train.checkpoint_steps": 5}
    with pytest.raises(KeyboardInterrupt):
        train(data, out, task="classify", settings=settings, on_progress=interrupt_at(8))


@pytest.mark.parametrize("begin", [begin_lm, begin_classify])
def test_damage_to_anything_that_a_run_goes_on_from_is_an_error(
    run: Run, text: Path, tmp_path: Path, begin: Callable[[Path, Path], None]
) -> None:
    """With half of its ids zeroed, a run went on to other weights and ended with 0."""
    out = tmp_path / "m"
    begin(text, out)
    folder = out / "checkpoints"
    names = {path.name for path in folder.iterdir() if path.is_file()} - {"manifest.json", "metrics.jsonl"}
    assert names >= {"run.json", "ids.safetensors", "heldout.jsonl"}
    assert names & {"start.safetensors", "linear.safetensors"}
    for name in sorted(names):
        path = folder / name
        whole = path.read_bytes()
        half = len(whole) // 2
        for damaged in (whole[:half] + bytes(len(whole) - half), whole[:half], None):
            path.unlink() if damaged is None else path.write_bytes(damaged)
            found = run("resume", out)
            assert found.code == 65, f"{name}: {found.err}"
            assert found.err.startswith("error: ") and name in found.err and "the run is damaged" in found.err
            path.write_bytes(whole)
    assert run("resume", out).code == 0


def test_a_fine_tuning_that_was_stopped_before_its_first_checkpoint_goes_on_from_its_base(
    run: Run, text: Path, tmp_path: Path
) -> None:
    """It went on from random weights, silently."""
    train(text, tmp_path / "base", model="gru")
    settings = {"train.batch": 4, "train.bptt": 12, "train.steps": 6, "train.learning_rate": 1e-5}
    train(text, tmp_path / "whole", units=None, init=tmp_path / "base", settings=settings)
    with pytest.raises(KeyboardInterrupt):
        train(
            text,
            tmp_path / "part",
            units=None,
            init=tmp_path / "base",
            settings=settings,
            on_progress=interrupt_at(0),
        )
    assert not list(tmp_path.glob("part/checkpoints/step-*"))
    shutil.rmtree(tmp_path / "base")  # the run does not need it any more
    assert run("resume", tmp_path / "part").code == 0
    whole, part = (read_tensors(tmp_path / name / "model.safetensors") for name in ("whole", "part"))
    for name, array in whole.items():
        np.testing.assert_array_equal(part[name], array, err_msg=name)


def test_a_run_of_version_0_1_0_goes_on_without_a_manifest_and_with_its_journal(text: Path, tmp_path: Path) -> None:
    out = tmp_path / "m"
    with pytest.raises(KeyboardInterrupt):
        train(text, out, model="rnn", settings={**SETTINGS, "train.log_steps": 2}, on_progress=interrupt_at(8))
    (out / "checkpoints" / "manifest.json").unlink()
    (out / "checkpoints" / "metrics.jsonl").rename(out / "metrics.jsonl")
    elman.resume(out)
    steps = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in steps if "nats_per_token" in line] == [2, 4, 6, 8, 10, 12]


def test_a_journal_with_a_damaged_line_costs_that_line_and_not_the_model(text: Path, tmp_path: Path) -> None:
    out, said = tmp_path / "m", []
    with pytest.raises(KeyboardInterrupt):
        train(text, out, model="rnn", settings={**SETTINGS, "train.log_steps": 1}, on_progress=interrupt_at(8))
    journal = out / "checkpoints" / "metrics.jsonl"
    journal.write_bytes(b"\0" * 20 + journal.read_bytes()[20:])
    elman.resume(out, report=said.append)
    assert any("1 lines of" in sentence and "damaged" in sentence for sentence in said)
    assert len((out / "metrics.jsonl").read_text().splitlines()) > 10


# --------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("more", "what"),
    [
        (["--device", "tpu", "--epochs", "1"], "there is no device 'tpu' here"),
        (["--valid", "none"], "without validation text there is no telling when to stop"),
        (["--budget", "0.01s"], "a budget of 0.0 s is too short"),
    ],
)
def test_what_can_be_refused_is_refused_before_any_data_is_read(
    run: Run, text: Path, tmp_path: Path, more: list[str], what: str
) -> None:
    """A refused start left a directory, in which the next try found "a run that has not finished"."""
    found = run(*arguments("lm", tmp_path / "nowhere.txt", tmp_path / "m", "--model", "rnn", *more))
    assert found.code == 2
    assert found.err.startswith(f"error: {what}")
    assert not (tmp_path / "m").exists()
    assert run(*arguments("lm", text, tmp_path / "m", "--model", "rnn", "--set", "train.steps=3")).code == 0


@pytest.mark.parametrize("error", [UsageError("the budget is too short"), MemoryError("no room")])
def test_a_run_that_ends_in_an_error_before_its_first_step_is_not_in_the_way_of_the_next(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """As under a budget that turns out to be too short once saving was measured."""
    prepare = Trainer._prepare

    def refuse(self: Trainer) -> None:
        prepare(self)
        self._save()
        raise error

    with monkeypatch.context() as patch, pytest.raises(type(error)):
        patch.setattr(Trainer, "_prepare", refuse)
        train(text, tmp_path / "new" / "m", model="rnn", settings={**SETTINGS, "train.tensorboard": True})
    assert not (tmp_path / "new").exists()
    train(text, tmp_path / "new" / "m", model="rnn")


def test_a_run_that_fails_after_a_checkpoint_can_be_gone_on_with(
    run: Run, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(progress: Progress) -> None:
        if progress.step == 8:
            raise ElmanError("the disk is full")

    with pytest.raises(ElmanError, match="full"):
        train(text, tmp_path / "m", model="rnn", on_progress=fail)
    assert run("resume", tmp_path / "m").code == 0


def test_a_task_whose_plan_has_an_end_needs_no_other(tmp_path: Path) -> None:
    data = tmp_path / "labels.tsv"
    data.write_text("".join(f"{'cat' if 'cat' in line else 'none'}\t{line}\n" for line in LINES * 4))
    settings = {"model.hidden": 4}
    elman.train("classify", data, out=tmp_path / "m", valid="none", settings=settings, threads=1, units="space")


def test_a_net_too_large_for_the_memory_is_refused_before_it_is_built(run: Run, text: Path, tmp_path: Path) -> None:
    """It was "a bug in elman", out of torch's allocator."""
    words = ["train", "lm", text, "--model", "lstm", "--units", "space", "--epochs", "1", "--out", tmp_path / "m"]
    found = run(*words, "--set", "model.hidden=1000000")
    assert found.code == 2
    assert "a net of these sizes needs at least 64 TB of memory to be trained" in found.err
    assert "hint: try a smaller one, like model.hidden=512" in found.err
    assert not (tmp_path / "m").exists()


def test_damage_is_found_before_the_run_is_touched(text: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(text, tmp_path / "m", model="rnn", on_progress=interrupt_at(8))
    manifest = tmp_path / "m" / "checkpoints" / "manifest.json"
    manifest.write_text("{")
    with pytest.raises(DataError, match="corrupt"):
        elman.resume(tmp_path / "m")
    assert list(tmp_path.glob("m/checkpoints/step-*"))
