"""A classifier as a graph for other programs, and a program that says what a text is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from elman.core.arrays import Array
from elman.tasks.exported import Exported, example_program
from elman.text.rows import pad_all
from elman.text.units.letters import SPACE_MARK, WORD_PATTERN
from elman.text.units.vocabulary import EOS_ID, UNK, UNK_ID

LONGEST = 20  # words of a text that is compared
# What Python's `re` finds as the words of a text, by units; in raw text a space is SPACE_MARK
PATTERNS = {"space": r"[^ \t\n\v\f\r]+", "char": r"[\s\S]", "word": WORD_PATTERN}

PURPOSE = "Says what a text is, by the classifier beside this file: python example.py TEXT"
USE = """\
numbers = Tokenizer.from_file(str(here / "tokenizer.json")).get_vocab()
session = onnxruntime.InferenceSession(here / "model.onnx")
text = sys.argv[1] if len(sys.argv) > 1 else facts["example"]

text = text.replace("\\t", " ")
text = text if facts["normalize"] == "none" else unicodedata.normalize(facts["normalize"], text)
text = text.lower() if facts["lower_case"] else text
if facts["units"] == "word" and text:
    text = facts["space"] + text.replace(" ", facts["space"])
words = [word.replace(facts["space"], "") for word in re.findall(facts["pattern"], text)]
words = [word for word in words if word]
half, most = facts["max_length"] // 2, facts["max_length"]
words = words if len(words) <= most else words[:half] + words[len(words) - (most - half) :]

known = [numbers.get(word, numbers.get(word.lower(), 0) if facts["folds_case"] else 0) for word in words] or [0]
known = [number if number != facts["end"] else 0 for number in known]
phrases = [*words, *(left + "\\0" + right for left, right in zip(words, words[1:]))]
buckets = sorted({zlib.crc32(phrase.encode()) % facts["buckets"] for phrase in phrases}) or [-1]
inputs = {"words": np.array([known]), "lengths": np.array([len(known)]), "phrases": np.array([buckets])}
scores, answers = session.run(None, {port.name: inputs[port.name] for port in session.get_inputs()})
if facts["answers"] == "number":
    print(f"{answers[0, 0]:.6g}")
elif facts["answers"] == "class":
    print(facts["labels"][answers[0].argmax()])
else:
    print(",".join(label for label, share in zip(facts["labels"], answers[0]) if share >= 0.5) or "-")
"""
MODULES = ("re", "unicodedata", "zlib")


def export_classifier(model: Any) -> Exported:
    """The net and the linear model, as far as they are used, in one graph."""
    from elman.nets.graphs import NetGraphs, Run, difference, largest
    from elman.tasks.classify.linear import buckets_of  # brings scipy, which the list of tasks does without
    from elman.tasks.classify.whole_net import WholeClassifier

    graph = WholeClassifier(model.net, model.linear, model.part_weights).graph()
    buckets = 1 if model.linear is None else len(model.linear.rarity)
    known = model.words.tokenizer.tokens[EOS_ID + 1 :]

    def inputs_of(texts: Sequence[Sequence[str]]) -> dict[str, Array]:
        words, lengths = pad_all([np.array([model.words.number(word) for word in text] or [UNK_ID]) for text in texts])
        found = [buckets_of(text, buckets) for text in texts]
        phrases = np.full((len(texts), max(map(len, found))), -1)
        for row, one in zip(phrases, found, strict=True):
            row[: len(one)] = one
        arrays = {"words": words, "lengths": lengths, "phrases": phrases}
        return {name: arrays[name].astype(np.int64) for name in graph.inputs}

    def compare(run: Run, steps: int) -> float:
        rng, found, num_words = np.random.default_rng(steps), [], 0
        while num_words < steps:
            texts = [rng.choice([*known[:5000], UNK], rng.integers(1, LONGEST)).tolist() for _ in range(3)]
            num_words += sum(map(len, texts))
            scores, answers = run("model", inputs_of(texts)).values()
            found.append(difference(scores, model.scores(texts)))
            found.append(difference(answers, model.shares(texts)))
        return largest(found)

    answers = {"softmax": "class", "sigmoid": "labels", "linear": "number"}[model.config.output]
    data = model.data
    facts = {
        "answers": answers,
        "labels": list(model.labels),
        "units": data.units,
        "pattern": PATTERNS[data.units],
        "space": SPACE_MARK,
        "normalize": data.normalize,
        "lower_case": data.lower_case,
        "max_length": data.max_length,
        "folds_case": model.words.folds_case,
        "end": EOS_ID,
        "buckets": buckets,
        "example": " ".join(known[:5]),
    }
    return Exported(
        NetGraphs([graph], compare),
        model.words.tokenizer.files(),
        example_program(PURPOSE, USE, modules=MODULES),
        facts,
    )
