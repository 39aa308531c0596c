"""A tag for every word of a sentence, all at once: words and their spelling, layers from both sides, softmax or CRF.

T words · B rows · U distinct words · C characters · L labels
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.nn import Linear

from elman.core.arrays import Array
from elman.core.tensors import under_prefix
from elman.nets.crf import Crf
from elman.nets.graphs import (
    BATCH,
    EXAMPLE_LENGTH,
    LENGTH,
    Graph,
    NetGraphs,
    Run,
    TensorModule,
    difference,
    in_float32,
    largest,
    text_lengths,
)
from elman.nets.inputs import NetInputs, dtype_of
from elman.nets.layer import LayerVectors
from elman.nets.layer_mix import LayerMix
from elman.nets.spelling import CharacterEncoder
from elman.nets.text_encoder import TextEncoder
from elman.nets.text_net import TextNet, initialise_linear
from elman.nets.trace import NetTrace
from elman.nets.trainable import Loss
from elman.nets.vocabulary_net import embedding_of, load_tensors
from elman.tasks.bilm.config import BilmConfig
from elman.tasks.bilm.net import BilmFeatures
from elman.tasks.tag.assets import BILM_TENSORS
from elman.tasks.tag.config import TaggerConfig
from elman.tasks.tag.data import TagBatch, Words
from elman.tasks.tag.spans import PREFIXES, may_follow

USUAL_SPELLING = (
    5  # characters of a word when the cost is estimated; a word that occurs twice in a batch is spelled once
)


AXES = {name: {0: BATCH, 1: LENGTH} for name in ("words", "forms", "foreign")} | {
    "lengths": {0: BATCH},
    "spelling": {0: "forms", 1: "characters"},
    "spelling_lengths": {0: "forms"},
}


@dataclass(frozen=True)
class Tags:
    """What was chosen for every word, and how sure it is."""

    best: Array  # (B, T), 0 at padding
    probabilities: Array | None  # (B, T, L), of every label at every word


class WordTensors(NamedTuple):
    """`Words` as far as a net reads them."""

    words: Tensor
    lengths: Tensor
    forms: Tensor | None = None
    spelling: Tensor | None = None
    spelling_lengths: Tensor | None = None
    foreign: Tensor | None = None


class TaggerModel(TextNet):
    """Predicts tags, `labels` in their order.

    bilm: trained language models, whose layers, mixed as the tagger learns to, are read beside each word.
    """

    def __init__(
        self,
        config: TaggerConfig,
        inputs: NetInputs,
        *,
        num_characters: int,
        labels: Sequence[str],
        bilm: BilmFeatures | None = None,
    ) -> None:
        super().__init__()
        dtype = inputs.dtype
        self.vocab_size = len(labels)  # of answers
        self.bilm = bilm
        self.mix = None if bilm is None else LayerMix(bilm.num_feature_layers, dtype=dtype)
        self.spelling: CharacterEncoder | None = None
        if config.characters != "none":
            self.spelling = CharacterEncoder(
                config.characters,
                num_characters,
                embedding=config.character_embedding,
                hidden=config.character_hidden,
                dtype=dtype,
            )
        more = self.spelling.output_width if self.spelling is not None else 0
        more += bilm.width if bilm is not None else 0
        self.reader = TextEncoder(config, inputs, more_inputs=more)
        self.config: TaggerConfig = config.model_copy(update={"embedding": self.reader.config.embedding})
        self.output = Linear(self.reader.output_width, len(labels), dtype=dtype)
        self.crf: Crf | None = None
        if config.output == "crf":
            self.crf = Crf(len(labels), may_follow=allowed_pairs(labels, config.scheme), dtype=dtype)
        if inputs.rng is not None:
            self._initialise(inputs.rng, inputs.vectors)

    @classmethod
    def from_tensors(
        cls,
        config: TaggerConfig,
        tensors: Mapping[str, Array],
        *,
        labels: Sequence[str],
        bilm: BilmConfig | None = None,
    ) -> Self:
        """The model whose `config`, labels and `tensors()` these were. bilm: the settings of its language models."""
        words = embedding_of(tensors, "tag", within="reader.")
        characters = tensors.get("spelling.embedding.weight")
        model = cls(
            config.model_copy(update={"embedding": words.shape[1]}),
            NetInputs.to_load(words),
            num_characters=0 if characters is None else len(characters),
            labels=labels,
            bilm=None
            if bilm is None
            else BilmFeatures(bilm, under_prefix(tensors, BILM_TENSORS), dtype=dtype_of(words)),
        )
        load_tensors(model, tensors)
        return model

    def _initialise(self, rng: torch.Generator, vectors: Array | None) -> None:
        self.reader.initialise(rng, vectors)
        if self.spelling is not None:
            self.spelling.initialise(rng)
        initialise_linear(self.output, rng)
        if self.crf is not None:
            self.crf.initialise(rng)

    def predict(self, words: Words, *, with_probabilities: bool = False) -> Tags:
        """The likeliest tags: each by itself, or of a CRF the likeliest sequence."""
        with torch.inference_mode():
            scores_TBL, lengths_B = self._scores(words)
            best_TB = scores_TBL.argmax(2) if self.crf is None else self.crf.best(scores_TBL, lengths_B)
            probabilities = None
            if with_probabilities:
                marginals = scores_TBL.softmax(2) if self.crf is None else self.crf.marginals(scores_TBL, lengths_B)
                probabilities = marginals.detach().transpose(0, 1).to(torch.float32).cpu().numpy()
        return Tags(best_TB.t().cpu().numpy(), probabilities)

    # -------------------------------------------------------------------------------------------------------- training

    def batch_loss(self, batch: TagBatch, state: Any) -> tuple[Loss, None]:
        """Nats of the right tags: of each by itself, or of whole sentences by a CRF."""
        scores_TBL, lengths_B = self._scores(batch.words)
        tags_TB = self._ids(batch.tags).t()
        tokens = batch.num_tokens
        if self.crf is not None:
            nats = -self.crf.log_likelihood(scores_TBL, tags_TB, lengths_B).sum()
        else:
            is_word_TB = torch.arange(len(tags_TB), device=tags_TB.device)[:, None] < lengths_B
            nats = F.cross_entropy(scores_TBL[is_word_TB], tags_TB[is_word_TB], reduction="sum")
        return Loss(nats / tokens, nats.detach().double(), tokens), None

    def count_flops(self) -> float:
        """Multiply-adds of matrix products for one word, forward."""
        spelling = 0.0 if self.spelling is None else USUAL_SPELLING * self.spelling.multiply_adds()
        crf = 0.0 if self.crf is None else self.crf.multiply_adds()
        spelling += 0.0 if self.bilm is None else self.bilm.multiply_adds() / 3  # nothing goes back through it
        return spelling + self.reader.stack.multiply_adds() + self.output.weight.numel() + crf

    def word_vectors(self, words: Words) -> list[LayerVectors]:
        """What each layer makes of every word; the first is the words alone, without their spelling."""
        read = self._tensors(words)
        return self.reader.vectors(read.words.t(), read.lengths, self._beside(read))

    def scores(self, words: Words) -> Array:
        """What the tags' probabilities are made of. -> (T, B, L)"""
        with torch.inference_mode():
            return self._scores(words)[0].to(torch.float32).cpu().numpy()

    def words_read(self, words: Words) -> Tensor:
        """The vectors of the words of one sentence, without their spelling. -> (T, 1, E)"""
        found: Tensor = self.reader.embedding(self._ids(words.words).t())
        return found

    def trace(self, words: Words, words_TBE: Tensor) -> tuple[NetTrace, Tensor]:
        """What was done with one sentence whose words have these vectors, and the scores of its tags, (T, L)."""
        read = self._tensors(words)
        layers, outputs, encoding = self.reader.trace(words_TBE, read.lengths, self._beside(read))
        return NetTrace(words_TBE, encoding.outputs, layers, outputs), self.output(encoding.outputs)[:, 0]

    def _scores(self, words: Words) -> tuple[Tensor, Tensor]:
        """-> (T, B, L), (B,)"""
        read = self._tensors(words)
        return self._score(read), read.lengths

    def _score(self, read: WordTensors) -> Tensor:
        """-> (T, B, L)"""
        scores_TBL: Tensor = self.output(self.reader(read.words.t(), read.lengths, self._beside(read)).outputs)
        return scores_TBL

    def _tensors(self, words: Words) -> WordTensors:
        """Those that the net reads."""
        spelling = (words.forms, words.spelling, words.spelling_lengths) if self.spelling is not None else (None,) * 3
        foreign = words.foreign if self.bilm is not None else None
        read = (words.words, words.lengths, *spelling, foreign)
        return WordTensors(*(None if one is None else self._ids(one) for one in read))  # type: ignore[arg-type]

    def _beside(self, read: WordTensors) -> Tensor | None:
        """What is read beside the words: their spelling, the layers of language models. -> (T, B, ...)"""
        beside: list[Tensor] = []
        if self.spelling is not None and read.forms is not None:
            beside.append(F.embedding(read.forms.t(), self.spelling(read.spelling, read.spelling_lengths)))
        if self.bilm is not None and self.mix is not None:
            beside.append(self.mix(self.bilm(read.foreign, read.lengths)).transpose(0, 1))
        return torch.cat(beside, dim=-1) if beside else None

    def exported(self) -> NetGraphs:
        """One graph: the scores of all labels at every word, and of a CRF those of one label after another."""
        net = in_float32(self)
        example = net._tensors(random_words(self, np.random.default_rng(0), np.array([EXAMPLE_LENGTH, 2])))
        inputs = {name: tensor for name, tensor in example._asdict().items() if tensor is not None}

        def score(net: Self, *tensors: Tensor) -> tuple[Tensor, ...]:
            scores_BTL = net._score(WordTensors(**dict(zip(inputs, tensors, strict=True)))).transpose(0, 1)
            return (scores_BTL,) if net.crf is None else (scores_BTL, net.crf.table())

        def compare(run: Run, steps: int) -> float:
            rng, found = np.random.default_rng(steps), []
            for lengths in text_lengths(steps, rng):
                words = random_words(net, rng, lengths)
                outputs = run("model", {name: getattr(words, name).astype(np.int64) for name in inputs})
                found.append(difference(outputs["scores"], net.scores(words).transpose(1, 0, 2)))
            return largest(found)

        outputs = ["scores"] if net.crf is None else ["scores", "transitions"]
        return NetGraphs([Graph("model", TensorModule(net, score), inputs, AXES, outputs)], compare)


def random_words(net: TaggerModel, rng: np.random.Generator, lengths: Array) -> Words:
    """Sentences of any words, every one spelt in its own way; to see whether two nets say the same of them."""
    shape = (len(lengths), int(lengths.max()))
    sizes = rng.integers(1, EXAMPLE_LENGTH + 3, shape).flatten()
    characters = 1 if net.spelling is None else len(net.spelling.embedding.weight)
    return Words(
        rng.integers(0, len(net.reader.embedding.weight), shape),
        lengths,
        np.arange(sizes.size).reshape(shape),
        rng.integers(0, characters, (sizes.size, sizes.max())),
        sizes,
        None if net.bilm is None else rng.integers(0, net.bilm.vocab_size, shape),
    )


def allowed_pairs(labels: Sequence[str], scheme: str | None) -> Array | None:
    """What may follow what, the edge of a sentence last; None where everything may. -> (L + 1, L + 1)"""
    if scheme not in PREFIXES:
        return None
    edges: list[str | None] = [*labels, None]
    return np.array([[may_follow(before, tag, scheme) for tag in edges] for before in edges])
