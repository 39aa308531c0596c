"""Dynamic evaluation: while a text is scored, nets are trained on it (Mikolov et al. 2010). No model: an evaluator.

A segment is scored first and then trained on, so a token changes nothing before it was scored. With g the gradient of a
segment, W0 the trained weights of a net, W those of a copy and s the root mean square of the gradient of each single weight,

    W <- W + decay (W0 - W) - rate g / (s + mean of s)

The steps are scaled as by Krause et al. (2018). They scale the decay too, by s / mean of s; here it is even, the same for
all weights, and the numbers are signed `even-decay`. And they take s from the training text, which is not saved with a
model. Here it comes from text sampled from the net: there, g^2 is on average the Fisher information. On the first 10,000
tokens of Penn Treebank's validation text the perplexity of an LSTM went from 136.8 to 115.5 with that, to 116.6 with the
training text's s, to 120.0 with one s for each tensor, to 123.3 with s collected during evaluation and to 122.1 without s
(plain SGD at the best of four rates).

Copy and net are mixed, with the other members if the net is one of a mixture. Its weights were fitted to nets that stay as
they are, so they follow the text too, by the exponentiated gradient (Kivinen and Warmuth 1997):

    log weight <- log weight + weight_rate (share of the token's probability - weight), and normalised

A mixture that went from 84.37 to 82.21 without both goes to 81.2, and at a rate that is too high to 81.3 instead of 84.9
(docs/log.md): so the rate is not tuned for each model. `B` rows, `T` tokens, `M` members.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from elman.core.arrays import Array
from elman.core.errors import UsageError
from elman.lm.evaluate import Scorer
from elman.lm.mixture import Member, Mixture
from elman.lm.protocol import FreeModel
from elman.lm.search import sample_rows
from elman.nets.memory import kept_memory
from elman.nets.trainable import StreamNet
from elman.text.units.vocabulary import EOS_ID

# The usual gradients are measured on sampled text of so many rows, each of so many segments.
SAMPLED_ROWS, SAMPLED_SEGMENTS = 100, 10


@dataclass(frozen=True)
class Dynamics:
    """The settings of dynamic evaluation."""

    segment: int = 20  # tokens that are scored before they are learned from
    rate: float = 3e-4  # learning rate of nets
    decay: float = 0.004  # how far all of a net's weights alike go back to the trained ones, at every segment
    weight_rate: float = 0.01  # learning rate of the logarithms of a mixture's weights, a token
    unadapted_share: float = 0.3  # of a net's weight in the mixture that the net as it was trained has at the beginning

    def __str__(self) -> str:
        weights = f"{self.weight_rate:g},{self.unadapted_share:g}"
        return f"even-decay,{self.segment},{self.rate:g},{self.decay:g},weights,{weights}"


@contextmanager
def adapting(
    lm: FreeModel[Any], *, reset_lines: bool, dynamics: Dynamics, rng: np.random.Generator
) -> Iterator[Scorer]:
    """A scorer that adapts copies of a model's nets to what it has scored, and the weights of its mixture."""
    with kept_memory():
        copies = {net: deepcopy(net) for net in nets_of(lm)}
        nets = [
            _AdaptedNet(adapted, net, dynamics, rng=rng, reset_lines=reset_lines) for net, adapted in copies.items()
        ]
        mixture = lm if isinstance(lm, Mixture) else Mixture([cast(Member, lm)], np.ones((1, 1)))
        mixture = _with_copies(mixture, copies, dynamics.unadapted_share)
        yield _SegmentScorer(mixture, nets, dynamics, reset_lines=reset_lines).score


def nets_of(lm: FreeModel[Any]) -> list[StreamNet]:
    """The nets that can be adapted: the model itself, or those among a mixture's members, each once."""
    found = dict.fromkeys(_nets_in(lm))
    if not found:
        raise UsageError(
            "dynamic evaluation adapts nets, and this model has none",
            code="not-for-this-model",
            hint="leave out --dynamic; what counts remembers by elman mix DIR cache",
        )
    return list(found)


def _nets_in(part: object) -> Iterator[StreamNet]:
    if isinstance(part, StreamNet):
        yield part
    for member in part.members if isinstance(part, Mixture) else ():
        yield from _nets_in(member)


def _with_copies(mixture: Mixture, copies: Mapping[StreamNet, StreamNet], share: float) -> Mixture:
    """The mixture with a copy in the place of each net, and the net itself added with a share of its weight."""
    nets = [i for i, member in enumerate(mixture.members) if isinstance(member, StreamNet)]
    members = [_with_copies(part, copies, share) if isinstance(part, Mixture) else part for part in mixture.members]
    weights = np.concatenate([mixture.weights, share * mixture.weights[:, nets]], axis=1)
    weights[:, nets] *= 1 - share
    for i in nets:
        members.append(members[i])
        members[i] = cast(Member, copies[cast(StreamNet, members[i])])
    return Mixture(members, weights, word_buckets=mixture.word_buckets)


