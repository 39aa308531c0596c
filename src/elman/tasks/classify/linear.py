"""The baseline that recurrent classifiers have to beat: a linear model of which words and pairs of words are in a text.

Phrases are told apart by a hash, so there is no vocabulary to keep. They count by how rare they are (tf-idf), every text
as much as any other. Numpy and scipy only. N texts · F features · L labels
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy import optimize, sparse, special

from elman.core.arrays import Array
from elman.core.errors import DataError

Kind = Literal["softmax", "sigmoid", "linear"]
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

    def predict(self, texts: Sequence[Sequence[str]]) -> Array:
        """Probabilities of the labels, or the number. -> (N, L)"""
        scores = features_of(texts, self.rarity) @ self.weights + self.bias
        match self.kind:
            case "softmax":
                found = special.softmax(scores, axis=1)
            case "sigmoid":
                found = special.expit(scores)
            case "linear":
                found = self.centre + self.spread * scores
        return np.asarray(found, dtype=np.float32)

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


def fit_linear(texts: Sequence[Sequence[str]], targets: Array, *, kind: Kind, num_labels: int) -> LinearModel:
    """Weights by L-BFGS. targets: (N,) classes or numbers, or (N, L) of yes and no."""
    if len(texts) * num_labels > MAX_SCORES:
        raise DataError(
            f"the linear model beside the net has no room for {len(texts):,} texts with {num_labels:,} labels",
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
    centre, spread = 0.0, 1.0
    match kind:
        case "softmax":
            wanted = np.eye(num_labels)[targets]
        case "sigmoid":
            wanted = targets.astype(np.float64)
        case "linear":
            centre, spread = float(targets.mean()), float(targets.std()) or 1.0
            wanted = ((targets - centre) / spread)[:, None]
    weights, bias = _descend(values, wanted, kind)
    full = np.zeros((buckets, num_labels), dtype=np.float32)
    full[is_used] = weights
    return LinearModel(kind, full, bias.astype(np.float32), rarity, centre, spread)


def features_of(texts: Sequence[Sequence[str]], rarity: Array) -> Any:
    """Texts as sparse rows of length one. -> (N, F)"""
    return _weighted(_phrases(texts, len(rarity)), rarity)


def _phrases(texts: Sequence[Sequence[str]], buckets: int) -> Any:
    """Which words, and which words side by side, are in each text. -> (N, F) of ones"""
    places, ends = [], [0]
    for words in texts:
        codes = [word.encode() for word in words]
        pairs = [left + b"\0" + right for left, right in itertools.pairwise(codes)]
        found = sorted({zlib.crc32(code) % buckets for code in (*codes, *pairs)})
        places.append(np.array(found, dtype=np.int32))
        ends.append(ends[-1] + len(found))
    indices = np.concatenate(places) if places else np.zeros(0, dtype=np.int32)
    return sparse.csr_matrix((np.ones(len(indices), dtype=np.float32), indices, ends), shape=(len(texts), buckets))


def _weighted(seen: Any, rarity: Array) -> Any:
    values = sparse.csr_matrix((rarity[seen.indices], seen.indices, seen.indptr), shape=seen.shape)
    norms = np.sqrt(np.asarray(values.multiply(values).sum(axis=1))[:, 0])
    return sparse.diags(1.0 / np.maximum(norms, 1e-9).astype(np.float32)) @ values


def _descend(values: Any, wanted: Array, kind: Kind) -> tuple[Array, Array]:
    """The weights (F, L) and bias (L,) of least loss."""
    num_features, num_labels = values.shape[1], wanted.shape[1]
    turned = values.T.tocsr()

    def loss(flat: Array) -> tuple[float, Array]:
        weights, bias = flat[:-num_labels].reshape(num_features, num_labels), flat[-num_labels:]
        scores = values @ weights + bias
        match kind:
            case "softmax":
                total = special.logsumexp(scores, axis=1).sum() - (scores * wanted).sum()
                error = special.softmax(scores, axis=1) - wanted
            case "sigmoid":
                total = np.logaddexp(0, scores).sum() - (scores * wanted).sum()
                error = special.expit(scores) - wanted
            case "linear":
                error = scores - wanted
                total = 0.5 * (error**2).sum()
        total += 0.5 * PENALTY[kind] * (weights**2).sum()
        gradient = turned @ error + PENALTY[kind] * weights
        return float(total), np.concatenate([gradient.ravel(), error.sum(axis=0)])

    start = np.zeros((num_features + 1) * num_labels)
    options = {"maxiter": MAX_ITERATIONS, "maxcor": 8, "ftol": TOLERANCE}
    best = optimize.minimize(loss, start, jac=True, method="L-BFGS-B", options=options).x
    return best[:-num_labels].reshape(num_features, num_labels), best[-num_labels:]
