"""The task `seq2seq`: pairs of a source and a target become an encoder, a decoder and their batches."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from elman import config, store
from elman.core.arrays import Array
from elman.tasks.base import Prepared, Read, Request, Task, refuse_stream_settings
from elman.tasks.runs import Report
from elman.tasks.seq2seq.config import Seq2SeqConfig
from elman.tasks.seq2seq.data import PairCorpus, encode_pairs, learn_vocabularies, lengths_of
from elman.tasks.seq2seq.model import Translator
from elman.text.rows import PairBatches
from elman.text.settings import PairsConfig
from elman.text.tables import Pairs, read_pairs
from elman.text.units.tokenizer import Tokenizer
from elman.text.units.vocabulary import EOS_ID
from elman.training.config import TrainConfig
from elman.training.plan_pairs import plan_pairs
from elman.training.plan_text import Plan

if TYPE_CHECKING:
    from elman.tasks.seq2seq.net import PairModel
    from elman.training.examiner import Examiner
    from elman.training.protocols import Batches

SOURCE_PREFIX = "source_"  # of the files of the source's tokenizer; the target's have the usual names
USUAL_BATCH = 64
MOST = 0.999  # of the pairs: how much longer than its source a target may be


class Seq2SeqTask(Task):
    """Translation, and whatever else turns one line into another."""

    def prepare(self, request: Request) -> Prepared:
        """Read the pairs and learn the vocabularies of both sides."""
        data: PairsConfig = config.make(PairsConfig, request.settings["data"], section="data")
        model: Seq2SeqConfig = config.make(Seq2SeqConfig, request.settings["model"], section="model")
        refuse_stream_settings("seq2seq", request.settings["train"])
        pairs = read_pairs(request.data, data, targets=request.targets)
        learned = learn_vocabularies(pairs, data, heldout=request.holds_out)
        notes = list(learned.notes)
        for sentence in notes:
            request.report(sentence)
        tensors = {"train_source": learned.train.source.ids, "train_target": learned.train.target.ids}
        heldout, texts = learned.heldout, learned.heldout_pairs
        if request.valid is not None:
            texts = read_pairs(request.valid, data, targets=request.valid_targets)
            heldout, more = encode_pairs(texts, learned.source, learned.target, data, is_training=False)
            notes += more
        if heldout is not None and texts is not None:
            tensors |= _heldout_tensors(heldout, texts)
        data = data.model_copy(update={"source_units": learned.source.units, "target_units": learned.target.units})
        record = store.TaskRecord(
            task="seq2seq",
            data=data,
            model=model,
            seed=request.seed,
            source=store.Source(
                fingerprint=learned.train.fingerprint,
                lines=learned.train.num_rows,
                tokens=len(learned.train.target.ids),
                bytes=learned.train.source.num_bytes + learned.train.target.num_bytes,
            ),
            command=request.command,
            notes=tuple(notes),
        )
        return Prepared(record, _tokenizer_files(learned.source, learned.target), tensors, request.settings)

    def plan(self, prepared: Prepared, *, seconds: float, flops_per_second: float) -> Plan:
        """Sizes for what the user has not set, given the seconds left for training."""
        sources, targets = prepared.tensors["train_source"], prepared.tensors["train_target"]
        return plan_pairs(
            num_pairs=int(np.count_nonzero(targets == EOS_ID)),
            source_tokens=len(sources),
            target_tokens=len(targets),
            vocab_size=_read_tokenizers(lambda name: prepared.contents[name], prepared.record)[1].vocab_size,
            seconds=seconds,
            flops_per_second=flops_per_second,
            model=prepared.settings["model"],
            train=prepared.settings["train"],
        )

    def build(self, record: store.TaskRecord, read: Read, tensors: Mapping[str, Array], *, report: Report) -> Any:
        """A net with fresh weights drawn by the record's seed."""
        import torch

        source, target = _read_tokenizers(read, record)
        model: Seq2SeqConfig = record.model  # type: ignore[assignment]
        targets = tensors["train_target"]
        source_lengths, target_lengths = lengths_of(tensors["train_source"]), lengths_of(targets)
        ratio = float(np.quantile(target_lengths / source_lengths, MOST))
        return _net_class(model)(
            model.model_copy(
                update={
                    "longest_target": model.longest_target or int(target_lengths.max()),
                    "length_ratio": model.length_ratio or round(ratio, 2),
                }
            ),
            vocab_size=target.vocab_size,
            source_vocab_size=source.vocab_size,
            longest_source=int(source_lengths.max()),
            rng=torch.Generator().manual_seed(record.seed),
            counts=np.bincount(targets, minlength=target.vocab_size),
        )

    def batches(self, record: store.TaskRecord, tensors: Mapping[str, Array], *, train: TrainConfig) -> Batches:
        """The training pairs, to descend on."""
        targets = tensors["train_target"]
        return PairBatches(tensors["train_source"], targets, tokens=_step_tokens(targets, train), seed=record.seed)

    def examiner(
        self, record: store.TaskRecord, net: Any, tensors: Mapping[str, Array], *, train: TrainConfig
    ) -> Examiner | None:
        """Judges by the likelihood of the held-out targets."""
        from elman.training.examiner import LossExaminer

        if "valid_target" not in tensors:
            return None
        tokens = _step_tokens(tensors["train_target"], train)
        return LossExaminer(net, PairBatches(tensors["valid_source"], tensors["valid_target"], tokens=tokens))

    def restore(self, record: store.TaskRecord, read: Read, tensors: dict[str, Array]) -> Any:
        """The net that was saved."""
        _, target = _read_tokenizers(read, record)
        model: Seq2SeqConfig = record.model  # type: ignore[assignment]
        return _net_class(model).from_tensors(model, tensors, vocab_size=target.vocab_size).eval()

    def wrap(self, record: store.TaskRecord, read: Read, net: Any, directory: Path | None) -> Translator:
        """The net with its tokenizers."""
        return Translator(record, *_read_tokenizers(read, record), net, directory)


