"""The linear model beside the net of a classifier: which words and pairs of words are in a text.

Phrases are told apart by a hash, so there is no vocabulary to keep. They count by how rare they are (tf-idf), every text
as much as any other. Numpy and scipy only. N texts · F features · L labels
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import optimize, sparse, special

from elman.core.arrays import Array
from elman.core.errors import DataError
from elman.tasks.classify.parts import Kind, answers_of

BUCKETS = 1 << 18
MAX_WEIGHTS = 1 << 22  # weights in all: with many labels there are fewer hash buckets
PENALTY: dict[Kind, float] = {"softmax": 0.1, "sigmoid": 0.1, "linear": 1.0}  # on the squares of the weights
MAX_SCORES = 1 << 26  # texts times labels: fitting holds a few such arrays of float64, half a gigabyte each
MIN_TEXTS = 2  # texts that must contain a phrase for it to get a weight
MAX_ITERATIONS, TOLERANCE = 80, 1e-5


@dataclass(frozen=True)
class LinearModel:
    """Weights of phrases. A number is centre + spread * what the weights say."""

    kind: Kind
    weights: Array  # (F, L) float32
    bias: Array  # (L,)
    rarity: Array  # (F,), 0 for phrases that were not seen often enough
    centre: float = 0.0
    spread: float = 1.0

    def scores(self, texts: Sequence[Sequence[str]]) -> Array:
        """What the labels' probabilities, or the number, are made of. -> (N, L)"""
        return np.asarray(features_of(texts, self.rarity) @ self.weights + self.bias, dtype=np.float32)

    def predict(self, texts: Sequence[Sequence[str]]) -> Array:
        """Probabilities of the labels, or the number. -> (N, L)"""
        return answers_of(self.scores(texts), self.kind, centre=self.centre, spread=self.spread)

    def phrases(self, words: Sequence[str], label: int) -> list[tuple[str, float]]:
        """The words and pairs of words of a text, and the part of each in the score of a label; the strongest first."""
        names = {_bucket(phrase, len(self.rarity)): phrase.replace("\0", " ") for phrase in _phrases_of(words)}
        values = features_of([words], self.rarity)
        against = self.weights.mean(axis=1) if self.kind == "softmax" else np.zeros(len(self.weights))
        parts = values.data * (self.weights[:, label] - against)[values.indices]
        found = [(names[place], part) for place, part in zip(values.indices.tolist(), parts.tolist(), strict=True)]
        return sorted((one for one in found if one[1]), key=lambda one: -abs(one[1]))

    def wanted(self, targets: Array) -> Array:
        """What the scores of texts with such targets should lead to; see `loss_of`. -> (N, L)"""
        match self.kind:
            case "softmax":
                return np.eye(len(self.bias))[targets]
            case "sigmoid":
                return targets.astype(np.float64)
            case "linear":
                return np.asarray((targets - self.centre) / self.spread, dtype=np.float64)[:, None]

    def tensors(self) -> dict[str, Array]:
        """By name, to be kept: of the features that are used."""
        used = np.flatnonzero(self.rarity).astype(np.int32)
        scale = np.array([len(self.rarity), self.centre, self.spread])
        weights, rarity = self.weights[used], self.rarity[used]
        return {"used": used, "weights": weights, "rarity": rarity, "bias": self.bias, "scale": scale}

    @classmethod
    def from_tensors(cls, kind: Kind, tensors: Mapping[str, Array]) -> LinearModel:
        """The one that was kept."""
        buckets, centre, spread = tensors["scale"].tolist()
        weights = np.zeros((int(buckets), tensors["weights"].shape[1]), dtype=np.float32)
        rarity = np.zeros(int(buckets), dtype=np.float32)
        weights[tensors["used"]], rarity[tensors["used"]] = tensors["weights"], tensors["rarity"]
        return cls(kind, weights, tensors["bias"], rarity, centre, spread)


