"""An answer to a question about a text: its sentences are read, then looked at again and again with the question in mind.

Memory networks (Sukhbaatar et al. 2015) whose sentences are read by recurrent layers, and put in order by others.
U distinct sentences · T words · B rows · S sentences · D width of a sentence · L answers
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.nn import Linear, ModuleList, Parameter

from elman.core.arrays import Array
from elman.nets.encoder import BidirectionalStack, Encoding, make_cell
from elman.nets.inputs import NetInputs
from elman.nets.text_encoder import TextEncoder
from elman.nets.text_net import LabelNet, initialise_linear
from elman.nets.trace import NetTrace, join_traces
from elman.nets.trainable import Loss
from elman.tasks.qa.config import ReaderConfig
from elman.tasks.qa.stories import Stories, StoryBatch


class ChoosingNet(LabelNet):
    """Chooses one of the answers that training has."""

    def __init__(self, config: ReaderConfig, inputs: NetInputs, *, num_labels: int) -> None:
        super().__init__()
        dtype = inputs.dtype
        self.vocab_size = max(2, num_labels)
        self.reader = TextEncoder(config, inputs, drops_output=False)
        self.config: ReaderConfig = config.model_copy(update={"embedding": self.reader.config.embedding})
        width = self.reader.output_width
        self.order = BidirectionalStack(
            lambda inputs: make_cell(config.family, inputs, config.hidden, reset=config.reset, dtype=dtype),
            inputs=width,
            hidden=config.hidden,
            dtype=dtype,
        )
        self.question = Linear(width, 2 * config.hidden, dtype=dtype)
        self.positions = Parameter(torch.zeros(config.positions, 2 * config.hidden, dtype=dtype))
        self.hops = ModuleList(Linear(6 * config.hidden, 2 * config.hidden, dtype=dtype) for _ in range(config.hops))
        self.output = Linear(2 * config.hidden, num_labels, dtype=dtype)
        self._usual_length = inputs.usual_length
        if inputs.rng is not None:
            self._initialise(inputs.rng, inputs.vectors)

    def _initialise(self, rng: torch.Generator, vectors: Array | None) -> None:
        self.reader.initialise(rng, vectors)
        if vectors is None:
            with torch.no_grad():  # few words, all frequent: begin with vectors as large as layers expect
                self.reader.embedding.weight.mul_(10)
        self.order.initialise(rng)
        for layer in (self.question, *self.hops, self.output):
            assert isinstance(layer, Linear)
            initialise_linear(layer, rng)
        with torch.no_grad():
            self.positions.uniform_(-0.1, 0.1, generator=rng)

    def predict(self, stories: Stories) -> tuple[Array, Array]:
        """Probabilities of the answers (B, L), and where each hop looked: (B, hops, S)"""
        with torch.inference_mode():
            scores_BL, weights = self._scores(stories)
            looked_BKS = torch.stack(weights, dim=1).to(torch.float32)
            return scores_BL.softmax(1).to(torch.float32).cpu().numpy(), looked_BKS.cpu().numpy()

    # -------------------------------------------------------------------------------------------------------- training

    def batch_loss(self, batch: StoryBatch, state: Any) -> tuple[Loss, None]:
        """Nats of the right answers."""
        scores_BL, _ = self._scores(batch.stories)
        nats = F.cross_entropy(scores_BL, self._ids(batch.answers), reduction="sum")
        return Loss(nats / len(scores_BL), nats.detach().double(), len(scores_BL)), None

    def count_flops(self) -> float:
        """Multiply-adds of matrix products for one question, forward; sentences that come twice are read once."""
        return self._usual_length * (self.order.multiply_adds() + self.reader.stack.multiply_adds())

    def _scores(self, stories: Stories) -> tuple[Tensor, list[Tensor]]:
        """-> (B, L), the weights (B, S) of each hop"""
        read = self.reader(self._ids(stories.sentences).t(), self._ids(stories.sentence_lengths))
        return self._scores_of(_ends(read), stories, self.order)

    def scores(self, stories: Stories) -> Array:
        """What the answers' probabilities are made of. -> (B, L)"""
        with torch.inference_mode():
            return self._scores(stories)[0].to(torch.float32).cpu().numpy()

    def words_read(self, sentences: Sequence[Array]) -> Tensor:
        """The vectors of the words of some sentences, one after the other. -> (T, 1, E)"""
        found: Tensor = self.reader.embedding(self._ids(np.concatenate(sentences))[:, None])
        return found

    def trace(self, stories: Stories, words_TBE: Tensor) -> tuple[NetTrace, Tensor]:
        """What was done with one question whose words have these vectors, those of all sentences; and the scores, (1, L)."""
        traced = [
            self.reader.trace(part, torch.tensor([len(part)], device=part.device))
            for part in torch.split(words_TBE, stories.sentence_lengths.tolist())
        ]
        sentences_UD = torch.cat([_ends(encoding) for _, _, encoding in traced])
        scores_BL, weights = self._scores_of(sentences_UD, stories, lambda *given: self.order.trace(*given)[2])
        layers = [join_traces(parts) for parts in zip(*(layers for layers, _, _ in traced), strict=True)]
        outputs = [torch.cat(parts) for parts in zip(*(outputs for _, outputs, _ in traced), strict=True)]
        return NetTrace(words_TBE, outputs[-1], layers, outputs, {"sentences": torch.stack(weights, dim=1)}), scores_BL

    def _scores_of(
        self, sentences_UD: Tensor, stories: Stories, order: Callable[[Tensor, Tensor], Encoding]
    ) -> tuple[Tensor, list[Tensor]]:
        """From sentences that are read; `order` runs the layers over them. -> (B, L), the weights (B, S) of each hop"""
        rate = self.config.rate("output") if self.training else 0.0
        lengths_B = self._ids(stories.context_lengths)
        contexts_BS = self._ids(stories.contexts)
        places_S = torch.arange(contexts_BS.shape[1], device=lengths_B.device)
        ago_BS = (lengths_B[:, None] - 1 - places_S).clamp(0, self.config.positions - 1)  # 0: just before the question
        memory_SBD = F.dropout(F.embedding(contexts_BS.t(), sentences_UD), rate)
        memory_SBD = order(memory_SBD, lengths_B).outputs + F.embedding(ago_BS.t(), self.positions)
        query_BD = self.question(sentences_UD[self._ids(stories.questions)])
        is_sentence_SB = places_S[:, None] < lengths_B
        weights = []
        for hop in self.hops:
            energy_SB = (memory_SBD * query_BD).sum(-1) / memory_SBD.shape[-1] ** 0.5
            energy_SB = energy_SB.masked_fill(~is_sentence_SB, -1e9)  # a question without a context looks at nothing
            weights_SB = energy_SB.softmax(0) * is_sentence_SB
            seen_BD = (weights_SB[:, :, None] * memory_SBD).sum(0)
            # the product says whether what was seen agrees: without it `is Mary in the kitchen` was never learned
            query_BD = query_BD + torch.tanh(hop(torch.cat([query_BD, seen_BD, query_BD * seen_BD], dim=-1)))
            weights.append(weights_SB.t())
        return self.output(F.dropout(query_BD, rate)), weights


def _ends(read: Encoding) -> Tensor:
    """What was known at the end of each sentence. -> (U, D)"""
    return read.last() if read.backward else read.forward[-1][0]
