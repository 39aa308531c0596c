"""Two processes learn what one would have learned; what goes wrong in one is said by both, and nothing waits for ever."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from elman.core import files
from elman.text.units.vocabulary import EOS_ID
from tests.guards.cases import CASES, read_curve, write_data
from tests.training.together import Job, command, environment, launch, read_errors, work, write_jobs

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


SHORT = {"train.steps": 12, "train.validate_steps": None}
CHANGING = ("stream", "lines")  # runs that are gone on with by another number of processes
STOP = {"rank": 0, "step": 3, "how": "stop"}  # after the step, when it is saved: two more are left of the first pass


def changing(name: str, begun_by: str) -> Job:
    """Two passes of six steps over a text whose words are all different, without anything held out."""
    out = f"{name}-by-{begun_by}"
    case = job("lstm-lines" if name == "lines" else "lstm", out, **{"train.bptt": 5, "data.min_count": 1, **SHORT})
    return case | {"data": "unique.train", "valid": "none", "reads": f"{out}.reads"}


def going_on(name: str, begun_by: str) -> Job:
    """The rest of such a run."""
    return {"directory": f"{name}-by-{begun_by}", "float64": True, "reads": f"{name}-by-{begun_by}.reads"}


NOISY = {"model.dropout": 0.3, "train.average": None, "train.steps": 12, "train.validate_steps": None}
LATER = {
    "whole": job("lstm", "whole", **NOISY),
    "averaged": job("lstm", "averaged", **NOISY | {"train.sync": 4, "train.steps": 10}),
    "narrow": job("lstm", "narrow", **{"train.batch": 1}),
    "counted": {"task": "lm", "data": "text.train", "model": "mkn", "out": "counted"},
    "broken": job("lstm", "broken") | {"stop": {"rank": 1, "step": 3, "how": "error"}},
    "unlike": job("lstm", "unlike") | {"patch": {"elman.training.distributed.__version__": "9.9"}},
    "blind": job("lstm", "blind")
    | {"patch": {"elman.tasks.run.RUN": "no.json", "elman.tasks.run.VISIBLE_SECONDS": 0.3}},
    "busy": job("lstm", "busy"),
    "nowhere": {"task": "lm", "data": "nowhere.train", "model": "lstm", "out": "nowhere", "budget": 60},
}


@pytest.fixture(scope="module")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("together")
    write_data(folder)
    return folder


@pytest.fixture(scope="module")
def _errors(_folder: Path) -> list[dict[str, Any]]:
    """Everything that can be done in one launch, by two processes; what one has begun is there to be gone on with."""
    (_folder / "unique.train").write_text(
        "".join(f"{' '.join(f'w{9 * n + i}' for i in range(9))}\n" for n in range(24))
    )
    with contextlib.chdir(_folder):
        begun = work([changing(name, "one") | {"stop": STOP} for name in CHANGING])
    assert [code for code, _ in begun.values()] == [143] * len(CHANGING)
    changed = [changing(name, "two") | {"stop": STOP} for name in CHANGING]
    changed += [going_on(name, "one") for name in CHANGING]
    nan = job("lstm", "two-nan", **SHORT) | {"stop": {"rank": 1, "step": 5, "how": "nan"}}
    with files.lock(_folder / "busy"):
        return launch([*(job(name, f"two-{name}") for name in ALIKE), nan, *changed, *LATER.values()], _folder)


def weights(directory: Path) -> dict[str, Any]:
    """The tensors of a model."""
    return load_file(directory / "model.safetensors")


@pytest.mark.parametrize("name", ALIKE)
def test_two_processes_learn_what_one_does(
    name: str, _folder: Path, _errors: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(_folder)
    assert work([job(name, f"one-{name}")]) == {}
    curves = [np.array(read_curve(_folder / f"{number}-{name}"), dtype=float) for number in ("one", "two")]
    assert len(curves[0]) > 8
    np.testing.assert_allclose(curves[1], curves[0], rtol=1e-9)
    for key, value in weights(_folder / f"one-{name}").items():
        np.testing.assert_allclose(weights(_folder / f"two-{name}")[key], value, rtol=1e-4, atol=1e-6, err_msg=key)


@pytest.mark.parametrize("begun_by", ["one", "two"])
@pytest.mark.parametrize("name", CHANGING)
def test_every_token_is_read_once_a_pass_by_whatever_number_of_processes(
    name: str, begun_by: str, _folder: Path, _errors: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(_folder)
    out = Path(f"{name}-by-{begun_by}")
    if begun_by == "two":
        assert _errors[0][str(out)][0] == 143
        assert work([going_on(name, begun_by)]) == {}
    lines = [json.loads(line) for path in Path().glob(f"{out}.reads.*") for line in path.read_text().splitlines()]
    first, then = (1, 2) if begun_by == "one" else (2, 1)
    assert {size for epoch, size, _ in lines if epoch == 0} == {first, then}  # the change is within the first pass
    assert {size for epoch, size, _ in lines if epoch == 1} == {then}
    for epoch in (0, 1):
        read = Counter(word for number, _, ids in lines if number == epoch for word in ids)
        num_line_ends = read.pop(EOS_ID)
        assert num_line_ends == 24 and len(read) == 9 * 24 and set(read.values()) == {1}
    note = f"{first} processes have trained so far, from here on {then}: rows and what was carried for them are divided anew"
    assert any(note in sentence for sentence in json.loads((out / "config.json").read_text())["notes"])
    whole = f"{name}-by-one-alone-{begun_by}"
    assert work([changing(name, "one") | {"out": whole, "reads": None}]) == {}
    curves = [np.array(read_curve(Path(found)), dtype=float) for found in (whole, out)]
    assert len(curves[0]) == 12
    np.testing.assert_allclose(curves[1], curves[0], rtol=1e-9)


def test_after_a_loss_that_is_no_number_all_processes_are_rolled_back_alike(
    _folder: Path, _errors: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was in the rows of the second process; had only one gone back, the losses from there on would not be equal."""
    monkeypatch.chdir(_folder)
    assert work([job("lstm", "one-nan", **SHORT) | {"stop": {"rank": 0, "step": 5, "how": "nan"}}]) == {}
    curves = [np.array(read_curve(_folder / f"{number}-nan"), dtype=float) for number in ("one", "two")]
    np.testing.assert_allclose(curves[1], curves[0], rtol=1e-9)
    notes = [json.loads((_folder / f"{number}-nan" / "config.json").read_text())["notes"] for number in ("one", "two")]
    end = "; back to step 0, with the rate halved to 0.005"
    assert [note.endswith(end) for note in notes[1] if "step 6" in note] == [True]
    assert any("step 6" in note and "another process's rows is not finite" in note for note in notes[1])
    assert any("step 6" in note and note.endswith(end) for note in notes[0])


