"""Linear interpolation of models: p = sum over members of weight * p_member. Weights are fitted to held-out text by EM.

One set of weights, or (bucketed) one for each bucket of last words: words that are frequent in the held-out text have a
bucket of their own, the others share one with words of similar frequency. So frequent words, after which n-grams are
reliable, and rare ones, after which a cache is worth more, have different weights: 1 to 1.5 % lower perplexity on PTB and
WikiText-2 than one set, where buckets by the training count of the last two words gave 0.2 %.

A neural cache is a member that uses the hidden vectors of another member, a net. The net is run once for both.
`B` rows, `T` tokens, `N` tokens in all, `V` vocabulary, `M` members, `K` buckets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import itemgetter
from typing import Any, Protocol, runtime_checkable

import numpy as np

from elman.core.arrays import Array
from elman.core.errors import UsageError
from elman.core.tensors import require_table
from elman.lm.neural_cache import NeuralCache
from elman.lm.protocol import FreeModel, map_state
from elman.lm.trace import Trace, explain
from elman.text.units.vocabulary import EOS_ID

FEATURE_TOKENS = 1 << 13  # tokens whose hidden vectors are in memory at once


class Member(FreeModel[Any], Protocol):
    """A model that can be mixed and saved."""

    def tensors(self) -> dict[str, Array]:
        """Everything but its settings."""


@runtime_checkable
class Featured(Member, Protocol):
    """A member with hidden vectors: a net."""

    def features(self, state: Any) -> Array:
        """The hidden vector that predicts the next token. -> (B, P)"""

    def score_features(self, tokens: Array, lengths: Array, state: Any) -> tuple[Array, Array, Any]:
        """Like `score`, with the hidden vector that predicted each token in the middle, (B, T, P)."""


@dataclass(frozen=True)
class MixtureState:
    """The state of every member, and the bucket of the last word, (B,)."""

    members: tuple[Any, ...]
    buckets: Array


class Mixture:
    """Several models as one. weights (K, M), each row summing to one; word_buckets (V,) is the row to use after a word."""

    def __init__(
        self, members: Sequence[Member | NeuralCache], weights: Array, *, word_buckets: Array | None = None
    ) -> None:
        sizes = sorted({member.vocab_size for member in members})
        if len(sizes) != 1:
            raise UsageError(
                f"models of {' and '.join(f'{size:,}' for size in sizes)} words cannot be mixed",
                code="models-differ",
                hint="a mixture needs one vocabulary: train its members on the same data",
            )
        self.members = tuple(members)
        self.vocab_size = sizes[0]
        self.weights = weights
        self.word_buckets = word_buckets
        self._cached_nets = {  # by their places; a net must come before its cache
            member.net: net_at(member.net, members[:place])
            for place, member in enumerate(members)
            if isinstance(member, NeuralCache)
        }
        with np.errstate(divide="ignore"):
            self._log_weights = np.log(self.weights)

    def start(self, rows: int) -> MixtureState:
        """The start state of every member; the bucket is that of the end of a line."""
        parts: list[Any] = []
        for member in self.members:
            if isinstance(member, NeuralCache):
                parts.append(member.start(self._features(member.net, parts)))
            else:
                parts.append(member.start(rows))
        return MixtureState(tuple(parts), self._buckets_after(np.full(rows, EOS_ID)))

    def predict(self, state: MixtureState) -> Array:
        """Log of the weighted sum of the members' probabilities. -> (B, V)"""
        log_probs = (
            member.predict(part, self._features(member.net, state.members))
            if isinstance(member, NeuralCache)
            else member.predict(part)
            for member, part in zip(self.members, state.members, strict=True)
        )
        return self._mix(log_probs, state.buckets[:, None])

    def advance(self, tokens: Array, state: MixtureState) -> MixtureState:
        """Every member's state after one more token."""
        parts = (
            member.advance(tokens, part, self._features(member.net, state.members))
            if isinstance(member, NeuralCache)
            else member.advance(tokens, part)
            for member, part in zip(self.members, state.members, strict=True)
        )
        return MixtureState(tuple(parts), self._buckets_after(tokens))

    def score(self, tokens: Array, lengths: Array, state: MixtureState) -> tuple[Array, MixtureState]:
        """Log-probability of each token, 0 at padding, and the state after. -> (B, T)"""
        num_rows, num_tokens = tokens.shape
        if not self._cached_nets or num_rows * num_tokens <= FEATURE_TOKENS:
            return self._score(tokens, lengths, state)
        num_together = max(1, FEATURE_TOKENS // num_tokens)  # rows at once, to limit the memory for vectors
        scored = []
        for first in range(0, num_rows, num_together):
            rows = slice(first, first + num_together)
            scored.append(self._score_pieces(tokens[rows], lengths[rows], map_state(itemgetter(rows), state)))
        return np.concatenate([nats for nats, _ in scored]), self.join([after for _, after in scored])

    def _score_pieces(self, tokens: Array, lengths: Array, state: MixtureState) -> tuple[Array, MixtureState]:
        pieces = []
        for first in range(0, tokens.shape[1], FEATURE_TOKENS):
            piece = tokens[:, first : first + FEATURE_TOKENS]
            nats, state = self._score(piece, np.clip(lengths - first, 0, piece.shape[1]), state)
            pieces.append(nats)
        return np.concatenate(pieces, axis=1), state

    def score_gains(self, tokens: Array, lengths: Array, state: MixtureState) -> tuple[Array, Array, MixtureState]:
        """Like `score`, with each member's share of a token's probability minus its weight in the middle, (B, T, M).

        0 at padding and where a token is impossible. Elsewhere it is the gradient of the log-probability by the logarithms of
        weights that are normalised afterwards.
        """
        members, buckets, after = self._score_members(tokens, lengths, state)
        nats = self._mix(members, buckets)
        gains = self._shares(members, buckets, nats) - self.weights[buckets]
        is_padding = np.arange(tokens.shape[1]) >= lengths[:, None]
        gains[is_padding | np.isneginf(nats)] = 0
        nats[is_padding] = 0
        return nats, gains, after

    def reweighted(self, factors: Array) -> Mixture:
        """The same members, their weights multiplied by factors (M,) and normalised again."""
        weights = self.weights * factors
        return Mixture(self.members, weights / weights.sum(axis=1, keepdims=True), word_buckets=self.word_buckets)

    def _score(self, tokens: Array, lengths: Array, state: MixtureState) -> tuple[Array, MixtureState]:
        members, buckets, after = self._score_members(tokens, lengths, state)
        nats = self._mix(members, buckets)
        nats[np.arange(tokens.shape[1]) >= lengths[:, None]] = 0
        return nats, after

    def _score_members(
        self, tokens: Array, lengths: Array, state: MixtureState
    ) -> tuple[list[Array], Array, MixtureState]:
        """The log-probabilities by each member, (B, T), the bucket before each token, (B, T), and the state after."""
        features: dict[int, Array] = {}
        scored: list[tuple[Array, Any]] = []
        for i, (member, part) in enumerate(zip(self.members, state.members, strict=True)):
            if isinstance(member, NeuralCache):
                scored.append(member.score(tokens, lengths, part, features[member.net]))
            elif i in self._cached_nets:
                log_probs, features[i], after = self._cached_nets[i].score_features(tokens, lengths, part)
                scored.append((log_probs, after))
            else:
                scored.append(member.score(tokens, lengths, part))
        buckets = np.concatenate([state.buckets[:, None], self._buckets_after(tokens)], axis=1)
        after = MixtureState(tuple(part for _, part in scored), buckets[np.arange(len(tokens)), lengths])
        return [log_probs for log_probs, _ in scored], buckets[:, :-1], after

    def explain(self, tokens: Array, state: MixtureState) -> Trace:
        """How much of each token's probability every member gave, and what the members recorded."""
        lengths = np.array([len(tokens)])
        arrays: dict[str, Array] = {}
        log_probs: list[Array] = []
        for i, (member, part) in enumerate(zip(self.members, state.members, strict=True)):
            if isinstance(member, NeuralCache):
                net = self._cached_nets[member.net]
                features = net.score_features(tokens[None], lengths, state.members[member.net])[1]
                log_probs.append(member.score(tokens[None], lengths, part, features)[0][0])
            else:
                trace = explain(member, tokens, part)
                log_probs.append(trace.log_probs)
                arrays |= {f"members.{i}.{name}": array for name, array in trace.arrays.items()}
        buckets = np.concatenate([state.buckets, self._buckets_after(tokens[:-1])])
        total = self._mix((part[None] for part in log_probs), buckets[None])[0]
        return Trace(total, {"shares": self._shares(log_probs, buckets, total), **arrays})

    def join(self, states: Sequence[MixtureState]) -> MixtureState:
        """The rows of several states as one batch; each member joins its own."""
        parts = (member.join([state.members[i] for state in states]) for i, member in enumerate(self.members))
        return MixtureState(tuple(parts), np.concatenate([state.buckets for state in states]))

    def tensors(self) -> dict[str, Array]:
        """The weights, and every member's tensors under `members.0.`, `members.1.`, ..."""
        arrays: dict[str, Array] = {"weights": self.weights.reshape(-1)}
        if self.word_buckets is not None:
            arrays["word_buckets"] = self.word_buckets
        for i, member in enumerate(self.members):
            arrays |= {f"members.{i}.{name}": array for name, array in member.tensors().items()}
        return arrays

    @classmethod
    def from_tensors(
        cls, members: Sequence[Member | NeuralCache], tensors: Mapping[str, Array], *, bucketed: bool
    ) -> Mixture:
        """The mixture that was saved, given its members, which their families have restored."""
        vocab_size = members[0].vocab_size
        word_buckets = require_table(tensors, "word_buckets", "i", vocab_size) if bucketed else None
        num_buckets = 1 if word_buckets is None else int(word_buckets.max()) + 1
        weights = require_table(tensors, "weights", "f", num_buckets * len(members)).reshape(num_buckets, len(members))
        return cls(members, weights, word_buckets=word_buckets)

    def _features(self, net: int, parts: Sequence[Any]) -> Array:
        """The hidden vectors of a net among the members. -> (B, P)"""
        return self._cached_nets[net].features(parts[net])

    def _buckets_after(self, tokens: Array) -> Array:
        return np.zeros(tokens.shape, np.int32) if self.word_buckets is None else self.word_buckets[tokens]

    def _shares(self, log_probs: Sequence[Array], buckets: Array, total: Array) -> Array:
        """The part of each token's probability that every member gave; 0 where a token is impossible. -> (..., M)"""
        with np.errstate(invalid="ignore"):
            shares = np.exp(np.stack(log_probs, axis=-1) + self._log_weights[buckets] - total[..., None])
        return np.asarray(np.nan_to_num(shares))

    def _mix(self, log_probs: Iterable[Array], buckets: Array) -> Array:
        """The log of the weighted sum: exponentials relative to the best member, a tenth of the time of `logaddexp`."""
        parts = list(log_probs)
        best = reduce(np.maximum, parts)
        base = np.where(np.isneginf(best), np.float32(0), best)
        total = np.zeros(best.shape)
        for i, part in enumerate(parts):
            total += np.exp(part - base) * self.weights[buckets, i]
        with np.errstate(divide="ignore"):
            return np.asarray(base + np.log(total), np.float32)


def net_at(place: int, members: Sequence[Member | NeuralCache]) -> Featured:
    """The net whose vectors a neural cache uses."""
    net = members[place] if place < len(members) else None
    if not isinstance(net, Featured):
        nets = [str(i) for i, member in enumerate(members) if isinstance(member, Featured)]
        raise UsageError(
            f"a neural cache needs a net, and member {place} is not one",
            code="bad-mixture",
            hint=f"members that are nets: {', '.join(nets)}" if nets else "give a net (lstm, gru, …) as a member",
        )
    return net
