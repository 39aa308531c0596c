"""A tagger as a graph for other programs, and a program that tags a line."""

from __future__ import annotations

from typing import Any

from elman.core.errors import UsageError
from elman.tasks.exported import Exported, example_program
from elman.tasks.tag.data import MAX_SPELLING
from elman.text.units.vocabulary import EOS_ID

PURPOSE = 'Tags the words of a line, by the tagger beside this file: python example.py "A LINE OF WORDS"'
USE = """\
numbers, characters = (
    {token: i for token, i in Tokenizer.from_file(str(here / name)).get_vocab().items() if i > facts["end"]}
    for name in ("tokenizer.json", "character_tokenizer.json")
)
session = onnxruntime.InferenceSession(here / "model.onnx")
line = sys.argv[1] if len(sys.argv) > 1 else facts["example"]
words = [
    word if facts["normalize"] == "none" else unicodedata.normalize(facts["normalize"], word) for word in line.split()
]

known = [numbers.get(word, numbers.get(word.lower(), 0) if facts["folds_case"] else 0) for word in words]
most = facts["max_spelling"]  # of a longer word half from either end
spelt = [word if len(word) <= most else word[: most // 2] + word[-most // 2 :] for word in words]
spelling = np.zeros((len(words), max(map(len, spelt))), dtype=np.int64)
for row, word in zip(spelling, spelt):
    row[: len(word)] = [characters.get(character, 0) for character in word]
inputs = {
    "words": np.array([known]),
    "lengths": np.array([len(words)]),
    "forms": np.arange(len(words))[None],
    "spelling": spelling,
    "spelling_lengths": np.array([len(word) for word in spelt]),
}
scores, *transitions = session.run(None, {port.name: inputs[port.name] for port in session.get_inputs()})
best = scores[0].argmax(1)
if transitions:  # of a CRF the likeliest sequence, by Viterbi; the last row and column are the ends of a line
    table, back = transitions[0], []
    totals = table[-1, :-1] + scores[0, 0]
    for emissions in scores[0, 1:]:
        ways = totals[:, None] + table[:-1, :-1]
        back.append(ways.argmax(0))
        totals = ways.max(0) + emissions
    path = [int((totals + table[:-1, -1]).argmax())]
    for came_from in reversed(back):
        path.append(int(came_from[path[-1]]))
    best = path[::-1]
print(" ".join(facts["labels"][number] for number in best))
"""
MODULES = ("unicodedata",)


def export_tagger(model: Any) -> Exported:
    """Scores of every label at every word."""
    if model.net.bilm is not None:
        raise UsageError(
            f"{model.directory or 'this'} holds a tagger that reads with a bilm, which is not exported",
            code="not-for-this-model",
            hint="a tagger without model.bilm is",
        )
    facts = {
        "labels": list(model.labels),
        "end": EOS_ID,
        "normalize": model.data.normalize,
        "folds_case": model.lexicon.folds_case,
        "max_spelling": MAX_SPELLING,
        "example": " ".join(model.lexicon.words.tokens[EOS_ID + 1 :][:5]),
    }
    return Exported(model.net.exported(), model.lexicon.files(), example_program(PURPOSE, USE, modules=MODULES), facts)
