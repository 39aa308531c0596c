"""Models that follow the text they read, by the command line: a neural cache in a mixture, dynamic evaluation."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import elman
from tests.commands import Run


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each line is said several times in a row, and most of them never again."""
    rng = np.random.default_rng(0)
    words = [f"w{number}" for number in range(30)]
    lines = []
    for _ in range(60):
        lines += [" ".join(rng.choice(words, 6))] * 5
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def net(text: Path) -> Path:
    return train(text, "lstm", **{"train.epochs": 3, "train.batch": 4, "train.bptt": 8, "model.hidden": 16})


@pytest.fixture(scope="module")
def counts(text: Path) -> Path:
    return train(text, "mkn", **{"model.order": 2})


def train(text: Path, model: str, **settings: object) -> Path:
    out = text.parent / model
    given = settings | ({"model.head": "full"} if model == "lstm" else {})
    elman.train("lm", text, out=out, model=model, units="space", threads=1, settings=given)
    return out


def test_a_neural_cache_lowers_the_perplexity_and_is_kept(
    run: Run, text: Path, net: Path, counts: Path, tmp_path: Path
) -> None:
    plain = run("mix", net, counts, "--valid", text, "--out", tmp_path / "plain", "--json").json
    members = [counts, "neural-cache:window=40", net, "cache"]
    mixed = run("mix", *members, "--valid", text, "--out", tmp_path / "mix", "--json")
    assert mixed.code == 0, mixed.err
    assert "neural cache: theta" in mixed.err
    assert mixed.json["valid"]["perplexity"] < 0.8 * plain["valid"]["perplexity"]
    kept = json.loads((tmp_path / "mix" / "config.json").read_text())["model"]["members"]
    assert [member["family"] for member in kept] == ["mkn", "lstm", "neural-cache", "cache"]
    assert (kept[2]["net"], kept[2]["window"]) == (1, 40)
    again = run("evaluate", tmp_path / "mix", text, "--json").json
    assert again["perplexity"] == pytest.approx(mixed.json["valid"]["perplexity"], rel=1e-5)
    assert run("generate", tmp_path / "mix", "--prompt", "w1 w2", "--tokens", "5").code == 0


def test_a_neural_cache_without_a_net_is_refused_with_a_remedy(
    run: Run, text: Path, net: Path, counts: Path, tmp_path: Path
) -> None:
    found = run("mix", counts, "neural-cache", "--valid", text, "--out", tmp_path / "no")
    assert found.code == 2
    assert found.err.splitlines()[-2:] == [
        "error: a neural cache needs a net among the members",
        "hint: give the directory of a net (lstm, gru, …) itself, not of a mixture; a cache needs none",
    ]
    wrong = run("mix", net, "neural-cache:teta=1", "--valid", text, "--out", tmp_path / "no")
    assert (wrong.code, "did you mean neural-cache.theta?" in wrong.err) == (2, True)
    assert run("mix", "neural-cache", "--valid", text, "--out", tmp_path / "no").code == 2
    alone = run("train", "lm", text, "--model", "neural-cache", "--out", tmp_path / "no")
    assert (alone.code, "not made from text alone" in alone.err) == (2, True)
    assert not (tmp_path / "no" / "config.json").exists()


def test_dynamic_evaluation_is_told_beside_the_usual_numbers_and_changes_nothing(
    run: Run, text: Path, net: Path, counts: Path, tmp_path: Path
) -> None:
    usual = run("evaluate", net, text, "--json").json
    before = (net / "model.safetensors").read_bytes()
    found = run("evaluate", net, text, "--dynamic", "--dynamic-rate", "0.001", "--json").json
    assert {key: found[key] for key in usual} == usual
    assert found["perplexity_dynamic"] < usual["perplexity"]
    assert found["signature_dynamic"] == f"{usual['signature']}|dynamic:even-decay,20,0.001,0.004,weights,0.01,0.3"
    assert {"perplexity_low_dynamic", "perplexity_high_dynamic", "nats_per_token_dynamic"} <= found.keys()
    assert (net / "model.safetensors").read_bytes() == before
    mixed = run("mix", net, counts, "neural-cache:theta=1,decay=1", "--valid", text, "--out", tmp_path / "mix")
    assert mixed.code == 0, mixed.err
    stdin = text.read_bytes()
    together = run(
        "evaluate", tmp_path / "mix", "-", "--dynamic", "--dynamic-rate", "0.001", "--json", stdin=stdin
    ).json
    assert together["perplexity_dynamic"] == pytest.approx(together["perplexity"], rel=0.1)
    assert together["perplexity_dynamic"] != together["perplexity"]


def test_dynamic_evaluation_says_how_much_of_the_text_it_has_read(text: Path, net: Path) -> None:
    model, shares = elman.load(net), list[float]()
    usual = model.evaluate(text, elman.EvaluateOptions(dynamic=True))
    assert model.evaluate(text, elman.EvaluateOptions(dynamic=True, report_share=shares.append)) == usual
    assert len(shares) > 5 and shares == sorted(shares) and shares[-1] == 1.0


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--dynamic"], "adapts nets, and this model has none"),
        (["--dynamic-rate", "0.1"], "add --dynamic"),
        (["--dynamic", "--dynamic-rate", "-1"], "--dynamic-rate"),
    ],
)
def test_dynamic_evaluation_that_cannot_be_is_refused(
    run: Run, text: Path, counts: Path, more: list[str], words: str
) -> None:
    found = run("evaluate", counts, text, *more)
    assert (found.code, words in found.err) == (2, True), found.err