def test_what_goes_wrong_is_said_by_every_process(_errors: list[dict[str, Any]]) -> None:
    stopped = {f"{name}-by-two": 143 for name in CHANGING}
    codes = {"narrow": 2, "counted": 2, "broken": 1, "unlike": 2, "blind": 66, "busy": 75, "nowhere": 66, **stopped}
    for rank, found in enumerate(_errors):
        assert {name: code for name, (code, _) in found.items()} == codes
        errors = {name: message for name, (_, message) in found.items()}
        assert "2 processes cannot share batches of at most 1 rows" in errors["narrow"]
        assert "torchrun is for nets" in errors["counted"]
        assert "nowhere.train" in errors["nowhere"]
        assert errors["broken"].endswith("out of luck") and errors["broken"].startswith("process 1 on ") == (rank == 0)
        assert re.fullmatch(r"process 0 on \S+ has elman \S+, process 1 on \S+ has 9.9", errors["unlike"])
        assert re.search(r"cannot see .*/blind/checkpoints, which holds the text", errors["blind"])
        assert re.search(r"another process is writing into busy", errors["busy"])
        assert errors["nowhere"].startswith("process 0 on ") == (rank == 1)


def test_weights_that_are_averaged_now_and_then_are_learned(_folder: Path, _errors: list[dict[str, Any]]) -> None:
    losses = [line[1] for line in read_curve(_folder / "averaged") if line[1] is not None]
    assert len(losses) == 10 and losses[-1] < losses[0]
    assert json.loads((_folder / "averaged" / "config.json").read_text())["train"]["sync"] == 4


