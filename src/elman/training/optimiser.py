"""Optimisers and the average of the weights. Their states are tensors by name, to save and to restore.

The formulas are those of torch.optim (a test compares them), whose classes import torch's compiler first: seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn import Parameter

from elman.nets.maxent import RareParameter
from elman.training import fused
from elman.training.config import TrainConfig
from elman.training.schedule import peak_rate

NamedParameters = dict[str, Parameter]

# Added to the denominators of Adam and RMSProp, as in torch.optim.
EPSILON = 1e-8
# Rarely updated weights (n-gram features) use Adagrad with this peak rate, whatever the optimiser of the others.
RARE_RATE = 0.5
# Adagrad's initial accumulator is the square of this: a gradient of a batch's mean loss of this size counts as large.
# Adam takes a first gradient, however small, for a large one: with it n-grams made a net worse in the first pass
# (docs/log.md).
RARE_GRADIENT = 1e-3


class Optimiser:
    """SGD, RMSProp, Adam or AdamW over all parameters at once; Adagrad for those that are rarely updated.

    state: what it remembers, by the name of the parameter and a key: `velocity`, `means`, `squares`, `count`.
    """

    def __init__(self, config: TrainConfig, parameters: NamedParameters) -> None:
        self.config = config
        self.parameters = parameters
        self.state: dict[str, dict[str, Tensor]] = {}
        self._peak_rate = peak_rate(config)

    def zero_grad(self) -> None:
        """Drop all gradients, before a backward pass."""
        for parameter in self.parameters.values():
            parameter.grad = None

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Update every parameter that has a gradient."""
        with_gradient = [name for name, p in self.parameters.items() if p.grad is not None]
        names = [name for name in with_gradient if not isinstance(self.parameters[name], RareParameter)]
        for name in with_gradient:
            if isinstance(self.parameters[name], RareParameter):
                self._adagrad(name, RARE_RATE * rate / self._peak_rate)
        if not names:
            return
        parameters: list[Tensor] = [self.parameters[name] for name in names]
        gradients = [gradient for name in names if (gradient := self.parameters[name].grad) is not None]
        match self.config.optimiser:
            case "sgd":
                self._sgd(names, parameters, self._with_weight_decay(parameters, gradients), rate)
            case "rmsprop":
                self._rmsprop(names, parameters, self._with_weight_decay(parameters, gradients), rate)
            case _:
                self._adam(names, parameters, gradients, rate)

    def _with_weight_decay(self, parameters: list[Tensor], gradients: list[Tensor]) -> list[Tensor]:
        """The gradient of the loss and of the penalty on large weights."""
        if not self.config.weight_decay:
            return gradients
        return fused.add(gradients, parameters, factor=self.config.weight_decay)

    def _sgd(self, names: list[str], parameters: list[Tensor], updates: list[Tensor], rate: float) -> None:
        if self.config.momentum:
            velocities = self._states(names, parameters, "velocity")
            fused.scale_(velocities, self.config.momentum)
            fused.add_(velocities, updates)
            updates = velocities
        fused.add_(parameters, updates, factor=-rate)

    def _rmsprop(self, names: list[str], parameters: list[Tensor], gradients: list[Tensor], rate: float) -> None:
        squares = self._states(names, parameters, "squares")
        fused.scale_(squares, self.config.beta2)
        fused.add_squares_(squares, gradients, factor=1.0 - self.config.beta2)
        scales = fused.square_roots(squares)
        fused.shift_(scales, EPSILON)
        self._sgd(names, parameters, fused.divide(gradients, scales), rate)

    def _adam(self, names: list[str], parameters: list[Tensor], gradients: list[Tensor], rate: float) -> None:
        counts = [self._state(name, "count", torch.zeros((), dtype=torch.float32)) for name in names]
        fused.shift_(counts, 1)
        fused.adam_(
            parameters,
            gradients,
            self._states(names, parameters, "means"),
            self._states(names, parameters, "squares"),
            counts,
            rate=rate,
            beta1=self.config.beta1,
            beta2=self.config.beta2,
            weight_decay=self.config.weight_decay,
            epsilon=EPSILON,
            is_decoupled=self.config.optimiser == "adamw",
        )

    def _adagrad(self, name: str, rate: float) -> None:
        """A step scaled by the sum of all squared gradients (Duchi et al. 2011), only where the gradient is not 0."""
        parameter, gradient = self.parameters[name], self.parameters[name].grad
        assert gradient is not None
        squares = self._state(name, "squares", parameter)
        places = gradient.nonzero()[:, 0]
        slopes = gradient.index_select(0, places)
        sums = squares.index_select(0, places).addcmul_(slopes, slopes)
        squares.index_copy_(0, places, sums)
        scales = sums.add_(RARE_GRADIENT**2).sqrt_()
        parameter.index_add_(0, places, slopes.div_(scales), alpha=-rate)

    def _states(self, names: list[str], parameters: list[Tensor], key: str) -> list[Tensor]:
        return [self._state(name, key, p) for name, p in zip(names, parameters, strict=True)]

    def _state(self, name: str, key: str, like: Tensor) -> Tensor:
        """What is remembered of a parameter under a key; zeros at first."""
        state = self.state.setdefault(name, {})
        if key not in state:
            state[key] = torch.zeros_like(like, memory_format=torch.preserve_format)
        return state[key]

    def averaged_state(self) -> list[Tensor]:
        """All that it remembers and goes on from, in the same order in every process, for their mean."""
        match self.config.optimiser:
            case "sgd":
                usual = ["velocity"] if self.config.momentum else []
            case "rmsprop":
                usual = ["squares"] + (["velocity"] if self.config.momentum else [])
            case _:
                usual = ["count", "squares"] + (["means"] if self.config.beta1 else [])
        found = []
        for name, parameter in self.parameters.items():
            for key in ["squares"] if isinstance(parameter, RareParameter) else usual:
                like = torch.zeros((), dtype=torch.float32) if key == "count" else parameter
                found.append(self._state(name, key, like))
        return found

    def tensors(self) -> dict[str, Tensor]:
        """The state as `PARAMETER/KEY`, for a checkpoint."""
        return {f"{name}/{key}": value for name, state in self.state.items() for key, value in state.items()}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Replace the state by one from a checkpoint."""
        self.state = {}
        for path, value in tensors.items():
            name, _, key = path.rpartition("/")
            device = "cpu" if key == "count" else self.parameters[name].device
            self.state.setdefault(name, {})[key] = value.clone().to(device)


class WeightAverage:
    """An average of the weights over the steps: exponential (EMA), or the plain mean over the last part of the run.

    The decay of the EMA grows with the number n of steps, min(decay, (1 + n) / (10 + n)): it covers about the last tenth of
    the steps, at most 1 / (1 - decay) of them.
    """

    def __init__(self, config: TrainConfig, parameters: NamedParameters) -> None:
        self.kind = config.average
        self.decay = config.average_decay
        self.tail = config.average_tail
        self.count = 0
        self._parameters = list(parameters.values())
        self._names = list(parameters)
        self.mean = [] if self.kind == "none" else [parameter.detach().clone() for parameter in self._parameters]

    @torch.no_grad()
    def update(self, fraction: float, *, num_steps: int = 1) -> None:
        """Take in the weights after a step, or after several. `fraction`: how much of the run is done."""
        if self.kind == "none":
            return
        if self.kind == "tail" and fraction < 1.0 - self.tail:
            return
        self.count += num_steps
        decay = min(self.decay, (1 + self.count) / (10 + self.count)) ** num_steps
        if self.kind == "tail":
            decay = 1.0 - num_steps / self.count
        fused.move_towards_(self.mean, [parameter.detach() for parameter in self._parameters], weight=1.0 - decay)

    @property
    def is_used(self) -> bool:
        """Whether the average is what is validated and kept; before a tail has begun it is not."""
        return self.kind != "none" and self.count > 0

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The model has the averaged weights inside the block, and its own again afterwards."""
        if not self.is_used:
            yield
            return
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def _swap(self) -> None:
        for index, parameter in enumerate(self._parameters):
            self.mean[index], parameter.data = parameter.data, self.mean[index]

    def tensors(self) -> dict[str, Tensor]:
        """The averaged weights by name."""
        return dict(zip(self._names, self.mean, strict=False))

    @torch.no_grad()
    def restore(self, tensors: Mapping[str, Tensor], count: int) -> None:
        """Go on from an average in a checkpoint."""
        self.count = count
        for name, mean in zip(self._names, self.mean, strict=False):
            mean.copy_(tensors[name])
