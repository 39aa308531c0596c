"""N-gram features: what they add, what they learn, and that it is the same through every head."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from elman.core.errors import DataError
from elman.nets import cross_entropy as chunking
from elman.nets.inputs import NetInputs
from elman.nets.maxent import Maxent, SparseLogits
from elman.nets.sampled_head import SampledHead
from elman.nets.sampled_loss import CRITERIA, sampled_loss
from elman.tasks.lm.families.recurrent import RecurrentConfig
from elman.tasks.lm.families.recurrent_net import RecurrentModel

DTYPE = torch.float64
TEXT = np.array([2, 3, 2, 3, 4, 1, 2, 3, 2, 1])  # its n-grams are worked out in test_ngrams


def net(*, ids: np.ndarray = TEXT, seed: int = 0, vocab_size: int = 5, **settings: Any) -> RecurrentModel:
    config = RecurrentConfig(**{"family": "rnn", "hidden": 3, "maxent": 3, **settings})
    rng = torch.Generator().manual_seed(seed)
    counts = np.bincount(ids, minlength=vocab_size)
    model = RecurrentModel(config, NetInputs(vocab_size, rng=rng, counts=counts, dtype=DTYPE), reset_lines=False)
    model.learn_ngrams(ids)
    assert model.maxent is not None
    with torch.no_grad():
        model.maxent.weight.normal_(generator=rng)
    return model


def maxent(weights: list[float]) -> Maxent:
    """N-grams </s>a ab ba </s>ab aba, with these weights, in whichever order the table has them."""
    made = net(hidden=0).maxent
    assert made is not None
    order = [tuple(row) for row in [[1], [2], [3], [1, 2], [2, 3]]]
    with torch.no_grad():
        for history, weight in zip(order, weights, strict=True):
            read = torch.tensor([*[4] * (2 - len(history)), *history])[:, None]
            at = int(made.find(read)[0, 0, len(history) - 1])
            made.weight[made.offsets[at, 0]] = weight
    return made


def test_logits_by_hand() -> None:
    made = maxent([1, 2, 3, 4, 5])
    # after </s> a: b gets ab (2) and </s>ab (4); after b b: only ba (3); after c c: nothing
    histories = torch.stack([made.find(torch.tensor(read)[:, None])[0, 0] for read in ([1, 2], [3, 3], [4, 4])])
    expected = torch.zeros(3, 5, dtype=DTYPE)
    expected[0, 3], expected[1, 2] = 6, 3
    torch.testing.assert_close(made.logits(histories).dense(5), expected)


def test_probabilities_by_hand() -> None:
    """Alone, with a bias of zero, after </s> a: b has e^6 of 4 + e^6."""
    model = net(hidden=0)
    model.maxent = maxent([1, 2, 3, 4, 5])
    state = model.advance(np.array([2]), model.start(1))
    assert math.exp(model.predict(state)[0, 3]) == pytest.approx(math.exp(6) / (4 + math.exp(6)))
    log_probs, _ = model.score(np.array([[2, 3]]), np.array([2]), model.start(1))
    assert math.exp(log_probs[0, 0]) == pytest.approx(math.e / (4 + math.e))  # </s>a; </s></s>a was seen once
    assert log_probs[0, 1] == pytest.approx(math.log(math.exp(6) / (4 + math.exp(6))))


@pytest.mark.parametrize(
    "settings",
    [{}, {"hidden": 0}, {"head": "adaptive", "cutoffs": (2,)}, {"head": "adaptive", "cutoffs": (1, 3), "tied": True}],
)
@pytest.mark.parametrize("lines", [False, True])
def test_the_gradient_of_every_weight_is_the_slope_of_the_score(
    settings: dict[str, Any], lines: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"MIN_ROWS": 4, "MAX_ROWS": 4, "CACHE_LINE": 2}.items():
        monkeypatch.setattr(chunking, name, value)
    model = net(**settings)
    model.head.log_temperature.fill_(0.3)
    assert model.maxent is not None
    inputs = torch.tensor([[1, 2, 3, 2, 4, 1, 2, 2], [1, 3, 2, 3, 2, 1, 0, 3]])
    targets = inputs.roll(-1, dims=1)
    lengths = torch.tensor([8, 5]) if lines else None

    def loss() -> Tensor:
        return model.loss(inputs, targets, lengths, model.start_training(2))[0].total

    model.train()
    loss().backward()  # type: ignore[no-untyped-call]
    gradient = model.maxent.weight.grad
    assert gradient is not None
    for place in range(len(gradient)):
        values = []
        for step in (1e-6, -1e-6):
            with torch.no_grad():
                model.maxent.weight[place] += step
                values.append(loss().item())
                model.maxent.weight[place] -= step
        slope = (values[0] - values[1]) / 2e-6
        assert gradient[place].item() == pytest.approx(slope, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("kind", list(CRITERIA))
def test_sampled_criteria_see_the_ngrams_of_targets_and_of_words_drawn(kind: str) -> None:
    """As if they were a bias of each row; a criterion knows only one bias, so row by row."""
    model = net(head=kind, samples=2)
    head = model.head
    assert isinstance(head, SampledHead) and model.maxent is not None
    read = torch.tensor([[1, 1, 2, 3, 2, 4, 1, 2]]).t()
    histories = model.maxent.find(read).flatten(0, 1)
    rng = torch.Generator().manual_seed(0)
    features = torch.randn(len(histories), 3, generator=rng, dtype=DTYPE).requires_grad_()
    targets = torch.tensor([2, 3, 2, 0, 1, 2, 3])
    torch.manual_seed(2)
    drawn = head.draw()
    mean, nats = sampled_loss(
        kind, features, head.weight, head.bias, targets, drawn, scale=0.7, extra=model.maxent.logits(histories)
    )
    parts, expected = [], []
    for row in range(len(targets)):
        one = slice(row, row + 1)
        bias = head.bias + model.maxent.logits(histories[one]).dense(5)[0]
        part, value = sampled_loss(kind, features[one], head.weight, bias, targets[one], drawn, scale=0.7)
        parts.append(part)
        expected.append(value)
    torch.testing.assert_close(nats, torch.cat(expected))
    wanted = [model.maxent.weight, features, head.weight, head.bias]
    torch.testing.assert_close(
        torch.autograd.grad(mean, wanted), torch.autograd.grad(torch.stack(parts).mean(), wanted)
    )


def test_only_histories_that_were_read_get_a_gradient() -> None:
    model = net()
    assert model.maxent is not None
    inputs = torch.tensor([[3, 3]])
    model.loss(inputs, torch.tensor([[3, 3]]), None, model.start_training(1))[0].total.backward()  # type: ignore[no-untyped-call]
    assert model.maxent.weight.grad is not None
    touched = model.maxent.weight.grad.nonzero()[:, 0].tolist()
    at = int(model.maxent.find(torch.tensor([[3], [3]]))[0, 0, 0])
    assert touched == [int(model.maxent.offsets[at, 0])]  # of b came only a


def test_dense_is_what_the_entries_say() -> None:
    rng = np.random.default_rng(0)
    text = rng.integers(0, 7, 300)
    model = net(ids=text, vocab_size=7, maxent=4)
    assert model.maxent is not None
    histories = model.maxent.find(torch.from_numpy(text[:40])[:, None]).flatten(0, 1)
    extra: SparseLogits = model.maxent.logits(histories)
    entries = extra.entries(5, 20)
    expected = torch.zeros(15, 7, dtype=DTYPE)
    for row, column, ngram in zip(*(part.tolist() for part in entries), strict=True):
        expected[row, column] += model.maxent.weight[ngram].item()
    torch.testing.assert_close(extra.dense(7)[5:20].detach(), expected)
    assert len(entries.rows) > 100


def test_alone_it_learns_what_a_bigram_net_cannot() -> None:
    """c follows a b, d follows b b: two words have to be read, and log 2 is left in three words, .23 a word.

    One word of history leaves (log 2 + 1.5 log 3) / 3 = .78.
    """
    rng = np.random.default_rng(0)
    pieces = [[2, 3, 4] if rng.random() < 0.5 else [3, 3, 5] for _ in range(400)]
    text = np.concatenate(pieces)
    model = net(ids=text, vocab_size=6, hidden=0, maxent=3)
    assert model.maxent is not None
    with torch.no_grad():
        model.maxent.weight.zero_()
    inputs, targets = torch.from_numpy(text[:-1])[None], torch.from_numpy(text[1:])[None]
    parameters = [model.maxent.weight, model.head.bias]  # type: ignore[list-item]
    for _ in range(150):
        loss, _ = model.loss(inputs, targets, None, model.start_training(1))
        for parameter, slope in zip(parameters, torch.autograd.grad(loss.total, parameters), strict=True):
            parameter.data -= 5.0 * slope
    log_probs, _ = model.score(text[None, 1:], np.array([len(text) - 1]), model.advance(text[:1], model.start(1)))
    assert -log_probs.mean() < 0.5


def test_words_never_seen_together_add_nothing() -> None:
    model = net()
    assert model.maxent is not None
    assert (model.maxent.find(torch.tensor([[4], [4]])) == -1).all()
    state = model.advance(np.array([4]), model.advance(np.array([4]), model.start(1)))
    plain = F.log_softmax(F.linear(state.features.clone(), *model.head.parameters()), dim=1)
    np.testing.assert_allclose(model.predict(state), plain.detach().numpy(), rtol=1e-6)


def test_text_without_repetitions_gives_a_net_that_still_works() -> None:
    model = net(ids=np.array([2, 3, 4]))
    inputs = torch.tensor([[2, 3, 4, 1]])
    loss, _ = model.loss(inputs, inputs, None, model.start_training(1))
    loss.total.backward()  # type: ignore[no-untyped-call]
    assert torch.isfinite(loss.total)


def test_tensors_without_their_ngrams_are_refused() -> None:
    model = net()
    tensors = {name: array for name, array in model.tensors().items() if name != "maxent.keys"}
    with pytest.raises(DataError, match=r"maxent\.keys is missing"):
        RecurrentModel.from_tensors(model.config, tensors, vocab_size=5, reset_lines=False)


def test_a_run_that_goes_on_takes_the_ngrams_it_had() -> None:
    """A net that is fine-tuned keeps those of its first text, which the new text would not give again."""
    first, again = net(), net(ids=np.array([4, 4, 4, 2, 4]))
    again.take_ngrams(first.tensors())
    again.load_tensors(first.tensors())
    tokens, lengths = TEXT[None], np.array([len(TEXT)])
    np.testing.assert_array_equal(
        again.score(tokens, lengths, again.start(1))[0], first.score(tokens, lengths, first.start(1))[0]
    )
