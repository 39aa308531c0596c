"""A run in the middle of things: weights, optimiser, average, randomness, position, carried state. One step at a time.

All of it can be written down and read back (`tensors`, `RunState`), so that a run that goes on is the run that stopped.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor, nn

from elman.core.arrays import Array
from elman.core.errors import DataError
from elman.lm.protocol import leaves, map_state
from elman.text.batches import Position
from elman.training import guard
from elman.training.config import TrainConfig
from elman.training.optimiser import Average, Optimiser
from elman.training.protocols import AnyBatch, Batches, Net
from elman.training.validation import Quick


@dataclass
class RunState:
    """The numbers of a run, as they stand in a checkpoint."""

    position: Position = field(default_factory=Position)
    step: int = 0
    tokens: int = 0
    rate_factor: float = 1.0  # lowered on plateaus and by the guard
    failures: int = 0  # of the guard, not yet forgiven
    failed_step: int = 0
    gradient_level: float | None = None  # the usual norm of a gradient
    average_count: int = 0
    logged_nats: float = 0.0  # since the last line of the journal
    logged_tokens: int = 0
    best_loss: float | None = None  # of a validation
    best_step: int = 0
    patience_loss: float | None = None  # what has to be beaten clearly
    stale: int = 0  # validations since it was
    valid_nats: float | None = None
    valid_error: float | None = None
    validated_step: int = 0
    is_validation_due: bool = False
    journal_bytes: int = 0
    seconds: float = 0.0  # spent so far, in all processes
    began_seconds: float | None = None  # of these, before the first step
    is_finished: bool = False
    outcome: dict[str, Any] | None = None


class Trouble(Exception):  # noqa: N818 - not an error until the guard gives up
    """A step that must not be made, and why."""


@dataclass(frozen=True)
class Step:
    """What a step came to."""

    nats: float
    tokens: int
    gradient_norm: float
    learning_rate: float


class Run:
    """The net and all that moves with it."""

    def __init__(self, model: Net, batches: Batches, *, config: TrainConfig, seed: int) -> None:
        self.model = model
        self.batches = batches
        self.config = config
        self.state = RunState()
        self.named = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.optimiser = Optimiser(config, self.named)
        self.average = Average(config, self.named)
        self.best: dict[str, Tensor] = {}
        self.carried: Any = None
        self._random = torch.Generator().manual_seed(seed).get_state()
        self._limit = guard.loss_limit(model.vocab_size)
        self.module: nn.Module = model  # type: ignore[assignment]

    def step(self, rate: float, fraction: float) -> Step:
        """Descend on the next batch, unless something is wrong with it: then no weight has changed."""
        batch, after = self.batches.batch(self.state.position)
        rate = rate * self.state.rate_factor * batch.scale
        before = self._random
        with self._randomness():
            loss, carried = self.model.batch_loss(batch, self.carried)
            nats, tokens = float(loss.nats), int(loss.tokens)
            self._check_loss(float(loss.total.detach()), nats / max(tokens, 1), batch, before)
            self.optimiser.forget_gradients()
            loss.total.backward()  # type: ignore[no-untyped-call]
        norm = self._clipped_norm()
        if not math.isfinite(rate):
            raise Trouble(f"{self._place()}: the learning rate is {rate}")
        self.optimiser.step(rate)
        self.average.update(fraction)
        self.carried = carried
        self._advance(after, nats, tokens)
        return Step(nats, tokens, norm, rate)

    def _advance(self, after: Position, nats: float, tokens: int) -> None:
        state = self.state
        state.position = after
        state.step += 1
        state.tokens += tokens
        state.logged_nats += nats
        state.logged_tokens += tokens
        state.average_count = self.average.count
        if state.failures and state.step - state.failed_step >= guard.FORGIVEN_AFTER:
            state.failures = 0

    def _check_loss(self, total: float, nats_per_token: float, batch: AnyBatch, random: Tensor) -> None:
        if math.isfinite(total) and math.isfinite(nats_per_token) and nats_per_token < self._limit:
            return
        if math.isfinite(total) and math.isfinite(nats_per_token):
            raise Trouble(f"{self._place()}: the loss has exploded to {nats_per_token:.3g} nats a token")
        torch.set_rng_state(random)  # the same dropout again
        why = guard.explain_loss(self.module, lambda: self.model.batch_loss(batch, self.carried))
        raise Trouble(f"{self._place()}: the loss is {total}; {why}")

    def _clipped_norm(self) -> float:
        """The norm of the gradient, which is clipped if it is larger than wanted."""
        gradients = [p.grad for p in self.named.values() if p.grad is not None]
        total = nn.utils.get_total_norm(gradients)
        norm = float(total)
        if not math.isfinite(norm):
            raise Trouble(f"{self._place()}: {guard.explain_gradient(self.module)}")
        level = self.state.gradient_level
        clip = self.config.clip
        if not clip and level is not None and norm > guard.GRADIENT_JUMP * max(level, 1e-8):
            raise Trouble(f"{self._place()}: the gradient has exploded to a norm of {norm:.3g}, usual is {level:.3g}")
        self.state.gradient_level = norm if level is None else level + 0.05 * (norm - level)
        if clip and norm > clip:
            nn.utils.clip_grads_with_norm_(list(self.named.values()), clip, total)
        return norm

    def _place(self) -> str:
        position = self.state.position
        pool = f", pool {position.block + 1}" if position.block else ""
        return f"step {self.state.step + 1} (pass {position.epoch + 1}{pool}, batch at {position.offset})"

    @contextmanager
    def _randomness(self) -> Iterator[None]:
        """torch's own generator in the state that belongs to this run; everybody else's is put back afterwards."""
        others = torch.get_rng_state()
        torch.set_rng_state(self._random)
        try:
            yield
            self._random = torch.get_rng_state()
        finally:
            torch.set_rng_state(others)

    # ---------------------------------------------------------------------------------------- validation and the best

    def note_validation(self, quick: Quick, *, min_gain: float = 1e-3) -> None:
        """Keep the weights if they are the best so far; on a plateau, lower the rate."""
        loss = quick.loss
        if not math.isfinite(loss):
            raise Trouble(f"step {self.state.step}: the validation loss is {loss}")
        state = self.state
        state.valid_nats, state.valid_error, state.validated_step = quick.nats_per_token, quick.error, state.step
        state.is_validation_due = False
        if state.best_loss is None or loss < state.best_loss:
            state.best_loss, state.best_step = loss, state.step
            self.best = {name: value.clone() for name, value in self.weights_to_keep().items()}
        if state.patience_loss is None or loss < state.patience_loss - min_gain:
            state.patience_loss, state.stale = loss, 0
        else:
            state.stale += 1
            if self.config.schedule == "plateau":
                state.rate_factor *= self.config.decay

    def weights_to_keep(self) -> dict[str, Tensor]:
        """The averaged weights or, without an average, the present ones."""
        if self.average.is_used:
            return self.average.tensors()
        return {name: parameter.detach() for name, parameter in self.named.items()}

    @torch.no_grad()
    def settle(self) -> None:
        """Give the model the weights to keep: the best that were validated, else the average, else the last."""
        for name, value in (self.best or self.weights_to_keep()).items():
            self.named[name].copy_(value)
        self.best = {}

    # ------------------------------------------------------------------------------------------- writing and restoring

    def bad_tensor(self) -> str | None:
        """The name of a weight that is no longer a number."""
        return guard.first_bad(self._weights().items())

    def tensors(self) -> dict[str, Tensor]:
        """Everything but the numbers of `state`, as tensors by name."""
        groups: dict[str, Mapping[str, Tensor]] = {
            "model": self._weights(),
            "optimiser": self.optimiser.tensors(),
            "average": self.average.tensors(),
            "best": self.best,
            "carried": {str(index): leaf for index, leaf in enumerate(self._carried_leaves())},
            "random": {"torch": self._random},
        }
        return {f"{group}/{name}": tensor for group, found in groups.items() for name, tensor in found.items()}

    def arrays(self) -> dict[str, Array]:
        """The same as numpy arrays that share their memory."""
        return {name: tensor.detach().cpu().numpy() for name, tensor in self.tensors().items()}

    @torch.no_grad()
    def restore(self, state: RunState, tensors: Mapping[str, Tensor]) -> None:
        """Become the run that was written down."""
        weights = _group(tensors, "model")
        for name, tensor in self._weights().items():
            if name not in weights or weights[name].shape != tensor.shape:
                raise DataError(f"the checkpoint is of another model: {name} is missing or of another shape")
            tensor.copy_(weights[name])
        self.optimiser.restore(_group(tensors, "optimiser"))
        self.average.restore(_group(tensors, "average"), state.average_count)
        self.best = {name: value.clone() for name, value in _group(tensors, "best").items()}
        self.carried = self._fill_carried(_group(tensors, "carried"))
        self._random = tensors["random/torch"].clone()
        self.state = copy.deepcopy(state)

    def _weights(self) -> dict[str, Tensor]:
        found = {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}
        return {name: tensor.detach() for name, tensor in found.items()}

    def _carried_leaves(self) -> list[Tensor]:
        return [] if self.carried is None else [torch.as_tensor(leaf).detach() for leaf in leaves(self.carried)]

    def _fill_carried(self, saved: Mapping[str, Tensor]) -> Any:
        """A state of the model's own making, with the leaves that were saved."""
        if not saved:
            return None
        left = iter([saved[str(index)] for index in range(len(saved))])
        return map_state(lambda leaf: next(left).clone().to(leaf.device), self.model.start_training(len(saved["0"])))


