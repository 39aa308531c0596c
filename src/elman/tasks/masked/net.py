"""A net that restores what was left out of a text, from what stands on both sides of it (Taylor 1953, Devlin et al. 2019).

It is no language model: it says nothing of a text as a whole, only of tokens whose neighbours are known. Ends of lines
are always known. B rows · T tokens · N tokens to restore · V vocabulary
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from torch.nn import Parameter

from elman.core.arrays import Array
from elman.nets.attention_encoder import AttentionEncoder
from elman.nets.dropout import locked_dropout
from elman.nets.encoder import BidirectionalStack, make_cell
from elman.nets.graphs import (
    BATCH,
    EXAMPLE_LENGTH,
    LENGTH,
    ROWS,
    Graph,
    NetGraphs,
    Run,
    TensorModule,
    difference,
    in_float32,
    largest,
    text_lengths,
)
from elman.nets.inputs import NetInputs
from elman.nets.layer import LayerVectors
from elman.nets.noise import draw_alike, draw_ids_alike
from elman.nets.trace import NetTrace
from elman.nets.trainable import Loss, no_loss
from elman.nets.transformer import BlockShape
from elman.nets.vocabulary_net import Layers, VocabularyNet, embedding_of
from elman.tasks.masked.config import MaskedConfig
from elman.text.batches import Batch
from elman.text.units.vocabulary import EOS_ID

HIDDEN_PART, REPLACED_PART = (
    0.8,
    0.1,
)  # shares of the targets that are masked and replaced; the rest is left as it is (Devlin et al. 2019)
WINDOW = 64
RESTORED_ROWS = 1024  # targets whose distributions are held in memory at once


@dataclass(frozen=True)
class Restored:
    """How well tokens were restored; of parts they add up."""

    nats: float = 0.0  # -log p of what stood there
    tokens: int = 0
    right: int = 0  # the likeliest token was the one that stood there

    def __add__(self, other: Restored) -> Restored:
        return Restored(self.nats + other.nats, self.tokens + other.tokens, self.right + other.right)


class MaskedModel(VocabularyNet[MaskedConfig]):
    """Embeddings, a bidirectional recurrent or attentive encoder, an output head for the hidden places only.

    What stands at a hidden place is a learned vector of its own, not a word of the vocabulary.
    """

    @classmethod
    def from_tensors(cls, config: MaskedConfig, tensors: Mapping[str, Array], *, vocab_size: int) -> Self:
        """The model whose `config` and `tensors()` these were."""
        words = embedding_of(tensors, "masked")
        config = config.model_copy(update={"embedding": words.shape[1]})
        model = cls(config, NetInputs.to_load(words, vocab_size))
        model.load_tensors(tensors)
        return model

    def _build_stack(self, dtype: torch.dtype) -> Layers:
        config, inputs = self.config, self.embedding.width
        self.hidden_vector = Parameter(torch.zeros(inputs, dtype=dtype))
        if config.family == "transformer":
            shape = BlockShape(
                config.hidden,
                num_heads=config.num_heads,
                feed_forward=config.feed_forward or 4 * config.hidden,
                window=config.window or WINDOW,
                activation=config.activation or "gelu",
            )
            return AttentionEncoder(inputs, shape, num_layers=config.layers, dtype=dtype)
        family = config.family
        return BidirectionalStack(
            lambda width: make_cell(family, width, config.hidden, reset=config.reset, dtype=dtype),
            inputs=inputs,
            hidden=config.hidden,
            num_layers=config.layers,
            skip=config.skip,
            layer_norm=config.layer_norm,
            dtype=dtype,
        )

    def _output_width(self) -> int:
        return self.stack.output_width

    def _initialise(self, rng: torch.Generator, vectors: Array | None) -> None:
        super()._initialise(rng, vectors)
        with torch.no_grad():
            self.hidden_vector.uniform_(-0.05, 0.05, generator=rng)

    def predict(self, tokens: Array, lengths: Array, is_hidden: Array) -> Array:
        """Log-probabilities of all tokens at each hidden place, in reading order, row by row. -> (N, V) float32

        tokens, is_hidden (B, T); what stands in `tokens` at hidden places does not matter.
        """
        with torch.inference_mode():
            features_NP = self._restore(*self._to_tensors(tokens, lengths, is_hidden))
            return self._to_numpy(self.head.log_probs(features_NP))

    def restore(self, tokens: Array, lengths: Array, is_hidden: Array) -> Restored:
        """How well what stands at the hidden places is restored from the rest."""
        with torch.inference_mode():
            tokens_BT, lengths_B, hidden_BT = self._to_tensors(tokens, lengths, is_hidden)
            features_NP = self._restore(tokens_BT, lengths_B, hidden_BT)
            targets_N = tokens_BT[hidden_BT]
            nats, right = 0.0, 0
            for first in range(0, len(targets_N), RESTORED_ROWS):
                log_probs_NV = self.head.log_probs(features_NP[first : first + RESTORED_ROWS])
                true_N = targets_N[first : first + RESTORED_ROWS]
                nats -= log_probs_NV.gather(1, true_N[:, None]).sum(dtype=torch.float64).item()
                right += int((log_probs_NV.argmax(1) == true_N).sum())
            return Restored(nats, len(targets_N), right)

    def restore_all(self, tokens: Array, lengths: Array) -> Restored:
        """Every token of the rows hidden once, every so many-th of a row at a time: the ends of lines never."""
        can_hide = (np.arange(tokens.shape[1]) < lengths[:, None]) & (tokens != EOS_ID)
        places = np.arange(tokens.shape[1]) % self.config.stride
        found = Restored()
        for turn in range(self.config.stride):
            is_hidden = can_hide & (places == turn)
            if is_hidden.any():
                found += self.restore(tokens, lengths, is_hidden)
        return found

    def vectors(self, tokens: Array, lengths: Array) -> list[LayerVectors]:
        """What each layer makes of every token, none of them hidden; the first is the words. tokens (B, T)"""
        words_TBE = self.embedding(self._to_ids(tokens).t())
        assert isinstance(self.stack, BidirectionalStack | AttentionEncoder)
        return [LayerVectors(words_TBE), *self.stack.vectors(words_TBE, self._to_ids(lengths))]

    def exported(self) -> NetGraphs:
        """One graph: the log-probabilities of all tokens at every place, hidden or not."""
        net = in_float32(self)

        def fill(net: Self, tokens_BT: Tensor, lengths_B: Tensor, hidden_BT: Tensor) -> tuple[Tensor, ...]:
            features_BTP = net._project(net._read(tokens_BT, hidden_BT, lengths_B, is_noisy=False)).transpose(0, 1)
            log_probs_NV = net.head.log_probs(features_BTP.flatten(0, 1))
            return (log_probs_NV.view(features_BTP.shape[0], features_BTP.shape[1], net.vocab_size),)

        def compare(run: Run, steps: int) -> float:
            rng, found = np.random.default_rng(steps), []
            for lengths in text_lengths(steps, rng):
                tokens = rng.integers(0, self.vocab_size, (len(lengths), lengths.max()))
                is_hidden = (rng.random(tokens.shape) < 0.3) & (np.arange(lengths.max()) < lengths[:, None])
                outputs = run("model", {"tokens": tokens, "lengths": lengths, "is_hidden": is_hidden})
                expected = net.predict(tokens, lengths, is_hidden)
                found.append(difference(outputs["log_probs"][is_hidden], expected))
            return largest(found)

        tokens_BT = torch.full((ROWS, EXAMPLE_LENGTH), EOS_ID)
        inputs = {
            "tokens": tokens_BT,
            "lengths": torch.tensor([EXAMPLE_LENGTH, 1]),
            "is_hidden": torch.zeros(tokens_BT.shape, dtype=torch.bool),
        }
        rows: dict[int, str] = {0: BATCH, 1: LENGTH}
        axes = {"tokens": rows, "lengths": {0: BATCH}, "is_hidden": rows}
        return NetGraphs([Graph("model", TensorModule(net, fill), inputs, axes, ["log_probs"])], compare)

    def score_all(self, tokens: Array, is_hidden: Array) -> Array:
        """The log-probability of each token of one text (T,), given all that is not hidden, itself included. -> (T,)"""
        with torch.inference_mode():
            tokens_BT, lengths_B, hidden_BT = self._to_tensors(tokens[None], np.array([len(tokens)]), is_hidden[None])
            features_TP = self._project(self._read(tokens_BT, hidden_BT, lengths_B, is_noisy=False)[:, 0])
            return self._to_numpy(self.head.score(features_TP, tokens_BT[0]))

    def words_read(self, tokens: Array, is_hidden: Array) -> Tensor:
        """The vectors of one text (T,), some of its places hidden. -> (T, 1, E)"""
        words_TBE = self.embedding(self._to_ids(tokens)[:, None])
        hidden_T = torch.from_numpy(np.array(is_hidden, dtype=bool)).to(self.device)
        return torch.where(hidden_T[:, None, None], self.hidden_vector, words_TBE)

    def trace(self, words_TBE: Tensor) -> tuple[NetTrace, Tensor]:
        """What was done with one text whose words are vectors already, and log-probabilities at each place, (T, V)."""
        lengths_B = torch.tensor([len(words_TBE)], device=self.device)
        assert isinstance(self.stack, BidirectionalStack | AttentionEncoder)
        layers, outputs, _ = self.stack.trace(words_TBE, lengths_B)
        features_TBP = self._project(outputs[-1])
        return NetTrace(words_TBE, features_TBP, layers, outputs), self.head.log_probs(features_TBP[:, 0])

    # -------------------------------------------------------------------------------------------------------- training

    def start_training(self, rows: int) -> None:
        """Nothing is carried from batch to batch."""

    def batch_loss(self, batch: Batch, state: Any) -> tuple[Loss, None]:
        """The loss of restoring a part of a batch: drawn by chance in training, else every so many-th token."""
        tokens_BT = torch.from_numpy(batch.targets).to(self.device)
        lengths_B = tokens_BT.new_full((len(tokens_BT),), tokens_BT.shape[1])
        if batch.lengths is not None:
            lengths_B = torch.from_numpy(batch.lengths).to(self.device)
        chosen_BT = self._choose(tokens_BT, lengths_B, batch)
        read_BT, hidden_BT = tokens_BT, chosen_BT
        if self.training:
            read_BT, hidden_BT = self._disguise(tokens_BT, chosen_BT, batch)
            if not chosen_BT.any():
                return no_loss(), None
        outputs_TBO = self._read(read_BT, hidden_BT, lengths_B, is_noisy=self.training)
        features_NP = self._project(outputs_TBO[chosen_BT.t()])
        targets_N = tokens_BT.t()[chosen_BT.t()]
        mean, nats = self.head.loss(features_NP, targets_N, is_noisy=self.training)
        return Loss(mean, nats.detach(), len(targets_N), not (self.training and self.head.is_sampled)), None

    def count_flops(self) -> float:
        """Multiply-adds of matrix products for one restored token, forward: its share of the reading is large."""
        projection = 0 if self.projection is None else self.projection.weight.numel()
        return self.stack.multiply_adds() / self.config.mask + projection + self.head.multiply_adds()

    def _choose(self, tokens_BT: Tensor, lengths_B: Tensor, batch: Batch) -> Tensor:
        """Which tokens to restore: never none, and ends of lines only where there is nothing else. -> (B, T) bool

        They are drawn for the whole batch; a part of it may have none.
        """
        num_rows, num_tokens = tokens_BT.shape
        places_T = torch.arange(num_tokens, device=tokens_BT.device)
        is_token_BT = places_T < lengths_B[:, None]
        can_hide_BT = is_token_BT & (tokens_BT != EOS_ID)
        is_part = batch.share.size > 1
        if not is_part and not can_hide_BT.any():
            return is_token_BT
        if self.training:
            chosen_BT = can_hide_BT & (self._draw(batch) < self.config.mask)
        else:  # the same at every look
            rows_B1 = torch.arange(num_rows, device=tokens_BT.device)[:, None]
            chosen_BT = can_hide_BT & ((places_T + rows_B1) % self.config.stride == 0)
        return chosen_BT if is_part or chosen_BT.any() else can_hide_BT

    def _draw(self, batch: Batch) -> Tensor:
        """Numbers between 0 and 1 for the rows of a batch, of those for all of it. -> (B, T)"""
        drawn: Tensor = batch.share.of(draw_alike(batch.whole_shape, dtype=torch.float32, device=self.device))
        return drawn

    def _disguise(self, tokens_BT: Tensor, chosen_BT: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Of the chosen tokens most are hidden, some are other words, some are themselves. -> tokens, is hidden"""
        fate_BT = self._draw(batch)
        others_BT = batch.share.of(draw_ids_alike(self.vocab_size, batch.whole_shape, device=tokens_BT.device))
        is_other_BT = chosen_BT & (fate_BT >= HIDDEN_PART) & (fate_BT < HIDDEN_PART + REPLACED_PART)
        return torch.where(is_other_BT, others_BT, tokens_BT), chosen_BT & (fate_BT < HIDDEN_PART)

    def _restore(self, tokens_BT: Tensor, lengths_B: Tensor, hidden_BT: Tensor) -> Tensor:
        """What the head reads at the hidden places, row by row. -> (N, P)"""
        outputs_TBO = self._read(tokens_BT, hidden_BT, lengths_B, is_noisy=False)
        return self._project(outputs_TBO.transpose(0, 1)[hidden_BT])

    def _read(self, tokens_BT: Tensor, hidden_BT: Tensor, lengths_B: Tensor, *, is_noisy: bool) -> Tensor:
        """-> (T, B, O)"""
        config = self.config
        words_TBE = self.embedding(tokens_BT.t(), config.dropout_embedding if is_noisy else 0.0)
        words_TBE = torch.where(hidden_BT.t()[:, :, None], self.hidden_vector, words_TBE)
        rates = {place: config.rate(place) if is_noisy else 0.0 for place in ("input", "layers", "output")}
        if isinstance(self.stack, AttentionEncoder):
            outputs_TBO = self.stack(words_TBE, lengths_B, dropout_input=rates["input"], dropout=rates["layers"])
        else:
            words_TBE = locked_dropout(words_TBE, rates["input"])
            outputs_TBO = self.stack(words_TBE, lengths_B, dropout=rates["layers"]).outputs
        return locked_dropout(outputs_TBO, rates["output"])

    def _to_tensors(self, tokens: Array, lengths: Array, is_hidden: Array) -> tuple[Tensor, Tensor, Tensor]:
        hidden_BT = torch.from_numpy(np.array(is_hidden, dtype=bool)).to(self.device)
        return self._to_ids(tokens), self._to_ids(lengths), hidden_BT
