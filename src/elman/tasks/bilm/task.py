"""The task `bilm`: a forward and a backward language model that share their words, for vectors of words in context."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from elman.core.arrays import Array
from elman.core.errors import UsageError
from elman.core.settings import make
from elman.store import LabelRecord
from elman.tasks.base import Prepared, ShouldStop
from elman.tasks.bilm.config import BilmConfig
from elman.tasks.bilm.data import BilmBatches, reverse_text
from elman.tasks.bilm.model import BilmTextModel
from elman.tasks.bilm.plan import plan_bilm
from elman.tasks.text_task import HeldoutText, TextAssets, TextExamples, TextTask
from elman.text.batches import DEFAULT_BATCH, DEFAULT_BPTT, make_batches, validation_batches
from elman.text.settings import DataConfig
from elman.training.config import TrainConfig
from elman.training.plan import Means, Plan
from elman.training.progress import Outcome

if TYPE_CHECKING:
    from elman.training.examiner import Examiner
    from elman.training.protocols import Batches

REVERSED = "_turned"  # suffix of the name of an array that holds the reversed text
BilmRecord = LabelRecord[DataConfig, BilmConfig]


class BilmTask(TextTask[BilmRecord]):
    """Language models of both directions."""

    name = "bilm"
    record_type = BilmRecord
    model_type = BilmTextModel

    def model_settings(self, given: Mapping[str, Any]) -> BilmConfig:
        """The record that was asked for."""
        model = make(BilmConfig, given, section="model")
        if model.skip == "dense":
            raise UsageError(
                "model.skip=dense does not apply to bilm",
                code="does-not-apply",
                hint="its layers have to be of one width",
            )
        if model.maxent is not None:
            raise UsageError(
                "model.maxent does not apply to bilm",
                code="does-not-apply",
                hint="n-grams say nothing of a word's other side",
            )
        return model

    def arrays(self, part: str, ids: Array) -> dict[str, Array]:
        """A part of the text, from both ends."""
        return {part: ids, part + REVERSED: reverse_text(ids)}

    def plan(self, prepared: Prepared[BilmRecord, TextAssets, HeldoutText], means: Means) -> Plan:
        """Sizes for what the user has not set."""
        num_tokens, vocab_size = len(prepared.examples.arrays["train"]), prepared.examples.assets.tokenizer.vocab_size
        return plan_bilm(means, num_tokens=num_tokens, vocab_size=vocab_size)

    def construct(self, record: BilmRecord, examples: TextExamples, *, counts: Array, vectors: Array | None) -> Any:
        """A net with fresh weights drawn by the record's seed."""
        import torch

        from elman.nets.inputs import NetInputs
        from elman.tasks.bilm.net import BilmModel

        rng = torch.Generator().manual_seed(record.seed)
        inputs = NetInputs(examples.assets.tokenizer.vocab_size, rng=rng, counts=counts, vectors=vectors)
        return BilmModel(record.model, inputs, reset_lines=record.data.reset_lines)

    def batches(self, record: BilmRecord, examples: TextExamples, *, train: TrainConfig) -> Batches:
        """The text, from both ends."""
        forward, backward = (
            make_batches(
                examples.arrays[name],
                rows=train.batch or DEFAULT_BATCH,
                bptt=train.bptt or DEFAULT_BPTT,
                spread=train.bptt_spread,
                seed=record.seed,
                reset_lines=record.data.reset_lines,
            )
            for name in ("train", "train" + REVERSED)
        )
        return BilmBatches(forward, backward)

    def examiner(self, record: BilmRecord, net: Any, examples: TextExamples, *, train: TrainConfig) -> Examiner | None:
        """Validates by the likelihood in both directions."""
        from elman.training.examiner import LossExaminer

        if "valid" not in examples.arrays:
            return None
        forward, backward = (
            validation_batches(
                examples.arrays[name],
                rows=train.batch or DEFAULT_BATCH,
                bptt=train.bptt or DEFAULT_BPTT,
                reset_lines=record.data.reset_lines,
            )
            for name in ("valid", "valid" + REVERSED)
        )
        return LossExaminer(net, BilmBatches(forward, backward))

    def measure(
        self, model: BilmTextModel, examples: TextExamples, outcome: Outcome, *, should_stop: ShouldStop
    ) -> dict[str, Any] | None:
        """Its numbers on the held-out text."""
        arrays = examples.arrays
        return None if "valid" not in arrays else model.numbers_of(arrays["valid"], should_stop)

    def restore(self, record: BilmRecord, assets: TextAssets, tensors: dict[str, Array]) -> Any:
        """The net that was saved."""
        from elman.tasks.bilm.net import BilmModel

        return BilmModel.from_tensors(
            record.model, tensors, vocab_size=assets.tokenizer.vocab_size, reset_lines=record.data.reset_lines
        ).eval()