def _group(tensors: Mapping[str, Tensor], group: str) -> dict[str, Tensor]:
    return {name[len(group) + 1 :]: tensor for name, tensor in tensors.items() if name.startswith(group + "/")}


@dataclass(frozen=True)
class Snapshot:
    """A run in memory, to go back to."""

    state: RunState
    tensors: dict[str, Tensor]


def take_snapshot(run: Run) -> Snapshot:
    """A copy of all that a step changes. Refuses a run that is already spoilt."""
    bad = run.bad_tensor()
    if bad is not None:
        raise Trouble(f"step {run.state.step}: the weight {bad} is not finite")
    tensors = {name: tensor.clone() for name, tensor in run.tensors().items() if not name.startswith("best/")}
    tensors |= {f"best/{name}": tensor for name, tensor in run.best.items()}  # never written to
    return Snapshot(copy.deepcopy(run.state), tensors)


def state_to_json(state: RunState) -> dict[str, Any]:
    """For a checkpoint."""
    return dataclasses.asdict(state)


def state_from_json(raw: Mapping[str, Any]) -> RunState:
    """From a checkpoint, checked."""
    try:
        known = {field.name for field in dataclasses.fields(RunState)}
        return TypeAdapter(RunState).validate_python({key: value for key, value in raw.items() if key in known})
    except ValidationError as error:
        first = error.errors()[0]
        raise DataError(f"the checkpoint's {'.'.join(map(str, first['loc']))}: {first['msg'].lower()}") from None


def to_tensors(arrays: Mapping[str, Array]) -> dict[str, Tensor]:
    """Arrays of a checkpoint as tensors of their own memory."""
    return {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
