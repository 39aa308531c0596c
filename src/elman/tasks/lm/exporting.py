"""A net of language as a graph for other programs, and a program that writes text with it."""

from __future__ import annotations

from typing import Any

from elman.core.errors import UsageError
from elman.tasks.exported import Exported, Exports, example_program
from elman.tasks.lm.record import LmRecord
from elman.text.units.tokenizer import Tokenizer
from elman.text.units.vocabulary import EOS_ID, UNK_ID

PURPOSE = "Writes text with the language model beside this file: python example.py [PROMPT] [TOKENS] [SEED]"
USE = """\
tokenizer = Tokenizer.from_file(str(here / "tokenizer.json"))
session = onnxruntime.InferenceSession(here / "model.onnx")
prompt, num_tokens, seed = [*sys.argv[1:], *["", "50", "1"][len(sys.argv) - 1 :]]

state = {}
for port in facts["graphs"]["model.onnx"]["inputs"]:
    if port["name"] in facts["start"]:
        sizes = [1 if isinstance(size, str) else size for size in port["shape"]]
        state[port["name"]] = np.full(sizes, facts["start"][port["name"]], port["type"])
lines = [tokenizer.encode(line).ids for line in prompt.split("\\n")]
unread = [token for line in lines for token in [facts["end"], *line]]  # a text begins behind the end of a line
rng = np.random.default_rng(int(seed))
for _ in range(int(num_tokens)):
    for token in unread:
        inputs = {"tokens": np.array([token]), **state}
        log_probs, *after = session.run(["log_probs", *facts["state"].values()], inputs)
        state = dict(zip(facts["state"], after))
    log_probs[0, facts["unknown"]] = -np.inf
    token = int(np.argmax(log_probs[0] + rng.gumbel(size=log_probs.shape[1])))
    if token == facts["end"] and facts["reads_lines_alone"]:
        break
    lines, unread = [*lines, []] if token == facts["end"] else [*lines[:-1], [*lines[-1], token]], [token]
print("\\n".join(tokenizer.decode(line) for line in lines))
"""


class ExportsStep(Exports):
    """Of a language model at the text level: the step of its net."""

    record: LmRecord
    tokenizer: Tokenizer
    lm: Any

    def exported(self) -> Exported:
        """The step, if there is a net to have one."""
        where, family = self.directory or "this", self.record.family
        if getattr(self.record.model, "members", ()):
            raise UsageError(
                f"{where} holds a mixture, which is no single graph",
                code="not-for-this-model",
                hint="export a net that it was mixed from; `elman train lm --model lstm` makes one that stands alone",
            )
        if (nets := getattr(self.record.model, "nets", 1)) > 1:
            raise UsageError(
                f"{where} holds {nets} nets, which are no single graph",
                code="not-for-this-model",
                hint="train it with --set model.nets=1",
            )
        if not hasattr(self.lm, "exported"):
            raise UsageError(
                f"{where} holds a model of the family {family}, which is no graph",
                code="not-for-this-model",
                hint="rnn, gru, lstm, window and transformer are; count models go to other tools with --format arpa",
            )
        facts = {
            "end": EOS_ID,
            "unknown": UNK_ID,
            "units": self.tokenizer.units,
            "reads_lines_alone": self.record.data.reset_lines,
        }
        return Exported(self.lm.exported(), self.tokenizer.files(), example_program(PURPOSE, USE), facts)
