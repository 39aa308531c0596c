"""A run that was stopped and gone on with is the run that never stopped, for every task on plain text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import elman
from elman.core.stored import read_tensors
from elman.training.progress import Progress
from tests.commands import Run
from tests.tasks.texts import arguments


@pytest.mark.parametrize(("task", "model"), [("masked", "transformer"), ("bilm", "gru"), ("lm", "transformer")])
def test_stopped_and_gone_on_with_it_is_the_run_that_never_stopped(
    run: Run, text: Path, tmp_path: Path, task: str, model: str
) -> None:
    steps = ["--set", "train.steps=12", "--set", "train.checkpoint_steps=5", "--set", "model.dropout=0.2"]
    assert run(*arguments(task, text, tmp_path / "whole", "--model", model, *steps)).code == 0

    def stop(progress: Progress) -> None:
        if progress.step >= 8:
            raise KeyboardInterrupt

    settings = {"train.steps": 12, "train.checkpoint_steps": 5, "model.dropout": 0.2, "model.hidden": 8}
    settings |= {"train.batch": 4, "train.bptt": 12}
    with pytest.raises(KeyboardInterrupt):
        elman.train(
            task,
            text,
            model=model,
            units="space",
            out=tmp_path / "part",
            settings=settings,
            threads=1,
            on_progress=stop,
        )
    assert run("resume", tmp_path / "part").code == 0
    whole, part = (read_tensors(tmp_path / name / "model.safetensors") for name in ("whole", "part"))
    for name, array in whole.items():
        np.testing.assert_array_equal(part[name], array, err_msg=name)


def test_a_run_goes_on_without_the_file_of_vectors_that_it_began_with(
    run: Run, cut_short: Callable[..., None], text: Path, tmp_path: Path
) -> None:
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("".join(f"{word} {number} 0.5 -1\n" for number, word in enumerate(("the", "cat", "sat"))))
    more = ["--model", "lstm", "--set", f"model.vectors={vectors}", "--set", "model.embedding=3"]
    more += ["--set", "train.steps=9", "--set", "train.checkpoint_steps=5"]
    assert run(*arguments("lm", text, tmp_path / "whole", *more)).code == 0
    cut_short(*arguments("lm", text, tmp_path / "part", *more))
    vectors.unlink()
    assert run("resume", tmp_path / "part").code == 0
    whole, part = (read_tensors(tmp_path / name / "model.safetensors") for name in ("whole", "part"))
    for name, array in whole.items():
        np.testing.assert_array_equal(part[name], array, err_msg=name)


def test_a_run_goes_on_with_as_many_threads_as_asked_for_and_says_what_that_changes(
    run: Run, cut_short: Callable[..., None], text: Path, tmp_path: Path
) -> None:
    cut_short(
        *arguments(
            "lm", text, tmp_path / "m", "--model", "rnn", "--set", "train.steps=9", "--set", "train.checkpoint_steps=5"
        )
    )
    found = run("resume", tmp_path / "m", "--threads", "2")
    assert found.code == 0, found.err
    assert "threads was 1 and is 2" in found.err
    assert elman.load(tmp_path / "m").record.threads == 2
