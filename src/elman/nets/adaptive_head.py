"""Adaptive softmax (Grave et al. 2017): frequent words in the head, rarer ones in clusters of narrower vectors.

N rows · P features · V words · K words of a cluster · D width of its vectors
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, cast

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.nn import Module, ModuleList, Parameter

from elman.core.arrays import Array
from elman.core.errors import UsageError
from elman.nets.cross_entropy import cross_entropy, target_log_probs
from elman.nets.cutoffs import cluster_width
from elman.nets.head import Head
from elman.nets.int8 import linear
from elman.nets.layer import draw_weights
from elman.nets.maxent import SparseLogits
from elman.nets.ngrams import HeadSymbols


class Cluster(Module):
    """A softmax over the words of a cluster: p(word | cluster) = softmax(W D h + b), D projects to a narrower space.

    With tied embeddings, W is theirs and there is no D.
    """

    int8_weights = ("weight", "down")

    def __init__(self, features: int, width: int, words: int, *, is_tied: bool, dtype: torch.dtype) -> None:
        super().__init__()
        self.down = None if is_tied else Parameter(torch.zeros(width, features, dtype=dtype))
        self.weight = None if is_tied else Parameter(torch.zeros(words, width, dtype=dtype))
        self.bias = Parameter(torch.zeros(words, dtype=dtype))

    def initialise(self, rng: torch.Generator) -> None:
        """Nearly uniform, like the head."""
        with torch.no_grad():
            self.bias.zero_()
            if self.down is not None and self.weight is not None:
                draw_weights(rng, self.down, inputs=self.down.shape[1])
                self.weight.uniform_(-0.05, 0.05, generator=rng)

    def narrow(self, features_NP: Tensor) -> Tensor:
        """D h. -> (N, D)"""
        return features_NP if self.down is None else linear(features_NP, self.down)

    def multiply_adds(self, features: int) -> float:
        """Multiply-adds for one row whose target is in this cluster."""
        return (
            len(self.bias) * features
            if self.weight is None or self.down is None
            else self.weight.numel() + self.down.numel()
        )


class _Part(NamedTuple):
    """One softmax of the head, the rows that use it (None for all), and their targets in it."""

    rows: Tensor | None
    features: Tensor
    weight: Tensor
    bias: Tensor
    targets: Tensor
    extra: SparseLogits | None


class AdaptiveHead(Head):
    """p(word) = p(word in the head), or p(its cluster in the head) p(word | cluster).

    counts: (V,), how often each word was seen, to rank them by; without them ids are ranks until `ranks` is loaded.
    cutoffs: the ranks at which clusters begin; without any this is a full softmax. dropout: inside clusters.
    tied: the input embeddings, used for the output as well; clusters are then as wide as the head.
    """

    int8_weights = ("weight", "tied")
    ranks: Tensor  # (V,) the rank of each word
    shares: Tensor  # share of the training text in each cluster, for cost estimates

    def __init__(
        self,
        features: int,
        vocab_size: int,
        *,
        cutoffs: Sequence[int],
        shrink: float,
        dropout: float,
        counts: Array | None,
        tied: Parameter | None,
        dtype: torch.dtype,
    ) -> None:
        super().__init__()
        if cutoffs and cutoffs[-1] >= vocab_size:
            raise UsageError(
                f"model.cutoffs: rank {cutoffs[-1]} is outside the vocabulary of {vocab_size} words",
                code="bad-value",
                hint="leave model.cutoffs out to have them chosen, or use model.head=full",
            )
        self.features = features
        self.dropout = dropout
        self.edges = [*cutoffs, vocab_size]
        self.tied = tied
        num_words = self.edges[0] if tied is None else 0
        self.weight = Parameter(torch.zeros(num_words + len(cutoffs), features, dtype=dtype))
        self.bias = Parameter(torch.zeros(self.edges[0] + len(cutoffs), dtype=dtype))
        self.tails = ModuleList(
            Cluster(features, cluster_width(features, i, shrink), last - first, is_tied=tied is not None, dtype=dtype)
            for i, (first, last) in enumerate(pairwise(self.edges))
        )
        counts = np.ones(vocab_size) if counts is None else np.asarray(counts, dtype=np.float64)
        order = np.argsort(-counts, kind="stable")
        covered = np.concatenate([[0], np.cumsum(counts[order])]) / max(1, counts.sum())
        self.register_buffer("ranks", torch.from_numpy(np.argsort(order)))
        self.register_buffer("shares", torch.from_numpy(np.diff(covered[self.edges])))

    @property
    def clusters(self) -> list[Cluster]:
        """The clusters, from more to less frequent words."""
        return cast(list[Cluster], list(self.tails))

    def initialise(self, rng: torch.Generator) -> None:
        """Small weights, so that the initial prediction is nearly uniform."""
        with torch.no_grad():
            self.weight.uniform_(-0.05, 0.05, generator=rng)
            self.bias.zero_()
        for cluster in self.clusters:
            cluster.initialise(rng)

    def symbols(self) -> HeadSymbols:
        """A column of the head for each frequent word and cluster, and one of its cluster for each rarer word."""
        ranks, num_clusters = self.ranks.cpu().numpy(), len(self.tails)
        clusters = np.searchsorted(self.edges[:-1], ranks, side="right")
        first = np.where(clusters == 0, ranks, self.edges[0] + clusters - 1)
        edges = np.array([0, *(edge + num_clusters for edge in self.edges)])
        return HeadSymbols(first, np.where(clusters == 0, -1, ranks + num_clusters), edges)

    def log_probs(self, features_NP: Tensor, extra: SparseLogits | None = None) -> Tensor:
        """Log-probability of every word. -> (N, V)"""
        logits = self._logits(features_NP)
        if extra is not None:
            logits = [part + extra.part(index).dense(part.shape[1]) for index, part in enumerate(logits)]
        head_NK, *inside = (F.log_softmax(self._scaled(part), dim=1) for part in logits)
        words = [head_NK[:, : self.edges[0]]]
        for index, inside_NK in enumerate(inside, start=self.edges[0]):
            words.append(inside_NK + head_NK[:, index, None])
        return torch.cat(words, dim=1).index_select(1, self.ranks)

    def _score(self, features_NP: Tensor, targets_N: Tensor, extra: SparseLogits | None) -> Tensor:
        log_probs_N = features_NP.new_zeros(len(targets_N))
        for part in self._parts(features_NP, targets_N, extra, is_noisy=False):
            part_log_probs = target_log_probs(
                part.features, part.weight, part.bias, part.targets, scale=self.scale, extra=part.extra
            )
            if part.rows is None:
                log_probs_N += part_log_probs
            else:
                log_probs_N.index_add_(0, part.rows, part_log_probs)
        return log_probs_N

    def loss(
        self, features_NP: Tensor, targets_N: Tensor, *, is_noisy: bool, extra: SparseLogits | None = None
    ) -> tuple[Tensor, Tensor]:
        """The mean of -log p(target), with a gradient, and the sum in float64."""
        mean = features_NP.new_zeros(())
        nats = torch.zeros((), dtype=torch.float64, device=features_NP.device)
        for part in self._parts(features_NP, targets_N, extra, is_noisy=is_noisy):
            part_loss, nats_N = cross_entropy(
                part.features,
                part.weight,
                part.bias,
                part.targets,
                scale=self.scale,
                divisor=len(targets_N),
                extra=part.extra,
            )
            mean = mean + part_loss
            nats += nats_N.sum(dtype=torch.float64)
        return mean, nats

    def multiply_adds(self) -> float:
        """Mean multiply-adds for one row, forward."""
        head = float(len(self.bias) * self.features)
        shares = [float(share) for share in self.shares]
        return head + sum(
            share * cluster.multiply_adds(self.features) for cluster, share in zip(self.clusters, shares, strict=True)
        )

    def _parts(
        self, features_NP: Tensor, targets_N: Tensor, extra: SparseLogits | None, *, is_noisy: bool
    ) -> Iterator[_Part]:
        """The softmaxes that the targets of the rows need."""
        head_weight, *weights = self._weights()
        ranks_N = self.ranks[targets_N]
        starts = torch.tensor(self.edges[:-1], dtype=torch.int64, device=ranks_N.device)
        clusters_N = torch.bucketize(ranks_N, starts, right=True)  # 0 for the head
        entries_N = torch.where(clusters_N == 0, ranks_N, self.edges[0] + clusters_N - 1)
        yield _Part(None, features_NP, head_weight, self.bias, entries_N, extra)
        for index, (cluster, weight) in enumerate(zip(self.clusters, weights, strict=True)):
            rows = (clusters_N == index + 1).nonzero()[:, 0]
            if len(rows):
                narrow_ND = F.dropout(cluster.narrow(features_NP.index_select(0, rows)), self.dropout, is_noisy)
                part_extra = None if extra is None else extra.part(index + 1).select(rows)
                yield _Part(rows, narrow_ND, weight, cluster.bias, ranks_N[rows] - self.edges[index], part_extra)

    def _logits(self, features_NP: Tensor) -> list[Tensor]:
        """Logits of the head (frequent words, then clusters), and of each cluster."""
        biases = [cluster.bias for cluster in self.clusters]
        if self.tied is None:
            narrow = [features_NP, *(cluster.narrow(features_NP) for cluster in self.clusters)]
            return [linear(*part) for part in zip(narrow, self._weights(), [self.bias, *biases], strict=True)]
        # the columns are permuted, not the embedding matrix: no copy of it
        logits_NV = linear(features_NP, self.tied).index_select(1, self._words())
        head_NK, *inside = torch.split(logits_NV, self._sizes(), dim=1)
        head_NK = torch.cat([head_NK, linear(features_NP, self.weight)], dim=1) + self.bias
        return [head_NK, *(logits_NK + bias_K for logits_NK, bias_K in zip(inside, biases, strict=True))]

    def _sizes(self) -> list[int]:
        """The number of words in the head and in each cluster."""
        return [last - first for first, last in pairwise([0, *self.edges])]

    def _words(self) -> Tensor:
        """The word of each rank. -> (V,)"""
        return torch.empty_like(self.ranks).scatter_(
            0, self.ranks, torch.arange(len(self.ranks), device=self.ranks.device)
        )

    def _weights(self) -> list[Tensor]:
        """Output weights of the head (frequent words, then clusters), and of each cluster."""
        if self.tied is None:
            return [self.weight, *(cast(Tensor, cluster.weight) for cluster in self.clusters)]
        words = torch.split(F.embedding(self._words(), self.tied), self._sizes())
        return [torch.cat([words[0], self.weight]), *words[1:]]
