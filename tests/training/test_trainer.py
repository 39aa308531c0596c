"""The loop: it learns, it repeats itself to the bit, it stops when it should, and the caller hears of it."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from elman.core.errors import DataError, UsageError
from elman.core.files import RUN_FOLDER
from elman.text.batches import Position, StreamBatches
from elman.training.config import TrainConfig
from elman.training.validation import score_exactly
from tests.training.tiny import VOCAB, Tiny, notes, run, stream_trainer, text, trainer, weights

IDS, VALID = text(3000), text(600, seed=1)


def test_a_net_learns_what_there_is_to_learn() -> None:
    model = Tiny(dropout=0.0, hidden=16)
    made = trainer(model=model, ids=IDS, valid_ids=VALID, epochs=6.0, batch=8, bptt=10)
    found = run(made)
    assert made.outcome is not None and made.outcome.tally is not None
    # mostly 80 % sure of the next symbol; uniform would be ln 7 = 1.95
    assert (made.outcome.tally.nats_per_token or 9.0) < 1.0
    assert found[1].nats_per_token == pytest.approx(math.log(VOCAB), abs=0.3)
    assert found[-1].valid_nats_per_token is not None and found[-1].valid_nats_per_token < 1.0


def test_the_outcome_is_measured_on_the_weights_that_are_kept() -> None:
    made = trainer(ids=IDS, valid_ids=VALID)
    run(made)
    assert not made.model.training
    again = score_exactly(made.model, VALID, reset_lines=False)  # type: ignore[arg-type]
    assert made.outcome is not None and made.outcome.tally == again and made.outcome.is_whole


@pytest.mark.parametrize("reset_lines", [False, True])
@pytest.mark.parametrize("settings", [{}, {"optimiser": "sgd", "momentum": 0.9, "average": "tail"}])
def test_two_runs_with_one_seed_are_equal_to_the_bit(reset_lines: bool, settings: dict[str, object]) -> None:
    runs = []
    for _ in range(2):
        torch.manual_seed(len(runs))  # nobody else's randomness matters
        made = trainer(reset_lines=reset_lines, **settings)
        losses = [progress.nats_per_token for progress in made.run()][1:]
        runs.append((weights(made.model), losses))  # type: ignore[arg-type]
    assert runs[0] == runs[1]


def test_another_seed_is_another_run() -> None:
    one, other = trainer(seed=1), trainer(seed=2)
    run(one)
    run(other)
    assert weights(one.model) != weights(other.model)  # type: ignore[arg-type]


def test_the_callers_randomness_is_left_alone() -> None:
    made = trainer()
    before = torch.get_rng_state()
    for _ in made.run():
        assert torch.equal(torch.get_rng_state(), before)


def test_windows_with_the_state_carried_see_what_the_whole_stream_sees() -> None:
    """The forward values of truncated backpropagation are those of the full one."""
    model = Tiny(dropout=0.0)
    whole, _ = model.batch_loss(StreamBatches(IDS, rows=4, bptt=750).batch(Position())[0], None)
    data = StreamBatches(IDS, rows=4, bptt=9)
    position, state, nats = Position(), None, 0.0
    while position.epoch == 0:
        batch, position = data.batch(position)
        loss, state = model.batch_loss(batch, state)
        nats += float(loss.nats)
    assert nats == pytest.approx(float(whole.nats), rel=1e-12)


def test_a_window_as_long_as_the_stream_has_the_gradient_of_the_full_one() -> None:
    model = Tiny(dropout=0.0)
    batch, _ = StreamBatches(IDS[:40], rows=2, bptt=20).batch(Position())
    loss, _ = model.batch_loss(batch, None)
    loss.total.backward()
    inputs, targets = torch.from_numpy(batch.inputs), torch.from_numpy(batch.targets)
    mine = model.output.weight.grad.clone()  # type: ignore[union-attr]
    model.zero_grad()
    logits, _ = model.logits(inputs, model.start_training(2))
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten()).backward()
    assert torch.allclose(mine, model.output.weight.grad, rtol=1e-12, atol=0)  # type: ignore[arg-type]


def test_clipping_bounds_a_step_and_the_norm_is_told_as_it_was() -> None:
    moved = {}
    for clip in (0.0, 0.01):
        model = Tiny(dropout=0.0)
        before = [p.detach().clone() for p in model.parameters()]
        made = trainer(
            model=model, optimiser="sgd", learning_rate=1.0, schedule="constant", warmup=0.0, steps=1, epochs=None,
            clip=clip, average="none", valid_ids=None, fit_temperature=False,
        )  # fmt: skip
        norm = run(made)[-1].gradient_norm
        after = model.parameters()
        moved[clip] = math.sqrt(sum(float((b - a.detach()).square().sum()) for a, b in zip(after, before, strict=True)))
        assert norm == pytest.approx(moved[0.0])
    assert moved[0.01] == pytest.approx(0.01, rel=1e-4)


def test_weight_decay_makes_weights_smaller() -> None:
    sizes = []
    for decay in (0.0, 0.1):
        model = Tiny()
        run(trainer(model=model, optimiser="adamw", weight_decay=decay))
        sizes.append(sum(float(p.detach().square().sum()) for p in model.parameters()))
    assert sizes[1] < sizes[0]


def test_early_stopping_keeps_the_best_and_says_why() -> None:
    """Validation text that contradicts the training text can only get worse."""
    rng = np.random.default_rng(0)
    noise = rng.integers(1, VOCAB, 400)
    made = trainer(epochs=None, ids=IDS[:500], valid_ids=noise, patience=2, learning_rate=0.05, fit_temperature=False)
    found = run(made)
    assert made.outcome is not None and made.outcome.why == "2 validations without a gain"
    assert "did best on the validation text" in notes(found)
    validations = {p.validated_step: p.valid_nats_per_token for p in found if p.validated_step}
    assert made.outcome.tally is not None
    assert made.outcome.tally.nats_per_token == pytest.approx(min(validations.values()), abs=0.05)  # type: ignore[type-var]


def test_on_a_plateau_the_rate_falls() -> None:
    noise = np.random.default_rng(0).integers(1, VOCAB, 400)
    made = trainer(epochs=None, ids=IDS[:500], valid_ids=noise, patience=3, decay=0.1, learning_rate=0.05, warmup=0.0)
    rates = [p.learning_rate for p in made.run()]
    assert rates[1] == 0.05 and rates[-1] == pytest.approx(0.05 * 0.01)  # two plateaus; the third was the end


def test_the_average_is_what_is_kept() -> None:
    model = Tiny()
    made = trainer(model=model, valid_ids=None, average="ema")
    for progress in made.run():
        if progress.step == 33:
            last = {name: p.detach().clone() for name, p in model.named_parameters()}
    assert all(not torch.equal(p.detach(), last[name]) for name, p in model.named_parameters())
    assert made.outcome is not None and made.outcome.tally is None


def test_steps_and_epochs_end_exactly_where_they_should() -> None:
    by_steps = trainer(epochs=None, steps=13)
    run(by_steps)
    assert by_steps.outcome is not None and by_steps.outcome.steps == 13
    half = trainer(epochs=0.5)  # 17 steps a pass, 100 tokens a stream: 9 steps of 6 reach 54
    run(half)
    assert half.outcome is not None and half.outcome.steps == 9


def test_a_validation_every_so_many_steps() -> None:
    made = trainer(validate_steps=10)
    assert {p.validated_step for p in made.run()} == {None, 10, 20, 30, 34}


def test_progress_has_all_that_a_bar_shows() -> None:
    found = run(trainer(epochs=4.0))
    middle = found[len(found) // 2]
    assert middle.tokens_per_second > 0 and 0 < middle.fraction_of_peak < 1
    assert middle.eta_seconds is not None and middle.eta_seconds > 0
    assert middle.fraction is not None and 0.3 < middle.fraction < 0.7 and 1 < middle.epoch < 3
    assert middle.perplexity == pytest.approx(math.exp(middle.nats_per_token))
    assert [p.step for p in found] == sorted(p.step for p in found)
    assert found[-1].eta_seconds == 0.0
    open_end = run(trainer(epochs=None))
    assert open_end[3].fraction is None and open_end[3].eta_seconds is None


def test_more_than_the_peak_is_never_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that was busy when its peak was measured, progress once said `107 % of peak`."""
    monkeypatch.setattr("elman.training.loop.measure_peak", lambda **_: 1.0)
    found = run(trainer(epochs=1.0))
    assert max(p.fraction_of_peak for p in found) == 1.0


