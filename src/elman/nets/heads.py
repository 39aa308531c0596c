"""The output head of the settings."""

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

FEWEST_FEATURES = 16  # a softmax costs as much as so many features a word, also where there are none


def build_head(
    config: NetConfig,
    features: int,
    vocab_size: int,
    *,
    counts: Array | None,
    tied: Tensor | None,
    dtype: torch.dtype,
) -> tuple[Head, dict[str, Any]]:
    """A head, and the settings that were chosen for it where they had been left open."""
    if tied is not None and not isinstance(tied, Parameter):
        raise ValueError("words that are not learned cannot be tied")
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
        cutoffs = choose_cutoffs(counts, max(features, FEWEST_FEATURES), shrink=shrink)
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
