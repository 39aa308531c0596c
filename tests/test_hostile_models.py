"""Model directories that somebody made to do harm: refused at once, with the file's name, in little memory."""

from __future__ import annotations

import json
import os
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import elman
from elman.core.errors import DataError, ElmanError, WriteError
from elman.core.stored import MANIFEST
from elman.store import CONFIG, TENSORS
from elman.training.journal import METRICS, Journal


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A net of each way to be restored."""
    folder = tmp_path_factory.mktemp("hostile")
    text, labelled = folder / "text.txt", folder / "labelled.tsv"
    text.write_text("a b c d\nb c d a\n" * 50)
    labelled.write_text("x\ta b c\ny\td a b\ny\tc c c\n" * 50)
    small = {"train.steps": 1, "model.hidden": 8}
    elman.train("lm", text, out=folder / "lm", model="lstm", settings=small)
    elman.train("lm", text, out=folder / "nets", model="lstm", settings={**small, "model.nets": 2})
    elman.train("classify", labelled, out=folder / "classify", settings=small)
    return {name: folder / name for name in ("lm", "nets", "classify")}


def copied(model: Path, to: Path, **settings: Any) -> Path:
    """The model with other settings than those it was saved with."""
    shutil.copytree(model, to)
    if settings:
        config = json.loads((to / CONFIG).read_text())
        config["model"].update(settings)
        (to / CONFIG).write_text(json.dumps(config))
    return to


@pytest.mark.parametrize("name", ["lm", "nets", "classify"])
@pytest.mark.parametrize(
    "settings", [{"hidden": 3_000}, {"hidden": 12_000}, {"hidden": 200_000}, {"hidden": 1 << 40}, {"layers": 10**6}]
)
def test_settings_of_a_far_larger_net_take_no_memory(
    models: dict[str, Path], tmp_path: Path, name: str, settings: dict[str, int]
) -> None:
    model = copied(models[name], tmp_path / "model", **settings)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DataError, match="of a far larger net"):
        elman.load(model, verify=False)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64_000  # kB


@pytest.mark.parametrize("name", [CONFIG, MANIFEST, TENSORS, "tokenizer.json"])
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), Path.mkdir])
@pytest.mark.parametrize("verify", [True, False])
def test_what_is_not_a_file_is_neither_read_nor_waited_for(
    models: dict[str, Path], tmp_path: Path, name: str, make: Callable[[Path], None], verify: bool
) -> None:
    model = copied(models["lm"], tmp_path / "model")
    (model / name).unlink()
    make(model / name)
    with pytest.raises(ElmanError, match=f"{name} is not a regular file"):
        elman.load(model, verify=verify)


@pytest.mark.parametrize("verify", [True, False])
def test_a_file_far_longer_than_the_manifest_says_is_not_read(
    models: dict[str, Path], tmp_path: Path, verify: bool
) -> None:
    model = copied(models["lm"], tmp_path / "model")
    os.truncate(model / CONFIG, 1 << 40)  # sparse: it takes no disk
    with pytest.raises(DataError, match=f"{CONFIG} has {1 << 40} bytes"):
        elman.load(model, verify=verify)


@pytest.mark.parametrize(
    ("verify", "what"), [(True, "SHA-256"), (False, "a model for 'nm', which this version has not")]
)
def test_a_flipped_bit_in_the_name_of_the_task_is_damage(
    models: dict[str, Path], tmp_path: Path, verify: bool, what: str
) -> None:
    """It was a wrong usage: "there is no task 'nm'"."""
    model = copied(models["lm"], tmp_path / "model")
    (model / CONFIG).write_text((model / CONFIG).read_text().replace('"task": "lm"', '"task": "nm"'))
    with pytest.raises(DataError, match=what):
        elman.load(model, verify=verify)


def test_a_journal_is_not_written_through_a_link(tmp_path: Path) -> None:
    thesis = tmp_path / "thesis.txt"
    thesis.write_text("ten years of work")
    run = tmp_path / "run"
    run.mkdir()
    (run / METRICS).symlink_to(thesis)
    with pytest.raises(WriteError):
        Journal(run)
    assert thesis.read_text() == "ten years of work"
