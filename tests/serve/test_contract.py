"""Numbers over HTTP are the numbers of `elman evaluate --reset-lines`, for every family that reads from left to right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import elman
from elman.tasks.base import EvaluateOptions
from elman.text.units.vocabulary import EOS_ID
from tests.commands import LINES
from tests.serve.running import Running, running

TEST = ["the cat sat on the log .", "who saw the dog ?", "a zebra and a cat sat on the mat .", "the dog ."]
COUNTED = ("uniform", "unigram", "bigram", "ngram", "kn", "mkn", "snm")
NETS = ("window", "rnn", "gru", "lstm", "transformer")
FAMILIES = (*COUNTED, *NETS, "mixture", "lines", "int8")
CHOICES = [("the cat", [" sat on", " saw a"], 0), ("the dog sat on the", [" mat", " log", " zebra"], 1)]
HARNESS = Path(__file__).with_name("harness.py")


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A model of every family on one vocabulary."""
    folder = tmp_path_factory.mktemp("zoo")
    text = elman.texts(LINES * 10)
    options: dict[str, Any] = {"units": "word", "valid": "none"}
    found = {name: elman.train("lm", text, model=name, out=folder / name, **options) for name in COUNTED}
    for name in NETS:
        found[name] = elman.train(
            "lm", text, model=name, out=folder / name, epochs=1, settings={"model.hidden": 8}, **options
        )
    found["mixture"] = elman.mix([folder / "mkn", folder / "lstm", "cache"], valid=elman.texts(LINES))
    found["lines"] = elman.train("lm", text, model="mkn", reset_lines=True, **options)
    found["int8"] = found["lstm"].to_int8()
    return found


@pytest.fixture(scope="module")
def served(zoo: dict[str, Any]) -> Iterator[Running]:
    with running(zoo) as found:
        yield found


def tolerance(name: str) -> float:
    """In nats a token."""
    return 1e-6 if name in (*COUNTED, "lines") else 1e-4


@pytest.mark.parametrize("name", FAMILIES)
def test_the_client_s_numbers_are_those_of_evaluate(served: Running, zoo: dict[str, Any], name: str) -> None:
    expected = zoo[name].evaluate(elman.texts(TEST), EvaluateOptions(reset_lines=True))
    prompts = [[EOS_ID, *served.post("/tokenize", prompt=f"{line}\n", model=name).json()["tokens"]] for line in TEST]
    found = served.openai().completions.create(
        model=name, prompt=prompts, echo=True, logprobs=1, max_tokens=1, temperature=0
    )
    values = [value for choice in found.choices for value in choice.logprobs.token_logprobs[1:-1]]
    assert len(values) == expected["tokens"]
    if expected["impossible_tokens"]:
        assert sum(value == -9999 for value in values) == expected["impossible_tokens"]
    else:
        assert -sum(values) / len(values) == pytest.approx(expected["nats_per_token"], abs=tolerance(name))


def write_tasks(folder: Path) -> None:
    """Tasks of the harness on local files, one of each kind."""
    rows = {
        "rolling": [{"text": f"{line}\n"} for line in TEST],
        "choice": [{"context": context, "choices": choices, "label": label} for context, choices, label in CHOICES],
        "write": [{"prompt": "the cat"}, {"prompt": "who saw"}],
    }
    kinds = {
        "rolling": {
            "output_type": "loglikelihood_rolling",
            "doc_to_text": "",
            "doc_to_target": "{{text}}",
            "metric_list": [{"metric": "word_perplexity"}],
        },
        "choice": {
            "output_type": "multiple_choice",
            "doc_to_text": "{{context}}",
            "target_delimiter": "",
            "doc_to_choice": "{{choices}}",
            "doc_to_target": "label",
            "metric_list": [{"metric": "acc"}],
        },
        "write": {
            "output_type": "generate_until",
            "doc_to_text": "{{prompt}}",
            "doc_to_target": "",
            "generation_kwargs": {"until": ["."], "max_gen_toks": 12},
            "metric_list": [{"metric": "exact_match"}],
        },
    }
    for name, content in rows.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in content))
        files = {"test": str(folder / f"{name}.jsonl")}
        task = {
            "task": f"elman_{name}",
            "dataset_path": "json",
            "dataset_kwargs": {"data_files": files},
            "test_split": "test",
        }
        (folder / f"{name}.yaml").write_text(json.dumps({**task, **kinds[name]}))  # JSON is YAML


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_harness_gets_the_numbers_of_evaluate(served: Running, zoo: dict[str, Any], tmp_path: Path) -> None:
    write_tasks(tmp_path)
    names = [name for name in FAMILIES if name != "ngram"]  # maximum likelihood has impossible tokens
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(tmp_path / "hub")}
    done = subprocess.run(
        [sys.executable, str(HARNESS), served.url, str(tmp_path), *names],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert set(found) == set(names)
    for name, samples in found.items():
        model = zoo[name]
        expected = model.evaluate(elman.texts(TEST), EvaluateOptions(reset_lines=True))
        total = -sum(samples["elman_rolling"])
        assert total / expected["tokens"] == pytest.approx(expected["nats_per_token"], abs=tolerance(name)), name
        for (context, choices, _), values in zip(CHOICES, samples["elman_choice"], strict=True):
            for choice, value in zip(choices, values, strict=True):
                assert value == pytest.approx(log_prob(model, context, choice), abs=20 * tolerance(name)), (
                    name,
                    choice,
                )
        for prompt, text in zip(["the cat", "who saw"], samples["elman_write"], strict=True):
            assert text == model.generate(
                prompt, tokens=12, temperature=0, stop=[".", *(["\n"] if name != "lines" else [])]
            ), name


def log_prob(model: Any, context: str, choice: str) -> float:
    """Of what follows a context, by the model's own score."""
    before = len(model.tokenizer.encode(context))
    after = len(model.tokenizer.encode(context + choice))
    return -sum(nats for _, nats in model.score(context + choice).per_token[before:after])