def fit_linear(
    texts: Sequence[Sequence[str]],
    targets: Array,
    *,
    kind: Kind,
    num_labels: int,
    should_stop: Callable[[], bool] = lambda: False,
) -> LinearModel:
    """Weights by L-BFGS, until there are no better ones, or it should stop. targets: (N,) classes or numbers, or (N, L) of
    yes and no.
    """
    if len(texts) * num_labels > MAX_SCORES:
        raise DataError(
            f"the linear model beside the net has no room for {len(texts):,} texts with {num_labels:,} labels",
            code="too-little-memory",
            hint="--set model.baseline=false leaves it out",
        )
    buckets = BUCKETS
    while buckets * num_labels > MAX_WEIGHTS and buckets > 1 << 10:
        buckets //= 2
    seen = _phrases(texts, buckets)
    num_texts = np.bincount(seen.indices, minlength=buckets)
    rarity = np.where(num_texts >= MIN_TEXTS, np.log((1 + len(texts)) / (1 + num_texts)) + 1, 0).astype(np.float32)
    is_used = np.flatnonzero(rarity)
    values = _weighted(seen, rarity)[:, is_used].astype(np.float64)
    centre, spread = (float(targets.mean()), float(targets.std()) or 1.0) if kind == "linear" else (0.0, 1.0)
    full = np.zeros((buckets, num_labels), dtype=np.float32)
    model = LinearModel(kind, full, np.zeros(num_labels, dtype=np.float32), rarity, centre, spread)
    full[is_used], bias = _descend(values, model.wanted(targets), kind, should_stop)
    return replace(model, bias=bias.astype(np.float32))


def loss_of(scores: Array, wanted: Array, kind: Kind) -> tuple[float, Array]:
    """Nats of all texts, and their slope by each score. -> a number, (N, L)"""
    match kind:
        case "softmax":
            total = special.logsumexp(scores, axis=1).sum() - (scores * wanted).sum()
            slope = special.softmax(scores, axis=1) - wanted
        case "sigmoid":
            total = np.logaddexp(0, scores).sum() - (scores * wanted).sum()
            slope = special.expit(scores) - wanted
        case "linear":
            slope = scores - wanted
            total = 0.5 * (slope**2).sum()
    return float(total), slope


def features_of(texts: Sequence[Sequence[str]], rarity: Array) -> Any:
    """Texts as sparse rows of length one. -> (N, F)"""
    return _weighted(_phrases(texts, len(rarity)), rarity)


def _phrases(texts: Sequence[Sequence[str]], buckets: int) -> Any:
    """Which words, and which words side by side, are in each text. -> (N, F) of ones"""
    places, ends = [], [0]
    for words in texts:
        found = buckets_of(words, buckets)
        places.append(np.array(found, dtype=np.int32))
        ends.append(ends[-1] + len(found))
    indices = np.concatenate(places) if places else np.zeros(0, dtype=np.int32)
    return sparse.csr_matrix((np.ones(len(indices), dtype=np.float32), indices, ends), shape=(len(texts), buckets))


def buckets_of(words: Sequence[str], buckets: int) -> list[int]:
    """The numbers of a text's phrases, each once."""
    return sorted({_bucket(phrase, buckets) for phrase in _phrases_of(words)})


def _phrases_of(words: Sequence[str]) -> list[str]:
    return [*words, *(f"{left}\0{right}" for left, right in itertools.pairwise(words))]


def _bucket(phrase: str, buckets: int) -> int:
    return zlib.crc32(phrase.encode()) % buckets


def _weighted(seen: Any, rarity: Array) -> Any:
    values = sparse.csr_matrix((rarity[seen.indices], seen.indices, seen.indptr), shape=seen.shape)
    norms = np.sqrt(np.asarray(values.multiply(values).sum(axis=1))[:, 0])
    return sparse.diags(1.0 / np.maximum(norms, 1e-9).astype(np.float32)) @ values


def _descend(values: Any, wanted: Array, kind: Kind, should_stop: Callable[[], bool]) -> tuple[Array, Array]:
    """The weights (F, L) and bias (L,) of least loss."""
    num_features, num_labels = values.shape[1], wanted.shape[1]
    turned = values.T.tocsr()

    def loss(flat: Array) -> tuple[float, Array]:
        weights, bias = flat[:-num_labels].reshape(num_features, num_labels), flat[-num_labels:]
        total, slope = loss_of(values @ weights + bias, wanted, kind)
        total += 0.5 * PENALTY[kind] * float((weights**2).sum())
        gradient = turned @ slope + PENALTY[kind] * weights
        return total, np.concatenate([gradient.ravel(), slope.sum(axis=0)])

    def after_step(_: Array) -> None:
        if should_stop():
            raise StopIteration

    start = np.zeros((num_features + 1) * num_labels)
    options = {"maxiter": MAX_ITERATIONS, "maxcor": 8, "ftol": TOLERANCE}
    best = optimize.minimize(loss, start, jac=True, method="L-BFGS-B", options=options, callback=after_step).x
    return best[:-num_labels].reshape(num_features, num_labels), best[-num_labels:]
