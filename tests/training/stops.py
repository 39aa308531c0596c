"""Runs that are stopped in every way, each in a process of its own; prints what became of them as JSON.

A process that has imported torch is forked for every run, so that hundreds of them take seconds.
Usage: python -m tests.training.stops DIRECTORY NUM_THREADS [NUM_KILLS [SEED]]
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import torch

from elman.core.files import RUN_FOLDER
from elman.training import loop as trainer_module
from elman.training.checkpoint import newest_checkpoint
from elman.training.signals import Stopped
from tests.training.tiny import Tiny, run, text, trainer

STEPS = 51  # three passes of 17
PLACES = {"mid-epoch": 8, "epoch edge": 17, "last epoch": 44, "last step": 51}
LONGER, SHORTER = 1.1, 0.85  # so that about two of three processes live until their next checkpoint
NUM_THREADS = int(sys.argv[2]) if __name__ == "__main__" else 1
SIGNALS = {"SIGTERM": signal.SIGTERM, "SIGINT": signal.SIGINT, "SIGKILL": signal.SIGKILL}


def train(directory: Path, *, stop: Callable[[int], None] = lambda _: None, resume: bool = False) -> None:
    """The run that all others must be equal to. `stop` is called in every training step."""
    model = Tiny(hidden=24, dtype=torch.float32)
    made = trainer(directory, model=model, epochs=3.0, resume=resume, checkpoint_steps=12)

    def on_loss() -> None:
        if made.model.training and torch.is_grad_enabled():
            stop(made.state.step + 1)

    made.model.on_loss = on_loss  # type: ignore[attr-defined]
    run(made)


def digest(directory: Path) -> dict[str, str]:
    """SHA-256 of weights, optimiser, average, randomness; and of what the journal says of losses."""
    found = newest_checkpoint(directory)
    assert found is not None and found.state["is_finished"]
    result = {}
    for name, array in sorted(found.tensors.items()):
        result[name] = hashlib.sha256(array.tobytes()).hexdigest()
    result["state"] = str([found.state[key] for key in ("step", "tokens", "position", "best_loss", "best_step")])
    lines = [json.loads(line) for line in (directory / RUN_FOLDER / "metrics.jsonl").read_text().splitlines()]
    result["losses"] = str(
        [(line["step"], line.get("nats_per_token"), line.get("valid_nats_per_token")) for line in lines]
    )
    return result


def forked(work: Callable[[], None]) -> int:
    """Do it in a process of its own. -> how that ended"""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        signal.alarm(100)  # whatever hangs ends
        torch.set_num_threads(NUM_THREADS)  # only here: threads do not survive a fork
        work()
        os._exit(0)
    except Stopped as stopped:
        os._exit(stopped.exit_code)
    except BaseException:
        traceback.print_exc()
        os._exit(99)


def stop_everywhere(root: Path) -> dict[str, object]:
    """Stopped and resumed runs against one that never was."""
    train(root / "first")  # not forked: what is imported late is there for all
    forked(lambda: train(root / "whole"))
    wanted = digest(root / "whole")
    results: dict[str, object] = {}
    for place, step in PLACES.items():
        for name, signum in SIGNALS.items():
            directory = root / f"{place} {name}".replace(" ", "-")

            def stop(now: int, step: int = step, signum: int = signum) -> None:
                if now == step:
                    os.kill(os.getpid(), signum)

            code = forked(lambda d=directory, s=stop: train(d, stop=s))  # type: ignore[misc]
            again = forked(lambda d=directory: train(d, resume=True))  # type: ignore[misc]
            differing = [key for key, value in digest(directory).items() if wanted.get(key) != value]
            results[f"{place} {name}"] = {"code": code, "again": again, "differing": differing}
    return results


def kill_at_random(root: Path, num_kills: int, seed: int = 0) -> dict[str, object]:
    """SIGKILL at random moments of a run that saves at every step: never a bad checkpoint, never a step back."""
    rng = random.Random(seed)
    directory, newest, bad, back = root / "killed", 0, 0, 0
    train(root / "first")  # imports what is imported late
    began = time.monotonic()
    run(trainer(root / "warm", checkpoint_steps=1, epochs=None, steps=4, ids=text(100), valid_ids=None))
    longest = time.monotonic() - began  # of a process that makes a few checkpoints
    for _ in range(num_kills):
        child = os.fork()
        if not child:
            try:
                made = trainer(
                    directory, resume=True, checkpoint_steps=1, epochs=10_000.0, ids=text(100), valid_ids=None
                )
                run(made)
            finally:
                os._exit(0)
        time.sleep(rng.uniform(0.0, longest))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        longest *= LONGER  # until a checkpoint is made: the machine may have been faster when it was measured
        if not (directory / RUN_FOLDER).exists():
            continue
        try:
            found = newest_checkpoint(directory)
        except Exception:
            bad += 1
            continue
        if found is not None:
            back += found.state["step"] < newest
            longest *= SHORTER if found.state["step"] > newest else 1.0
            newest = max(newest, found.state["step"])
    return {"bad": bad, "back": back, "newest": newest}


if __name__ == "__main__":
    trainer_module.measure_peak = lambda **_: 1e11  # type: ignore[assignment]
    torch.set_num_threads(1)
    where = Path(sys.argv[1])
    where.mkdir(parents=True, exist_ok=True)
    kills = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    seed = int(sys.argv[4]) if len(sys.argv) > 4 else 0
    print(json.dumps(kill_at_random(where, kills, seed) if kills else stop_everywhere(where)))
