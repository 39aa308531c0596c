"""The task `tag`: sentences of words with tags become a tagger and its batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from elman import config, store
from elman.core.arrays import Array
from elman.core.errors import DataError
from elman.nets.config import RecurrentConfig
from elman.tasks.base import Prepared, Read, Request, Task, refuse_stream_settings
from elman.tasks.reading_config import TaggerConfig
from elman.tasks.runs import Report
from elman.tasks.tag.bilm import BILM_CONFIG, bilm_settings, read_bilm
from elman.tasks.tag.bilm_words import ForeignWords
from elman.tasks.tag.conll import Sentence, read_sentences
from elman.tasks.tag.data import (
    CHARACTER_PREFIX,
    FIRST,
    FOREIGN_PREFIX,
    Forms,
    Lexicon,
    TagBatches,
    TagCorpus,
    encode_sentences,
    encode_tags,
    fingerprint_of,
    labels_of,
    learn_lexicon,
    split_sentences,
)
from elman.tasks.tag.model import Tagger
from elman.tasks.tag.spans import find_scheme, first_breach
from elman.tasks.word_vectors import vector_tensors, vector_words
from elman.text.settings import SentencesConfig
from elman.text.units.tokenizer import Tokenizer
from elman.text.units.vocabulary import EOS_ID, UNK_ID
from elman.text.units.word_list import WordList
from elman.training.config import TrainConfig
from elman.training.plan_rows import plan_reading
from elman.training.plan_text import Plan

if TYPE_CHECKING:
    from elman.training.examiner import Examiner
    from elman.training.protocols import Batches

DROPOUT = 0.4
USUAL_BATCH = 32


class TagTask(Task):
    """Parts of speech, named entities, and whatever else is said of every word."""

    def prepare(self, request: Request) -> Prepared:
        """Read the sentences and learn words, characters and tags."""
        data: SentencesConfig = config.make(SentencesConfig, request.settings["data"], section="data")
        model: TaggerConfig = config.make(TaggerConfig, request.settings["model"], section="model")
        refuse_stream_settings("tag", request.settings["train"])
        sentences, num_dropped = read_sentences(request.data, data)
        notes = [f"{num_dropped:,} bad sentences were dropped"] * bool(num_dropped)
        training, heldout = sentences, list[Sentence]()
        if request.holds_out:
            training, heldout = split_sentences(sentences, data.heldout)
            notes.append(f"{len(heldout):,} of {len(sentences):,} sentences are held out")
        if request.valid is not None:
            heldout, _ = read_sentences(request.valid, data)
        labels = labels_of(training)
        _check_labels(labels)
        model, scheme_notes = _choose_output(model, labels, training)
        bilm = None if model.bilm is None else read_bilm(Path(model.bilm))
        lexicon = learn_lexicon(
            training,
            data,
            more_words=vector_words(model),
            folds_case=model.vectors is not None,
            foreign=None if bilm is None else bilm.words,
        )
        vectors, more = vector_tensors(model, lexicon.words)
        notes += more
        (train_forms, valid_forms), forms = encode_sentences(
            [[sentence.words for sentence in group] for group in (training, heldout)], lexicon
        )
        tensors = {
            "train_forms": train_forms,
            "train_tags": encode_tags(training, labels),
            **forms.tensors(),
            **vectors,
            **({} if bilm is None else bilm.tensors),
        }
        if heldout:
            tensors |= _heldout_tensors(heldout, valid_forms, encode_tags(heldout, labels))
        notes += [f"{len(labels):,} tags, {lexicon.words.vocab_size - FIRST:,} words", *scheme_notes]
        if forms.foreign is not None:
            num_known = np.count_nonzero(forms.foreign[train_forms[train_forms != EOS_ID]] != UNK_ID)
            notes.append(f"{model.bilm} knows {num_known / max(1, len(train_forms) - len(training)):.1%} of the words")
        for sentence in notes:
            request.report(sentence)
        num_words = len(train_forms) - len(training)
        record = store.TaskRecord(
            task="tag",
            data=data,
            model=model,
            labels=labels,
            seed=request.seed,
            source=store.Source(
                fingerprint=fingerprint_of(training),
                lines=len(training),
                tokens=num_words,
                bytes=sum(len(word.encode()) + 1 for sentence in training for word in sentence.words),
            ),
            command=request.command,
            notes=tuple(notes),
        )
        contents = {**lexicon.files(), **({} if bilm is None else bilm.files())}
        return Prepared(record, contents, tensors, request.settings)

    def plan(self, prepared: Prepared, *, seconds: float, flops_per_second: float) -> Plan:
        """Sizes for what the user has not set, given the seconds left for training."""
        tags = prepared.tensors["train_tags"]
        found = plan_reading(
            num_rows=int(np.count_nonzero(tags == EOS_ID)),
            num_tokens=len(tags),
            rows="sentences",
            seconds=seconds,
            flops_per_second=flops_per_second,
            model=prepared.settings["model"],
            train=prepared.settings["train"],
            dropout=DROPOUT,
        )
        model: TaggerConfig = prepared.record.model  # type: ignore[assignment]
        return Plan({**found.model, "output": model.output, "scheme": model.scheme}, found.train, found.why)

    def build(self, record: store.TaskRecord, read: Read, tensors: Mapping[str, Array], *, report: Report) -> Any:
        """A net with fresh weights drawn by the record's seed."""
        import torch

        from elman.tasks.bilm.features_net import BilmFeatures
        from elman.tasks.tag.net import TaggerModel, bilm_tensors

        lexicon = _read_lexicon(read, record)
        settings = _read_bilm_settings(read, record)
        words = np.asarray(tensors["form_words"])[np.asarray(tensors["train_forms"])]
        counts = np.bincount(words[np.asarray(tensors["train_forms"]) != EOS_ID], minlength=lexicon.words.vocab_size)
        counts[UNK_ID] = 0
        return TaggerModel(
            record.model,  # type: ignore[arg-type]
            vocab_size=lexicon.words.vocab_size,
            num_characters=lexicon.characters.vocab_size,
            labels=record.labels,
            rng=torch.Generator().manual_seed(record.seed),
            counts=counts,
            vectors=np.array(tensors["vectors"]) if "vectors" in tensors else None,
            bilm=None if settings is None else BilmFeatures(settings, bilm_tensors(tensors)),
        )

    def batches(self, record: store.TaskRecord, tensors: Mapping[str, Array], *, train: TrainConfig) -> Batches:
        """The training sentences, to descend on."""
        corpus = TagCorpus(np.asarray(tensors["train_forms"]), np.asarray(tensors["train_tags"]))
        return TagBatches(corpus, Forms.of(tensors), tokens=_step_tokens(corpus, train), seed=record.seed)

    def examiner(
        self, record: store.TaskRecord, net: Any, tensors: Mapping[str, Array], *, train: TrainConfig
    ) -> Examiner | None:
        """Judges by the accuracy or, where tags mark spans, by the F1 of the held-out sentences."""
        from elman.training.examiner import LossExaminer

        if "valid_tags" not in tensors:
            return None
        corpus = known_sentences(TagCorpus(np.asarray(tensors["valid_forms"]), np.asarray(tensors["valid_tags"])))
        if corpus is None:
            return None
        training = TagCorpus(np.asarray(tensors["train_forms"]), np.asarray(tensors["train_tags"]))
        batches = TagBatches(corpus, Forms.of(tensors), tokens=_step_tokens(training, train))
        return LossExaminer(net, batches, error=lambda: Tagger.error(net, batches, record.labels))

    def restore(self, record: store.TaskRecord, read: Read, tensors: dict[str, Array]) -> Any:
        """The net that was saved."""
        from elman.tasks.tag.net import TaggerModel

        model: TaggerConfig = record.model  # type: ignore[assignment]
        bilm = _read_bilm_settings(read, record)
        return TaggerModel.from_tensors(model, tensors, labels=record.labels, bilm=bilm).eval()

    def wrap(self, record: store.TaskRecord, read: Read, net: Any, directory: Path | None) -> Tagger:
        """The net with its words."""
        return Tagger(record, _read_lexicon(read, record), net, directory)


