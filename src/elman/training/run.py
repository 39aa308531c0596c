"""A run: the model with its optimiser, averaged weights, random state, position in the data and carried hidden state.

All of it can be saved and restored (`Run.tensors` and `RunState`), so that a resumed run equals one that never stopped.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from elman.core.arrays import Array
from elman.core.errors import DataError
from elman.lm.protocol import leaves, map_state
from elman.nets.trainable import Loss, no_loss
from elman.text.batches import Position
from elman.training import guard
from elman.training.config import TrainConfig
from elman.training.optimiser import Optimiser, WeightAverage
from elman.training.protocols import AnyBatch, Batches, Net
from elman.training.randomness import OWN, Randomness
from elman.training.run_state import BadStep, RunState, StepResult
from elman.training.validation import Validation
from elman.training.world import ALONE, World

# The moving average of the gradient's norm gives this weight to the newest step.
LEVEL_UPDATE = 0.05
# A validation counts as progress only if its loss is lower than the best by this much.
MIN_GAIN = 1e-3


class Sums(NamedTuple):
    """Of the losses of all processes."""

    total: float  # what is minimised, times the tokens
    nats: float
    tokens: float


class Run:
    """Everything that changes from step to step. Raises BadStep before a bad loss or gradient reaches the weights."""

    def __init__(self, model: Net, batches: Batches, *, config: TrainConfig, seed: int, world: World = ALONE) -> None:
        self.model = model
        self.module: nn.Module = model  # type: ignore[assignment]
        self.batches = batches
        self.config = config
        self.world = world
        self.state = RunState()
        world.begin_alike([weight for weight in self._weights().values() if weight.numel()])
        self.parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.optimiser = Optimiser(config, self.parameters)
        self.average = WeightAverage(config, self.parameters)
        self.best: dict[str, Tensor] = {}  # weights of the best validation
        self.carried: Any = None  # hidden state from the batch before
        self._randomness = Randomness(seed, world)
        self._loss_limit = guard.loss_limit(model.vocab_size)

    # ------------------------------------------------------------------------------------------------------- one step

    def step(self, rate: float, fraction: float, *, frozen: Collection[str] = ()) -> StepResult:
        """Train on the next batch. If anything is wrong with it, BadStep is raised and no weight has changed.

        frozen: names of parameters that hold still.
        """
        world = self.world
        batch, next_position = self.batches.part(self.state.position, world.share)
        rate = rate * self.state.rate_factor * (1.0 if batch is None else batch.scale)
        self.optimiser.zero_grad()
        with self._randomness.used() as random_before:
            loss, carried = self._loss(batch)
            sums = Sums(*world.sums([float(loss.total.detach()) * loss.tokens, float(loss.nats), loss.tokens]))
            self._check_loss(loss, sums, batch, random_before)
            if loss.tokens:  # the mean over all tokens is that of the processes' means, weighted by their tokens
                is_mean = self._is_local or loss.tokens == sums.tokens
                weight = None if is_mean else loss.total.new_tensor(loss.tokens / sums.tokens)
                loss.total.backward(weight)  # type: ignore[no-untyped-call]
        for name in frozen:
            self.parameters[name].grad = None  # the optimiser passes over it, and begins with it when it thaws
        if not self._is_local:
            world.sum_gradients(p for name, p in self.parameters.items() if name not in frozen)
        norm = self._clip_gradients()
        if not math.isfinite(rate):
            raise BadStep(f"{self._place()}: the learning rate is {rate}")
        self.optimiser.step(rate)
        sync = self.config.sync if self._is_local else None
        if sync is not None:
            self.state.is_alike = False
            if (self.state.step + 1) % sync == 0:
                self.synchronise()
        if self.state.is_alike:
            self.average.update(fraction, num_steps=sync or 1)
        self.carried = carried
        self._count_step(next_position, sums.nats, int(sums.tokens))
        return StepResult(sums.nats, int(sums.tokens), norm, rate, loss.is_likelihood)

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

    @property
    def _is_local(self) -> bool:
        """Whether processes train by themselves between two averages of their weights."""
        return self.world.size > 1 and self.config.sync is not None

    def synchronise(self) -> None:
        """Give all processes the mean of their weights, and of what their optimisers remember, if they differ."""
        if not self.state.is_alike:
            self.world.average([*self.parameters.values(), *self.optimiser.averaged_state()])
            self.state.is_alike = True

    def _loss(self, batch: AnyBatch | None) -> tuple[Loss, Any]:
        """The loss of this process's part of a batch, and the state for the next; zero where it has no part of it."""
        if batch is None:
            return no_loss(), None
        with self._precision():
            return self.model.batch_loss(batch, self.carried)

    def _check_loss(self, loss: Loss, sums: Sums, batch: AnyBatch | None, random: Tensor) -> None:
        total, nats_per_token = sums.total / max(sums.tokens, 1), sums.nats / max(sums.tokens, 1)
        is_finite = math.isfinite(total) and math.isfinite(nats_per_token)
        if is_finite and nats_per_token < self._loss_limit:
            return
        if is_finite:
            raise BadStep(f"{self._place()}: the loss has exploded to {nats_per_token:.3g} nats a token")
        if math.isfinite(float(loss.total.detach())) and math.isfinite(float(loss.nats)):
            raise BadStep(f"{self._place()}: the loss of another process's rows is not finite")
        torch.set_rng_state(random)  # the same dropout again
        why = guard.explain_loss(self.module, lambda: self.model.batch_loss(batch, self.carried))
        raise BadStep(f"{self._place()}: the loss is {total}; {why}")

    def _clip_gradients(self) -> float:
        """Clip the gradient's norm to `train.clip`. -> the norm before that"""
        gradients = [p.grad for p in self.parameters.values() if p.grad is not None]
        total = nn.utils.get_total_norm(gradients)
        norm = float(total)
        if self._is_local:
            norm = self.world.sums([norm])[0] / self.world.size  # so that all agree on whether it is a bad step
        if not math.isfinite(norm):
            raise BadStep(f"{self._place()}: {guard.explain_gradient(self.module)}")
        level = self.state.gradient_level
        clip = self.config.clip
        if not clip and level is not None and norm > guard.GRADIENT_JUMP * max(level, 1e-8):
            raise BadStep(f"{self._place()}: the gradient has exploded to a norm of {norm:.3g}, usual is {level:.3g}")
        self.state.gradient_level = norm if level is None else level + LEVEL_UPDATE * (norm - level)
        if clip and float(total) > clip:
            nn.utils.clip_grads_with_norm_(list(self.parameters.values()), clip, total)
        return norm

    def _place(self) -> str:
        position = self.state.position
        pool = f", pool {position.block + 1}" if position.block else ""
        return f"step {self.state.step + 1} (pass {position.epoch + 1}{pool}, batch at {position.offset})"

    def _precision(self) -> torch.autocast:
        """Products of fewer bits inside the block, if the settings want it and the processor computes them."""
        return torch.autocast("cpu", torch.bfloat16, enabled=self.config.precision == "bfloat16")

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
            "random": self._randomness.tensors(),
        }
        return {f"{group}/{name}": tensor for group, found in groups.items() for name, tensor in found.items()}

    def arrays(self) -> dict[str, Array]:
        """The same of all processes together, as numpy arrays that share their memory: what a checkpoint holds."""
        whole = self.tensors()
        if self.world.size > 1:
            whole |= {f"random/{name}": state for name, state in self._randomness.whole_tensors().items()}
            whole |= self._joined_carried()
        return {name: tensor.detach().cpu().numpy() for name, tensor in whole.items()}

    def _joined_carried(self) -> dict[str, Tensor]:
        """The state carried from the batch before, of the rows of all processes."""
        leaves_here = self._carried_leaves()
        count = self.world.highest(len(leaves_here))
        every = [self.world.joined(leaves_here[index] if leaves_here else None) for index in range(count)]
        return {f"carried/{index}": leaf for index, leaf in enumerate(every) if leaf is not None}

    def own_part(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What of a checkpoint this process goes on with: its rows of the carried state, and its own noise."""
        share, found = self.world.share, dict(tensors)
        for name, tensor in tensors.items():
            if name.startswith("carried/"):
                found[name] = share.of(tensor)
            elif name == f"random/{OWN}":
                del found[name]
                if len(tensor) == share.size:
                    found[name] = tensor[share.rank]
        return found

    @torch.no_grad()
    def restore(self, state: RunState, tensors: Mapping[str, Tensor]) -> None:
        """Become the run that was saved."""
        weights = _group(tensors, "model")
        for name, tensor in self._weights().items():
            if name not in weights or weights[name].shape != tensor.shape:
                raise DataError(
                    f"the checkpoint is of another model: {name} is missing or of another shape", code="damaged-run"
                )
            tensor.copy_(weights[name])
        self.optimiser.restore(_group(tensors, "optimiser"))
        self.average.restore(_group(tensors, "average"), state.average_count)
        self.best = {name: value.clone() for name, value in _group(tensors, "best").items()}
        self.carried = self._restore_carried(_group(tensors, "carried"))
        self._randomness.restore(_group(tensors, "random"), step=state.step)
        self.state = copy.deepcopy(state)

    def _weights(self) -> dict[str, Tensor]:
        found = {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}
        return {name: tensor.detach() for name, tensor in found.items()}

    def _carried_leaves(self) -> list[Tensor]:
        return [] if self.carried is None else [torch.as_tensor(leaf).detach() for leaf in leaves(self.carried)]

    def _restore_carried(self, saved: Mapping[str, Tensor]) -> Any:
        """A state of the model's own type, filled with the saved leaves."""
        if not saved or not len(saved["0"]):
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
