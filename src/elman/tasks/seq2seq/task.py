"""The task `seq2seq`: pairs of a source and a target become an encoder, a decoder and their batches."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from elman import store
from elman.core.arrays import Array
from elman.tasks.base import Examples, Prepared, ReadFile, Report, ShouldStop, TrainRequest
from elman.tasks.foundation import Foundation, Given
from elman.tasks.founded_task import FoundedTask, foundation_of, is_bidirectional
from elman.tasks.seq2seq.assets import SOURCE_PREFIX, Tokenizers
from elman.tasks.seq2seq.config import PairsConfig, Seq2SeqConfig
from elman.tasks.seq2seq.data import PairBatches, encode_pairs, learn_vocabularies
from elman.tasks.seq2seq.model import Seq2SeqRecord, Translator
from elman.tasks.seq2seq.plan import plan_pairs
from elman.tasks.seq2seq.reading import read_pairs
from elman.text.rows import count_rows, lengths_of, step_tokens
from elman.text.tables import Pairs
from elman.text.units.forms import form_of
from elman.text.units.tokenizer import Tokenizer
from elman.training.config import TrainConfig
from elman.training.plan import Means, Plan
from elman.training.progress import Outcome, Wording

if TYPE_CHECKING:
    from elman.tasks.seq2seq.net import PairModel
    from elman.training.examiner import Examiner
    from elman.training.protocols import Batches

USUAL_BATCH = 64
COVERED_SHARE = 0.999  # share of the training pairs whose target length the length ratio must allow


PairExamples = Examples[Tokenizers, Pairs]


class Seq2SeqTask(FoundedTask[Seq2SeqRecord, Tokenizers, Pairs]):
    """Translation, and whatever else turns one line into another."""

    name = "seq2seq"
    flags = frozenset({"targets", "init"})
    record_type = Seq2SeqRecord
    model_type = Translator
    foundation_units = ()

    def prepare(self, request: TrainRequest) -> Prepared[Seq2SeqRecord, Tokenizers, Pairs]:
        """Read the pairs and learn the vocabularies of both sides."""
        data: PairsConfig = self.data_settings(request.settings["data"])
        model: Seq2SeqConfig = self.model_settings(request.settings["model"])
        pairs = read_pairs(request.data, data, targets=request.targets)
        data = data.with_form(form_of(chain(pairs.sources, pairs.targets)))
        base = foundation_of(request)
        source_words = None if base is None else base.tokenizer
        learned = learn_vocabularies(pairs, data, heldout=request.holds_out, source_words=source_words)
        request.say(learned.notes)
        notes = list(learned.notes)
        heldout, texts = learned.heldout, learned.heldout_pairs
        if request.valid is not None:
            texts = read_pairs(request.valid, data, targets=request.valid_targets)
            heldout, more = encode_pairs(texts, learned.source, learned.target, data, is_training=False)
            notes += more
        arrays = {"train_source": learned.train.source.ids, "train_target": learned.train.target.ids}
        if heldout is not None:
            arrays |= {"valid_source": heldout.source.ids, "valid_target": heldout.target.ids}
        source = store.Source(
            fingerprint=learned.train.fingerprint,
            lines=learned.train.num_rows,
            tokens=len(learned.train.target.ids),
            bytes=learned.train.source.num_bytes + learned.train.target.num_bytes,
        )
        data = data.model_copy(update={"source_units": learned.source.units, "target_units": learned.target.units})
        record = self.new_record(request, data=data, model=model, source=source, notes=notes)
        assets = Tokenizers(learned.source, learned.target)
        foundation = None if base is None else Given(base, np.arange(base.tokenizer.vocab_size))
        return Prepared(record, Examples(assets, arrays, None if heldout is None else texts), foundation=foundation)

    def settled_model(self, base: Foundation, given: Mapping[str, Any]) -> dict[str, Any]:
        """As wide as the encoder's directions together."""
        settled = super().settled_model(base, given)
        if "hidden" in settled and is_bidirectional(given):
            settled["hidden"] *= 2
        return settled

    def settled_data(self, base: Foundation, given: Mapping[str, Any]) -> dict[str, Any]:
        """Sources have the foundation's symbols; targets have their own, other ones only by data.target_units."""
        both = {"units": base.tokenizer.units} if "units" in given else {}
        return {**both, "source_units": base.tokenizer.units, "shared": False}

    def foundation_parts(self, net: Any) -> tuple[Any, Any]:
        """The words and the layers of the encoder."""
        return net.source_embedding, net.encoder

    def plan(self, prepared: Prepared[Seq2SeqRecord, Tokenizers, Pairs], means: Means) -> Plan:
        """Sizes for what the user has not set."""
        arrays = prepared.examples.arrays
        return plan_pairs(
            means,
            num_pairs=count_rows(arrays["train_target"]),
            source_tokens=len(arrays["train_source"]),
            target_tokens=len(arrays["train_target"]),
            vocab_size=prepared.examples.assets.target.vocab_size,
        )

    def build(self, record: Seq2SeqRecord, examples: PairExamples, *, report: Report) -> Any:
        """A net with fresh weights drawn by the record's seed."""
        import torch

        from elman.nets.inputs import NetInputs

        model, targets = record.model, examples.arrays["train_target"]
        source_lengths, target_lengths = lengths_of(examples.arrays["train_source"]), lengths_of(targets)
        ratio = float(np.quantile(target_lengths / source_lengths, COVERED_SHARE))
        seen = {
            "longest_target": model.longest_target or int(target_lengths.max()),
            "length_ratio": model.length_ratio or round(ratio, 2),
        }
        vocab_size = examples.assets.target.vocab_size
        rng = torch.Generator().manual_seed(record.seed)
        return _net_class(model)(
            model.model_copy(update=seen),
            NetInputs(vocab_size, rng=rng, counts=np.bincount(targets, minlength=vocab_size)),
            source_vocab_size=examples.assets.source.vocab_size,
            longest_source=int(source_lengths.max()),
        )

    def batches(self, record: Seq2SeqRecord, examples: PairExamples, *, train: TrainConfig) -> Batches:
        """The training pairs."""
        sources, targets = examples.arrays["train_source"], examples.arrays["train_target"]
        tokens = step_tokens(targets, train.batch or USUAL_BATCH)
        return PairBatches(sources, targets, tokens=tokens, seed=record.seed)

    def examiner(
        self, record: Seq2SeqRecord, net: Any, examples: PairExamples, *, train: TrainConfig
    ) -> Examiner | None:
        """Validates by the likelihood of the held-out targets."""
        from elman.training.examiner import LossExaminer

        arrays = examples.arrays
        if "valid_target" not in arrays:
            return None
        tokens = step_tokens(arrays["train_target"], train.batch or USUAL_BATCH)
        return LossExaminer(net, PairBatches(arrays["valid_source"], arrays["valid_target"], tokens=tokens))

    def wording(self, record: Seq2SeqRecord) -> Wording:
        """The loss is that of targets."""
        return Wording("target tokens")

    def measure(
        self, model: Translator, examples: PairExamples, outcome: Outcome, *, should_stop: ShouldStop
    ) -> dict[str, Any] | None:
        """How good the targets of the held-out sources are, and how likely the references."""
        if examples.heldout is None:
            return None
        arrays = examples.arrays
        likelihood = model.reference_perplexity(arrays["valid_source"], arrays["valid_target"], should_stop=should_stop)
        found = model.translation_numbers(examples.heldout, beam=None, should_stop=should_stop)
        return None if found is None else found | likelihood

    def restore(self, record: Seq2SeqRecord, assets: Tokenizers, tensors: dict[str, Array]) -> Any:
        """The net that was saved."""
        model = record.model
        return _net_class(model).from_tensors(model, tensors, vocab_size=assets.target.vocab_size).eval()

    def read_assets(self, record: Seq2SeqRecord, read: ReadFile) -> Tokenizers:
        """The tokenizers that were written."""
        target = Tokenizer.from_files(read)
        if record.data.shared:
            return Tokenizers(target, target)
        return Tokenizers(Tokenizer.from_files(lambda name: read(SOURCE_PREFIX + name)), target)

    def heldout_to_json(self, heldout: Pairs) -> list[Any]:
        """A source and a target a row."""
        return [list(row) for row in zip(heldout.sources, heldout.targets, strict=True)]

    def heldout_from_json(self, rows: list[Any]) -> Pairs:
        """The pairs that were written."""
        return Pairs.of_rows(rows)


def _net_class(model: Seq2SeqConfig) -> type[PairModel]:
    if model.family == "transformer":
        from elman.tasks.seq2seq.transformer_net import TransformerPairs

        return TransformerPairs
    from elman.tasks.seq2seq.recurrent_net import Seq2SeqModel

    return Seq2SeqModel
