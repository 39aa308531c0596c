"""A model of pairs as graphs for other programs, and a program that writes the target of a source."""

from __future__ import annotations

from typing import Any

from elman.tasks.exported import Exported, example_program
from elman.tasks.seq2seq.assets import SOURCE_PREFIX
from elman.text.units.vocabulary import EOS_ID

PURPOSE = "Writes the likeliest target of a source, by the model of pairs beside this file: python example.py SOURCE"
USE = '''\
reader, writer = (Tokenizer.from_file(str(here / facts[name])) for name in ("source_tokenizer", "target_tokenizer"))
encoder, decoder = (onnxruntime.InferenceSession(here / name) for name in ("encoder.onnx", "decoder.onnx"))
source = sys.argv[1] if len(sys.argv) > 1 else facts["example"]


def run(session, inputs):
    """The outputs of a graph by name, of the inputs that it has."""
    found = session.run(None, {port.name: inputs[port.name] for port in session.get_inputs()})
    return dict(zip([port.name for port in session.get_outputs()], found))


ids = [*reader.encode(source.strip()).ids, facts["end"]]
state = run(encoder, {"source": np.array([ids]), "lengths": np.array([len(ids)])})
token, written = facts["end"], []  # a target begins behind the end of a line
for _ in range(facts["most_tokens"] + facts["most_tokens_ratio"] * len(ids)):
    found = run(decoder, {"tokens": np.array([token]), **state})
    state |= {name: found[output] for name, output in facts["state"].items()}
    token = int(found["log_probs"][0].argmax())
    if token == facts["end"]:
        break
    written.append(token)
print(writer.decode(written))
'''


def export_translator(model: Any) -> Exported:
    """The encoder, and the decoder's step."""
    is_shared = model.source is model.target
    facts = {
        "end": EOS_ID,
        "source_tokenizer": ("" if is_shared else SOURCE_PREFIX) + "tokenizer.json",
        "target_tokenizer": "tokenizer.json",
        "most_tokens": 10,
        "most_tokens_ratio": 3,
        "example": model.source.decode(range(EOS_ID + 1, min(EOS_ID + 6, model.source.vocab_size))),
    }
    return Exported(model.net.exported(), model.assets.files(), example_program(PURPOSE, USE), facts)
