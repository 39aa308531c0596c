"""What each process does in tests with torchrun: `torchrun ... -m tests.training.together JOBS.json`.

One launch does many small trainings, since it takes seconds to begin. A job is the keyword arguments of `elman.train`, or
of `elman.resume`; besides, `float64`; `stop`: the rank and the step of a process that ends there as if by the kernel, or
fails if there is an `error` (a list of them is for the first start, the first restart, and so on); and `patch`: what the
second process has in place of names in our modules. What fails is written down in JOBS.json.RANK, not raised.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import elman
from tests.guards.cases import float64

Job = dict[str, Any]
ROOT = Path(__file__).parents[2]


def launch(jobs: Sequence[Job], folder: Path, *options: str, processes: int = 2, timeout: float = 300) -> list[Any]:
    """Do jobs in several processes. -> what failed, in each of them"""
    path = folder / "jobs.json"
    path.write_text(json.dumps(jobs))
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes)]
    command += options or ("--standalone",)
    done = subprocess.run(
        [*command, "-m", "tests.training.together", str(path)],
        cwd=folder,
        env=environment(),
        timeout=timeout,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(Path(f"{path}.{rank}").read_text()) for rank in range(processes)]


def environment() -> dict[str, str]:
    """One thread for each process, and the code of this directory."""
    places = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(places)}


def work(jobs: Sequence[Job]) -> dict[str, str]:
    """Do all of them. -> the errors by the directories of the models"""
    errors = {}
    for job in jobs:
        job = {"threads": 1, **job}
        wide, place = job.pop("float64", False), job.pop("stop", None)
        patch = job.pop("patch", {})
        with float64() if wide else contextlib.nullcontext(), _stopped(place), contextlib.ExitStack() as stack:
            for name, value in patch.items() if os.environ.get("RANK") == "1" else ():
                stack.enter_context(mock.patch(name, value))
            try:
                (elman.train if "task" in job else elman.resume)(**job)
            except elman.ElmanError as error:
                errors[str(job.get("out") or job.get("directory"))] = error.what
    return errors


@contextlib.contextmanager
def _stopped(place: Job | list[Job] | None) -> Iterator[None]:
    """End the process of a rank before a step, once."""
    from elman.training.run import Run

    places, restarts = (
        place if isinstance(place, list) else [place],
        int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")),
    )
    place = places[restarts] if restarts < len(places) else None
    if place is None or place["rank"] != int(os.environ["RANK"]):
        yield
        return
    plain = Run.step

    def step(self: Run, *arguments: Any, **options: Any) -> Any:
        if self.state.step == place["step"]:
            if "error" in place:
                raise elman.ElmanError(place["error"])
            os.kill(os.getpid(), signal.SIGKILL)
        return plain(self, *arguments, **options)

    Run.step = step  # type: ignore[method-assign]
    try:
        yield
    finally:
        Run.step = plain  # type: ignore[method-assign]


if __name__ == "__main__":
    found = work(json.loads(Path(sys.argv[1]).read_text()))
    Path(f"{sys.argv[1]}.{os.environ['RANK']}").write_text(json.dumps(found))