def _net_class(model: Seq2SeqConfig) -> type[PairModel]:
    if model.family == "transformer":
        from elman.tasks.seq2seq.transformer_net import TransformerPairs

        return TransformerPairs
    from elman.tasks.seq2seq.recurrent_net import Seq2SeqModel

    return Seq2SeqModel


def _step_tokens(target_ids: Array, train: TrainConfig) -> int:
    """Targets of a step: train.batch pairs of the usual length."""
    num_pairs = int(np.count_nonzero(np.asarray(target_ids) == EOS_ID))
    return max(1, round((train.batch or USUAL_BATCH) * len(target_ids) / num_pairs))


def _heldout_tensors(corpus: PairCorpus, pairs: Pairs) -> dict[str, Array]:
    """The held-out pairs as ids, to be judged by, and as texts, to be measured by."""
    texts = {
        f"valid_{side}_text": np.frombuffer("\n".join(lines).encode(), dtype=np.uint8)
        for side, lines in (("source", pairs.sources), ("target", pairs.targets))
    }
    return {"valid_source": corpus.source.ids, "valid_target": corpus.target.ids, **texts}


def _tokenizer_files(source: Tokenizer, target: Tokenizer) -> dict[str, bytes]:
    """Both tokenizers' files, or one's where both are the same."""
    files = dict(target.files())
    if source is not target:
        files |= {SOURCE_PREFIX + name: content for name, content in source.files().items()}
    return files


def _read_tokenizers(read: Read, record: store.TaskRecord) -> tuple[Tokenizer, Tokenizer]:
    target = Tokenizer.from_files(read)
    data: PairsConfig = record.data  # type: ignore[assignment]
    source = target if data.shared else Tokenizer.from_files(lambda name: read(SOURCE_PREFIX + name))
    return source, target
