"""Dynamic evaluation (Krause et al. 2018): while a text is scored, the weights of nets follow it. No model: an evaluator.

A segment is scored, then learned from, so that a token changes nothing before it was scored. With g the gradient of a segment,
W0 the weights as trained and s the usual size of a gradient, for each weight its own,

    W <- W + decay (W0 - W) - rate g / (s + mean of s)

The paper takes s from the training text, which is not kept with a model. Here it comes from text that the net writes itself:
drawn from its own distribution, g^2 is on average the Fisher information. On the first 10,000 tokens of Penn Treebank's
validation text an LSTM went from 136.8 to 115.5 with that, to 116.6 with the training text's s, to 120.0 with one s a tensor, to
123.3 with one gathered on the way and to 122.1 with none at all (plain descent at the best rate of four).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from elman.core.arrays import Array
from elman.core.errors import UsageError
from elman.lm.evaluate import Scorer
from elman.lm.mixture import Mixture
from elman.lm.protocol import FreeModel
from elman.lm.search import sample_rows
from elman.nets.memory import kept_memory
from elman.nets.trainable import StreamNet
from elman.text.units.vocabulary import EOS_ID

OWN_ROWS, OWN_SEGMENTS = 100, 10  # of the text that a net writes for its statistics


@dataclass(frozen=True)
class Dynamics:
    """How the weights follow."""

    segment: int = 20  # tokens scored before they are learned from
    rate: float = 1.5e-4
    decay: float = 0.015  # back towards the trained weights, at every segment

    def __str__(self) -> str:
        return f"{self.segment},{self.rate:g},{self.decay:g}"


@contextmanager
def adapting(
    lm: FreeModel[Any], *, reset_lines: bool, dynamics: Dynamics, rng: np.random.Generator
) -> Iterator[Scorer]:
    """A scorer that adapts the nets of a model, or of a mixture, to what it has scored; in the end all is as it was."""
    with ExitStack() as stack:
        stack.enter_context(kept_memory())
        pupils = []
        for net in nets_of(lm):
            pupils.append(_Pupil(net, dynamics, rng=rng, reset_lines=reset_lines))
            stack.callback(pupils[-1].restore)
        yield _Reader(lm, pupils, dynamics.segment, reset_lines=reset_lines).score


def nets_of(lm: FreeModel[Any]) -> list[StreamNet]:
    """The nets that can be adapted: the model itself, or those among a mixture's members, each once."""
    found = dict.fromkeys(_nets_in(lm))
    if not found:
        raise UsageError(
            "dynamic evaluation adapts nets, and this model has none",
            hint="leave out --dynamic; what counts remembers by elman mix DIR cache",
        )
    return list(found)


def _nets_in(part: object) -> Iterator[StreamNet]:
    if isinstance(part, StreamNet):
        yield part
    for member in part.members if isinstance(part, Mixture) else ():
        yield from _nets_in(member)


class _Reader:
    """Scores a text segment by segment; what was scored and not yet learned from waits."""

    def __init__(self, lm: FreeModel[Any], pupils: list[_Pupil], segment: int, *, reset_lines: bool) -> None:
        self._lm = lm
        self._pupils = pupils
        self._segment = segment
        self._reset_lines = reset_lines
        self._state = lm.start(1)
        self._waiting: list[int] = []

    def score(self, ids: Array) -> Array:
        """-log p of each token; blocks of a text come in order, cut wherever it may be. -> (N,)"""
        nats = np.empty(len(ids), np.float32)
        first = 0
        while first < len(ids):
            last = min(len(ids), first + self._segment - len(self._waiting))
            ends = np.flatnonzero((ids[first:last] == EOS_ID) & self._reset_lines)
            last = first + int(ends[0]) + 1 if len(ends) else last
            log_probs, self._state = self._lm.score(ids[None, first:last], np.array([last - first]), self._state)
            nats[first:last] = -log_probs[0]
            self._waiting += ids[first:last].tolist()
            if len(self._waiting) == self._segment or len(ends):
                self._learn(is_end=len(ends) > 0)
            first = last
        return nats

    def _learn(self, *, is_end: bool) -> None:
        for pupil in self._pupils:
            pupil.learn(self._waiting)
            if is_end:
                pupil.begin()
        if is_end:
            self._state = self._lm.start(1)
        self._waiting = []