def test_the_journal_has_every_tenth_step_and_the_end(tmp_path: Path) -> None:
    run(trainer(tmp_path, log_steps=10))
    lines = [json.loads(line) for line in (tmp_path / RUN_FOLDER / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "gradient_norm" in line] == [10, 20, 30]
    assert [line["step"] for line in lines if "valid_perplexity" in line] == [17, 34]
    assert lines[-1]["final_perplexity"] == pytest.approx(math.exp(lines[-1]["final_nats_per_token"]))


def test_a_corpus_shorter_than_a_batch_is_trained_on_and_said_so() -> None:
    found = run(trainer(ids=IDS[:20], batch=64, bptt=35))
    assert "less than one batch" in notes(found)


def test_bad_settings_and_bad_data_are_refused() -> None:
    with pytest.raises(DataError, match="nothing to train on"):
        trainer(ids=IDS[:0])
    with pytest.raises(UsageError, match="no telling when to stop"):
        trainer(epochs=None, valid_ids=None)
    with pytest.raises(UsageError, match="bptt_spread"):
        trainer(reset_lines=True, bptt_spread=5.0)


def test_variable_windows_scale_the_rate() -> None:
    made = trainer(bptt=20, bptt_spread=5.0, schedule="constant", warmup=0.0, learning_rate=0.01, ids=IDS)
    rates = {p.learning_rate for p in made.run() if p.step}
    assert len(rates) > 3 and all(0.0025 <= rate <= 0.02 for rate in rates)


def test_nothing_is_written_without_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = stream_trainer(Tiny(), IDS[:200], None, config=TrainConfig(epochs=1), seed=0)
    run(made)
    assert list(tmp_path.iterdir()) == []
