"""What each process does in tests with torchrun: `torchrun ... -m tests.training.together JOBS.json`.

One launch does many small trainings, since it takes seconds to begin. A job is the keyword arguments of `elman.train`, or
of `elman.resume`; besides, `float64`; `stop`: what happens to the process of a rank before a step, as `_disturb` says (a list
is for the first start, the first restart, and so on); `reads`: a file for the tokens that are trained on; and `patch`: what
the second process has in place of names in our modules. Exit code and message of what fails are written down in
JOBS.json.RANK, not raised.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import elman
from elman.training.world import LostProcessError
from tests.guards.cases import float64

Job = dict[str, Any]
ROOT = Path(__file__).parents[2]


def launch(jobs: Sequence[Job], folder: Path, *options: str, processes: int = 2, timeout: float = 300) -> list[Any]:
    """Do jobs in several processes. -> what failed, in each of them"""
    path = write_jobs(jobs, folder)
    done = subprocess.run(
        command(path, *(options or ("--standalone",)), processes=processes),
        cwd=folder,
        env=environment(),
        timeout=timeout,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return read_errors(path, processes=processes)


def write_jobs(jobs: Sequence[Job], folder: Path) -> Path:
    """The file that every process reads."""
    path = folder / "jobs.json"
    path.write_text(json.dumps(jobs))
    return path


def command(path: Path, *options: str, processes: int) -> list[str]:
    """What starts the processes of one machine."""
    start = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes), *options]
    return [*start, "-m", "tests.training.together", str(path)]


def read_errors(path: Path, *, processes: int) -> list[Any]:
    """What failed, in each of the processes."""
    return [json.loads(Path(f"{path}.{rank}").read_text()) for rank in range(processes)]


def environment() -> dict[str, str]:
    """One thread for each process, and the code of this directory."""
    places = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(places)}


def work(jobs: Sequence[Job]) -> dict[str, list[Any]]:
    """Do all of them. -> exit code and message of those that failed, by the directories of the models"""
    errors = {}
    for job in jobs:
        job = {"threads": 1, **job}
        wide, place = job.pop("float64", False), job.pop("stop", None)
        patch, reads = job.pop("patch", {}), job.pop("reads", None)
        with float64() if wide else contextlib.nullcontext(), _watched(place, reads), contextlib.ExitStack() as stack:
            for name, value in patch.items() if os.environ.get("RANK") == "1" else ():
                stack.enter_context(mock.patch(name, value))
            try:
                (elman.train if "task" in job else elman.resume)(**job)
            except LostProcessError:
                raise  # torchrun restarts it
            except elman.ElmanError as error:
                errors[str(job.get("out") or job.get("directory"))] = [error.exit_code, error.what]
    return errors


@contextlib.contextmanager
def _watched(place: Job | list[Job] | None, reads: str | None) -> Iterator[None]:
    """Disturb the process of a rank at a step, once; write down what this one trains on."""
    from elman.training.run import Run

    restarts, rank = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")), int(os.environ.get("RANK", "0"))
    places = place if isinstance(place, list) else [place]
    here = places[restarts] if restarts < len(places) else None
    left = [here] if here is not None and here["rank"] == rank else []
    plain = Run._loss

    def loss(self: Run, batch: Any) -> Any:
        found, carried = plain(self, batch)
        if reads is not None and batch is not None:
            lengths = [batch.targets.shape[1]] * len(batch.targets) if batch.lengths is None else batch.lengths
            ids = [int(word) for row, length in zip(batch.targets, lengths, strict=True) for word in row[:length]]
            with Path(f"{reads}.{rank}").open("a") as file:
                print(json.dumps([self.state.position.epoch, self.world.size, ids]), file=file)
        if left and self.state.step == left[0]["step"]:
            if left.pop().get("how") == "nan":
                return dataclasses.replace(found, total=found.total * float("nan")), carried
            _disturb(here)
        return found, carried

    with mock.patch.object(Run, "_loss", loss):
        yield


def _disturb(place: Job) -> None:
    """What happens to this process: it is killed, unless `how` says otherwise."""
    match place.get("how"):
        case "error":  # one of ours
            raise elman.ElmanError("out of luck")
        case "stop":  # it is asked to stop, and saves itself after the step
            os.kill(os.getpid(), signal.SIGTERM)
        case "fill":  # the disk is full from here on
            with Path(place["file"]).open("wb", buffering=0) as file, contextlib.suppress(OSError):
                while file.write(bytes(1024)):
                    pass
        case "wait":  # for whoever kills it together with the torchrun that has started it; once
            if not (file := Path(place["file"])).exists():
                file.write_text(str(os.getppid()))
                time.sleep(120)
        case _:
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    found = work(json.loads(Path(sys.argv[1]).read_text()))
    Path(f"{sys.argv[1]}.{os.environ['RANK']}").write_text(json.dumps(found))
