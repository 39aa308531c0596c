"""A sampled criterion's loss says nothing of probabilities, and is never shown as a perplexity."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import elman
from elman.training.display import describe
from elman.training.progress import Progress


@pytest.mark.parametrize(("head", "is_likelihood"), [("sampled", False), ("nce", False), ("full", True)])
def test_only_a_likelihood_is_shown_as_a_perplexity(tmp_path: Path, head: str, is_likelihood: bool) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat\na dog ran on a log\n" * 40)
    settings = {"train.steps": 3, "train.log_steps": 1, "model.hidden": 4, "model.head": head}
    seen: list[Progress] = []
    elman.train("lm", text, model="rnn", units="space", settings=settings, out=tmp_path / "m", on_progress=seen.append)
    steps = [progress for progress in seen if progress.step]
    shown = [describe(progress) for progress in steps]
    assert all((progress.perplexity is not None) == is_likelihood for progress in steps)
    assert all(("sampled loss" in line) != is_likelihood for line in shown)
    journal = [json.loads(line) for line in (tmp_path / "m/metrics.jsonl").read_text().splitlines()]
    logged = [line for line in journal if "nats_per_token" in line]
    assert logged and all(("perplexity" in line) == is_likelihood for line in logged)
