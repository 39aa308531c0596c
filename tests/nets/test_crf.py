"""A chain of labels against every sequence there is, and against pytorch-crf."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

from elman.nets.crf import Crf
from elman.tasks.tag.net import allowed_pairs
from elman.tasks.tag.spans import first_breach

LABELS = ["O", "B-X", "I-X"]
STEPS, LENGTHS = 4, [4, 2, 1]


def make(labels: int = 3, *, may_follow: np.ndarray | None = None) -> tuple[Crf, Tensor, Tensor]:
    rng = torch.Generator().manual_seed(1)
    crf = Crf(labels, may_follow=may_follow, dtype=torch.float64)
    crf.initialise(rng)
    with torch.no_grad():
        crf.transitions.mul_(10)
    crf.requires_grad_(False)
    scores_TBL = torch.randn(STEPS, len(LENGTHS), labels, generator=rng, dtype=torch.float64)
    return crf, scores_TBL, torch.tensor(LENGTHS)


def score(crf: Crf, scores_TL: Tensor, labels: tuple[int, ...]) -> float:
    """By hand: what each step says, and how labels follow one another, the edge on either side."""
    table = torch.where(crf.may_follow, crf.transitions, -torch.inf)
    edges = [crf.num_labels, *labels, crf.num_labels]
    follow = sum(float(table[a, b]) for a, b in itertools.pairwise(edges))
    return follow + sum(float(scores_TL[step, label]) for step, label in enumerate(labels))


@pytest.mark.parametrize("scheme", ["none", "bio"])
def test_sums_and_bests_are_those_over_all_sequences(scheme: str) -> None:
    crf, scores_TBL, lengths_B = make(may_follow=allowed_pairs(LABELS, scheme))
    partitions = crf.log_partition(scores_TBL, lengths_B)
    bests = crf.best(scores_TBL, lengths_B)
    marginals = crf.marginals(scores_TBL, lengths_B)
    for row, length in enumerate(LENGTHS):
        paths = list(itertools.product(range(3), repeat=length))
        scores = torch.tensor([score(crf, scores_TBL[:, row], path) for path in paths], dtype=torch.float64)
        assert float(partitions[row]) == pytest.approx(float(scores.logsumexp(0)), abs=1e-9)
        assert tuple(bests[:length, row].tolist()) == paths[int(scores.argmax())]
        assert not bests[length:, row].any()
        shares = scores.softmax(0)
        for step, label in itertools.product(range(length), range(3)):
            expected = sum(float(p) for p, path in zip(shares, paths, strict=True) if path[step] == label)
            assert float(marginals[step, row, label]) == pytest.approx(expected, abs=1e-9)


def test_forbidden_sequences_have_no_probability_and_the_others_all_of_it() -> None:
    crf, scores_TBL, _ = make(may_follow=allowed_pairs(LABELS, "bio"))
    scores_T1L, length = scores_TBL[:, :1], torch.tensor([STEPS])
    total = 0.0
    for path in itertools.product(range(3), repeat=STEPS):
        share = float(crf.log_likelihood(scores_T1L, torch.tensor(path)[:, None], length).exp())
        is_allowed = first_breach([LABELS[label] for label in path], "bio") is None
        assert is_allowed or share == 0.0
        total += share
    assert total == pytest.approx(1.0)


def test_a_row_alone_is_the_row_in_a_batch() -> None:
    crf, scores_TBL, lengths_B = make()
    labels_TB = torch.randint(3, (STEPS, 3), generator=torch.Generator().manual_seed(2))
    together = crf.log_likelihood(scores_TBL, labels_TB, lengths_B)
    for row, length in enumerate(LENGTHS):
        one = slice(row, row + 1)
        alone = crf.log_likelihood(scores_TBL[:length, one], labels_TB[:length, one], lengths_B[one])
        assert float(alone) == pytest.approx(float(together[row]), abs=1e-12)


def test_it_agrees_with_pytorch_crf() -> None:
    torchcrf = pytest.importorskip("torchcrf")
    crf, scores_TBL, lengths_B = make(5)
    theirs = torchcrf.CRF(5).double()
    with torch.no_grad():
        theirs.transitions.copy_(crf.transitions[:-1, :-1])
        theirs.start_transitions.copy_(crf.transitions[-1, :-1])
        theirs.end_transitions.copy_(crf.transitions[:-1, -1])
    labels_TB = torch.randint(5, (STEPS, 3), generator=torch.Generator().manual_seed(2))
    mask_TB = torch.arange(STEPS)[:, None] < lengths_B
    expected = theirs(scores_TBL, labels_TB, mask_TB, reduction="none")
    assert torch.allclose(crf.log_likelihood(scores_TBL, labels_TB, lengths_B), expected)
    best_TB = crf.best(scores_TBL, lengths_B)
    found = [best_TB[:length, row].tolist() for row, length in enumerate(LENGTHS)]
    assert found == theirs.decode(scores_TBL, mask_TB)
