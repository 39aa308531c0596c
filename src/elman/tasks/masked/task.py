"""The task `masked`: restore tokens that were left out of a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from elman.core.arrays import Array
from elman.store import LabelRecord
from elman.tasks.base import Prepared, ShouldStop
from elman.tasks.masked.config import MaskedConfig
from elman.tasks.masked.model import MaskedTextModel
from elman.tasks.masked.plan import PIECE, plan_masked
from elman.tasks.text_task import HeldoutText, TextAssets, TextExamples, TextTask
from elman.text.batches import Divided, Position, Share, make_batches, validation_batches
from elman.text.settings import DataConfig
from elman.training.config import TrainConfig
from elman.training.plan import Means, Plan
from elman.training.progress import Outcome

if TYPE_CHECKING:
    from elman.training.examiner import Examiner
    from elman.training.protocols import Batches

ROWS = 32
MaskedRecord = LabelRecord[DataConfig, MaskedConfig]


class MaskedTask(TextTask[MaskedRecord]):
    """Masked tokens are restored from both sides."""

    name = "masked"
    record_type = MaskedRecord
    model_type = MaskedTextModel

    def plan(self, prepared: Prepared[MaskedRecord, TextAssets, HeldoutText], means: Means) -> Plan:
        """Sizes for what the user has not set."""
        num_tokens, vocab_size = len(prepared.examples.arrays["train"]), prepared.examples.assets.tokenizer.vocab_size
        return plan_masked(means, num_tokens=num_tokens, vocab_size=vocab_size, mask=prepared.record.model.mask)

    def construct(self, record: MaskedRecord, examples: TextExamples, *, counts: Array, vectors: Array | None) -> Any:
        """A net with fresh weights drawn by the record's seed."""
        import torch

        from elman.nets.inputs import NetInputs
        from elman.tasks.masked.net import MaskedModel

        rng = torch.Generator().manual_seed(record.seed)
        inputs = NetInputs(examples.assets.tokenizer.vocab_size, rng=rng, counts=counts, vectors=vectors)
        return MaskedModel(record.model, inputs)

    def batches(self, record: MaskedRecord, examples: TextExamples, *, train: TrainConfig) -> Batches:
        """Pieces of the text, or lines; which tokens are hidden is the net's business."""
        pieces = make_batches(
            examples.arrays["train"],
            rows=train.batch or ROWS,
            bptt=train.bptt or PIECE,
            spread=train.bptt_spread,
            seed=record.seed,
            reset_lines=record.data.reset_lines,
        )
        return _PartlyCounted(pieces, record.model.mask)

    def examiner(
        self, record: MaskedRecord, net: Any, examples: TextExamples, *, train: TrainConfig
    ) -> Examiner | None:
        """Validates by the likelihood of every so many-th token."""
        from elman.training.examiner import LossExaminer

        if "valid" not in examples.arrays:
            return None
        pieces = validation_batches(
            examples.arrays["valid"],
            rows=train.batch or ROWS,
            bptt=train.bptt or PIECE,
            reset_lines=record.data.reset_lines,
        )
        return LossExaminer(net, _PartlyCounted(pieces, 1 / record.model.stride))

    def measure(
        self, model: MaskedTextModel, examples: TextExamples, outcome: Outcome, *, should_stop: ShouldStop
    ) -> dict[str, Any] | None:
        """Its numbers on the held-out text."""
        ids = examples.arrays.get("valid")
        return None if ids is None else model.numbers_of(ids, should_stop)

    def restore(self, record: MaskedRecord, assets: TextAssets, tensors: dict[str, Array]) -> Any:
        """The net that was saved."""
        from elman.tasks.masked.net import MaskedModel

        return MaskedModel.from_tensors(record.model, tensors, vocab_size=assets.tokenizer.vocab_size).eval()


@dataclass(frozen=True)
class _PartlyCounted(Divided[Any]):
    """Batches of a text of which only a part of the tokens are targets."""

    pieces: Batches
    counted: float

    @property
    def notes(self) -> Sequence[str]:
        return self.pieces.notes

    @property
    def max_rows(self) -> int:
        return self.pieces.max_rows

    @property
    def tokens_per_epoch(self) -> int:
        return max(1, round(self.counted * self.pieces.tokens_per_epoch))

    @property
    def tokens_per_step(self) -> int:
        return max(1, round(self.counted * self.pieces.tokens_per_step))

    def fraction(self, position: Position) -> float:
        """How much of this pass is done."""
        return self.pieces.fraction(position)

    def part(self, position: Position, share: Share) -> tuple[Any, Position]:
        """A process's rows of the batch at a position, and the position after it."""
        return self.pieces.part(position, share)
