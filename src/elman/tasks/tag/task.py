"""The task `tag`: sentences of words with tags become a tagger and its batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from elman import store
from elman.core.arrays import Array
from elman.core.errors import DataError
from elman.core.tensors import under_prefix
from elman.tasks.base import Examples, Prepared, ReadFile, Report, TrainRequest
from elman.tasks.founded_task import FoundedTask, foundation_of, foundation_words, give
from elman.tasks.tag.assets import BILM_TENSORS, TagAssets, read_assets, read_bilm
from elman.tasks.tag.config import SentencesConfig, TaggerConfig
from elman.tasks.tag.conll import Sentence, read_sentences
from elman.tasks.tag.data import (
    FIRST,
    Forms,
    TagBatches,
    TagCorpus,
    encode_sentences,
    encode_tags,
    fingerprint_of,
    known_sentences,
    labels_of,
    learn_lexicon,
    split_sentences,
)
from elman.tasks.tag.model import Tagger, TagRecord
from elman.tasks.tag.spans import find_scheme, first_breach
from elman.tasks.word_vectors import vector_tensors, vector_words
from elman.text.rows import count_rows, step_tokens
from elman.text.units.forms import form_of
from elman.text.units.vocabulary import EOS_ID, UNK_ID
from elman.training.config import TrainConfig
from elman.training.plan import Means, Plan
from elman.training.plan_rows import plan_rows
from elman.training.progress import Wording

if TYPE_CHECKING:
    from elman.training.examiner import Examiner
    from elman.training.protocols import Batches

DROPOUT = 0.4
USUAL_BATCH = 32
MIN_STEPS = 2000  # in a minute, CoNLL-2003: 475 steps span F1 60, 1,000 of a third of the size 75 (docs/log.md)
WORD_WIDTH = 300  # of a vector and the usual spelling together, for the cost
SPELLING_COST = 130_000.0  # multiply-adds of the usual filters for a word of seven letters

TagExamples = Examples[TagAssets, list[Sentence]]


class TagTask(FoundedTask[TagRecord, TagAssets, list[Sentence]]):
    """Parts of speech, named entities, and whatever else is said of every word."""

    name = "tag"
    flags = frozenset({"init", "targets"})
    record_type = TagRecord
    model_type = Tagger

    def prepare(self, request: TrainRequest) -> Prepared[TagRecord, TagAssets, list[Sentence]]:
        """Read the sentences and learn words, characters and tags."""
        data: SentencesConfig = self.data_settings(request.settings["data"])
        model: TaggerConfig = self.model_settings(request.settings["model"])
        data, training, heldout, notes = _read_parts(request, data)
        labels = labels_of(training)
        _check_labels(labels)
        model, scheme_notes = _choose_output(model, labels, training)
        bilm = None if model.bilm is None else read_bilm(Path(model.bilm))
        base = foundation_of(request)
        lexicon = learn_lexicon(
            training,
            data,
            more_words=[*vector_words(model), *foundation_words(base)],
            folds_case=model.vectors is not None,
            foreign=None if bilm is None else bilm.words,
        )
        vectors, more = vector_tensors(model, lexicon.words)
        (train_forms, valid_forms), forms = encode_sentences(
            [[sentence.words for sentence in group] for group in (training, heldout)], lexicon
        )
        arrays = {"train_forms": train_forms, "train_tags": encode_tags(training, labels), **forms.tensors(), **vectors}
        if bilm is not None:
            arrays |= bilm.tensors
        if heldout:
            arrays |= {"valid_forms": valid_forms, "valid_tags": encode_tags(heldout, labels)}
        num_words = len(train_forms) - len(training)
        notes += [*more, f"{len(labels):,} tags, {lexicon.words.vocab_size - FIRST:,} words", *scheme_notes]
        if forms.foreign is not None:
            num_known = np.count_nonzero(forms.foreign[train_forms[train_forms != EOS_ID]] != UNK_ID)
            notes.append(f"{model.bilm} knows {num_known / max(1, num_words):.1%} of the words")
        request.say(notes)
        source = store.Source(
            fingerprint=fingerprint_of(training),
            lines=len(training),
            tokens=num_words,
            bytes=sum(len(word.encode()) + 1 for sentence in training for word in sentence.words),
        )
        record = self.new_record(request, data=data, model=model, source=source, notes=notes, own={"labels": labels})
        assets = TagAssets(lexicon, None if bilm is None else bilm.config)
        return Prepared(record, Examples(assets, arrays, heldout or None), foundation=give(base, lexicon.words))

    def plan(self, prepared: Prepared[TagRecord, TagAssets, list[Sentence]], means: Means) -> Plan:
        """Sizes for what the user has not set; the output was chosen by the look of the tags."""
        tags = prepared.examples.arrays["train_tags"]
        model = prepared.record.model
        found = plan_rows(
            means,
            num_rows=count_rows(tags),
            num_tokens=len(tags),
            rows="sentences",
            dropout=DROPOUT,
            word_width=WORD_WIDTH,
            word_cost=SPELLING_COST,
            min_steps=MIN_STEPS,
        )
        return replace(found, model={**found.model, "output": model.output, "scheme": model.scheme})

    def build(self, record: TagRecord, examples: TagExamples, *, report: Report) -> Any:
        """A net with fresh weights drawn by the record's seed."""
        import torch

        from elman.nets.inputs import NetInputs
        from elman.tasks.bilm.net import BilmFeatures
        from elman.tasks.tag.net import TaggerModel

        arrays, assets = examples.arrays, examples.assets
        lexicon, forms = assets.lexicon, np.asarray(arrays["train_forms"])
        words = np.asarray(arrays["form_words"])[forms]
        counts = np.bincount(words[forms != EOS_ID], minlength=lexicon.words.vocab_size)
        counts[UNK_ID] = 0
        bilm = None if assets.bilm is None else BilmFeatures(assets.bilm, under_prefix(arrays, BILM_TENSORS))
        inputs = NetInputs(
            lexicon.words.vocab_size,
            rng=torch.Generator().manual_seed(record.seed),
            counts=counts,
            vectors=np.array(arrays["vectors"]) if "vectors" in arrays else None,
        )
        return TaggerModel(
            record.model, inputs, num_characters=lexicon.characters.vocab_size, labels=record.labels, bilm=bilm
        )

    def batches(self, record: TagRecord, examples: TagExamples, *, train: TrainConfig) -> Batches:
        """The training sentences."""
        corpus = _corpus(examples, "train")
        tokens = step_tokens(corpus.tags, train.batch or USUAL_BATCH)
        return TagBatches(corpus, Forms.of(examples.arrays), tokens=tokens, seed=record.seed)

    def examiner(self, record: TagRecord, net: Any, examples: TagExamples, *, train: TrainConfig) -> Examiner | None:
        """Validates by the accuracy or, where tags mark spans, by the F1 of the held-out sentences."""
        from elman.training.examiner import LossExaminer

        if "valid_tags" not in examples.arrays:
            return None
        corpus = known_sentences(_corpus(examples, "valid"))
        if corpus is None:
            return None
        tokens = step_tokens(examples.arrays["train_tags"], train.batch or USUAL_BATCH)
        batches = TagBatches(corpus, Forms.of(examples.arrays), tokens=tokens)
        return LossExaminer(net, batches, error=lambda: Tagger.error(net, batches, record.labels))

    def wording(self, record: TagRecord) -> Wording:
        """Words, and what the best weights are chosen by."""
        return Wording("words", has_perplexity=False, error="1-F1" if record.model.output == "crf" else "1-accuracy")

    def restore(self, record: TagRecord, assets: TagAssets, tensors: dict[str, Array]) -> Any:
        """The net that was saved."""
        from elman.tasks.tag.net import TaggerModel

        return TaggerModel.from_tensors(record.model, tensors, labels=record.labels, bilm=assets.bilm).eval()

    def read_assets(self, record: TagRecord, read: ReadFile) -> TagAssets:
        """What was written."""
        return read_assets(record.model, read)

    def heldout_to_json(self, heldout: list[Sentence]) -> list[Any]:
        """Words and tags a row."""
        return [[list(sentence.words), list(sentence.tags)] for sentence in heldout]

    def heldout_from_json(self, rows: list[Any]) -> list[Sentence]:
        """The sentences that were written."""
        return [Sentence(tuple(words), tuple(tags)) for words, tags in rows]


