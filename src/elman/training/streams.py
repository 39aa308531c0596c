"""The trainer of a language model: text as ids to train on, and held-out text to validate on."""

from __future__ import annotations

import time
from pathlib import Path

from elman.core.arrays import Array
from elman.text.batches import DEFAULT_BATCH, DEFAULT_BPTT, make_batches
from elman.training.budget import Budget, Clock
from elman.training.config import TrainConfig
from elman.training.examiner import StreamExaminer
from elman.training.loop import Trainer
from elman.training.protocols import Net


def stream_trainer(
    model: Net,
    ids: Array,
    valid_ids: Array | None = None,
    *,
    config: TrainConfig,
    seed: int,
    reset_lines: bool = False,
    directory: Path | None = None,
    resume: bool = False,
    budget: Budget | None = None,
    clock: Clock = time.monotonic,
) -> Trainer:
    """A trainer for a text of ids, read as one stream or each line alone."""
    rows, bptt = config.batch or DEFAULT_BATCH, config.bptt or DEFAULT_BPTT
    batches = make_batches(ids, rows=rows, bptt=bptt, seed=seed, reset_lines=reset_lines, spread=config.bptt_spread)
    examiner = None
    if valid_ids is not None and len(valid_ids):
        examiner = StreamExaminer(model, valid_ids, rows=rows, bptt=bptt, reset_lines=reset_lines)
    return Trainer(
        model,
        batches,
        examiner,
        config=config,
        seed=seed,
        identity={"batch": rows, "bptt": bptt, "reset_lines": reset_lines, "tokens": len(ids)},
        directory=directory,
        resume=resume,
        budget=budget,
        clock=clock,
    )
