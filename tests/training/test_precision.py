"""Training in bfloat16: nearly the same step, float32 everywhere else."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from elman.tasks.lm.families import find_family
from elman.tasks.lm.family import Shape
from elman.text.batches import make_batches
from elman.training.config import TrainConfig
from elman.training.plan import Means
from elman.training.plan_text import plan_text
from elman.training.run import Run, take_snapshot
from elman.training.speed import measure_machine

VOCAB = 50
IDS = np.random.default_rng(5).integers(1, VOCAB, 4_000).astype(np.int32)
CASES = [
    (family, head)
    for family in ("rnn", "gru", "lstm", "window", "transformer")
    for head in ("full", "sampled", "nce", "blackout", "adaptive")
]


def after_a_step(family: str, precision: str, **settings: object) -> tuple[float, dict[str, Tensor], Run]:
    """The loss of the first batch, its gradients, and the run after it."""
    found = find_family(family)
    config = found.record.model_validate({"family": family, "hidden": 32, "dropout": 0.2, "maxent": 2, **settings})
    net = found.build(config, IDS, Shape(VOCAB, reset_lines=False), seed=1, vectors=None)  # type: ignore[attr-defined]
    net.train()
    batches = make_batches(IDS, rows=8, bptt=20, spread=0, seed=1, reset_lines=False)
    made = Run(net, batches, config=TrainConfig.model_validate({"precision": precision, "clip": 0}), seed=1)
    result = made.step(1e-3, 0.5)
    gradients = {name: p.grad.clone() for name, p in made.parameters.items() if p.grad is not None}
    return result.nats / result.tokens, gradients, made


@pytest.mark.parametrize(("family", "head"), CASES)
def test_a_step_in_bfloat16_is_nearly_one_in_float32(family: str, head: str) -> None:
    exact, gradients, _ = after_a_step(family, "float32", head=head)
    nats, rounded, made = after_a_step(family, "bfloat16", head=head)
    assert nats != exact, "nothing was rounded"
    assert nats == pytest.approx(exact, rel=0.01)
    assert rounded.keys() == gradients.keys()
    for name, gradient in gradients.items():
        assert rounded[name].dtype == torch.float32
        error = (rounded[name] - gradient).norm() / gradient.norm().clamp(min=1e-6)
        assert error < 0.05, f"{name}: {error:.3f}"
    assert all(leaf.dtype in (torch.float32, torch.int64) for leaf in made.carried)


def test_a_run_in_bfloat16_goes_on_from_a_snapshot_to_the_same_bits() -> None:
    _, _, made = after_a_step("lstm", "bfloat16", head="sampled")
    snapshot = take_snapshot(made)
    _, _, other = after_a_step("lstm", "bfloat16", head="sampled", dropout=0.3)
    other.restore(snapshot.state, snapshot.tensors)
    other.model.config = made.model.config  # type: ignore[attr-defined]
    for each in (made, other):
        each.step(1e-3, 0.6)
    assert all(torch.equal(made.parameters[name], other.parameters[name]) for name in made.parameters)


def test_only_families_of_large_products_are_planned_in_bfloat16_where_it_is_faster() -> None:
    def precision(family: str, speedup: float, **train: str) -> object:
        means = Means(600, 1.6e11, {}, train, speedup)
        plan = plan_text(find_family(family).record, means, family=family, num_tokens=10**6, vocab_size=10**4)  # type: ignore[arg-type]
        return plan.train.get("precision")

    assert precision("lstm", 2.2) == precision("transformer", 2.2) == "bfloat16"
    assert precision("gru", 2.2) is None and precision("lstm", 1.2) is None
    assert precision("lstm", 2.2, precision="float32") is None


def test_faster_products_are_counted_on() -> None:
    def passes(speedup: float) -> float:
        found = find_family("lstm").record
        plan = plan_text(
            found, Means(600, 1.6e11, {"hidden": 400}, {}, speedup), family="lstm", num_tokens=10**6, vocab_size=10**4
        )  # type: ignore[arg-type]
        return plan.passes

    assert passes(2.2) > 1.3 * passes(1.0)


def test_the_machine_is_measured() -> None:
    machine = measure_machine()
    assert machine.flops_per_second > 1e8
    assert 0 < machine.bfloat16_speedup < 20
