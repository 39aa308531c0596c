"""Row 15: corpora with hardly anything in them. A documented result or an error, never NaN, and all sums are one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import elman
from elman.core.errors import ElmanError
from reliability.row import Allowance, Count, Figure

NET: dict[str, Any] = {"model.hidden": 4, "train.steps": 3, "train.batch": 2}


@dataclass(frozen=True)
class Case:
    """A corpus, and what is trained on it."""

    task: str
    text: str
    model: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    name: str = "data.txt"
    units: str | None = None
    may_train: bool = True  # otherwise it has to be refused


def _lm(text: str, model: str, **settings: Any) -> Case:
    chosen = {key.replace("_", ".", 1): value for key, value in settings.items()}
    return Case("lm", text, model, chosen, units="space")


CASES = {
    "empty": Case("lm", "", "mkn", may_train=False),
    "blank lines": Case("lm", "\n\n\n", "mkn", units="space", may_train=False),
    "one token": _lm("a\n", "mkn", data_min_count=1),
    "one token, twice": _lm("a a\n", "mkn"),
    "one sentence": _lm("the cat sat on the mat\n", "mkn", data_min_count=1),
    "all lines alike": _lm("a b c\n" * 50, "mkn"),
    "all tokens alike": _lm("a " * 500 + "\n", "kn"),
    "no unknown words": _lm("a b\nb a\n" * 20, "mkn", data_min_count=1),
    "every word once": _lm(" ".join(f"w{number}" for number in range(200)) + "\n", "mkn"),
    "every word once, all kept": _lm(" ".join(f"w{number}" for number in range(200)) + "\n", "mkn", data_min_count=1),
    "no n-gram once: discounts undefined": _lm("a b a b a b a b\n" * 4, "mkn", model_order=3),
    "order beyond the text": _lm("a b\n" * 3, "mkn", model_order=9),
    "unknown words only": _lm("<unk> <unk>\n" * 20, "mkn"),
    "maximum likelihood of one token": _lm("a a a\n" * 9, "ngram", model_smoothing="mle"),
    "one character": Case("lm", "aaaa\n" * 30, "kn", units="char"),
    "a net, one token": Case("lm", "a a\n" * 30, "lstm", NET, units="space"),
    "a net, two words": Case("lm", "a\nb\n" * 2, "rnn", NET | {"data.min_count": 1}, units="space"),
    "a net, shorter than a batch": Case("lm", "a b\n", "lstm", NET | {"data.min_count": 1}, units="space"),
    "labels all the same": Case("classify", "x\ta b\nx\tb a\n" * 10, None, NET, "data.tsv"),
    "one labelled row": Case("classify", "x\ta b\n", None, NET, "data.tsv"),
    "labels of empty texts": Case("classify", "x\t\ny\t\n" * 10, None, NET, "data.tsv"),
    "tags all O": Case("tag", "a O\nb O\n\n" * 10, None, NET, "data.conll"),
    "one tagged word": Case("tag", "a N\n\n", None, NET, "data.conll"),
    "empty target side": Case("seq2seq", "a b\t\nb\t\n" * 10, None, NET, "data.tsv"),
    "empty source side": Case("seq2seq", "\ta\n\tb\n" * 10, None, NET, "data.tsv"),
    "one pair": Case("seq2seq", "a\tb\n", None, NET | {"data.min_count": 1}, "data.tsv"),
    "masked, one token": Case("masked", "a\n" * 20, None, NET, units="space"),
    "a question without an answer": Case(
        "qa", json.dumps({"context": "a.", "question": "a?", "answer": ""}) + "\n", None, NET, "data.jsonl"
    ),
}


def degenerate(allowance: Allowance) -> Figure:
    """Every corpus: trained and used, or refused with a message."""
    count, num_refused = Count(), 0
    for name, case in CASES.items():
        folder = allowance.folder / name.replace(" ", "-").replace(":", "").replace(",", "")
        folder.mkdir()
        try:
            with np.errstate(invalid="raise"):
                count.add(_use(case, folder))
        except ElmanError as error:
            num_refused += 1
            is_told = bool(error.what) and "Traceback" not in error.what
            count.add(None if is_told and error.exit_code in (1, 2, 65) else f"{name}: {error.exit_code}: {error.what}")
        except Exception as error:
            count.add(f"{name}: {type(error).__name__}: {error}")
    return count.figure(f" corpora, {num_refused} of them refused with a message", least=25)


def _use(case: Case, folder: Path) -> str | None:
    data = folder / case.name
    data.write_text(case.text)
    options: dict[str, Any] = {} if case.task in ("lm", "masked") else {"threads": 1}
    made = elman.train(
        case.task, data, out=folder / "model", model=case.model, units=case.units, settings=case.settings, **options
    )
    if not case.may_train:
        return "there was nothing to train on, and a model came out"
    if case.task == "lm":
        return _sums_to_one(made, data)
    lines = [line.split("\t")[-1] for line in case.text.splitlines()[:4]] if case.task != "qa" else ["a.\ta?"]
    for prediction in made.predict([line if case.task != "masked" else "<mask>" for line in lines]):
        if "NaN" in json.dumps(prediction.as_json() if hasattr(prediction, "as_json") else str(prediction)):
            return f"NaN in {prediction}"
    return None


def _sums_to_one(model: Any, data: Path) -> str | None:
    for prompt in ("", "a", "a b", "never seen"):
        total = sum(probability for _, probability in model.next(prompt, k=model.tokenizer.vocab_size))
        if not abs(total - 1.0) <= 1e-6:
            return f"probabilities after {prompt!r} sum to {total}"
    evaluated = model.evaluate(data)
    if any(isinstance(value, float) and not np.isfinite(value) for value in evaluated.values()):
        return f"not finite: {evaluated}"
    return None
