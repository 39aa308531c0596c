"""What a whole text is: one class, several labels at once, or a number; said by one net, or by several as one.

B rows · T words · O width of a text · L labels
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor
from torch.nn import Linear, ModuleList

from elman.core.arrays import Array
from elman.nets.inputs import NetInputs
from elman.nets.pooling import Pool
from elman.nets.text_encoder import TextEncoder
from elman.nets.text_net import LabelNet, TextNet, initialise_linear
from elman.nets.trace import NetTrace
from elman.nets.trainable import Loss
from elman.tasks.classify.config import ClassifierConfig
from elman.tasks.classify.data import LabelBatch


class TextClassifier(TextNet):
    """What gives a text the scores of its labels."""

    config: ClassifierConfig

    def predict(self, words: Array, lengths: Array) -> Array:
        """Probabilities of the labels, which sum to one if only one can be right; or the number. -> (B, L), (B, 1)"""
        with torch.inference_mode():
            scores_BL = self._scores(words, lengths)
            match self.config.output:
                case "softmax":
                    scores_BL = scores_BL.softmax(1)
                case "sigmoid":
                    scores_BL = scores_BL.sigmoid()
                case "linear":
                    scores_BL = self.first.centre + self.first.spread * scores_BL
            return scores_BL.to(torch.float32).cpu().numpy()

    def scores(self, words: Array, lengths: Array) -> Array:
        """What the labels' probabilities, or the number, are made of. -> (B, L)"""
        with torch.inference_mode():
            return self._scores(words, lengths).to(torch.float32).cpu().numpy()

    @property
    @abstractmethod
    def first(self) -> ClassifierModel:
        """The net that explanations and vectors are of."""

    @abstractmethod
    def attention_weights(self, words: Array, lengths: Array) -> Array:
        """How much each word counted, pool=attention only. -> (B, T)"""

    def _scores(self, words: Array, lengths: Array) -> Tensor:
        return self.score_ids(self._ids(words), self._ids(lengths))

    @abstractmethod
    def score_ids(self, words_BT: Tensor, lengths_B: Tensor) -> Tensor:
        """-> (B, L)"""


class ClassifierModel(LabelNet, TextClassifier):
    """Words, layers, one vector for the text, an output.

    centre and spread are those of the numbers in training, where the answer is a number.
    """

    centre: Tensor
    spread: Tensor

    def __init__(
        self,
        config: ClassifierConfig,
        inputs: NetInputs,
        *,
        num_labels: int,
        centre: float = 0.0,
        spread: float = 1.0,
    ) -> None:
        super().__init__()
        dtype = inputs.dtype
        self.vocab_size = max(2, num_labels)
        self.reader = TextEncoder(config, inputs, drops_output=False)
        self.config = config.model_copy(update={"embedding": self.reader.config.embedding})
        self.pool = Pool(config.pool, self.reader.output_width, dtype=dtype)
        self.output = Linear(self.reader.output_width, num_labels, dtype=dtype)
        self.register_buffer("centre", torch.tensor(centre, dtype=dtype))
        self.register_buffer("spread", torch.tensor(spread, dtype=dtype))
        self._usual_length = inputs.usual_length
        if inputs.rng is not None:
            self.reader.initialise(inputs.rng, inputs.vectors)
            self.pool.initialise(inputs.rng)
            initialise_linear(self.output, inputs.rng)

    @property
    def first(self) -> ClassifierModel:
        """Itself."""
        return self

    def attention_weights(self, words: Array, lengths: Array) -> Array:
        """How much each word counted, pool=attention only. -> (B, T)"""
        with torch.inference_mode():
            lengths_B = self._ids(lengths)
            encoding = self.reader(self._ids(words).t(), lengths_B)
            return self.pool.weights(encoding, lengths_B).t().to(torch.float32).cpu().numpy()

    def words_read(self, words: Array) -> Tensor:
        """The vectors of the words of one text (T,). -> (T, 1, E)"""
        found: Tensor = self.reader.embedding(self._ids(words)[:, None])
        return found

    def trace(self, words_TBE: Tensor) -> tuple[NetTrace, Tensor]:
        """What was done with one text whose words are vectors already, and the scores of its labels, (1, L)."""
        lengths_B = torch.tensor([len(words_TBE)], device=self.device)
        layers, outputs, encoding = self.reader.trace(words_TBE, lengths_B)
        pooled_1BO = self.pool(encoding, lengths_B)[None]
        attention = {}
        if self.config.pool == "attention":
            attention["text"] = self.pool.weights(encoding, lengths_B).t()[:, None]
        return NetTrace(words_TBE, pooled_1BO, layers, outputs, attention), self.output(pooled_1BO[0])

    # -------------------------------------------------------------------------------------------------------- training

    def batch_loss(self, batch: LabelBatch, state: Any) -> tuple[Loss, None]:
        """Nats a text: of its class; of its labels, their mean; of a number, as if normal with the spread in training."""
        scores_BL = self._scores(batch.words, batch.lengths)
        rows = len(scores_BL)
        targets = torch.from_numpy(np.ascontiguousarray(batch.targets)).to(scores_BL.device)
        match self.config.output:
            case "softmax":
                nats = F.cross_entropy(scores_BL, targets.long(), reduction="sum")
            case "sigmoid":
                wanted_BL = targets.to(scores_BL.dtype)
                nats = F.binary_cross_entropy_with_logits(scores_BL, wanted_BL, reduction="none").mean(1).sum()
            case "linear":
                wanted_B = (targets.to(scores_BL.dtype) - self.centre) / self.spread
                nats = 0.5 * (scores_BL[:, 0] - wanted_B).square().sum()
        return Loss(nats / rows, nats.detach().double(), rows), None

    def count_flops(self) -> float:
        """Multiply-adds of matrix products for one text, forward."""
        return self._usual_length * self.reader.stack.multiply_adds() + self.output.weight.numel()

    def score_ids(self, words_BT: Tensor, lengths_B: Tensor) -> Tensor:
        """-> (B, L)"""
        encoding = self.reader(words_BT.t(), lengths_B)
        text_BO = F.dropout(self.pool(encoding, lengths_B), self.config.rate("output"), training=self.training)
        scores_BL: Tensor = self.output(text_BO)
        return scores_BL


