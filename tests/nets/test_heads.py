"""Output heads: a distribution over words, the same one in `log_probs`, `score` and `loss`."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import AdaptiveLogSoftmaxWithLoss, Parameter

from elman.core.errors import UsageError
from elman.nets.adaptive_head import AdaptiveHead
from elman.nets.cross_entropy import target_log_probs
from elman.nets.full_head import FullHead
from elman.nets.head import Head

V, P, N = 11, 6, 9
COUNTS = np.array([3, 50, 7, 7, 1, 90, 0, 20, 4, 2, 11])  # by rank: 5 1 7 10 2 3 8 0 9 4 6
DTYPE = torch.float64


def full(*, is_tied: bool = False) -> FullHead:
    return FullHead(P, V, tied=Parameter(torch.zeros(V, P, dtype=DTYPE)) if is_tied else None, dtype=DTYPE)


def adaptive(
    *cutoffs: int, is_tied: bool = False, dropout: float = 0.0, counts: np.ndarray | None = COUNTS
) -> AdaptiveHead:
    tied = Parameter(torch.zeros(V, P, dtype=DTYPE)) if is_tied else None
    shrink = 1.0 if is_tied else 2.0
    return AdaptiveHead(P, V, cutoffs=cutoffs, shrink=shrink, dropout=dropout, counts=counts, tied=tied, dtype=DTYPE)


HEADS = {
    "full": full,
    "full tied": lambda: full(is_tied=True),
    "adaptive": lambda: adaptive(3, 7),
    "adaptive tied": lambda: adaptive(3, 7, is_tied=True),
    "adaptive, one cluster": lambda: adaptive(1),
    "adaptive, no cluster": adaptive,
}


@pytest.fixture(params=HEADS, name="head")
def fixture_head(request: pytest.FixtureRequest) -> Head:
    head: Head = HEADS[request.param]()
    rng = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.normal_(generator=rng)
        head.log_temperature.fill_(0.3)
    return head


@pytest.fixture(name="features")
def fixture_features() -> Tensor:
    return torch.randn(N, P, generator=torch.Generator().manual_seed(4), dtype=DTYPE)


@pytest.fixture(name="targets")
def fixture_targets() -> Tensor:
    return torch.tensor([0, 1, 2, 4, 6, 8, 10, 5, 7])  # from the head and from every cluster


def test_probabilities_sum_to_one(head: Head, features: Tensor) -> None:
    torch.testing.assert_close(head.log_probs(features).exp().sum(1), torch.ones(N, dtype=DTYPE))


def test_a_score_is_the_log_probability_of_the_target(head: Head, features: Tensor, targets: Tensor) -> None:
    expected = head.log_probs(features)[torch.arange(N), targets]
    torch.testing.assert_close(head.score(features, targets), expected)


def test_the_loss_is_the_mean_score_and_has_its_gradients(head: Head, features: Tensor, targets: Tensor) -> None:
    features.requires_grad_()
    parameters = [features, *head.parameters()]
    mean, nats = head.loss(features, targets, is_noisy=True)
    dense = -head.log_probs(features)[torch.arange(N), targets]
    torch.testing.assert_close(mean, dense.mean())
    torch.testing.assert_close(nats, dense.detach().sum())
    assert nats.dtype == torch.float64
    assert not nats.requires_grad
    found = torch.autograd.grad(mean, parameters)
    torch.testing.assert_close(found, torch.autograd.grad(dense.mean(), parameters))


def test_the_temperature_flattens_the_distribution(head: Head, features: Tensor) -> None:
    def entropy() -> Tensor:
        log_probs = head.log_probs(features)
        return -(log_probs.exp() * log_probs).sum(1)

    before = entropy()
    head.log_temperature.fill_(1.5)
    assert (entropy() > before).all()


def test_work_is_that_of_the_matrices_a_row_meets() -> None:
    assert full().multiply_adds() == V * P
    # Head: 3 words and 2 clusters. Of 195 words in the text 32 are in the first cluster, 3 in the second.
    shares = np.array([11 + 7 + 7 + 4, 3 + 2 + 1 + 0]) / 195
    expected = 5 * P + shares @ np.array([3 * P + 4 * 3, 1 * P + 4 * 1])
    assert adaptive(3, 7).multiply_adds() == pytest.approx(expected)


def test_an_adaptive_head_is_what_pytorch_has_under_that_name(features: Tensor, targets: Tensor) -> None:
    """torch.nn.AdaptiveLogSoftmaxWithLoss wants words by rank and has no biases in its clusters."""
    theirs = AdaptiveLogSoftmaxWithLoss(P, V, [3, 7], div_value=2.0, head_bias=True, dtype=DTYPE)
    head = adaptive(3, 7, counts=None)
    with torch.no_grad():
        head.weight.copy_(theirs.head.weight)
        head.bias.copy_(theirs.head.bias)
        for own, (down, words) in zip(head.clusters, theirs.tail, strict=True):
            assert own.down is not None
            assert own.weight is not None
            own.down.copy_(down.weight)
            own.weight.copy_(words.weight)
    torch.testing.assert_close(head.log_probs(features), theirs.log_prob(features))
    torch.testing.assert_close(head.loss(features, targets, is_noisy=True)[0], theirs(features, targets).loss)


def test_frequent_words_are_in_the_head() -> None:
    assert adaptive(3, 7).ranks[[5, 1, 7, 10, 2, 3, 8, 0, 9, 4, 6]].tolist() == list(range(V))


def test_a_cluster_whose_words_do_not_occur_costs_nothing_and_learns_nothing(features: Tensor) -> None:
    head = adaptive(3, 7)
    head.initialise(torch.Generator().manual_seed(0))
    head.loss(features, torch.tensor([5, 1, 7] * 3), is_noisy=True)[0].backward()
    assert head.weight.grad is not None
    assert all(parameter.grad is None for cluster in head.clusters for parameter in cluster.parameters())


def test_dropout_is_inside_the_clusters_and_only_where_noise_is_wanted(features: Tensor, targets: Tensor) -> None:
    head = adaptive(3, 7, dropout=0.5)
    head.initialise(torch.Generator().manual_seed(0))
    with torch.no_grad():
        for cluster in head.clusters:
            cluster.weight.normal_()  # type: ignore[union-attr]
    torch.manual_seed(0)
    quiet = head.loss(features, targets, is_noisy=False)[1]
    torch.testing.assert_close(quiet, -head.score(features, targets).sum())
    assert head.loss(features, targets, is_noisy=True)[1] != quiet
    only_head = torch.tensor([5, 1, 7] * 3)
    torch.testing.assert_close(head.loss(features, only_head, is_noisy=True)[1], -head.score(features, only_head).sum())


def test_tied_words_get_the_gradient_of_the_output() -> None:
    for head, tied in ((h := full(is_tied=True), h.weight), (a := adaptive(3, is_tied=True), a.tied)):
        features = torch.ones(1, P, dtype=DTYPE)
        head.loss(features, torch.tensor([4]), is_noisy=True)[0].backward()
        assert tied is not None
        assert tied.grad is not None
        assert tied.grad[4].abs().sum() > 0


def test_a_cutoff_past_the_vocabulary_is_refused() -> None:
    with pytest.raises(UsageError, match="rank 11 is outside the vocabulary of 11 words") as caught:
        adaptive(3, 11)
    assert caught.value.hint is not None


def test_an_untrained_head_is_nearly_uniform(features: Tensor) -> None:
    head = full()
    head.initialise(torch.Generator().manual_seed(0))
    torch.testing.assert_close(
        head.log_probs(features).exp(), torch.full((N, V), 1 / V, dtype=DTYPE), atol=0.05, rtol=0
    )


def test_scoring_holds_only_the_targets() -> None:
    """(N, V) would be 4 GB here."""
    rows, words = 1_000_000, 1000
    weight = torch.zeros(words, 1)
    scored = target_log_probs(
        torch.zeros(rows, 1), weight, torch.zeros(words), torch.zeros(rows, dtype=torch.int64), scale=1.0
    )
    torch.testing.assert_close(scored, torch.full((rows,), -float(np.log(words))))