class _Pupil:
    """A net that learns from segments, with the weights it had before."""

    def __init__(self, net: StreamNet, dynamics: Dynamics, *, rng: np.random.Generator, reset_lines: bool) -> None:
        self._net = net
        self._dynamics = dynamics
        self._was_training = net.training
        net.eval()
        self._weights = [parameter for parameter in net.parameters() if parameter.requires_grad]
        self._trained = [weight.detach().clone() for weight in self._weights]
        usual = self._usual_gradients(rng, reset_lines=reset_lines)
        mean = float(torch.stack([sizes.mean() for sizes in usual if sizes.numel()]).mean())
        self._rates = [sizes.add_(mean or 1.0).reciprocal_().mul_(dynamics.rate) for sizes in usual]
        self.begin()

    def begin(self) -> None:
        """Nothing has been read yet, or a new line begins that is read alone."""
        self._carried = self._net.start_training(1)
        self._last = EOS_ID

    def learn(self, tokens: list[int]) -> None:
        """One step down on the tokens that follow those before, and a little back."""
        inputs, targets = torch.tensor([[self._last, *tokens[:-1]]]), torch.tensor([tokens])
        self._carried = self._descend(inputs, targets, None, self._carried)
        self._last = tokens[-1]
        with torch.no_grad():
            for weight, trained, rates in zip(self._weights, self._trained, self._rates, strict=True):
                weight.lerp_(trained, self._dynamics.decay)
                if weight.grad is not None:
                    weight.addcmul_(weight.grad, rates, value=-1)

    def restore(self) -> None:
        """As if nothing had happened."""
        with torch.no_grad():
            for weight, trained in zip(self._weights, self._trained, strict=True):
                weight.copy_(trained)
                weight.grad = None
        self._net.train(self._was_training)

    def _descend(self, inputs: Tensor, targets: Tensor, lengths: Tensor | None, carried: Any) -> Any:
        """Leave the gradient of a text in the weights; what is carried on comes back."""
        for weight in self._weights:
            weight.grad = None
        device = self._weights[0].device
        lengths = None if lengths is None else lengths.to(device)
        loss, carried = self._net.loss(inputs.to(device), targets.to(device), lengths, carried)
        if not torch.isfinite(loss.total.detach()):
            raise UsageError(
                f"the weights ran away at a rate of {self._dynamics.rate:g}", hint="give a smaller --dynamic-rate"
            )
        loss.total.backward()  # type: ignore[no-untyped-call]
        return carried

    def _usual_gradients(self, rng: np.random.Generator, *, reset_lines: bool) -> list[Tensor]:
        """The root of the mean square of each weight's gradient, over text that the net writes."""
        squares = [torch.zeros_like(weight) for weight in self._weights]
        segment, carried = self._dynamics.segment, self._net.start_training(OWN_ROWS)
        for tokens, lengths in _own_texts(self._net, segment, rng, reset_lines=reset_lines):
            targets = tokens[:, 1:]
            carried = self._descend(tokens[:, :-1], targets, lengths, carried)
            for square, weight in zip(squares, self._weights, strict=True):
                if weight.grad is not None:
                    square.addcmul_(weight.grad, weight.grad)
        return [square.div_(OWN_SEGMENTS).sqrt_() for square in squares]


def _own_texts(
    net: StreamNet, segment: int, rng: np.random.Generator, *, reset_lines: bool
) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Segments that the net writes, on from one another or each a line's beginning: (B, 1 + T) with the token before."""
    lm = cast(FreeModel[Any], net)
    if not reset_lines:
        written = sample_rows(lm, lm.start(OWN_ROWS), rng=rng, max_tokens=OWN_SEGMENTS * segment)
        tokens = torch.tensor([(EOS_ID, *row.tokens) for row in written])
        for first in range(0, OWN_SEGMENTS * segment, segment):
            yield tokens[:, first : first + segment + 1], None
        return
    for _ in range(OWN_SEGMENTS):
        lines = [row.tokens for row in sample_rows(lm, lm.start(OWN_ROWS), rng=rng, max_tokens=segment, stop=EOS_ID)]
        lengths = torch.tensor([len(line) for line in lines])
        tokens = torch.full((OWN_ROWS, 1 + int(lengths.max())), EOS_ID)
        for row, line in enumerate(lines):
            tokens[row, 1 : 1 + len(line)] = torch.tensor(line)
        yield tokens, lengths
