"""A time and no family: the best model for it, a net mixed with what counts and remembers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import elman
from elman.core.errors import DataError, UsageError
from elman.tasks.lm import blend
from elman.training import examiner, speed
from elman.training.budget import Budget
from elman.training.progress import Progress
from elman.training.signals import Stopped

SETTINGS = {
    **{"model.hidden": 8, "model.nets": 1},
    **{"train.batch": 4, "train.bptt": 12, "train.steps": 20, "train.checkpoint_steps": 5},
}


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Text of words that come in pairs, in topics: something to count, and something to remember."""
    rng = np.random.default_rng(1)
    paths = tmp_path / "train.txt", tmp_path / "valid.txt"
    for path, num_lines in zip(paths, (400, 60), strict=True):
        lines = []
        for line in range(num_lines):
            topic = (line // 20) % 5
            firsts = rng.integers(6, size=4)
            lines.append(" ".join(f"a{topic}{first} b{first}" for first in firsts))
        path.write_text("\n".join(lines) + "\n")
    return paths


def train(files: tuple[Path, Path], out: Path | None = None, **options: Any) -> Any:
    given = {"budget": "10m", "units": "space", "settings": SETTINGS, "threads": 1, "valid": files[1], **options}
    return elman.train("lm", files[0], out=out, **given)


def families(model: Any) -> list[str]:
    return [member.family for member in model.record.model.members]


def test_the_model_is_a_mixture_whose_numbers_are_those_of_evaluate(files: tuple[Path, Path], tmp_path: Path) -> None:
    said: list[str] = []
    made = train(files, tmp_path / "m", report=said.append)
    assert families(made) == ["lstm", "mkn", "neural-cache", "cache"]
    assert any("no --model is given" in sentence for sentence in said)
    valid = made.record.valid
    found = made.evaluate(files[1])
    for key in ("perplexity", "perplexity_low", "bits_per_byte", "tokens", "lines", "signature"):
        assert valid[key] == (pytest.approx(found[key], rel=1e-5) if isinstance(found[key], float) else found[key])
    assert valid["perplexity"] < valid["perplexity_crosswise"] < min(one["perplexity"] for one in valid["members"][:2])
    assert len([sentence for sentence in made.record.notes if "without it" in sentence]) == 4
    assert elman.load(tmp_path / "m").next("a00", k=1)[0][0] == "b0"


def test_several_nets_are_members_of_their_own(files: tuple[Path, Path], tmp_path: Path) -> None:
    settings = {key: value for key, value in SETTINGS.items() if key != "model.nets"}
    made = train(files, tmp_path / "m", settings=settings)  # ten minutes are many passes over so little text
    assert families(made) == ["lstm", "lstm", "lstm", "lstm", "mkn", "neural-cache", "cache"]
    weights = [made.tensors()[f"members.{i}.embedding.weight"] for i in range(4)]
    assert not any(np.array_equal(weights[0], other) for other in weights[1:])
    assert elman.load(tmp_path / "m").evaluate(files[1])["perplexity"] == pytest.approx(
        made.record.valid["perplexity"], rel=1e-5
    )


def test_its_net_is_the_one_that_was_trained(files: tuple[Path, Path]) -> None:
    settings = {
        **SETTINGS,
        "train.fit_temperature": False,
        "train.schedule": "constant",
    }  # others follow the clock a little
    net, made = train(files, model="lstm", settings=settings), train(files, settings=settings)
    found = made.record.valid["members"][0]["perplexity"]
    assert found == pytest.approx(net.record.valid["perplexity"], rel=1e-5)
    for name, tensor in net.tensors().items():
        np.testing.assert_allclose(made.tensors()[f"members.0.{name}"], tensor, rtol=1e-3, atol=1e-5)


def interrupt_at(step: int) -> Callable[[Progress], None]:
    def stop(progress: Progress) -> None:
        if progress.step >= step:
            raise KeyboardInterrupt

    return stop


def test_a_run_that_was_stopped_still_becomes_the_mixture(files: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(files, tmp_path / "m", on_progress=interrupt_at(12))
    made, whole = elman.resume(tmp_path / "m"), train(files)
    assert families(made) == families(whole)
    found, expected = (model.record.valid["perplexity_crosswise"] for model in (made, whole))
    assert found == pytest.approx(expected, rel=1e-4)  # the rate follows the clock a little, where there is a budget
    assert made.record.counts is None


def test_a_resumed_run_is_mixed_in_what_is_left_of_its_time(
    files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training knew of the seconds before the stop, mixing did not: it could take a whole new budget."""

    def slowly(progress: Progress) -> None:
        time.sleep(0.1)
        interrupt_at(12)(progress)

    deadlines: list[float] = []

    def spy(*args: Any, deadline: float) -> Any:
        deadlines.append(deadline)
        return blend.blend(*args, deadline=deadline)

    with pytest.raises(KeyboardInterrupt):
        train(files, tmp_path / "m", on_progress=slowly)
    monkeypatch.setattr("elman.tasks.lm.task.blend", spy)
    began = time.monotonic()
    elman.resume(tmp_path / "m")
    assert began < deadlines[0] < began + 600 - 1.0


def test_ctrl_c_while_it_is_mixed_says_how_to_go_on(
    files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(blend, "fit_mixture", interrupt)
        with pytest.raises(Stopped) as stopped:
            train(files, tmp_path / "m")
    assert (stopped.value.exit_code, stopped.value.hint) == (130, f"elman resume {tmp_path / 'm'} goes on from there")
    assert families(elman.resume(tmp_path / "m")) == ["lstm", "mkn", "neural-cache", "cache"]


def test_too_short_a_time_is_for_counting(files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blend, "MIN_NET_SECONDS", 601.0)
    said: list[str] = []
    made = train(files, report=said.append)
    assert (
        "model.hidden, model.nets, train.batch, train.bptt, train.steps, train.checkpoint_steps: for a net, so not used"
        in said
    )
    assert families(made) == ["mkn", "cache"]
    assert "10 min are too short for a net: mkn with a cache" in said
    assert made.record.valid["perplexity"] == pytest.approx(made.evaluate(files[1])["perplexity"], rel=1e-5)


def test_a_vocabulary_too_large_for_the_time_is_for_counting(files: tuple[Path, Path]) -> None:
    """A minute with 900,000 words took 95 s: to fit the mixture, their softmax has to be computed for thousands of tokens."""
    examples = SimpleNamespace(arrays={"train": np.zeros(5_000_000), "valid": np.zeros(260_000)})
    counts = blend.choose_counts(5_000_000, 900_000, budget_seconds=60.0)
    budget = Budget(60.0, time.monotonic())
    few, many = (
        blend.finishing_seconds(
            SimpleNamespace(counts=counts, vocab_size=size, model=None, threads=2), examples, budget
        )  # type: ignore[arg-type]
        for size in (10_000, 900_000)
    )
    assert blend.has_time_for_a_net(budget, few)
    assert not blend.has_time_for_a_net(budget, many)


def test_a_minute_of_much_text_is_long_enough_for_a_net() -> None:
    """100 novels are counted in seconds; and in twice as many where others use the machine."""
    examples = SimpleNamespace(arrays={"train": np.zeros(17_700_000), "valid": np.zeros(43_816)})
    counts = blend.choose_counts(17_700_000, 58_051, budget_seconds=60.0)
    record = SimpleNamespace(counts=counts, vocab_size=58_051, model=None, threads=2)
    alone, crowded = (Budget(60.0, time.monotonic() - 5.0, crowding) for crowding in (1.0, 2.0))
    kept = [blend.finishing_seconds(record, examples, budget) for budget in (alone, crowded)]  # type: ignore[arg-type]
    assert blend.has_time_for_a_net(alone, kept[0])
    assert kept[1] - kept[0] == pytest.approx(17_700_000 * blend.MKN_SECONDS)


def test_more_nets_are_given_more_time_to_be_mixed(files: tuple[Path, Path]) -> None:
    """An hour of four nets was tuned on a quarter of its validation text: time was kept for one."""
    examples = SimpleNamespace(arrays={"train": np.zeros(900_000), "valid": np.zeros(70_000)})
    counts = blend.choose_counts(900_000, 10_000, budget_seconds=3600.0)
    one, four = (
        blend.finishing_seconds(
            SimpleNamespace(counts=counts, vocab_size=10_000, model=SimpleNamespace(nets=nets), threads=2),  # type: ignore[arg-type]
            examples,  # type: ignore[arg-type]
            Budget(3600.0, time.monotonic()),
        )
        for nets in (1, 4)
    )
    assert four - one == pytest.approx(3 * 70_000 * (blend.FIT_SECONDS + 10_000 * blend.SOFTMAX_SECONDS))


def test_without_validation_text_it_is_the_net_alone(files: tuple[Path, Path]) -> None:
    said: list[str] = []
    made = train(files, valid="none", report=said.append)
    assert made.record.family == "lstm"
    assert "there is no validation text to tune a mixture on: lstm alone" in said


def test_a_blank_line_is_no_validation_text_to_tune_on(files: tuple[Path, Path], tmp_path: Path) -> None:
    """Its one token makes no two halves: an IndexError after all of the training, and at every resume."""
    files[1].write_text("\n")
    said: list[str] = []
    assert train(files, tmp_path / "m", report=said.append).record.family == "lstm"
    assert "there is no validation text to tune a mixture on: lstm alone" in said
    with pytest.raises(DataError, match="single token"):
        elman.mix([tmp_path / "m", "neural-cache"], valid=files[1])


def test_a_device_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no device"):
        elman.train("lm", tmp_path / "missing.txt", budget="2s", device="nonsense")


def test_lines_read_alone_have_nothing_to_remember(files: tuple[Path, Path]) -> None:
    assert families(train(files, reset_lines=True)) == ["lstm", "mkn"]


def test_a_text_too_long_for_the_time_is_tuned_on_in_part(
    files: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blend, "_fit_in_time", lambda fit, ids, *, deadline: (ids[:150], fit(ids[:150])))
    said: list[str] = []
    files[1].write_text(files[1].read_text().replace("b0", "never-seen"))
    made = train(files, report=said.append)
    assert any("tokens of validation text" in sentence for sentence in said)
    assert made.record.valid["tokens"] == 150
    line_ends = 150 // 9  # of lines of eight words
    start = files[1].read_text().split()[: 150 - line_ends]
    assert made.record.valid["unknown_tokens"] == start.count("never-seen") > 0
    assert made.record.valid["bits_per_byte"] is None


def test_how_much_can_be_tuned_on_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A token takes a millisecond; once caches are full, SLOWER times that."""
    now = 0.0

    fitted_to: list[int] = []

    def fit(ids: np.ndarray) -> int:
        nonlocal now
        now += len(ids) / 1000
        fitted_to.append(len(ids))
        return len(ids)

    monkeypatch.setattr(blend, "time", SimpleNamespace(monotonic=lambda: now))
    text, first = np.arange(100_000), blend.MIN_FIT_TOKENS / 1000
    ids, fitted = blend._fit_in_time(fit, text, deadline=first + 13)  # type: ignore[arg-type]
    assert len(ids) == fitted == pytest.approx(10_000, abs=1)
    ids, fitted = blend._fit_in_time(fit, text, deadline=now + 1000)  # type: ignore[arg-type]
    assert len(ids) == fitted == 100_000
    fitted_to.clear()
    for few in (text, text[:100]):  # no time for more, and no more: fitted once
        ids, fitted = blend._fit_in_time(fit, few, deadline=now)  # type: ignore[arg-type]
        assert len(ids) == fitted
    assert fitted_to == [blend.MIN_FIT_TOKENS, 100]


def test_a_run_too_short_to_choose_among_weights_does_not_validate(files: tuple[Path, Path]) -> None:
    """To read all of the validation text once took a tenth of a minute, and changed nothing."""
    validated: list[object] = []
    train(files, on_progress=lambda progress: validated.append(progress.valid_nats_per_token))
    assert any(nats is not None for nats in validated)
    validated.clear()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(examiner, "VALIDATION_SHARE", 0.0)
        made = train(files, on_progress=lambda progress: validated.append(progress.valid_nats_per_token))
    assert validated and all(nats is None for nats in validated)
    assert made.record.valid["perplexity_crosswise"] > 1


def test_without_a_time_it_is_what_counts(files: tuple[Path, Path]) -> None:
    assert train(files, budget=None, settings={}).record.family == "mkn"


def test_settings_are_those_of_the_net(files: tuple[Path, Path]) -> None:
    with pytest.raises(UsageError, match="order"):
        train(files, settings={"model.order": 3})


def test_long_texts_are_counted_in_the_cheaper_way() -> None:
    names = [
        (blend.choose_counts(tokens, vocab_size, budget_seconds=seconds).model_dump()["family"])
        for tokens, vocab_size, seconds in ((900_000, 10_000, 600), (900_000, 10_000, 60), (90_000, 60, 600))
    ]
    assert names == ["snm", "mkn", "mkn"]


def test_resume_keeps_what_the_budget_planned(
    files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The net, its batch and its passes are those of the machine that began, however fast the one is that goes on."""
    with pytest.raises(KeyboardInterrupt):
        train(files, tmp_path / "m", settings={"train.steps": 12}, model="lstm", on_progress=interrupt_at(5))
    planned = json.loads((tmp_path / "m" / "checkpoints" / "run.json").read_text())

    def measured_again() -> None:
        raise AssertionError("the plan was made already")

    monkeypatch.setattr(speed, "measure_machine", measured_again)
    found = elman.resume(tmp_path / "m").record.model_dump(mode="json")
    assert planned["record"]["model"]["hidden"] > 0 and planned["train"]["steps"] == 12
    assert found["model"] == planned["record"]["model"]
    decided = {key: value for key, value in planned["train"].items() if value is not None}
    assert {key: found["train"][key] for key in decided} == decided


def test_a_wide_net_of_many_words_is_given_more_time_to_be_mixed_where_there_is_much() -> None:
    """An hour of 100 novels (640 units, 58,051 words, one core) kept half a minute, and was tuned on 4,096 of 43,816 tokens."""
    examples = SimpleNamespace(arrays={"train": np.zeros(17_700_000), "valid": np.zeros(43_816)})
    counts = blend.choose_counts(17_700_000, 58_051, budget_seconds=3600.0)

    def kept(hidden: int, seconds: float, threads: int = 2) -> float:
        net = SimpleNamespace(hidden=hidden)
        record = SimpleNamespace(counts=counts, vocab_size=58_051, model=net, threads=threads)
        return blend.finishing_seconds(record, examples, Budget(seconds, time.monotonic()))  # type: ignore[arg-type]

    token_seconds = 43_816 * 58_051 * blend.SOFTMAX_SECONDS / blend.SOFTMAX_UNITS
    assert kept(640, 3600.0) - kept(128, 3600.0) == pytest.approx(512 * token_seconds)
    assert kept(640, 3600.0, threads=1) > kept(640, 3600.0) + 640 * token_seconds
    assert kept(640, 60.0, threads=1) == kept(128, 60.0)