def known_sentences(corpus: TagCorpus) -> TagCorpus | None:
    """The sentences whose tags all have numbers: only of these there is a likelihood; None if there are none."""
    ends = np.flatnonzero(corpus.tags == EOS_ID)
    row = np.cumsum(corpus.tags == EOS_ID) - (corpus.tags == EOS_ID)
    is_known = np.ones(len(ends), dtype=bool)
    is_known[row[corpus.tags == UNK_ID]] = False
    if not is_known.any():
        return None
    keep = is_known[row]
    return TagCorpus(corpus.forms[keep], corpus.tags[keep])


def _check_labels(labels: Sequence[str]) -> None:
    if len(labels) < 2:
        raise DataError(
            f"every word has the same tag, {labels[0]!r}: there is nothing to learn",
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
                    hint="model.scheme=none allows any order of tags",
                )
    if output == "crf":
        order = "in any order" if scheme == "none" else f"as {str(scheme).upper()} allows"
        notes.append(f"the output is a CRF, its tags {order}")
    return model.model_copy(update={"output": output, "scheme": scheme}), notes


def _step_tokens(corpus: TagCorpus, train: TrainConfig) -> int:
    """Words of a step: train.batch sentences of the usual length."""
    num_rows = int(np.count_nonzero(corpus.tags == EOS_ID))
    return max(1, round((train.batch or USUAL_BATCH) * len(corpus.tags) / num_rows))


def _heldout_tensors(sentences: Sequence[Sentence], forms: Array, tags: Array) -> dict[str, Array]:
    """The held-out sentences as ids, to be judged by, and as texts, to be measured by."""
    texts = {
        "valid_words_text": "\n".join("\t".join(sentence.words) for sentence in sentences),
        "valid_tags_text": "\n".join("\t".join(sentence.tags) for sentence in sentences),
    }
    found = {name: np.frombuffer(text.encode(), dtype=np.uint8) for name, text in texts.items()}
    return {"valid_forms": forms, "valid_tags": tags, **found}


def _read_lexicon(read: Read, record: store.TaskRecord) -> Lexicon:
    model: TaggerConfig = record.model  # type: ignore[assignment]
    words = WordList(Tokenizer.from_files(read), folds_case=model.vectors is not None)
    characters = Tokenizer.from_files(lambda name: read(CHARACTER_PREFIX + name))
    foreign = None
    if model.bilm is not None:
        foreign = ForeignWords(Tokenizer.from_files(lambda name: read(FOREIGN_PREFIX + name)))
    return Lexicon(words, characters, foreign)


def _read_bilm_settings(read: Read, record: store.TaskRecord) -> RecurrentConfig | None:
    model: TaggerConfig = record.model  # type: ignore[assignment]
    return None if model.bilm is None else bilm_settings(read(BILM_CONFIG))