def test_bytes_that_are_sent_are_counted(_folder: Path, _errors: list[dict[str, Any]]) -> None:
    """float64: of two processes each sends what is added up: gradients, or in the fourth step weights and squares."""
    num_bytes = 8 * sum(value.size for value in weights(_folder / "averaged").values())
    sent = {}
    for name in ("two-lstm", "averaged"):
        lines = [json.loads(line) for line in (_folder / name / "metrics.jsonl").read_text().splitlines()]
        sent[name] = np.diff([line["sent_bytes"] for line in lines if "sent_bytes" in line])
    beside = sent["averaged"][0]  # of the second step: sums of losses, and what the first process says
    assert 1024 < beside < 2048
    assert num_bytes <= sent["two-lstm"][0] - beside <= num_bytes + 1024
    assert 2 * num_bytes <= sent["averaged"][2] - beside <= 2 * num_bytes + 1024


def test_a_run_goes_on_after_a_process_was_killed(_folder: Path, _errors: list[dict[str, Any]]) -> None:
    """The noise of dropout is each process's own, and carried states are of its rows: both are in the checkpoint."""
    killed = LATER["whole"] | {"out": "killed", "stop": {"rank": 1, "step": 7}}
    assert launch([killed], _folder, "--standalone", "--max-restarts", "2") == [{}, {}]
    assert read_curve(_folder / "killed") == read_curve(_folder / "whole")
    for key, value in weights(_folder / "whole").items():
        np.testing.assert_array_equal(weights(_folder / "killed")[key], value, err_msg=key)


def test_a_full_disk_ends_all_processes_and_leaves_the_checkpoint(tiny_disk: Path, tmp_path: Path) -> None:
    write_data(tmp_path)
    full = job("lstm", str(tiny_disk / "full"), **SHORT | {"train.checkpoint_steps": 2})
    ballast = tiny_disk / "ballast"
    errors = launch([full | {"stop": {"rank": 0, "step": 5, "how": "fill", "file": str(ballast)}}], tmp_path)
    for rank, found in enumerate(errors):
        code, message = found[full["out"]]
        assert code == 74 and "cannot write" in message and message.startswith("process 0 on ") == (rank == 1)
    ballast.unlink()
    whole = full | {"out": "whole"}
    assert launch([{"directory": full["out"], "float64": True}, whole], tmp_path) == [{}, {}]
    assert read_curve(tiny_disk / "full") == read_curve(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_machine_is_killed_and_another_takes_its_place(_folder: Path, _errors: list[dict[str, Any]]) -> None:
    """Two torchruns with a process each are two machines to all of us. One is killed with all that it started.

    Not the one where they meet: which of the two that was had been left to chance, and half of the time nobody met again.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    lost = LATER["whole"] | {"out": "lost", "stop": {"rank": 1, "step": 7, "how": "wait", "file": "machine"}}
    path = write_jobs([lost], _folder)
    meet = ("--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "lost")
    words = command(path, "--nnodes", "2", "--max-restarts", "3", "--local-addr", "127.0.0.1", *meet, processes=1)
    alone = environment() | {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}

    def machine(*, is_host: bool) -> subprocess.Popen[bytes]:
        place = [*words[:3], "--rdzv-conf", f"is_host={is_host}", *words[3:]]
        return subprocess.Popen(place, cwd=_folder, env=alone, start_new_session=True, stderr=subprocess.DEVNULL)

    machines = [machine(is_host=True), machine(is_host=False)]
    try:
        end = time.monotonic() + 120
        while not (_folder / "machine").exists() or not (_folder / "machine").read_text():
            assert time.monotonic() < end and all(one.poll() is None for one in machines)
            time.sleep(0.1)
        killed = int((_folder / "machine").read_text())
        assert killed == machines[1].pid  # ranks go by the numbers of processes
        os.killpg(killed, signal.SIGKILL)
        machines.append(machine(is_host=False))
        codes = {one.pid: one.wait(240) for one in machines}
    finally:
        for one in machines:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(one.pid, signal.SIGKILL)
            one.wait()
    assert codes == {one.pid: -signal.SIGKILL if one.pid == killed else 0 for one in machines}
    assert read_errors(path, processes=2) == [{}, {}]
    assert read_curve(_folder / "lost") == read_curve(_folder / "whole")
    for key, value in weights(_folder / "whole").items():
        np.testing.assert_array_equal(weights(_folder / "lost")[key], value, err_msg=key)