class Ensemble(TextClassifier):
    """Nets that read the same batches, each with weights and dropout of its own. Their scores are averaged."""

    def __init__(self, nets: Sequence[ClassifierModel]) -> None:
        super().__init__()
        self.nets = ModuleList(nets)
        self.config, self.vocab_size = self.first.config, self.first.vocab_size

    @classmethod
    def from_tensors(cls, config: ClassifierConfig, tensors: Mapping[str, Array]) -> Self:
        """The nets whose `config` and `tensors()` these were."""
        names = [f"nets.{number}." for number in range(config.nets)]
        parts = [{key.removeprefix(name): tensors[key] for key in tensors if key.startswith(name)} for name in names]
        return cls([ClassifierModel.from_tensors(config, part) for part in parts])

    @property
    def first(self) -> ClassifierModel:
        """The first."""
        return self._nets()[0]

    @property
    def encoder(self) -> TextEncoder:
        """That of the first net."""
        return self.first.reader

    def attention_weights(self, words: Array, lengths: Array) -> Array:
        """Their mean. -> (B, T)"""
        weights_NBT = np.stack([net.attention_weights(words, lengths) for net in self._nets()])
        return np.asarray(weights_NBT.mean(axis=0))

    def batch_loss(self, batch: LabelBatch, state: Any) -> tuple[Loss, None]:
        """Each net learns as if it were alone; the nats are their mean."""
        losses = [net.batch_loss(batch, state)[0] for net in self._nets()]
        total = torch.stack([loss.total for loss in losses]).sum()
        return Loss(total, torch.stack([loss.nats for loss in losses]).mean(), losses[0].tokens), None

    def count_flops(self) -> float:
        """Multiply-adds of matrix products for one text, forward."""
        return sum(net.count_flops() for net in self._nets())

    def score_ids(self, words_BT: Tensor, lengths_B: Tensor) -> Tensor:
        """Their mean. -> (B, L)"""
        return torch.stack([net.score_ids(words_BT, lengths_B) for net in self._nets()]).mean(0)

    def _nets(self) -> list[ClassifierModel]:
        return list(self.nets)  # type: ignore[arg-type]