def _read_parts(
    request: TrainRequest, data: SentencesConfig
) -> tuple[SentencesConfig, list[Sentence], list[Sentence], list[str]]:
    """The settings with the form of the words; sentences to train on, held-out ones, and what is to be said of them."""
    sentences, num_dropped = read_sentences(request.data, data, targets=request.targets)
    data = data.with_form(form_of(word for sentence in sentences for word in sentence.words))
    notes = [f"{num_dropped:,} bad sentences were dropped"] * bool(num_dropped)
    training, heldout = sentences, list[Sentence]()
    if request.holds_out:
        training, heldout = split_sentences(sentences, data.heldout)
        notes.append(f"{len(heldout):,} of {len(sentences):,} sentences are held out")
    if request.valid is not None:
        heldout, _ = read_sentences(request.valid, data, targets=request.valid_targets)
    return data, training, heldout, notes


def _corpus(examples: TagExamples, part: str) -> TagCorpus:
    return TagCorpus(np.asarray(examples.arrays[f"{part}_forms"]), np.asarray(examples.arrays[f"{part}_tags"]))


def _check_labels(labels: Sequence[str]) -> None:
    if len(labels) < 2:
        raise DataError(
            f"every word has the same tag, {labels[0]!r}: there is nothing to learn",
            code="nothing-to-learn",
            hint="data.column says which column is the tag",
        )


def _choose_output(
    model: TaggerConfig, labels: Sequence[str], sentences: Sequence[Sentence]
) -> tuple[TaggerConfig, list[str]]:
    """Softmax or CRF, and what may follow what: by the look of the tags, where it is not said."""
    found = find_scheme(labels)
    output = model.output or ("crf" if found or model.scheme in ("bio", "bioes") else "softmax")
    notes: list[str] = []
    scheme = model.scheme
    if output == "softmax":
        scheme = "none"
    elif scheme is None:
        scheme = found or "none"
        if found is not None:
            bad = [sentence for sentence in sentences if first_breach(sentence.tags, found) is not None]
            if bad:
                scheme = "none"
                place = bad[0].place(min(first_breach(bad[0].tags, found) or 0, len(bad[0].words) - 1))
                notes.append(
                    f"{len(bad):,} sentences have tags that do not keep to {found.upper()} (the first at {place}), "
                    "so any tag may follow any other"
                )
    elif scheme != "none":
        for sentence in sentences:
            breach = first_breach(sentence.tags, scheme)
            if breach is not None:
                where = sentence.place(min(breach, len(sentence.words) - 1))
                raise DataError(
                    f"{where}: the tag may not stand there by {scheme.upper()}",
                    code="malformed-line",
                    hint="model.scheme=none allows any order of tags",
                )
    if output == "crf":
        order = "in any order" if scheme == "none" else f"as {str(scheme).upper()} allows"
        notes.append(f"the output is a CRF, its tags {order}")
    return model.model_copy(update={"output": output, "scheme": scheme}), notes
