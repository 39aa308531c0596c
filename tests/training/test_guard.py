"""A number that is none never reaches the weights: it is found at once, named, gone back from, and given up on in time."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from elman.core.files import RUN_FOLDER
from elman.nets.trainable import Loss
from elman.training import guard
from elman.training import loop as trainer_module
from elman.training.checkpoint import newest_checkpoint
from elman.training.loop import Trainer
from elman.training.validation import Validation
from tests.training.tiny import Carried, Tiny, error_of, notes, run, trainer


class Broken(Tiny):
    """Breaks in training step `at`, once or for good."""

    def __init__(self, how: str, at: int = 12, times: int = 1) -> None:
        super().__init__(dropout=0.1)
        self.how, self.at, self.left, self.calls = how, at, times, 0

    def loss(
        self, inputs: torch.Tensor, targets: torch.Tensor, lengths: torch.Tensor | None, state: Carried
    ) -> tuple[Loss, Carried]:
        is_now = False
        if self.training and torch.is_grad_enabled():
            self.calls += 1
            is_now = self.calls >= self.at and self.left > 0
            self.left -= is_now
        with torch.no_grad():
            if is_now and self.how == "weight":
                self.output.weight[2, 3] = math.nan
            if is_now and self.how == "embedding":
                self.embedding.weight[1:] = math.inf
        loss, state = super().loss(inputs, targets, lengths, state)
        if is_now and self.how == "loss":
            return Loss(loss.total * math.nan, loss.nats, loss.tokens), state
        if is_now and self.how == "explosion":
            return Loss(loss.total, loss.nats * 1000, loss.tokens), state
        if is_now and self.how == "gradient":
            self.lstm.weight_hh_l0.register_hook(lambda gradient: gradient * math.inf)
        return loss, state


def finite(model: torch.nn.Module) -> bool:
    return all(bool(torch.isfinite(p).all()) for p in model.parameters())


@pytest.mark.parametrize(
    ("how", "named"),
    [
        ("weight", "the weight output.weight is not finite"),
        ("embedding", "the weight embedding.weight is not finite"),
        ("loss", "the loss is nan"),
        ("explosion", "the loss has exploded"),
    ],
)
def test_a_bad_step_is_named_at_once_and_the_run_goes_on(how: str, named: str, tmp_path: Path) -> None:
    model = Broken(how)
    found = run(trainer(tmp_path, model=model))
    said = notes(found)
    assert named in said and "step 12 (pass 1, batch at 66)" in said
    assert "back to step 0, with the rate halved to 0.01" in said
    assert finite(model) and found[-1].step == 34
    assert found[-1].learning_rate < 0.01


def test_a_gradient_that_is_none_is_named_by_its_parameter() -> None:
    model = Broken("gradient", times=1)
    error = error_of(lambda: run(trainer(model=model)))  # the hook stays: every step is bad from then on
    assert isinstance(error, guard.TrainingError) and error.exit_code == 1
    assert "the gradient of lstm.weight_hh_l0 is not finite" in error.what
    assert "5 times before" in error.what and "learning_rate" in (error.hint or "")


def test_after_five_times_it_is_given_up() -> None:
    model = Broken("loss", times=5)
    found = run(trainer(model=model))
    assert notes(found).count("the loss is nan") == 5 and found[-1].step == 34
    error = error_of(lambda: run(trainer(model=Broken("loss", times=6))))
    assert isinstance(error, guard.TrainingError)


def test_old_failures_are_forgiven(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "FORGIVEN_AFTER", 5)
    monkeypatch.setattr(trainer_module, "SNAPSHOT_STEPS", 1)

    class Rarely(Broken):
        def loss(self, *arguments: object) -> tuple[Loss, Carried]:  # type: ignore[override]
            self.left = int(self.calls % 8 == 7)
            return super().loss(*arguments)  # type: ignore[arg-type]

    found = run(trainer(model=Rarely("loss", at=1), epochs=4.0))
    assert notes(found).count("the loss is nan") > 6


def test_the_module_whose_output_is_first_not_finite_is_named() -> None:
    model = Tiny(dropout=0.0)
    with torch.no_grad():
        model.output.weight.fill_(1e308)  # finite weights, and an output that is not
        model.output.bias.fill_(1.7e308)
        for parameter in (*model.lstm.parameters(), *model.embedding.parameters()):
            parameter.fill_(1.0)

    def forward() -> object:
        return model.logits(torch.tensor([[3, 3]]), model.start_training(1))

    assert guard.first_bad_module(model, forward) == "output"
    assert "the output of output" in guard.explain_loss(model, forward)


def test_a_rate_that_is_no_number_is_never_used(monkeypatch: pytest.MonkeyPatch) -> None:
    real = trainer_module.schedule.rate
    monkeypatch.setattr(
        trainer_module.schedule, "rate", lambda *a, step, **k: math.nan if step == 7 else real(*a, step=step, **k)
    )
    model = Tiny()
    error = error_of(lambda: run(trainer(model=model)))
    assert "step 8" in error.what and "the learning rate is nan" in error.what
    assert finite(model)


def test_a_validation_that_is_no_number_is_no_best(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = trainer(tmp_path)
    real, calls = made._examiner.validate, []  # type: ignore[union-attr]

    def validate(*arguments: object, **options: object) -> Validation:
        calls.append(1)
        validation = real(*arguments, **options)  # type: ignore[arg-type]
        return Validation(math.nan, validation.tokens, validation.is_whole) if len(calls) == 1 else validation

    monkeypatch.setattr(made._examiner, "validate", validate)
    said = notes(run(made))
    assert "step 17: the validation loss is nan" in said
    assert made.outcome is not None and made.outcome.tally is not None


def test_an_absurd_rate_ends_with_a_clear_error_or_with_good_weights() -> None:
    model = Tiny()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(10)
    error = error_of(lambda: run(trainer(model=model, optimiser="sgd", learning_rate=1e7, clip=0, warmup=0.0)))
    assert isinstance(error, guard.TrainingError) and "learning_rate" in (error.hint or "")


def test_spoilt_weights_never_reach_a_checkpoint(tmp_path: Path) -> None:
    """The last step of a run may spoil a weight without anybody computing a loss with it."""

    def spoil(made: Trainer) -> None:
        for progress in made.run():
            if progress.step in (9, 34) and not spoilt[progress.step]:
                spoilt[progress.step] = True
                with torch.no_grad():
                    made.model.output.weight[0, 0] = math.nan  # type: ignore[attr-defined]

    spoilt = {9: False, 34: False}
    made = trainer(tmp_path)
    spoil(made)
    assert all(spoilt.values())
    found = newest_checkpoint(tmp_path)
    assert found is not None and found.state["is_finished"]
    assert all(bool((array == array).all()) for array in found.tensors.values())
    assert finite(made.model)  # type: ignore[arg-type]


def test_a_model_damaged_from_the_start_is_refused() -> None:
    model = Tiny()
    with torch.no_grad():
        model.lstm.weight_ih_l0[0, 0] = math.inf
    error = error_of(lambda: run(trainer(model=model)))
    assert "lstm.weight_ih_l0" in error.what and "before training" in (error.hint or "")


def test_the_journal_tells_of_it_once_and_repeats_no_step(tmp_path: Path) -> None:
    run(trainer(tmp_path, model=Broken("loss", at=30), log_steps=5))
    lines = [json.loads(line) for line in (tmp_path / RUN_FOLDER / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "gradient_norm" in line] == [5, 10, 15, 20, 25, 30]
    assert sum("guard" in line for line in lines) == 1


def test_without_clipping_a_gradient_far_above_its_usual_norm_is_refused() -> None:
    class Kick(Tiny):
        calls = 0

        def loss(self, *arguments: object) -> tuple[Loss, Carried]:  # type: ignore[override]
            loss, state = super().loss(*arguments)  # type: ignore[arg-type]
            self.calls += self.training
            factor = 1e6 if self.calls == 20 else 1.0
            return Loss(loss.total * factor, loss.nats, loss.tokens), state

    assert "the gradient has exploded" in notes(run(trainer(model=Kick(), clip=0)))
    assert "exploded" not in notes(run(trainer(model=Kick(), clip=1.0)))


def test_limits_by_hand() -> None:
    assert guard.loss_limit(10_000) == pytest.approx(2 * 9.2103 + 5, abs=1e-3)
    tensors: list[tuple[str, torch.Tensor | None]] = [
        ("none", None),
        ("ids", torch.tensor([1])),
        ("bad", torch.tensor([1.0, math.nan])),
    ]
    assert guard.first_bad(tensors) == "bad"
    assert guard.first_bad(tensors[:2]) is None
