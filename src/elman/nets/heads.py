"""Builds the output head that the settings ask for."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from elman.core.arrays import Array
from elman.nets.adaptive_head import AdaptiveHead
from elman.nets.config import NetConfig
from elman.nets.cutoffs import choose_cutoffs
from elman.nets.full_head import FullHead
from elman.nets.head import Head
from elman.nets.sampled_head import SampledHead
from elman.nets.sampling import ALPHAS, choose_samples

MIN_COST_FEATURES = 16  # in the cost model a softmax has at least this many features per word, even if it has none


def build_head(
    config: NetConfig,
    features: int,
    vocab_size: int,
    *,
    counts: Array | None,
    tied: Tensor | None,
    dtype: torch.dtype,
) -> tuple[Head, dict[str, Any]]:
    """A head, and the values chosen for settings that were not given."""
    if tied is not None and not isinstance(tied, Parameter):
        raise ValueError("frozen embeddings cannot be tied")
    if config.head == "full":
        return FullHead(features, vocab_size, tied=tied, dtype=dtype), {}
    if config.head != "adaptive":
        samples = choose_samples(vocab_size, config.samples)
        alpha = ALPHAS[config.head] if config.alpha is None else config.alpha
        sampled = SampledHead(
            features,
            vocab_size,
            kind=config.head,
            samples=samples,
            alpha=alpha,
            counts=counts,
            tied=tied,
            dtype=dtype,
        )
        return sampled, {"samples": samples, "alpha": alpha}
    shrink = config.tail_shrink or (4.0 if tied is None else 1.0)
    cutoffs = config.cutoffs
    if not cutoffs and counts is not None:
        cutoffs = choose_cutoffs(counts, max(features, MIN_COST_FEATURES), shrink=shrink)
    head = AdaptiveHead(
        features,
        vocab_size,
        cutoffs=cutoffs,
        shrink=shrink,
        dropout=config.dropout_tail,
        counts=counts,
        tied=tied,
        dtype=dtype,
    )
    return head, {"cutoffs": tuple(cutoffs)}
