"""Small trainings of every kind of net, for rows that kill, stop or starve them."""

from __future__ import annotations

import hashlib
import json
import os
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import elman
from elman.core.errors import UsageError
from elman.core.files import RUN_FOLDER
from elman.tasks import run as run_module
from elman.training import loop
from elman.training.checkpoint import newest_checkpoint
from elman.training.progress import Progress
from tests.guards.cases import write_data

STEPS = 30
CHECKPOINT_STEPS = 4
NET = {
    "model.hidden": 8,
    "model.dropout": 0.1,
    "train.steps": STEPS,
    "train.checkpoint_steps": CHECKPOINT_STEPS,
    "train.validate_steps": 10,
    "train.log_steps": 1,
    "train.batch": 6,
    "train.learning_rate": 0.01,
}
STREAM = {"model.head": "full", "train.bptt": 6}
END = "end.json"  # what a run that reached its end was: hashes of weights, optimiser, random state, losses


@dataclass(frozen=True)
class Training:
    """What to train, on which file of tests/guards."""

    task: str
    data: str
    model: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    def start(
        self, data: Path, out: Path, *, threads: int = 1, on_progress: Callable[[Progress], None] = lambda _: None
    ) -> None:
        """From the beginning."""
        stem, dot, end = self.data.partition(".")
        elman.train(
            self.task,
            data / f"{stem}.train{dot}{end}",
            valid=data / f"{stem}.valid{dot}{end}",
            out=out,
            model=self.model,
            units="space" if self.task == "lm" else None,
            settings=NET | self.settings,
            threads=threads,
            seed=1,
            on_progress=on_progress,
        )

    def go_on(self, data: Path, out: Path) -> None:
        """By `resume`; where no run was written down yet, by `train`, as its message says."""
        try:
            elman.resume(out)
        except UsageError as error:
            if "no run to go on with" not in error.what:
                raise
            self.start(data, out)


FAMILIES = {
    "rnn": Training("lm", "text", "rnn", STREAM),
    "lstm": Training("lm", "text", "lstm", STREAM),
    "gru": Training("lm", "text", "gru", STREAM),
    "seq2seq with attention": Training("seq2seq", "pairs.tsv"),
    "tagger with CRF": Training(
        "tag", "spans.conll", settings={"model.character_hidden": 4, "model.character_embedding": 4}
    ),
    "classifier": Training("classify", "labels.tsv"),
}


def prepare(folder: Path) -> Path:
    """The data of all trainings; from now on a run that ends writes down what it was, before its folder is removed."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    folder.mkdir(parents=True, exist_ok=True)
    write_data(folder)
    remove = run_module.remove_run

    def remember_and_remove(directory: Path) -> None:
        if (found := newest_checkpoint(directory)) is not None and found.state.get("is_finished"):
            hashes = {name: hashlib.sha256(array.tobytes()).hexdigest() for name, array in found.tensors.items()}
            lines = [json.loads(line) for line in (directory / RUN_FOLDER / "metrics.jsonl").read_text().splitlines()]
            losses = [[line["step"], line.get("nats_per_token"), line.get("valid_nats_per_token")] for line in lines]
            directory.with_name(f"{directory.name}.{END}").write_text(json.dumps({"hashes": hashes, "losses": losses}))
        remove(directory)

    run_module.remove_run = remember_and_remove
    loop.measure_peak = lambda **_: 1e11  # a third of the time of so small a run, and only shown
    # The picture of a run is drawn by threads of a library, which do not survive a fork.
    run_module._curves = lambda *arguments: {}  # type: ignore[assignment]
    return folder


def end_of(out: Path) -> dict[str, Any]:
    """Weights as saved, and the last checkpoint before its folder was removed."""
    saved = hashlib.sha256((out / "model.safetensors").read_bytes()).hexdigest()
    kept = out.with_name(f"{out.name}.{END}")
    return {"saved": saved, **(json.loads(kept.read_text()) if kept.exists() else {})}


def litter_of(out: Path) -> list[str]:
    """What no model has."""
    return sorted(
        path.name for path in out.iterdir() if path.name.endswith(".new") or path.name in (RUN_FOLDER, ".lock")
    )


def draw(seed: int, items: list[Any]) -> list[Any]:
    """All items in an order that depends on the seed alone, so that as many as fit are spread over all."""
    drawn = list(items)
    random.Random(seed).shuffle(drawn)
    return drawn
