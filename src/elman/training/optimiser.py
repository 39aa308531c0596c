"""Steps down the gradient, and the average of where they led. Both as tensors by name, to save and to restore.

The formulas are those of torch.optim (tests hold them to it), whose own classes import torch's compiler first: seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn import Parameter

from elman.nets.maxent import RareParameter
from elman.training.config import TrainConfig
from elman.training.schedule import peak_rate

Named = dict[str, Parameter]
EPSILON = 1e-8

# For weights that are rarely touched: their highest rate, which is one for every optimiser, and the gradient of a mean
# over a batch that counts as large. Adam takes a first gradient, however small, for a large one: with it n-grams made a
# net worse in the first pass (docs/log.md).
RARE_RATE, RARE_GRADIENT = 0.5, 1e-3


class Optimiser:
    """SGD, RMSProp, Adam or AdamW, over all parameters at once; and Adagrad for those that are rarely touched.

    What it remembers of each is in `slots`.
    """

    def __init__(self, config: TrainConfig, named: Named) -> None:
        self.config = config
        self.named = named
        self._peak = peak_rate(config)
        self.slots: dict[str, dict[str, Tensor]] = {}

    def forget_gradients(self) -> None:
        """Before a backward pass."""
        for parameter in self.named.values():
            parameter.grad = None

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Move every parameter that has a gradient."""
        touched = [name for name, p in self.named.items() if p.grad is not None]
        names = [name for name in touched if not isinstance(self.named[name], RareParameter)]
        for name in touched:
            if isinstance(self.named[name], RareParameter):
                self._adagrad(name, RARE_RATE * rate / self._peak)
        if not names:
            return
        parameters: list[Tensor] = [self.named[name] for name in names]
        gradients = [gradient for name in names if (gradient := self.named[name].grad) is not None]
        match self.config.optimiser:
            case "sgd":
                self._descend(names, parameters, self._decayed(parameters, gradients), rate)
            case "rmsprop":
                gradients = self._decayed(parameters, gradients)
                squares = self._slot(names, parameters, "squares")
                torch._foreach_mul_(squares, self.config.beta2)
                torch._foreach_addcmul_(squares, gradients, gradients, 1.0 - self.config.beta2)
                scales = torch._foreach_sqrt(squares)
                torch._foreach_add_(scales, EPSILON)
                self._descend(names, parameters, list(torch._foreach_div(gradients, list(scales))), rate)
            case _:
                self._adam(names, parameters, gradients, rate)

    def _decayed(self, parameters: list[Tensor], gradients: list[Tensor]) -> list[Tensor]:
        """The gradient of the loss and of the penalty on large weights."""
        if not self.config.weight_decay:
            return gradients
        return list(torch._foreach_add(gradients, parameters, alpha=self.config.weight_decay))

    def _descend(self, names: list[str], parameters: list[Tensor], steps: list[Tensor], rate: float) -> None:
        if self.config.momentum:
            velocities = self._slot(names, parameters, "velocity")
            torch._foreach_mul_(velocities, self.config.momentum)
            torch._foreach_add_(velocities, steps)
            steps = velocities
        torch._foreach_add_(parameters, steps, alpha=-rate)

    def _adam(self, names: list[str], parameters: list[Tensor], gradients: list[Tensor], rate: float) -> None:
        """In one pass over memory: 5 ms for 5.3 M parameters on one core, against 17 and 30 the usual ways."""
        config = self.config
        function = torch._fused_adamw_ if config.optimiser == "adamw" else torch._fused_adam_
        counts = [self._slot_of(name, "count", torch.zeros((), dtype=torch.float32)) for name in names]
        torch._foreach_add_(counts, 1)
        function(
            parameters,
            gradients,
            self._slot(names, parameters, "means"),
            self._slot(names, parameters, "squares"),
            [],
            counts,
            lr=rate,
            beta1=config.beta1,
            beta2=config.beta2,
            weight_decay=config.weight_decay,
            eps=EPSILON,
            amsgrad=False,
            maximize=False,
        )

    def _adagrad(self, name: str, rate: float) -> None:
        """A step by the sum of all squared gradients (Duchi et al. 2011), only where there is one."""
        parameter, gradient = self.named[name], self.named[name].grad
        assert gradient is not None
        squares = self._slot_of(name, "squares", parameter)
        touched = gradient.nonzero()[:, 0]
        slopes = gradient.index_select(0, touched)
        summed = squares.index_select(0, touched).addcmul_(slopes, slopes)
        squares.index_copy_(0, touched, summed)
        scales = summed.add_(RARE_GRADIENT**2).sqrt_()
        parameter.index_add_(0, touched, slopes.div_(scales), alpha=-rate)

    def _slot(self, names: list[str], parameters: list[Tensor], key: str) -> list[Tensor]:
        return [self._slot_of(name, key, p) for name, p in zip(names, parameters, strict=True)]

    def _slot_of(self, name: str, key: str, like: Tensor) -> Tensor:
        slots = self.slots.setdefault(name, {})
        if key not in slots:
            slots[key] = torch.zeros_like(like, memory_format=torch.preserve_format)
        return slots[key]

    def tensors(self) -> dict[str, Tensor]:
        """What is remembered, as `PARAMETER/KEY`."""
        return {f"{name}/{key}": value for name, slots in self.slots.items() for key, value in slots.items()}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Remember this and nothing else."""
        self.slots = {}
        for path, value in tensors.items():
            name, _, key = path.rpartition("/")
            device = "cpu" if key == "count" else self.named[name].device
            self.slots.setdefault(name, {})[key] = value.clone().to(device)


class Average:
    """A running mean of the weights: exponential with a memory that grows with the run, or even over its last part.

    The exponential one follows min(decay, (1 + n) / (10 + n)): about the last tenth of the steps, at most 1/(1-decay).
    """

    def __init__(self, config: TrainConfig, named: Named) -> None:
        self.kind = config.average
        self.decay = config.average_decay
        self.tail = config.average_tail
        self.count = 0
        self._parameters = list(named.values())
        self._names = list(named)
        self.mean = [] if self.kind == "none" else [parameter.detach().clone() for parameter in self._parameters]

    @torch.no_grad()
    def update(self, fraction: float) -> None:
        """Take in the weights after a step."""
        if self.kind == "none":
            return
        if self.kind == "tail" and fraction < 1.0 - self.tail:
            return
        self.count += 1
        kept = 1.0 - 1.0 / self.count if self.kind == "tail" else min(self.decay, (1 + self.count) / (10 + self.count))
        torch._foreach_lerp_(self.mean, [parameter.detach() for parameter in self._parameters], 1.0 - kept)

    @property
    def is_used(self) -> bool:
        """Whether the average is what is evaluated: a tail that has not begun is not."""
        return self.kind != "none" and self.count > 0

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The model with the averaged weights, for as long as the block lasts."""
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
        """Go on from an average saved before."""
        self.count = count
        for name, mean in zip(self._names, self.mean, strict=False):
            mean.copy_(tensors[name])
