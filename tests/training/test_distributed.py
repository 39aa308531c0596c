"""Two processes learn what one would have learned; what goes wrong in one is said by both, and nothing waits for ever."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.guards.cases import CASES, read_curve, write_data
from tests.training.together import Job, launch, work

# Those that differ in what they draw, carry, leave without a gradient or count; benchmarks/torchrun.py has all of them.
ALIKE = ("lstm", "lstm-lines", "lstm-adaptive", "lstm-sampled", "maxent", "transformer", "masked", "bilm")
ALIKE += ("seq2seq-attention", "tag-crf", "classify", "qa-span")
CALM = {"model.dropout": 0.0, "train.batch": 8, "train.average": "none"}


def job(name: str, out: str, **settings: Any) -> Job:
    """A case of the guards, without noise that differs from row to row."""
    case = CASES[name]
    stem, dot, end = case.data.partition(".")
    own = {"train.fit_temperature": False} if case.task == "lm" else {}
    own |= {"model.rare": 0} if case.task in ("tag", "classify", "qa") else {}
    chosen = {key: value for key, value in (case.settings | CALM | own | settings).items() if value is not None}
    return {
        "task": case.task,
        "data": f"{stem}.train{dot}{end}",
        "valid": f"{stem}.valid{dot}{end}",
        "out": out,
        "model": case.model,
        "units": "space" if case.data == "text" else None,
        "reset_lines": case.reset_lines,
        "settings": chosen,
        "float64": True,
    }


NOISY = {"model.dropout": 0.3, "train.average": None, "train.steps": 12, "train.validate_steps": None}
LATER = {
    "whole": job("lstm", "whole", **NOISY),
    "averaged": job("lstm", "averaged", **NOISY | {"train.sync": 4, "train.steps": 10}),
    "narrow": job("lstm", "narrow", **{"train.batch": 1}),
    "counted": {"task": "lm", "data": "text.train", "model": "mkn", "out": "counted"},
    "broken": job("lstm", "broken") | {"stop": {"rank": 1, "step": 3, "error": "out of luck"}},
    "unlike": job("lstm", "unlike") | {"patch": {"elman.training.distributed.__version__": "9.9"}},
    "blind": job("lstm", "blind")
    | {"patch": {"elman.tasks.run.RUN": "no.json", "elman.tasks.run.VISIBLE_SECONDS": 0.3}},
    "nowhere": {"task": "lm", "data": "nowhere.train", "model": "lstm", "out": "nowhere", "budget": 60},
}


@pytest.fixture(scope="module")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("together")
    write_data(folder)
    return folder


@pytest.fixture(scope="module")
def _errors(_folder: Path) -> list[dict[str, str]]:
    """Everything that can be done in one launch, by two processes; half of a run is there to be gone on with."""
    return launch([*(job(name, f"two-{name}") for name in ALIKE), *LATER.values()], _folder)


def weights(directory: Path) -> dict[str, Any]:
    """The tensors of a model."""
    return load_file(directory / "model.safetensors")


@pytest.mark.parametrize("name", ALIKE)
def test_two_processes_learn_what_one_does(
    name: str, _folder: Path, _errors: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(_folder)
    assert work([job(name, f"one-{name}")]) == {}
    curves = [np.array(read_curve(_folder / f"{number}-{name}"), dtype=float) for number in ("one", "two")]
    assert len(curves[0]) > 8
    np.testing.assert_allclose(curves[1], curves[0], rtol=1e-9)
    for key, value in weights(_folder / f"one-{name}").items():
        np.testing.assert_allclose(weights(_folder / f"two-{name}")[key], value, rtol=1e-4, atol=1e-6, err_msg=key)


def test_what_goes_wrong_is_said_by_every_process(_errors: list[dict[str, str]]) -> None:
    assert _errors[0].keys() == _errors[1].keys() == {"narrow", "counted", "broken", "unlike", "blind", "nowhere"}
    for rank, errors in enumerate(_errors):
        assert "2 processes cannot share batches of at most 1 rows" in errors["narrow"]
        assert "torchrun is for nets" in errors["counted"]
        assert "nowhere.train" in errors["nowhere"]
        assert errors["broken"].endswith("out of luck") and errors["broken"].startswith("process 1 on ") == (rank == 0)
        assert re.fullmatch(r"process 0 on \S+ has elman \S+, process 1 on \S+ has 9.9", errors["unlike"])
        assert re.search(r"cannot see .*/blind/checkpoints, which holds the text", errors["blind"])
        assert errors["nowhere"].startswith("process 0 on ") == (rank == 1)


def test_weights_that_are_averaged_now_and_then_are_learned(_folder: Path, _errors: list[dict[str, str]]) -> None:
    losses = [line[1] for line in read_curve(_folder / "averaged") if line[1] is not None]
    assert len(losses) == 10 and losses[-1] < losses[0]
    assert json.loads((_folder / "averaged" / "config.json").read_text())["train"]["sync"] == 4


def test_a_run_goes_on_after_a_process_was_killed(_folder: Path, _errors: list[dict[str, str]]) -> None:
    """The noise of dropout is each process's own, and carried states are of its rows: both are in the checkpoint."""
    killed = LATER["whole"] | {"out": "killed", "stop": {"rank": 1, "step": 7}}
    assert launch([killed], _folder, "--standalone", "--max-restarts", "2") == [{}, {}]
    assert read_curve(_folder / "killed") == read_curve(_folder / "whole")
    for key, value in weights(_folder / "whole").items():
        np.testing.assert_array_equal(weights(_folder / "killed")[key], value, err_msg=key)
