"""`elman demo`: the main job, on the corpus that is on every machine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from elman.cli import demo, demo_names
from tests.cli.conftest import Run, run_process


def test_the_corpus_is_cut_by_topic_and_no_paragraph_is_in_two_parts(tmp_path: Path) -> None:
    paths = demo.write_corpus(tmp_path)
    texts = {name: path.read_text(encoding="utf-8").splitlines() for name, path in paths.items()}
    sizes = {name: sum(map(len, lines)) for name, lines in texts.items()}
    assert sizes["train"] > 5 * sizes["valid"] > 0
    assert sizes["train"] > 5 * sizes["test"] > 0
    long = {name: {line for line in lines if len(line) > 80} for name, lines in texts.items()}
    assert not long["train"] & long["test"]
    assert not long["train"] & long["valid"]


def test_no_name_is_in_two_parts(tmp_path: Path) -> None:
    paths = demo_names.write_names(tmp_path, seed=1)
    targets = {part: [line.split("\t")[1] for line in path.read_text().splitlines()] for part, path in paths.items()}
    assert {part: len(names) for part, names in targets.items()} == demo_names.NUM_NAMES
    assert not set(targets["train"]) & (set(targets["valid"]) | set(targets["test"]))
    assert demo_names.SOURCE == "rnommuudloutsv"


@pytest.mark.slow
def test_the_demo_compares_every_family_and_better_models_are_better(run: Run, tmp_path: Path) -> None:
    done = run_process("demo", "--out", tmp_path / "demo", timeout=400)
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout  # no colours where there is no terminal
    perplexity = {}
    for name in [*demo.FAMILIES, *demo.MIXTURES]:
        assert f"\n{name}\nThe" in done.stdout.replace("\n  ", "\n"), f"a sample of {name}"
        row = next(line for line in done.stdout.splitlines() if line.startswith(f"  {name}  "))
        perplexity[name] = float(re.findall(r"[\d,]+\.\d+", row)[0].replace(",", ""))
    order = ["uniform", "unigram", "bigram", "ngram", "kn", "mkn", "mkn+cache"]
    assert [perplexity[name] for name in order] == sorted((perplexity[name] for name in order), reverse=True)
    assert all(perplexity[name] < perplexity["unigram"] for name in demo.NETS)
    assert perplexity["mkn+lstm+cache"] < perplexity["mkn"]
    right = {}
    for context in demo_names.CONTEXTS:
        row = next(line for line in done.stdout.splitlines() if line.startswith(f"  {context}  "))
        right[context] = float(re.findall(r"([\d.]+)%", row)[0])
    assert right["attention"] > max(50, right["initial"])
    assert (tmp_path / "demo" / demo_names.PICTURE).read_text().startswith("<svg")
    assert run("next", tmp_path / "demo" / "mkn", "The value of the").code == 0
