"""A linear-chain CRF (Lafferty et al. 2001): a distribution over whole label sequences.

The score of a sequence is the sum of the emission score of each label and the transition scores between labels. A
forbidden sequence has probability zero. T steps · B rows · L labels
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import Module, Parameter

from elman.core.arrays import Array

FORBIDDEN = -1e4  # transition score that acts as minus infinity, but whose differences are not NaN


class Crf(Module):
    """Transition scores between labels, and of labels that begin or end a row.

    may_follow (L + 1, L + 1): which label (column) may follow which (row), the last row and column being the edges of a
    sequence; without it, any. Rows have at least one step.
    """

    may_follow: Tensor

    def __init__(self, num_labels: int, *, may_follow: Array | None = None, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.num_labels = num_labels
        self.transitions = Parameter(torch.zeros(num_labels + 1, num_labels + 1, dtype=dtype))
        allowed = torch.ones(num_labels + 1, num_labels + 1, dtype=torch.bool)
        if may_follow is not None:
            allowed = torch.from_numpy(may_follow.astype(bool))
        self.register_buffer("may_follow", allowed, persistent=False)

    def initialise(self, rng: torch.Generator) -> None:
        """Nearly equal scores for all transitions."""
        with torch.no_grad():
            self.transitions.uniform_(-0.1, 0.1, generator=rng)

    def log_likelihood(self, scores_TBL: Tensor, labels_TB: Tensor, lengths_B: Tensor) -> Tensor:
        """Log-probability of each row's labels. -> (B,)"""
        return self._score(scores_TBL, labels_TB, lengths_B) - self.log_partition(scores_TBL, lengths_B)

    def _score(self, scores_TBL: Tensor, labels_TB: Tensor, lengths_B: Tensor) -> Tensor:
        table = self.table()
        edge = self.num_labels
        is_step_TB = self._is_step(scores_TBL, lengths_B)
        emissions_TB = scores_TBL.gather(2, labels_TB[:, :, None]).squeeze(2)
        before_TB = torch.cat([torch.full_like(labels_TB[:1], edge), labels_TB[:-1]])
        sums_TB = torch.where(is_step_TB, emissions_TB + table[before_TB, labels_TB], 0.0)
        last_B = labels_TB.gather(0, (lengths_B - 1)[None]).squeeze(0)
        return sums_TB.sum(0) + table[last_B, edge]

    def log_partition(self, scores_TBL: Tensor, lengths_B: Tensor) -> Tensor:
        """Log partition function, by the forward algorithm. -> (B,)"""
        table = self.table()
        between_LL, last_L = table[:-1, :-1], table[:-1, -1]
        is_step_TB = self._is_step(scores_TBL, lengths_B)
        sums_BL = table[-1, :-1] + scores_TBL[0]
        for step in range(1, len(scores_TBL)):
            more_BL = torch.logsumexp(sums_BL[:, :, None] + between_LL, dim=1) + scores_TBL[step]
            sums_BL = torch.where(is_step_TB[step][:, None], more_BL, sums_BL)
        return torch.logsumexp(sums_BL + last_L, dim=1)

    def best(self, scores_TBL: Tensor, lengths_B: Tensor) -> Tensor:
        """The most likely labels of each row, by Viterbi. -> (T, B), 0 at padding"""
        table = self.table()
        between_LL, last_L = table[:-1, :-1], table[:-1, -1]
        is_step_TB = self._is_step(scores_TBL, lengths_B)
        best_BL = table[-1, :-1] + scores_TBL[0]
        backpointers = []
        for step in range(1, len(scores_TBL)):
            more_BL, from_BL = (best_BL[:, :, None] + between_LL).max(dim=1)
            best_BL = torch.where(is_step_TB[step][:, None], more_BL + scores_TBL[step], best_BL)
            backpointers.append(from_BL)
        label_B = (best_BL + last_L).argmax(dim=1)
        path = [label_B]
        for step in range(len(scores_TBL) - 1, 0, -1):
            earlier_B = backpointers[step - 1].gather(1, label_B[:, None]).squeeze(1)
            label_B = torch.where(is_step_TB[step], earlier_B, label_B)
            path.append(label_B)
        return torch.stack(path[::-1]) * is_step_TB

    def marginals(self, scores_TBL: Tensor, lengths_B: Tensor) -> Tensor:
        """The marginal probability of each label at each step. -> (T, B, L), 0 at padding

        They are the gradient of the log partition function, which equals forward-backward.
        """
        with torch.inference_mode(False), torch.enable_grad():
            scores_TBL = scores_TBL.detach().clone().requires_grad_()
            total = self.log_partition(scores_TBL, lengths_B.clone()).sum()
            return torch.autograd.grad(total, scores_TBL)[0]

    def multiply_adds(self) -> float:
        """Multiply-adds for one step of one row."""
        return float(self.num_labels**2)

    def table(self) -> Tensor:
        """What each label (column) scores after another (row), edges last; FORBIDDEN where it may not. -> (L + 1, L + 1)"""
        return torch.where(self.may_follow, self.transitions, FORBIDDEN)

    @staticmethod
    def _is_step(scores_TBL: Tensor, lengths_B: Tensor) -> Tensor:
        return torch.arange(len(scores_TBL), device=scores_TBL.device)[:, None] < lengths_B
