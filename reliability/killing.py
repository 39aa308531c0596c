"""Rows 1 to 3: processes that are killed while they train, at random moments, at every file event, at every kind of step."""

from __future__ import annotations

import functools
import itertools
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from elman.core.files import RUN_FOLDER
from elman.training.checkpoint import newest_checkpoint
from elman.training.progress import Progress
from reliability.processes import NUM_LANES, answer_of, forked, in_lanes
from reliability.row import Allowance, Count, Figure
from reliability.runner import ROOT
from reliability.trainings import CHECKPOINT_STEPS, FAMILIES, STEPS, Training, draw, end_of, litter_of, prepare
from tests.core.faults import failing

KILLS_AT_ONCE = 100
SHORT = {"train.steps": 6, "train.validate_steps": 3}
STOPS = {"mid-epoch": 7, "epoch edge": 10, "last epoch": STEPS - 3}


def random_kills(allowance: Allowance) -> Figure:
    """SIGKILL at random moments of a run that saves at every step: no bad checkpoint, no step back."""
    wanted = 2_000 if allowance.is_full else 200
    bad = back = done = newest = 0
    while done < wanted and (allowance.left > 0 or not done):
        command = [sys.executable, "-m", "tests.training.stops", str(allowance.folder / str(done)), "1"]
        number = min(KILLS_AT_ONCE, wanted - done)
        found = json.loads(subprocess.check_output([*command, str(number), str(allowance.seed + done)], cwd=ROOT))
        bad, back, newest = bad + found["bad"], back + found["back"], newest + found["newest"]
        done += number
    text = f"{done:,} kills over {newest:,} checkpoints: {bad} unreadable, {back} steps back"
    return Figure(text, not bad and not back and newest > 0)


# ------------------------------------------------------------------------------------------------------ every file event


def every_event(allowance: Allowance) -> Figure:
    """SIGKILL at (and in the middle of) every file operation of a run; it goes on to the same bits."""
    data = prepare(allowance.folder / "data")
    kinds = {
        kind: replace(FAMILIES[kind], settings={**FAMILIES[kind].settings, **SHORT})
        for kind in ("lstm", "seq2seq with attention", "tagger with CRF")
    }
    whole, cases = {}, []
    for kind, training in kinds.items():
        out = allowance.folder / kind.replace(" ", "-")
        training.start(data, out.with_name(f"first-{out.name}"))  # not forked: what is imported late is there
        count_events = functools.partial(_count_events, training, data, out)
        num_events = answer_of(count_events, seconds=60, place=allowance.folder / "count.json")
        whole[kind] = end_of(out)
        cases += [(kind, at) for at in range(1, num_events + 1)]
    drawn = draw(allowance.seed, cases)

    def try_lane(lane: int) -> list[str | None]:
        folder = allowance.folder / f"lane-{lane}"
        folder.mkdir()
        return [
            _killed_at(kinds[kind], kind, at, data, folder / f"{kind[:3]}-{at}", whole[kind])
            for kind, at in allowance.until_spent(drawn[lane::NUM_LANES])
        ]

    count = Count()
    for failure in itertools.chain(*in_lanes(try_lane, allowance.folder)):
        count.add(failure)
    return count.figure(f" of {len(cases):,} events", least=len(cases))


def _count_events(training: Training, data: Path, out: Path) -> int:
    with failing(0, _never, for_good=False) as count:
        training.start(data, out)
    return count[0]


def _never() -> BaseException:
    return AssertionError("no operation has the number 0")


def _killed_at(training: Training, kind: str, at: int, data: Path, out: Path, whole: dict[str, object]) -> str | None:
    """What is wrong after a kill at one file event, if anything."""
    log = out.with_suffix(".log")
    step_file = out.with_suffix(".step")

    def note(progress: Progress) -> None:
        step_file.write_text(str(progress.step))

    def kill() -> BaseException:
        os.kill(os.getpid(), signal.SIGKILL)
        return AssertionError("killed")

    def train() -> None:
        with failing(at, kill, for_good=False):
            training.start(data, out, on_progress=note)

    ended = forked(train, seconds=60, log=log)
    place = f"{kind}, event {at}"
    if ended.code not in (0, -signal.SIGKILL):
        return f"{place}: ended with {ended.code}: {ended.said[-300:]}"
    reached = int(step_file.read_text() or 0) if step_file.exists() else 0
    is_model = (out / "manifest.json").exists()
    saved = newest_checkpoint(out) if (out / RUN_FOLDER).exists() else None
    kept = 0 if saved is None else saved.state["step"]
    if not is_model and reached - kept > CHECKPOINT_STEPS + 1:
        return f"{place}: {reached - kept} steps were lost"
    ended = forked(lambda: training.go_on(data, out), seconds=60, log=log)
    if ended.code:
        return f"{place}: going on ended with {ended.code}: {ended.said[-300:]}"
    found = end_of(out)
    if found["saved"] != whole["saved"]:
        return f"{place}: other weights"
    if litter := litter_of(out):
        return f"{place}: {', '.join(litter)} is left"
    return None


# ------------------------------------------------------------------------------------------------------- exact resume


def exact_resume(allowance: Allowance) -> Figure:
    """Six families, three places to stop, one thread and two: the same weights, optimiser, random state and losses."""
    data = prepare(allowance.folder / "data")
    cases = [(kind, threads, place) for threads in (1, 2) for kind in FAMILIES for place in STOPS]
    whole: dict[tuple[str, int], dict[str, object]] = {}
    for kind, training in FAMILIES.items():
        training.start(data, allowance.folder / f"first-{kind}".replace(" ", "-"))
    count = Count()
    for kind, threads, place in cases:  # all of them: the target is a whole table

        def run(out: Path, stop: int | None = None, kind: str = kind, threads: int = threads) -> None:
            def kill(progress: Progress) -> None:
                if progress.step == stop:
                    os.kill(os.getpid(), signal.SIGKILL)

            FAMILIES[kind].start(data, out, threads=threads, on_progress=kill)

        out = allowance.folder / f"{kind}-{threads}-{place}".replace(" ", "-")
        log = out.with_suffix(".log")
        if (kind, threads) not in whole:
            undisturbed = allowance.folder / f"whole-{kind}-{threads}".replace(" ", "-")
            forked(lambda out=undisturbed: run(out), seconds=120, log=log)
            whole[kind, threads] = end_of(undisturbed)
        ended = forked(lambda out=out, stop=STOPS[place]: run(out, stop), seconds=120, log=log)
        again = forked(lambda kind=kind, out=out: FAMILIES[kind].go_on(data, out), seconds=120, log=log)
        if ended.code != -signal.SIGKILL or again.code:
            count.add(f"{kind}, {threads} threads, {place}: {ended.code}, {again.code}: {again.said[-300:]}")
            continue
        count.add(None if end_of(out) == whole[kind, threads] else f"{kind}, {threads} threads, {place}: differs")
    return count.figure(least=36)
