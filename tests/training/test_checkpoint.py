"""The newest intact checkpoint wins, whatever happened to the others, and no fault of the disk loses one."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elman.core.errors import DataError, WriteError
from elman.core.files import RUN_FOLDER
from elman.core.stored import MANIFEST
from elman.training.checkpoint import (
    STATE,
    TENSORS,
    newest_checkpoint,
    remove_checkpoints,
    sweep_checkpoints,
    write_checkpoint,
)


def write(directory: Path, step: int) -> Path:
    tensors = {"model/w": np.full(1000, step, dtype=np.float32), "random/torch": np.arange(step, dtype=np.uint8)}
    return write_checkpoint(directory, step, {"step": step}, tensors)


def newest_step(directory: Path) -> int | None:
    found = newest_checkpoint(directory)
    if found is None:
        return None
    step = int(found.state["step"])
    assert (found.tensors["model/w"] == step).all() and len(found.tensors["random/torch"]) == step
    return step


def test_the_newest_is_read_back_and_two_are_kept(tmp_path: Path) -> None:
    assert newest_step(tmp_path) is None
    for step in (5, 10, 100, 1000):
        write(tmp_path, step)
        assert newest_step(tmp_path) == step
    assert sorted(path.name for path in (tmp_path / RUN_FOLDER).iterdir()) == ["step-000000100", "step-000001000"]


def test_a_step_may_be_saved_twice(tmp_path: Path) -> None:
    write(tmp_path, 5)
    write_checkpoint(tmp_path, 5, {"step": 5, "is_finished": True}, {"model/w": np.ones(2)})
    found = newest_checkpoint(tmp_path)
    assert found is not None and found.state["is_finished"] and len(found.tensors["model/w"]) == 2


@pytest.mark.parametrize("name", [STATE, TENSORS, MANIFEST])
@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty", "missing"])
def test_a_damaged_one_is_passed_over_for_the_one_before(name: str, damage: str, tmp_path: Path) -> None:
    write(tmp_path, 1)
    file = write(tmp_path, 2) / name
    data = bytearray(file.read_bytes())
    if damage == "missing":
        file.unlink()
    else:
        data[len(data) // 2] ^= 1
        file.write_bytes({"truncated": data[: len(data) // 3], "flipped": data, "empty": b""}[damage])
    found = newest_checkpoint(tmp_path)
    assert found is not None and found.state["step"] == 1
    if (name, damage) != (MANIFEST, "missing"):  # that one never was a checkpoint
        assert "step-000000002 is not intact" in found.notes[0]


def test_when_all_are_damaged_it_is_said_and_nothing_starts_anew_by_itself(tmp_path: Path) -> None:
    for step in (1, 2):
        (write(tmp_path, step) / TENSORS).write_bytes(b"")
    with pytest.raises(DataError, match="no checkpoint") as caught:
        newest_checkpoint(tmp_path)
    assert "remove" in (caught.value.hint or "")


def test_another_version_is_refused_and_not_passed_over(tmp_path: Path) -> None:
    write(tmp_path, 1)
    write_checkpoint(tmp_path, 2, {"version": 99}, {"model/w": np.ones(2)})
    with pytest.raises(DataError, match="another version"):
        newest_checkpoint(tmp_path)


def test_what_a_killed_writer_left_is_swept(tmp_path: Path) -> None:
    write(tmp_path, 1)
    left = tmp_path / RUN_FOLDER / "step-000000002"
    left.mkdir()
    (left / (TENSORS + ".new")).write_bytes(b"half")
    assert newest_step(tmp_path) == 1
    sweep_checkpoints(tmp_path)
    assert not left.exists() and newest_step(tmp_path) == 1
    remove_checkpoints(tmp_path)
    assert newest_step(tmp_path) is None


class Faults:
    """Fails call number `at` of the system calls that write."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls, self.at = 0, -1
        for name in ("write", "fsync", "replace", "mkdir", "open"):
            monkeypatch.setattr(os, name, self._wrap(getattr(os, name)))

    def _wrap(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            is_reading = call.__name__ == "open" and arguments[1] & (os.O_WRONLY | os.O_RDWR) == 0
            if not is_reading:
                self.calls += 1
                if self.calls == self.at:
                    raise OSError(errno.ENOSPC, "No space left on device")
            return call(*arguments, **options)

        return wrapped


def test_a_fault_at_any_system_call_leaves_a_good_checkpoint_and_no_litter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = Faults(monkeypatch)
    write(tmp_path, 1)
    faults.calls = 0
    write(tmp_path, 2)
    num_calls = faults.calls
    assert num_calls > 8
    failed = 0
    for at in range(1, num_calls + 1):
        faults.calls, faults.at = 0, at
        before = newest_step(tmp_path)
        assert before is not None
        try:
            write(tmp_path, before + 1)
            wanted = before + 1  # the fault came when all was written, and the next reader tidies up
        except WriteError as error:
            failed += 1
            wanted = before
            assert error.exit_code == 74 and "no space left" in error.what
        faults.at = -1
        after = newest_step(tmp_path)
        assert after == wanted
        sweep_checkpoints(tmp_path)
        litter = [path for path in (tmp_path / RUN_FOLDER).rglob("*.new") if before >= after]
        assert litter == []
    assert failed > num_calls / 2


def test_a_checkpoint_is_json_and_safetensors(tmp_path: Path) -> None:
    path = write(tmp_path, 3)
    assert sorted(file.name for file in path.iterdir()) == [MANIFEST, STATE, TENSORS]
    assert json.loads((path / STATE).read_text())["step"] == 3
    from safetensors.numpy import load_file

    assert (load_file(path / TENSORS)["model/w"] == 3).all()
