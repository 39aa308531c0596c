"""A net small enough to train in a test: an LSTM as anybody would write it, with all that a trainer asks of a net."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from elman.core.arrays import Array
from elman.core.errors import ElmanError
from elman.nets.trainable import Loss, StreamNet
from elman.text.batches import DEFAULT_BATCH, DEFAULT_BPTT, make_batches, validation_batches
from elman.text.units.vocabulary import EOS_ID
from elman.training.budget import Budget, Clock
from elman.training.config import TrainConfig
from elman.training.examiner import StreamExaminer
from elman.training.loop import Trainer
from elman.training.progress import Progress
from elman.training.protocols import Net

VOCAB = 7


class Carried(NamedTuple):
    """h and c, the batch first, and the token that was read last."""

    h: Tensor
    c: Tensor


class State(NamedTuple):
    carried: Carried
    last: Tensor


class Tiny(StreamNet):
    """p(next | all before), one layer."""

    def __init__(
        self,
        *,
        hidden: int = 8,
        dropout: float = 0.2,
        seed: int = 0,
        dtype: torch.dtype = torch.float64,
        on_loss: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__()
        self.vocab_size = VOCAB
        self.on_loss = on_loss
        self.embedding = nn.Embedding(VOCAB, hidden, dtype=dtype)
        self.lstm = nn.LSTM(hidden, hidden, batch_first=True, dtype=dtype)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(hidden, VOCAB, dtype=dtype)
        self.register_buffer("log_temperature", torch.zeros((), dtype=dtype))
        rng = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.uniform_(-0.3, 0.3, generator=rng)

    def start_training(self, rows: int) -> Carried:
        zeros = torch.zeros(rows, self.lstm.hidden_size, dtype=self.output.weight.dtype)
        return Carried(zeros, zeros)

    def logits(self, inputs: Tensor, carried: Carried) -> tuple[Tensor, Carried]:
        outputs, (h, c) = self.lstm(self.dropout(self.embedding(inputs)), (carried.h[None], carried.c[None]))
        logits = self.output(self.dropout(outputs)) * torch.exp(-self.log_temperature)
        return logits, Carried(h[0].detach(), c[0].detach())

    def loss(self, inputs: Tensor, targets: Tensor, lengths: Tensor | None, state: Carried) -> tuple[Loss, Carried]:
        self.on_loss()
        logits, state = self.logits(inputs, state)
        nats = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none")
        if lengths is not None:
            nats = nats[(torch.arange(inputs.shape[1]) < lengths[:, None]).flatten()]
        return Loss(nats.mean(), nats.detach().sum(dtype=torch.float64), len(nats)), state

    def count_flops(self) -> float:
        return float(self.output.weight.numel() + 8 * self.lstm.hidden_size**2)

    def start(self, rows: int) -> State:
        return State(self.start_training(rows), torch.full((rows,), EOS_ID))

    @torch.no_grad()
    def score(self, tokens: np.ndarray, lengths: np.ndarray, state: State) -> tuple[np.ndarray, State]:
        rows = [self._score_row(tokens[i, : lengths[i]], state, i) for i in range(len(tokens))]
        log_probs = np.zeros(tokens.shape, dtype=np.float32)
        for i, (row, _) in enumerate(rows):
            log_probs[i, : len(row)] = row
        parts = [after for _, after in rows]
        carried = Carried(torch.cat([p.carried.h for p in parts]), torch.cat([p.carried.c for p in parts]))
        return log_probs, State(carried, torch.cat([p.last for p in parts]))

    def _score_row(self, tokens: np.ndarray, state: State, i: int) -> tuple[np.ndarray, State]:
        carried = Carried(state.carried.h[i : i + 1], state.carried.c[i : i + 1])
        read = torch.cat([state.last[i : i + 1], torch.from_numpy(np.array(tokens, dtype=np.int64))])
        logits, carried = self.logits(read[None, :-1], carried)
        log_probs = logits[0].log_softmax(-1)[torch.arange(len(tokens)), read[1:]]
        return log_probs.numpy(), State(carried, read[-1:])


def text(size: int, seed: int = 0) -> np.ndarray:
    """Lines with something to learn: each symbol is followed by the next with probability .8."""
    rng = np.random.default_rng(seed)
    ids, token = [], 2
    for _ in range(size):
        token = EOS_ID if token == VOCAB - 1 else (token + 1 if rng.random() < 0.8 else int(rng.integers(1, VOCAB)))
        token = max(token, EOS_ID)
        ids.append(token)
    ids[-1] = EOS_ID
    return np.array(ids, dtype=np.int32)


def trainer(directory: Path | None = None, **settings: Any) -> Trainer:
    """A run of a few small steps, with whatever a test wants otherwise."""
    options = {"batch": 4, "bptt": 6, "epochs": 2.0, "learning_rate": 0.02, "checkpoint_steps": 5, "log_steps": 4}
    arguments = {
        name: settings.pop(name)
        for name in ("resume", "budget", "clock", "reset_lines", "seed", "model", "valid_ids", "ids")
        if name in settings
    }
    model = arguments.pop("model", None) or Tiny()
    ids = arguments.pop("ids", text(400))
    valid_ids = arguments.pop("valid_ids", text(150, seed=1))
    config = TrainConfig(**{key: value for key, value in {**options, **settings}.items() if value is not None})
    arguments.setdefault("seed", 11)
    return stream_trainer(model, ids, valid_ids, config=config, directory=directory, **arguments)


def run(trainer: Trainer) -> list[Progress]:
    """To the end."""
    return list(trainer.run())


def weights(model: nn.Module) -> dict[str, bytes]:
    """Every bit of a model."""
    return {name: tensor.numpy().tobytes() for name, tensor in model.state_dict().items()}


def notes(found: list[Progress]) -> str:
    return "\n".join(note for progress in found for note in progress.notes)


def error_of(function: Callable[[], object]) -> ElmanError:
    try:
        function()
    except ElmanError as error:
        return error
    raise AssertionError("no error")


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
        held_out = validation_batches(valid_ids, rows=rows, bptt=bptt, reset_lines=reset_lines)
        examiner = StreamExaminer(model, held_out, valid_ids, reset_lines=reset_lines)
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
