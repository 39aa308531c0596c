"""A masked model as a graph for other programs, and a program that fills a gap."""

from __future__ import annotations

from typing import Any

from elman.tasks.exported import Exported, example_program
from elman.text.gaps import MASK
from elman.text.units.vocabulary import EOS_ID, UNK_ID

PURPOSE = (
    'Shows what may stand in the gap of a line, by the masked model beside this file: python example.py "A <mask> HERE"'
)
USE = """\
tokenizer = Tokenizer.from_file(str(here / "tokenizer.json"))
session = onnxruntime.InferenceSession(here / "model.onnx")
line = sys.argv[1] if len(sys.argv) > 1 else facts["example"]

before, _, behind = line.partition(facts["mask"])
ids = tokenizer.encode(before.rstrip(" ")).ids if before.strip() else []
gap = len(ids)
ids += [facts["unknown"], *(tokenizer.encode(behind.strip(" ")).ids if behind.strip() else []), facts["end"]]
tokens = np.array([ids])
inputs = {"tokens": tokens, "lengths": np.array([len(ids)]), "is_hidden": np.arange(len(ids))[None] == gap}
log_probs = session.run(None, inputs)[0][0, gap]
log_probs[[facts["unknown"], facts["end"]]] = -np.inf
for token in np.argsort(-log_probs)[:5]:
    print(f"{np.exp(log_probs[token]):.4f} {tokenizer.decode([int(token)])}")
"""


def export_masked(model: Any) -> Exported:
    """The whole net."""
    symbol = model.tokenizer.decode([min(EOS_ID + 1, model.tokenizer.vocab_size - 1)])
    facts = {
        "end": EOS_ID,
        "unknown": UNK_ID,
        "mask": MASK,
        "units": model.tokenizer.units,
        "example": f"{symbol} {MASK}",
    }
    return Exported(model.net.exported(), model.tokenizer.files(), example_program(PURPOSE, USE), facts)
