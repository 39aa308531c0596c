"""Sampled criteria: each is its formula, each has the truth as its best answer, and only training ever sees them."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from elman.core.errors import UsageError
from elman.nets import cross_entropy as chunking
from elman.nets.full_head import FullHead
from elman.nets.inputs import NetInputs
from elman.nets.sampled_head import SampledHead
from elman.nets.sampled_loss import CRITERIA, Drawn, sampled_loss
from elman.nets.sampling import choose_samples, inclusion_chances
from elman.tasks.lm.families.recurrent import RecurrentConfig
from elman.tasks.lm.families.recurrent_net import RecurrentModel

KINDS = list(CRITERIA)
COUNTS = np.array([3, 50, 7, 7, 1, 90, 0, 20, 4, 2, 11])
V, P, N = len(COUNTS), 4, 9
DTYPE = torch.float64


def head(kind: str, *, samples: int = 4, alpha: float = 0.5, counts: np.ndarray | None = COUNTS) -> SampledHead:
    made = SampledHead(P, V, kind=kind, samples=samples, alpha=alpha, counts=counts, tied=None, dtype=DTYPE)
    rng = torch.Generator().manual_seed(1)
    with torch.no_grad():
        made.weight.normal_(generator=rng)
        made.bias.normal_(generator=rng)
        made.log_temperature.fill_(0.3)
    return made


def problem(rows: int, words: int, features: int, seed: int) -> tuple[list[Tensor], Tensor, Drawn]:
    rng = torch.Generator().manual_seed(seed)
    shapes = [(rows, features), (words, features), (words,)]
    values = [torch.randn(shape, generator=rng, dtype=DTYPE).requires_grad_() for shape in shapes]
    targets = torch.randint(words, (rows,), generator=rng)
    drawn = torch.randperm(words, generator=rng)[: int(torch.randint(words + 1, (), generator=rng))]
    return values, targets, Drawn(drawn, -2 * torch.rand(words, generator=rng, dtype=DTYPE))


def direct(kind: str, values: list[Tensor], targets: Tensor, drawn: Drawn, scale: float) -> Tensor:
    """The formulas as they stand, one row after the other."""
    features, weight, bias = values
    losses = []
    for feature, target in zip(features, targets.tolist(), strict=True):
        x = scale * (weight @ feature + bias) - drawn.log_chances
        others = [word for word in drawn.words.tolist() if word != target]
        if kind == "nce":
            noise = [F.logsigmoid(-x[word]) for word in drawn.words.tolist()]
            losses.append(-F.logsigmoid(x[target]) - sum(noise))
            continue
        probs = torch.softmax(x[[target, *others]], 0)
        loss = -probs[0].log()
        losses.append(loss if kind == "sampled" else loss - (1 - probs[1:]).log().sum())
    return torch.stack(losses)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40)
@given(
    rows=st.integers(1, 12),
    words=st.integers(1, 9),
    features=st.integers(1, 4),
    scale=st.floats(0.3, 1),
    chunk=st.integers(1, 8),
    seed=st.integers(0, 99),
)
def test_loss_and_gradient_are_those_of_the_formula(
    kind: str, rows: int, words: int, features: int, scale: float, chunk: int, seed: int
) -> None:
    values, targets, drawn = problem(rows, words, features, seed)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"MIN_ROWS": chunk, "MAX_ROWS": chunk, "CACHE_LINE": 2}.items():
            patch.setattr(chunking, name, value)
        mean, nats = sampled_loss(kind, *values, targets, drawn, scale=scale)
    expected = direct(kind, values, targets, drawn, scale)
    torch.testing.assert_close(nats, expected)
    torch.testing.assert_close(mean, expected.mean())
    found = torch.autograd.grad(3 * mean, values)
    torch.testing.assert_close(found, torch.autograd.grad(3 * expected.mean(), values))


@pytest.mark.parametrize(
    ("kind", "likelihood"),
    # s = log 2, log 3, log 5 and every chance 1/2: e^x = 4, 6, 10. Word 0 is the target, word 1 was drawn.
    [("sampled", 4 / 10), ("nce", 4 / 5 * 1 / 7), ("blackout", 4 / 10 * 4 / 10)],
)
def test_by_hand(kind: str, likelihood: float) -> None:
    bias, weight = torch.tensor([2.0, 3, 5]).log(), torch.zeros(3, 1)
    drawn = Drawn(torch.tensor([1]), torch.full((3,), 0.5).log())
    loss, _ = sampled_loss(kind, torch.ones(1, 1), weight, bias, torch.tensor([0]), drawn, scale=1.0)
    assert float(loss) == pytest.approx(-math.log(likelihood))


@pytest.mark.parametrize("kind", KINDS)
def test_a_criterion_stays_finite_where_a_word_takes_all(kind: str) -> None:
    weight = torch.tensor([[0.0], [60.0], [0.0]], requires_grad=True)
    drawn = Drawn(torch.tensor([1, 2]), torch.zeros(3))
    loss, _ = sampled_loss(kind, torch.ones(2, 1), weight, torch.zeros(3), torch.tensor([0, 1]), drawn, scale=1.0)
    loss.backward()
    assert torch.isfinite(loss) and torch.isfinite(weight.grad).all()  # type: ignore[arg-type]


def gradient(made: FullHead, features: Tensor, targets: Tensor) -> Tensor:
    found = torch.autograd.grad(made.loss(features, targets, is_noisy=True)[0], [made.weight, made.bias])
    return torch.cat([part.flatten() for part in found])


def test_sampled_comes_to_the_full_gradient_as_the_sample_grows() -> None:
    rng = torch.Generator().manual_seed(4)
    features, targets = torch.randn(N, P, generator=rng, dtype=DTYPE), torch.randint(V, (N,), generator=rng)
    full = FullHead(P, V, tied=None, dtype=DTYPE)
    full.load_state_dict({k: v for k, v in head("sampled").state_dict().items() if k != "log_chances"})
    expected = gradient(full, features, targets)
    torch.manual_seed(5)
    distances = []
    for samples in (1, 3, 6, 9, V):
        made = head("sampled", samples=samples)
        found = [gradient(made, features, targets) for _ in range(60)]
        distances.append(float(torch.stack([(one - expected).square().sum() for one in found]).mean()))
    assert all(more < less for less, more in pairwise(distances))
    assert distances[-1] < 1e-20


@pytest.mark.parametrize("kind", KINDS)
def test_a_known_distribution_is_recovered(kind: str) -> None:
    """Descending on few words at a time leads to the frequencies of all; for NCE even without normalising."""
    counts = np.array([40, 30, 15, 10, 5])
    targets = torch.from_numpy(np.repeat(np.arange(5), counts))
    features = torch.zeros(len(targets), 1, dtype=DTYPE)
    made = SampledHead(
        1, 5, kind=kind, samples=3, alpha=0.5, counts=counts[::-1].copy(), tied=None, dtype=DTYPE
    )  # drawn by frequencies that are not those of the text
    torch.manual_seed(0)
    mean = torch.zeros(5, dtype=DTYPE)
    for rate in [1.0] * 100 + [0.1] * 600:
        slope = torch.autograd.grad(made.loss(features, targets, is_noisy=True)[0], made.bias)[0]
        with torch.no_grad():
            made.bias -= rate * slope
            mean += made.bias if rate == 0.1 else 0.0
    scores = mean / 600
    truth = torch.from_numpy(counts / counts.sum())
    torch.testing.assert_close(torch.softmax(scores, 0), truth, atol=0.02, rtol=0)
    if kind == "nce":
        torch.testing.assert_close(scores.exp(), truth, atol=0.05, rtol=0)


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=30), st.floats(0, 1), st.integers(1, 30))
def test_chances_sum_to_the_samples_and_follow_the_counts(counts: list[int], alpha: float, samples: int) -> None:
    samples = min(samples, len(counts))
    chances = inclusion_chances(np.array(counts), samples, alpha)
    assert chances.sum() == pytest.approx(samples)
    assert (chances > 0).all() and (chances <= 1).all()
    order = np.argsort(counts, kind="stable")
    assert (np.diff(chances[order]) >= 0).all()
    below = chances < 1
    ratios = chances[below] / np.maximum(np.array(counts)[below], 1.0) ** alpha
    np.testing.assert_allclose(ratios, ratios[:1].repeat(len(ratios)))


def test_words_are_drawn_as_often_as_their_chances_say() -> None:
    made = head("sampled", samples=5)
    torch.manual_seed(3)
    times = torch.zeros(V)
    for _ in range(4000):
        times[made.draw().words] += 1
    torch.testing.assert_close(times / 4000, made.log_chances.exp().float(), atol=0.03, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_out_of_training_the_loss_is_exact(kind: str) -> None:
    made = head(kind)
    features, targets = torch.randn(N, P, dtype=DTYPE), torch.randint(V, (N,))
    mean, nats = made.loss(features, targets, is_noisy=False)
    torch.testing.assert_close(nats, -made.score(features, targets).sum())
    torch.testing.assert_close(mean * N, nats)
    assert made.loss(features, targets, is_noisy=True)[1] != nats


def test_the_bias_begins_at_the_frequencies() -> None:
    """So NCE, whose normaliser is fixed, begins normalised: with weights of zero, exp(s) sums to one."""
    made = head("nce")
    made.initialise(torch.Generator())
    assert float(made.bias.detach().exp().sum()) == pytest.approx(1)
    seen = np.maximum(COUNTS, 1)
    np.testing.assert_allclose(made.bias.detach().exp().numpy(), seen / seen.sum())


def test_more_samples_than_words_are_refused() -> None:
    config = RecurrentConfig(hidden=2, head="nce", samples=12)
    inputs = NetInputs(V, rng=torch.Generator(), counts=COUNTS)
    with pytest.raises(UsageError, match=r"model.samples=12 exceeds the vocabulary \(11 words\)") as caught:
        RecurrentModel(config, inputs, reset_lines=False)
    assert caught.value.hint is not None


def test_how_many_words_are_drawn_unless_told() -> None:
    assert [choose_samples(size) for size in (6, 512, 10_000, 33_000)] == [6, 512, 625, 2062]
    assert choose_samples(10_000, 40) == 40


@pytest.mark.parametrize("kind", KINDS)
def test_a_net_that_was_loaded_goes_on_learning_as_it_did(kind: str) -> None:
    """The chances are kept with it, for nobody counts the words again."""
    config = RecurrentConfig(hidden=3, head=kind)
    model = RecurrentModel(
        config, NetInputs(V, rng=torch.Generator().manual_seed(0), counts=COUNTS, dtype=DTYPE), reset_lines=False
    )
    assert model.config.samples == V
    config = model.config.model_copy(update={"samples": 5})
    model = RecurrentModel(
        config, NetInputs(V, rng=torch.Generator().manual_seed(0), counts=COUNTS, dtype=DTYPE), reset_lines=False
    )
    loaded = RecurrentModel.from_tensors(model.config, model.tensors(), vocab_size=V, reset_lines=False)
    inputs, targets = torch.randint(V, (2, 6)), torch.randint(V, (2, 6))
    found = []
    for net in (model, loaded):
        torch.manual_seed(7)
        found.append(net.loss(inputs, targets, None, net.start_training(2))[0].total)
    assert found[0] == found[1]
