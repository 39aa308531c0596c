"""N-gram features that add to a net's logits (Mikolov et al. 2011): a maximum-entropy model trained with the net.

An n-gram seen at least twice in training has a weight, which is added to the logit of its last word whenever its history
precedes. So a history changes the logits of few words, and only their weights get a gradient.
N rows · R some of them · K lengths of history · H histories · F n-grams · M entries · W columns of logits
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.nn import Module, Parameter

from elman.nets.ngrams import NgramTable, join, mix


class RareParameter(Parameter):
    """Weights with sparse gradients: the optimiser must not decay its statistics in steps without a gradient."""


class Maxent(Module):
    """The weights of n-grams, initially zero."""

    keys: Tensor  # (H,)
    offsets: Tensor  # (H, Q + 1)
    columns: Tensor  # (F,)

    def __init__(self, table: NgramTable, *, order: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.length = order - 1  # words in the longest history
        self.register_buffer("keys", torch.from_numpy(table.keys))
        self.register_buffer("offsets", torch.from_numpy(table.offsets))
        self.register_buffer("columns", torch.from_numpy(table.columns))
        self.most_entries: list[int] = np.diff(table.offsets).max(axis=0).tolist() if len(table.keys) else []
        self.weight = RareParameter(torch.zeros(len(table.columns), dtype=dtype))

    def find(self, tokens_XB: Tensor) -> Tensor:
        """The ids of the histories after each token from the K-th on, shortest first; -1 for unseen ones.

        -> (X - K + 1, B, K)
        """
        places = len(tokens_XB) - self.length + 1
        key = (torch.zeros_like(tokens_XB[:places]), torch.zeros_like(tokens_XB[:places]))
        keys = []
        for first in reversed(range(self.length)):
            key = mix(key, tokens_XB[first : first + places])
            keys.append(join(key))
        wanted_TBK = torch.stack(keys, dim=-1)
        if not len(self.keys):
            return torch.full_like(wanted_TBK, -1)
        search = _search if torch.compiler.is_exporting() else torch.searchsorted
        at_TBK = search(self.keys, wanted_TBK).clamp(max=len(self.keys) - 1)
        return torch.where(self.keys[at_TBK] == wanted_TBK, at_TBK, -1)

    def logits(self, histories_NK: Tensor) -> SparseLogits:
        """The sparse logits of rows with these histories."""
        return SparseLogits(self, histories_NK)


class Entries(NamedTuple):
    """The n-grams active in some rows; each adds its weight to the logit in its row and column."""

    rows: Tensor  # (M,)
    columns: Tensor
    ngrams: Tensor


@dataclass(frozen=True)
class SparseLogits:
    """What n-grams add to N rows of logits. Expanded for a few rows at a time: a row may have thousands of entries."""

    maxent: Maxent
    histories: Tensor  # (N, K)
    index: int = 0  # which softmax of the head the columns belong to

    @property
    def weight(self) -> Tensor:
        """The weights of all n-grams. -> (F,)"""
        return self.maxent.weight

    def part(self, index: int) -> SparseLogits:
        """The same histories, for another softmax of the head."""
        return replace(self, index=index)

    def select(self, rows: Tensor) -> SparseLogits:
        """The given rows only."""
        return replace(self, histories=self.histories.index_select(0, rows))

    def entries(self, first: int, last: int) -> Entries:
        """The entries of rows first .. last - 1, with rows numbered from 0."""
        maxent, histories_RK = self.maxent, self.histories[first:last]
        rows, lengths = (histories_RK >= 0).nonzero(as_tuple=True)
        histories = histories_RK[rows, lengths]
        begins = maxent.offsets[histories, self.index]
        sizes = maxent.offsets[histories, self.index + 1] - begins
        which_M = torch.repeat_interleave(torch.arange(len(sizes), device=sizes.device), sizes)
        shifts = begins - sizes.cumsum(0) + sizes
        ngrams_M = shifts.index_select(0, which_M) + torch.arange(len(which_M), device=sizes.device)
        columns_M = maxent.columns.index_select(0, ngrams_M).long()
        return Entries(rows.index_select(0, which_M), columns_M, ngrams_M)

    def dense(self, columns: int) -> Tensor:
        """All rows as a dense matrix. -> (N, columns)"""
        if torch.compiler.is_exporting():
            return self._dense_by_size(columns)
        logits_NW = self.weight.new_zeros(len(self.histories), columns)
        add_entries(logits_NW, self.entries(0, len(self.histories)), self.weight, scale=1.0)
        return logits_NW

    def _dense_by_size(self, columns: int) -> Tensor:
        """`dense` in a graph whose sizes depend on no value: every history has room for the entries of the largest.

        What is left of the room goes to one more column, which is cut off. -> (N, columns)
        """
        maxent, histories_NK = self.maxent, self.histories
        logits_NW = self.weight.new_zeros(histories_NK.shape[0], columns + 1)
        most = maxent.most_entries[self.index] if maxent.most_entries else 0
        if not most:
            return logits_NW[:, :columns]
        offsets_NKQ = F.embedding(histories_NK.clamp(min=0), maxent.offsets)
        begins_NK = offsets_NKQ[:, :, self.index]
        sizes_NK = (offsets_NKQ[:, :, self.index + 1] - begins_NK) * (histories_NK >= 0)
        places_M = torch.arange(most, device=begins_NK.device)
        is_entry_NKM = places_M < sizes_NK[:, :, None]
        ngrams_NKM = torch.where(is_entry_NKM, begins_NK[:, :, None] + places_M, 0)
        columns_NKM = torch.where(is_entry_NKM, maxent.columns[ngrams_NKM].long(), columns)
        weights_NKM = self.weight[ngrams_NKM]
        return logits_NW.scatter_add(1, columns_NKM.flatten(1), weights_NKM.flatten(1))[:, :columns]


def _search(keys_H: Tensor, wanted: Tensor) -> Tensor:
    """`torch.searchsorted` of what is among the keys, by halving: there is no such operator in ONNX."""
    at = torch.zeros_like(wanted)
    for bit in reversed(range(len(keys_H).bit_length())):
        further = (at + (1 << bit)).clamp(max=len(keys_H) - 1)
        at = torch.where(keys_H[further] <= wanted, further, at)
    return at


def add_entries(logits_RW: Tensor, entries: Entries, weight_F: Tensor, *, scale: float) -> Tensor:
    """Add the weights of n-grams, times `scale`, to logits. -> (M,) flat index of each entry in the logits"""
    places_M = (entries.rows * logits_RW.stride(0)).add_(entries.columns)
    logits_RW.view(-1).scatter_add_(0, places_M, weight_F.index_select(0, entries.ngrams).mul_(scale))
    return places_M


def add_gradient(grad_F: Tensor, entries: Entries, places_M: Tensor, errors_RW: Tensor, *, share: float) -> None:
    """Add the gradient of n-gram weights, given that of the logits."""
    errors_M = errors_RW.view(-1).index_select(0, places_M).mul_(share)
    grad_F.scatter_add_(0, entries.ngrams, errors_M)
