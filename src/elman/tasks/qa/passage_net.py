"""A context read with a question in mind: what readers share that mark an answer in it or write one.

S words of question and context as one source · Q words of a question · T words of a context, its end among them ·
B rows · O width of what is read off · H hidden, of one direction
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import Module

from elman.core.arrays import Array
from elman.nets.attention import Attention
from elman.nets.dropout import locked_dropout
from elman.nets.encoder import BidirectionalStack, Encoding, make_cell
from elman.nets.inputs import NetInputs
from elman.nets.text_encoder import TextEncoder
from elman.nets.trace import LayerTrace
from elman.tasks.qa.config import ReaderConfig
from elman.text.units.vocabulary import EOS_ID, UNK_ID


class Source(NamedTuple):
    """A batch of questions and contexts."""

    questions: Tensor  # (Q, B)
    question_lengths: Tensor  # (B,)
    contexts: Tensor  # (T, B)
    context_lengths: Tensor  # (B,), each context's end counted


class Passage(NamedTuple):
    """What was read of a batch of contexts."""

    encoding: Encoding
    lengths: Tensor  # (B,), each context's end counted
    words: Tensor  # (T, B, E), the words alone


class PassageEncoder(Module):
    """Words of question and context are read by the same layers. Each word of the context looks at the question, and a
    second layer from both sides reads what all of them found (Seo et al. 2017, Chen et al. 2017).
    """

    def __init__(self, config: ReaderConfig, inputs: NetInputs) -> None:
        super().__init__()
        dtype = inputs.dtype
        self.reader = TextEncoder(config, inputs, drops_output=False)
        self.config: ReaderConfig = config.model_copy(update={"embedding": self.reader.config.embedding})
        width = self.reader.output_width
        self.attention = Attention("bilinear", query=width, memory=width, inner=width, dtype=dtype)
        self.stack = BidirectionalStack(
            lambda inputs: make_cell(config.family, inputs, config.hidden, reset=config.reset, dtype=dtype),
            inputs=3 * width + 1,
            hidden=config.hidden,
            dtype=dtype,
        )
        self.output_width = self.stack.output_width  # 2 H

    def initialise(self, rng: torch.Generator, vectors: Array | None) -> None:
        """Draw all weights."""
        self.reader.initialise(rng, vectors)
        if vectors is None:
            with torch.no_grad():  # begin with vectors as large as layers expect: rare words are hardly ever moved
                self.reader.embedding.weight.mul_(10)
        self.attention.initialise(rng)
        self.stack.initialise(rng)

    def forward(self, source_SB: Tensor, lengths_B: Tensor) -> Passage:
        """Every word of the contexts as (T, B, 2 H). Noisy in training."""
        source = split_source(source_SB, lengths_B)
        asked_QBO = self.reader(source.questions, source.question_lengths).outputs
        words_TBO = self.reader(source.contexts, source.context_lengths).outputs
        return self._seek(source, asked_QBO, words_TBO, self.reader.embedding(source.contexts), self.stack)

    def words_read(self, source_S1: Tensor) -> Tensor:
        """The vectors of one source. -> (S, 1, E)"""
        found: Tensor = self.reader.embedding(source_S1)
        return found

    def trace(self, source_S1: Tensor, words_SBE: Tensor) -> tuple[list[LayerTrace], list[Tensor], Passage]:
        """What each layer did with one source whose words have these vectors, what is there after each, and the passage.

        The end between question and context is not read: of it there are zeros.
        """
        source = split_source(source_S1, torch.tensor([len(source_S1)], device=source_S1.device))
        middle = int(source.question_lengths[0])
        asked = self.reader.trace(words_SBE[:middle], source.question_lengths)
        read = self.reader.trace(words_SBE[middle + 1 :], source.context_lengths)
        passage = self._seek(
            source,
            asked[2].outputs,
            read[2].outputs,
            words_SBE[middle + 1 :],
            lambda *given: self.stack.trace(*given)[2],
        )
        layers = [_with_gap(parts) for parts in zip(asked[0], read[0], strict=True)]
        gap = torch.zeros_like
        outputs = [torch.cat([one, gap(other[:1]), other]) for one, other in zip(asked[1], read[1], strict=True)]
        return layers, outputs, passage

    def _seek(
        self,
        source: Source,
        asked_QBO: Tensor,
        words_TBO: Tensor,
        words_TBE: Tensor,
        stack: Callable[[Tensor, Tensor], Encoding],
    ) -> Passage:
        """The words of the contexts, read with the questions in mind; `stack` runs the layers over them."""
        sought_BTO, _ = self.attention(
            words_TBO.transpose(0, 1), asked_QBO.transpose(0, 1), source.question_lengths, ()
        )
        sought_TBO = sought_BTO.transpose(0, 1)
        is_asked_TB1 = _is_asked(source)[:, :, None].to(words_TBO.dtype)
        read_TBI = torch.cat([words_TBO, sought_TBO, words_TBO * sought_TBO, is_asked_TB1], dim=-1)
        rates = (self.config.rate("layers"), self.config.rate("output")) if self.training else (0.0, 0.0)
        encoding = stack(locked_dropout(read_TBI, rates[0]), source.context_lengths)
        outputs_TBH = locked_dropout(encoding.outputs, rates[1])
        found = Encoding(outputs_TBH, encoding.forward, encoding.backward)
        return Passage(found, source.context_lengths, words_TBE)

    def multiply_adds(self) -> float:
        """Of one word of a context."""
        return self.reader.stack.multiply_adds() + self.stack.multiply_adds()

    @property
    def device(self) -> torch.device:
        return self.reader.device


def _with_gap(parts: Sequence[LayerTrace]) -> LayerTrace:
    """A layer over question and context, with zeros between them."""
    asked, read = parts

    def joined(one: Sequence[Tensor], other: Sequence[Tensor]) -> list[Tensor]:
        return [*one, torch.zeros_like(other[0]), *other]

    return LayerTrace(
        joined(asked.outputs, read.outputs),
        read.after,
        states={name: joined(steps, read.states[name]) for name, steps in asked.states.items()},
        gates={name: joined(steps, read.gates[name]) for name, steps in asked.gates.items()},
    )


def split_source(source_SB: Tensor, lengths_B: Tensor) -> Source:
    """Question and context of each row: the first end is between them."""
    is_question_SB = (source_SB == EOS_ID).cumsum(0) == 0
    question_lengths_B = is_question_SB.sum(0)
    context_lengths_B = lengths_B - question_lengths_B - 1
    times_T1 = torch.arange(int(context_lengths_B.max()), device=source_SB.device)[:, None]
    places_TB = (question_lengths_B + 1 + times_T1).clamp(max=len(source_SB) - 1)
    return Source(
        source_SB[: int(question_lengths_B.max())],
        question_lengths_B,
        source_SB.gather(0, places_TB),
        context_lengths_B,
    )


def _is_asked(source: Source) -> Tensor:
    """Which words of a context are in its question too; one unknown word need not be another. -> (T, B) bool"""
    times_Q1 = torch.arange(len(source.questions), device=source.questions.device)[:, None]
    asked_QB = source.questions.masked_fill(times_Q1 >= source.question_lengths, -1)
    is_known_TB = source.contexts != UNK_ID
    return (source.contexts[:, None] == asked_QB).any(1) & is_known_TB
