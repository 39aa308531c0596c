"""A run: the model with its optimiser, averaged weights, random state, position in the data and carried hidden state.

All of it can be saved and restored (`Run.tensors` and `RunState`), so that a resumed run equals one that never stopped.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from elman.core.arrays import Array
from elman.core.errors import DataError
from elman.lm.protocol import leaves, map_state
from elman.text.batches import Position
from elman.training import guard
from elman.training.config import TrainConfig
from elman.training.optimiser import Optimiser, WeightAverage
from elman.training.protocols import AnyBatch, Batches, Net
from elman.training.run_state import BadStep, RunState, StepResult
from elman.training.validation import Validation

# The moving average of the gradient's norm gives this weight to the newest step.
LEVEL_UPDATE = 0.05
# A validation counts as progress only if its loss is lower than the best by this much.
MIN_GAIN = 1e-3


class Run:
    """Everything that changes from step to step. Raises BadStep before a bad loss or gradient reaches the weights."""

    def __init__(self, model: Net, batches: Batches, *, config: TrainConfig, seed: int) -> None:
        self.model = model
        self.module: nn.Module = model  # type: ignore[assignment]
        self.batches = batches
        self.config = config
        self.state = RunState()
        self.parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.optimiser = Optimiser(config, self.parameters)
        self.average = WeightAverage(config, self.parameters)
        self.best: dict[str, Tensor] = {}  # weights of the best validation
        self.carried: Any = None  # hidden state from the batch before
        self._random = torch.Generator().manual_seed(seed).get_state()
        self._loss_limit = guard.loss_limit(model.vocab_size)

    # ------------------------------------------------------------------------------------------------------- one step

    def step(self, rate: float, fraction: float, *, frozen: Collection[str] = ()) -> StepResult:
        """Train on the next batch. If anything is wrong with it, BadStep is raised and no weight has changed.

        frozen: names of parameters that hold still.
        """
        batch, next_position = self.batches.batch(self.state.position)
        rate = rate * self.state.rate_factor * batch.scale
        random_before = self._random
        with self._own_random_state():
            with self._precision():
                loss, carried = self.model.batch_loss(batch, self.carried)
            nats, tokens = float(loss.nats), int(loss.tokens)
            self._check_loss(float(loss.total.detach()), nats / max(tokens, 1), batch, random_before)
            self.optimiser.zero_grad()
            loss.total.backward()  # type: ignore[no-untyped-call]
        for name in frozen:
            self.parameters[name].grad = None  # the optimiser passes over it, and begins with it when it thaws
        norm = self._clip_gradients()
        if not math.isfinite(rate):
            raise BadStep(f"{self._place()}: the learning rate is {rate}")
        self.optimiser.step(rate)
        self.average.update(fraction)
        self.carried = carried
        self._count_step(next_position, nats, tokens)
        return StepResult(nats, tokens, norm, rate, loss.is_likelihood)

    def _count_step(self, next_position: Position, nats: float, tokens: int) -> None:
        state = self.state
        state.position = next_position
        state.step += 1
        state.tokens += tokens
        state.logged_nats += nats
        state.logged_tokens += tokens
        state.average_count = self.average.count
        if state.failures and state.step - state.failed_step >= guard.FORGIVEN_AFTER:
            state.failures = 0

    def _check_loss(self, total: float, nats_per_token: float, batch: AnyBatch, random: Tensor) -> None:
        is_finite = math.isfinite(total) and math.isfinite(nats_per_token)
        if is_finite and nats_per_token < self._loss_limit:
            return
        if is_finite:
            raise BadStep(f"{self._place()}: the loss has exploded to {nats_per_token:.3g} nats a token")
        torch.set_rng_state(random)  # the same dropout again
        why = guard.explain_loss(self.module, lambda: self.model.batch_loss(batch, self.carried))
        raise BadStep(f"{self._place()}: the loss is {total}; {why}")

    def _clip_gradients(self) -> float:
        """Clip the gradient's norm to `train.clip`. -> the norm before that"""
        gradients = [p.grad for p in self.parameters.values() if p.grad is not None]
        total = nn.utils.get_total_norm(gradients)
        norm = float(total)
        if not math.isfinite(norm):
            raise BadStep(f"{self._place()}: {guard.explain_gradient(self.module)}")
        level = self.state.gradient_level
        clip = self.config.clip
        if not clip and level is not None and norm > guard.GRADIENT_JUMP * max(level, 1e-8):
            raise BadStep(f"{self._place()}: the gradient has exploded to a norm of {norm:.3g}, usual is {level:.3g}")
        self.state.gradient_level = norm if level is None else level + LEVEL_UPDATE * (norm - level)
        if clip and norm > clip:
            nn.utils.clip_grads_with_norm_(list(self.parameters.values()), clip, total)
        return norm

    def _place(self) -> str:
        position = self.state.position
        pool = f", pool {position.block + 1}" if position.block else ""
        return f"step {self.state.step + 1} (pass {position.epoch + 1}{pool}, batch at {position.offset})"

    def _precision(self) -> torch.autocast:
        """Products of fewer bits inside the block, if the settings want it and the processor computes them."""
        return torch.autocast("cpu", torch.bfloat16, enabled=self.config.precision == "bfloat16")

    @contextmanager
    def _own_random_state(self) -> Iterator[None]:
        """Give torch's global generator this run's state inside the block, and the caller's state back afterwards."""
        callers = torch.get_rng_state()
        torch.set_rng_state(self._random)
        try:
            yield
            self._random = torch.get_rng_state()
        finally:
            torch.set_rng_state(callers)

    # ------------------------------------------------------------------------------------ validation and best weights

    def record_validation(self, validation: Validation) -> None:
        """Remember the weights if they are the best so far; on a plateau, lower the learning rate."""
        loss = validation.loss
        if not math.isfinite(loss):
            raise BadStep(f"step {self.state.step}: the validation loss is {loss}")
        state = self.state
        state.valid_nats, state.valid_error = validation.nats_per_token, validation.error
        state.validated_step, state.is_validation_due = state.step, False
        if state.best_loss is None or loss < state.best_loss:
            state.best_loss, state.best_step = loss, state.step
            self.best = {name: value.clone() for name, value in self.weights_to_keep().items()}
        if state.patience_loss is None or loss < state.patience_loss - MIN_GAIN:
            state.patience_loss, state.stale = loss, 0
        else:
            state.stale += 1
            if self.config.schedule == "plateau":
                state.rate_factor *= self.config.decay

    def weights_to_keep(self) -> dict[str, Tensor]:
        """The averaged weights or, without an average, the current ones."""
        if self.average.is_used:
            return self.average.tensors()
        return {name: parameter.detach() for name, parameter in self.parameters.items()}

    @torch.no_grad()
    def load_best_weights(self) -> None:
        """Give the model the weights of the best validation; if there was none, the average or the last ones."""
        for name, value in (self.best or self.weights_to_keep()).items():
            self.parameters[name].copy_(value)
        self.best = {}

    def describe_bad_weight(self) -> str | None:
        """A sentence about a weight that is NaN or infinite, or None if all are finite. Reads every weight."""
        name = guard.first_bad(self._weights().items())
        return None if name is None else f"step {self.state.step}: the weight {name} is not finite"

    def refuse_bad_weights(self) -> None:
        """Raise BadStep if a weight is NaN or infinite."""
        bad = self.describe_bad_weight()
        if bad is not None:
            raise BadStep(bad)

    # ------------------------------------------------------------------------------------------- saving and restoring

    def tensors(self) -> dict[str, Tensor]:
        """Everything but the numbers of `state`, by the names that a checkpoint uses."""
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
        """Become the run that was saved."""
        weights = _group(tensors, "model")
        for name, tensor in self._weights().items():
            if name not in weights or weights[name].shape != tensor.shape:
                raise DataError(f"the checkpoint is of another model: {name} is missing or of another shape")
            tensor.copy_(weights[name])
        self.optimiser.restore(_group(tensors, "optimiser"))
        self.average.restore(_group(tensors, "average"), state.average_count)
        self.best = {name: value.clone() for name, value in _group(tensors, "best").items()}
        self.carried = self._restore_carried(_group(tensors, "carried"))
        self._random = tensors["random/torch"].clone()
        self.state = copy.deepcopy(state)

    def _weights(self) -> dict[str, Tensor]:
        found = {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}
        return {name: tensor.detach() for name, tensor in found.items()}

    def _carried_leaves(self) -> list[Tensor]:
        return [] if self.carried is None else [torch.as_tensor(leaf).detach() for leaf in leaves(self.carried)]

    def _restore_carried(self, saved: Mapping[str, Tensor]) -> Any:
        """A state of the model's own type, filled with the saved leaves."""
        if not saved:
            return None
        left = iter([saved[str(index)] for index in range(len(saved))])
        return map_state(lambda leaf: next(left).clone().to(leaf.device), self.model.start_training(len(saved["0"])))


def _group(tensors: Mapping[str, Tensor], group: str) -> dict[str, Tensor]:
    return {name[len(group) + 1 :]: tensor for name, tensor in tensors.items() if name.startswith(group + "/")}


@dataclass(frozen=True)
class Snapshot:
    """A copy of a run in memory, to roll back to."""

    state: RunState
    tensors: dict[str, Tensor]


def take_snapshot(run: Run) -> Snapshot:
    """A copy of all that a step changes. Refuses a run whose weights are already bad."""
    run.refuse_bad_weights()
    tensors = {name: tensor.clone() for name, tensor in run.tensors().items() if not name.startswith("best/")}
    tensors |= {f"best/{name}": tensor for name, tensor in run.best.items()}  # never written to
    return Snapshot(copy.deepcopy(run.state), tensors)


def to_tensors(arrays: Mapping[str, Array]) -> dict[str, Tensor]:
    """Arrays of a checkpoint as tensors of their own memory."""
    return {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
