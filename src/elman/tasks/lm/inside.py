"""What a language model does with a text, token by token: for those who look inside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from elman.core.arrays import Array
from elman.core.errors import UsageError
from elman.explain.filling import Filler
from elman.explain.kind import OF_WORDS
from elman.explain.reading import AttentionMap, Reading, head_maps, refuse_long
from elman.explain.training_text import TrainingText
from elman.lm.trace import Trace, explain
from elman.tasks.lm.filling import log_probs_after, sentence_log_probs
from elman.tasks.lm.record import LmRecord
from elman.tasks.lm.training_text import read_training_text
from elman.tasks.word_vectors import written_words
from elman.text.corpus import read_corpus
from elman.text.gaps import has_gap
from elman.text.index import TextIndex
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
    index: Callable[[], TextIndex] | None

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

    def trace(self, text: str, *, most: int | None = None) -> TextTrace:
        """Read a text from its beginning; each line alone, where the model reads so. Then attention is not recorded.

        most: of a longer text only the first so many tokens.
        """
        ids = self.ids_of(text)[:most]
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
        return np.split(ids, ends[ends < len(ids)]) if self.record.data.reset_lines else [ids]

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
        """Those of every language model; and of nets. The first suits the text."""
        every = ("reach", "cloze", "counts", "novelty")
        kinds: tuple[str, ...] = ("surprisal", *every)
        if hasattr(self.lm, "trace_text"):
            kinds = ("surprisal", "gradients", "saliency", *self.lm.kinds(), *every, *OF_WORDS)
        return tuple(dict.fromkeys(("cloze", *kinds))) if has_gap(text) else kinds

    def reading(self, text: str) -> Reading:
        """A text as the net reads it, from its beginning: prediction t is about token t, after those before it."""
        net = self.lm
        if not hasattr(net, "trace_text"):
            where = self.directory or "this"
            raise UsageError(
                f"{where} holds a model that is no net",
                code="not-for-this-model",
                hint="nets have gradients, gates and states",
            )
        if self.record.data.reset_lines and "\n" in text.removesuffix("\n"):
            raise UsageError("this model reads each line alone", code="not-for-this-model", hint="give one line")
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
            is_local=True,
            is_causal=True,
        )

    def word_vectors(self) -> tuple[Sequence[str], Array]:
        """Of a net: its words, the most frequent first, and the vector of each."""
        if not hasattr(self.lm, "embedding"):
            raise UsageError(
                f"{self.directory or 'this'} holds a model that has no word vectors",
                code="not-for-this-model",
                hint="nets have them",
            )
        return written_words(self.tokenizer, self.lm.tensors()["embedding.weight"])

    def read_ids(self, path: Path) -> Array:
        """A file as ids, read as the training text was."""
        return read_corpus([path], self.tokenizer, self.record.data).ids

    def training_text(self, data: Path | None = None) -> TrainingText:
        """The text it was trained on, from its index, or from the files that its command names; or another."""
        if data is None and self.index is not None:
            return TrainingText(self.index().ids, f"the index of {self.directory or 'this model'}")
        return read_training_text(self.record, self.tokenizer, data, str(self.directory or "this model"))

    def training_index(self, data: Path | None = None) -> TextIndex:
        """The index that was saved with it, or a new one of the text it was trained on, or of another text."""
        if data is None and self.index is not None:
            return self.index()
        return TextIndex.build(self.training_text(data).ids)

    def pieces(self, ids: Array) -> list[str]:
        """What each token adds to a text that is written token by token."""
        decoder = self.tokenizer.decoder()
        found = [decoder.push(token) for token in ids.tolist()]
        return [*found[:-1], found[-1] + decoder.finish()] if found else []

    def filler(self) -> Filler:
        """A gap is filled after what stands before it; or so that the whole sentence is likely."""
        return Filler(
            "left to right",
            self.tokenizer,
            log_probs=lambda texts: log_probs_after(self.lm, [text.before() for text in texts]),
            sentence_log_probs=lambda text, words: sentence_log_probs(self.lm, text, words),
        )

    def attention_maps(self, text: str, target: str | None = None) -> list[AttentionMap]:
        """Of every head: at which tokens each token looked, itself among them."""
        reading = self.reading(text)
        refuse_long(reading.tokens)
        traced, _ = reading.trace(reading.words())
        return head_maps(traced.layers, "self", rows=reading.tokens, columns=reading.tokens)