class _SegmentScorer:
    """Scores a text segment by segment; nets and weights learn from each segment once it is complete."""

    def __init__(self, mixture: Mixture, nets: list[_AdaptedNet], dynamics: Dynamics, *, reset_lines: bool) -> None:
        self._original = self._mixture = mixture
        self._nets = nets
        self._dynamics = dynamics
        self._reset_lines = reset_lines
        self._state = mixture.start(1)
        self._segment_tokens: list[int] = []  # scored, but not yet learned from
        self._gains_M = np.zeros(len(mixture.members))  # of all tokens since the last step
        self._log_factors_M = np.zeros(len(mixture.members))

    def score(self, ids: Array) -> Array:
        """-log p of each token; blocks of a text come in order, cut wherever it may be. -> (N,)"""
        nats = np.empty(len(ids), np.float32)
        first = 0
        while first < len(ids):
            last = min(len(ids), first + self._dynamics.segment - len(self._segment_tokens))
            ends = np.flatnonzero((ids[first:last] == EOS_ID) & self._reset_lines)
            last = first + int(ends[0]) + 1 if len(ends) else last
            with np.errstate(invalid="ignore"):  # of weights that ran away, which training on the segment refuses
                log_probs, gains_BTM, self._state = self._mixture.score_gains(
                    ids[None, first:last], np.array([last - first]), self._state
                )
            nats[first:last] = -log_probs[0]
            self._segment_tokens += ids[first:last].tolist()
            self._gains_M += gains_BTM[0].sum(axis=0)
            if len(self._segment_tokens) == self._dynamics.segment or len(ends):
                self._learn(is_line_end=len(ends) > 0)
            first = last
        return nats

    def _learn(self, *, is_line_end: bool) -> None:
        for net in self._nets:
            net.train_on(self._segment_tokens)
            if is_line_end:
                net.reset_state()
        self._log_factors_M += self._dynamics.weight_rate * self._gains_M
        self._mixture = self._original.reweighted(np.exp(self._log_factors_M - self._log_factors_M.max()))
        if is_line_end:
            self._state = self._mixture.start(1)
        self._segment_tokens, self._gains_M = [], np.zeros_like(self._gains_M)


class _AdaptedNet:
    """A copy of a net, which is trained on segments and drawn back towards the net."""

    def __init__(
        self, copy: StreamNet, net: StreamNet, dynamics: Dynamics, *, rng: np.random.Generator, reset_lines: bool
    ) -> None:
        self._net = copy.eval()
        self._dynamics = dynamics
        self._weights, self._original = (
            [parameter for parameter in one.parameters() if parameter.requires_grad] for one in (copy, net)
        )
        usual = self._usual_gradients(rng, reset_lines=reset_lines)
        mean = float(torch.stack([sizes.mean() for sizes in usual if sizes.numel()]).mean())
        self._rates = [sizes.add_(mean or 1.0).reciprocal_().mul_(dynamics.rate) for sizes in usual]
        self.reset_state()

    def reset_state(self) -> None:
        """Begin a text, or a line that is read alone."""
        self._carried = self._net.start_training(1)
        self._last_token = EOS_ID

    def train_on(self, tokens: list[int]) -> None:
        """One gradient step on the tokens that follow those before, with decay towards the original weights."""
        inputs, targets = torch.tensor([[self._last_token, *tokens[:-1]]]), torch.tensor([tokens])
        self._carried = self._backward(inputs, targets, None, self._carried)
        self._last_token = tokens[-1]
        with torch.no_grad():
            for weight, original, rates in zip(self._weights, self._original, self._rates, strict=True):
                weight.lerp_(original, self._dynamics.decay)
                if weight.grad is not None:
                    weight.addcmul_(weight.grad, rates, value=-1)

    def _backward(self, inputs: Tensor, targets: Tensor, lengths: Tensor | None, carried: Any) -> Any:
        """Compute the gradient of the loss on a text. -> the hidden state to carry on"""
        for weight in self._weights:
            weight.grad = None
        device = self._weights[0].device
        lengths = None if lengths is None else lengths.to(device)
        loss, carried = self._net.loss(inputs.to(device), targets.to(device), lengths, carried)
        if not torch.isfinite(loss.total.detach()):
            raise UsageError(
                f"the weights ran away at a rate of {self._dynamics.rate:g}",
                code="diverged",
                hint="give a smaller --dynamic-rate",
            )
        loss.total.backward()  # type: ignore[no-untyped-call]
        return carried

    def _usual_gradients(self, rng: np.random.Generator, *, reset_lines: bool) -> list[Tensor]:
        """The root mean square of the gradient of each weight, over text sampled from the net."""
        squares = [torch.zeros_like(weight) for weight in self._weights]
        segment, carried = self._dynamics.segment, self._net.start_training(SAMPLED_ROWS)
        for tokens, lengths in _sampled_segments(self._net, segment, rng, reset_lines=reset_lines):
            targets = tokens[:, 1:]
            carried = self._backward(tokens[:, :-1], targets, lengths, carried)
            for square, weight in zip(squares, self._weights, strict=True):
                if weight.grad is not None:
                    square.addcmul_(weight.grad, weight.grad)
        return [square.div_(SAMPLED_SEGMENTS).sqrt_() for square in squares]


def _sampled_segments(
    net: StreamNet, segment: int, rng: np.random.Generator, *, reset_lines: bool
) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Segments sampled from the net, continuous or each a line of its own: tokens (B, 1 + T) with the one before; lengths."""
    lm = cast(FreeModel[Any], net)
    if not reset_lines:
        written = sample_rows(lm, lm.start(SAMPLED_ROWS), rng=rng, max_tokens=SAMPLED_SEGMENTS * segment)
        tokens = torch.tensor([(EOS_ID, *row.tokens) for row in written])
        for first in range(0, SAMPLED_SEGMENTS * segment, segment):
            yield tokens[:, first : first + segment + 1], None
        return
    for _ in range(SAMPLED_SEGMENTS):
        lines = [
            row.tokens for row in sample_rows(lm, lm.start(SAMPLED_ROWS), rng=rng, max_tokens=segment, stop=EOS_ID)
        ]
        lengths = torch.tensor([len(line) for line in lines])
        tokens = torch.full((SAMPLED_ROWS, 1 + int(lengths.max())), EOS_ID)
        for row, line in enumerate(lines):
            tokens[row, 1 : 1 + len(line)] = torch.tensor(line)
        yield tokens, lengths
