"""What a language model does with a text, token by token: for those who look inside."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from elman.core.arrays import Array
from elman.core.errors import UsageError
from elman.explain.kind import OF_WORDS
from elman.explain.reading import AttentionMap, Reading, head_maps
from elman.lm.trace import Trace, explain
from elman.tasks.lm.record import LmRecord
from elman.text.units.tokenizer import Tokenizer
from elman.text.units.vocabulary import EOS, EOS_ID, UNK_ID

START = "<s>"


@dataclass(frozen=True)
class TextTrace:
    """A text that was read with recording on: its tokens, ends of lines among them, and what the model did."""

    tokens: tuple[str, ...]
    ids: Array
    trace: Trace


class LooksInside:
    """Of a language model at the text level: its symbols, its traces and, of a net, its readings."""

    record: LmRecord
    tokenizer: Tokenizer
    lm: Any
    directory: Path | None

    def ids_of(self, text: str) -> Array:
        """The ids of a text and the end of its last line."""
        return np.append(self.tokenizer.encode_text(text.removesuffix("\n")), EOS_ID).astype(np.int64)

    def symbols(self, ids: Array) -> tuple[str, ...]:
        """Tokens as they are written one after the other, each with the space it brings; ends of lines by their name."""
        return tuple(self.symbol(int(token), ids[:place]) for place, token in enumerate(ids))

    def symbol(self, token: int, before: Array) -> str:
        """A token as it would be written after others; the end of a line by its name."""
        if token == EOS_ID:
            return EOS
        if self.tokenizer.units == "space":
            return self.tokenizer.tokens[token]
        decoder = self.tokenizer.decoder()
        for earlier in before[-4:].tolist():
            decoder.push(earlier)
        return decoder.push(token) or self.tokenizer.tokens[token]  # half a character: as the vocabulary has it

    def trace(self, text: str) -> TextTrace:
        """Read a text from its beginning; each line alone, where the model reads so. Then attention is not recorded."""
        ids = self.ids_of(text)
        lines = self.as_read(ids)
        traces = [explain(self.lm, line, self.lm.start(1)) for line in lines]
        if len(traces) == 1:
            return TextTrace(self.symbols(ids), ids, traces[0])
        arrays = {
            name: np.concatenate([trace.arrays[name] for trace in traces])
            for name in traces[0].arrays
            if "attention" not in name
        }
        return TextTrace(self.symbols(ids), ids, Trace(np.concatenate([one.log_probs for one in traces]), arrays))

    def as_read(self, ids: Array) -> list[Array]:
        """Ids that are read one after the other: all of them or, where the model reads so, each line alone."""
        ends = np.flatnonzero(ids == EOS_ID) + 1
        return np.split(ids, ends[:-1]) if self.record.data.reset_lines else [ids]

    def is_unknown(self, token: int) -> bool:
        """Whether a token stands for words that are not in the vocabulary."""
        return bool(token == UNK_ID)

    def start(self) -> Any:
        """The state before a text."""
        return self.lm.start(1)

    def after(self, token: int, state: Any) -> Any:
        """The state after one more token; a line of its own begins where the last one ended, if the model reads so."""
        if token == EOS_ID and self.record.data.reset_lines:
            return self.start()
        return self.lm.advance(np.array([token]), state)

    def member_names(self) -> list[str]:
        """Of a mixture, what its members are."""
        return [member.family for member in getattr(self.record.model, "members", ())]

    def kinds(self, text: str = "") -> tuple[str, ...]:
        """Those of every language model; and of nets."""
        every = ("reach", "cloze", "counts", "novelty")
        if not hasattr(self.lm, "trace_text"):
            return ("surprisal", *every)
        return ("surprisal", "gradients", "saliency", *self.lm.kinds(), *every, *OF_WORDS)

    def reading(self, text: str) -> Reading:
        """A text as the net reads it, from its beginning: prediction t is about token t, after those before it."""
        net = self.lm
        if not hasattr(net, "trace_text"):
            where = self.directory or "this"
            raise UsageError(f"{where} holds a model that is no net", hint="nets have gradients, gates and states")
        ids = self.ids_of(text)
        symbols = self.symbols(ids)
        return Reading(
            tokens=(START, *symbols[:-1]),
            is_known=[True, *(ids[:-1] != UNK_ID).tolist()],
            rows=symbols,
            columns=self.tokenizer.tokens,
            chosen=ids,
            words=lambda: net.words_read(ids),
            trace=lambda words: net.trace_text(ids, words),
            unrecorded=lambda: net.score(ids[None], np.array([len(ids)]), net.start(1))[0][0],
            is_causal=True,
        )

    def attention_maps(self, text: str, target: str | None = None) -> list[AttentionMap]:
        """Of every head: at which tokens each token looked, itself among them."""
        reading = self.reading(text)
        traced, _ = reading.trace(reading.words())
        return head_maps(traced.layers, "self", rows=reading.tokens, columns=reading.tokens)
