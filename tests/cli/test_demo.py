"""`elman demo`: the main job, on the corpus that is on every machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from elman.cli import demo, demo_names
from tests.commands import Run

STEPS = {"data.units": "word", "train.steps": 200, "model.hidden": 64, "train.batch": 20, "train.bptt": 20}


def test_no_name_is_in_two_parts(tmp_path: Path) -> None:
    paths = demo_names.write_names(tmp_path, seed=1)
    targets = {part: [line.split("\t")[1] for line in path.read_text().splitlines()] for part, path in paths.items()}
    assert {part: len(names) for part, names in targets.items()} == demo_names.NUM_NAMES
    assert not set(targets["train"]) & (set(targets["valid"]) | set(targets["test"]))
    assert demo_names.SOURCE == "rnommuudloutsv"


@pytest.fixture(name="by_steps")
def fixture_by_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nets by steps, not by time, so that a busy machine trains them as far as an idle one."""
    monkeypatch.setattr(demo, "BUDGET", None)
    monkeypatch.setattr(demo, "QUICK_BUDGET", None)
    monkeypatch.setattr(demo, "SETTINGS", STEPS)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("by_steps")
def test_the_quick_demo_compares_a_few_models(run: Run, tmp_path: Path) -> None:
    done = run("demo", "--quick", "--json", "--out", tmp_path / "demo", "--seed", "3", "--threads", "1")
    assert done.code == 0, done.err
    perplexity = {row["name"]: row["perplexity"] for row in done.json["models"]}
    assert tuple(perplexity) == demo.QUICK_MODELS and done.json["seed"] == 3 and not done.json["names"]
    assert perplexity["unigram"] > perplexity["bigram"] > perplexity["mkn"] > perplexity["mkn+lstm+cache"]
    assert "<svg" in (tmp_path / "demo" / "models" / "report.html").read_text()
    assert run("next", tmp_path / "demo" / "models" / "mkn+lstm+cache", "The value of the").code == 0
    assert (
        run("explain", tmp_path / "demo" / "models" / "mkn", tmp_path / "demo" / "models" / "lstm", demo.LINE).code == 0
    )


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.usefixtures("by_steps")
def test_the_demo_opens_with_what_was_found_and_ends_with_names(run: Run, tmp_path: Path) -> None:
    done = run("demo", "--out", tmp_path / "demo")
    assert done.code == 0, done.err
    assert "\x1b" not in done.out  # no colours where there is no terminal
    assert done.out.startswith(f"Of {len(demo.MODELS)} models trained on ")
    lines = done.out.splitlines()
    for name in demo.MODELS:
        assert any(line.startswith(f"  {name}  ") for line in lines), name
    right = {}
    for context in demo_names.CONTEXTS:
        row = next(line for line in lines if line.startswith(f"  {context}  "))
        right[context] = float(row.split("%")[0].split()[-1])
    assert right["attention"] > max(50, right["initial"])
    assert (tmp_path / "demo" / demo_names.PICTURE).read_text().startswith("<svg")
    assert run("explain", tmp_path / "demo" / "names-attention", demo_names.SOURCE).code == 0
