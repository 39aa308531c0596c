"""A tagger at the text level: tags for lines of text and for whole files, and how good they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np

from elman import pictures
from elman.core.arrays import Array
from elman.core.errors import UsageError, no_such
from elman.explain.kind import OF_WORDS, of_cells
from elman.explain.reading import Reading, refuse_empty, refuse_long
from elman.store import LabelRecord
from elman.tasks.base import EvaluateOptions, NetModel, Prediction, PredictOptions, ShouldStop
from elman.tasks.exported import Exported
from elman.tasks.label_metrics import confusions
from elman.tasks.measuring import part_notes, rounded, rows_in_time
from elman.tasks.strange import refuse_strange
from elman.tasks.tag.assets import TagAssets
from elman.tasks.tag.config import SentencesConfig, TaggerConfig
from elman.tasks.tag.conll import Format, Sentence, SentenceReader, read_sentences, write_sentence
from elman.tasks.tag.data import FormTable, TagBatches, Words, encode_sentences
from elman.tasks.tag.exporting import export_tagger
from elman.tasks.tag.metrics import one_tag_notes, tag_numbers
from elman.tasks.word_vectors import written_words
from elman.text.batches import one_pass
from elman.text.readers import Sources, rows_of
from elman.text.rows import begins_of, like_length, padded
from elman.text.units.forms import normalize
from elman.text.units.vocabulary import UNK_ID

TagRecord = LabelRecord[SentencesConfig, TaggerConfig]

READ_WORDS = 6000  # words in one batch of sentences, padding included
SHOWN_SHARE = 5e-4  # probability from which on a label is listed in JSON


@dataclass(frozen=True)
class Tagged(Prediction):
    """A sentence, its tags, and the probability of each."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    probabilities: tuple[float, ...] = ()
    distributions: Array | None = field(default=None, repr=False)  # (words, labels)
    labels: tuple[str, ...] = field(default=(), repr=False)  # of the distributions

    def line(self) -> str:
        """The tags, a space between them."""
        return " ".join(self.tags)

    def as_json(self) -> dict[str, Any]:
        """With probabilities, and of every word those of all labels that are not quite impossible."""
        rows = [] if self.distributions is None else self.distributions.tolist()
        return {
            "words": list(self.words),
            "tags": list(self.tags),
            "probabilities": rounded(list(self.probabilities)),
            "distributions": [
                {label: rounded(share) for label, share in zip(self.labels, row, strict=True) if share > SHOWN_SHARE}
                for row in rows
            ],
        }


@dataclass(frozen=True)
class TaggedLines(Prediction):
    """A sentence of a file as it was, with its tags in their column."""

    lines: str
    tagged: Tagged

    def line(self) -> str:
        """All lines of the sentence, blank ones too."""
        return self.lines

    def as_json(self) -> dict[str, Any]:
        """Only the words and their tags."""
        return self.tagged.as_json()


class Tagger(NetModel[TagRecord, TagAssets]):
    """A net with the words, characters and labels that it knows."""

    predict_takes = frozenset({"format"})
    evaluate_takes = frozenset({"targets"})

    def __init__(self, record: TagRecord, assets: TagAssets, net: Any, directory: Path | None = None) -> None:
        super().__init__(record, assets, net, directory)
        self.lexicon = assets.lexicon
        self.data = record.data
        self.labels = record.labels

    def exported(self) -> Exported:
        """The scores of labels; the likeliest sequence of a CRF is found by whoever has them."""
        return export_tagger(self)

    def vocabulary(self) -> str:
        """Words and tags."""
        return f"{self.lexicon.words.vocab_size:,} words, {len(self.labels):,} tags"

    def predict(self, text: str | Sequence[str] | Sequence[Sequence[str]]) -> Any:
        """The tags of a line of words, as a line; a list of them for a list of lines.

        Sentences as lists of words have lists of tags. A list of single words may be a sentence or many: it is refused.
        """
        if isinstance(text, str):
            return " ".join(self.tag([text.split()])[0].tags)
        sentences = list(rows_of(text))
        if not all(isinstance(sentence, str) for sentence in sentences):
            _check_words(sentences)
            return [list(tagged.tags) for tagged in self.tag(sentences)]
        lines = [str(line).split() for line in sentences]
        if len(lines) > 1 and all(len(words) < 2 for words in lines):
            raise UsageError(
                f"{sentences[:3]} may be the words of one sentence, or sentences of one word",
                code="wrong-type",
                hint="predict([words]) tags one sentence, predict([[word] for word in words]) many of one word",
            )
        return [" ".join(tagged.tags) for tagged in self.tag(lines)]

    def tag(self, sentences: Sequence[Sequence[str]], *, with_probabilities: bool = False) -> list[Tagged]:
        """The tags of sentences of words; an empty one has none."""
        found = [Tagged(tuple(words), ()) for words in sentences]
        filled = [i for i, words in enumerate(sentences) if words]
        for chunk in like_length([len(sentences[i]) for i in filled], tokens=READ_WORDS):
            rows = [filled[place] for place in chunk]
            for i, tagged in zip(rows, self._tag([sentences[i] for i in rows], with_probabilities), strict=True):
                found[i] = tagged
        return found

    unknown_row = ("a",)

    def _encode_row(self, text: str) -> Any:
        """The words of a text: the net numbers and spells those of a batch together."""
        return text.split()

    def _read_rows(self, sources: Sources, reading: SentencesConfig) -> Iterator[list[tuple[str, Any]]]:
        """The sentences of some files, without their tags."""
        reader = SentenceReader(sources, reading, needs_tags=False, keep_bad=True)
        for sentences in reader.blocks():
            yield [(" ".join(sentence.words), sentence.words) for sentence in reader.answered(sentences)]

    def _layer_vectors(self, rows: Sequence[Any]) -> Any:
        return self.net.word_vectors(self._words(rows))

    def kinds(self, text: str = "") -> tuple[str, ...]:
        """What the tags are made of, and what the layers do."""
        return ("saliency", *of_cells(self.record.model.family), "gradients", *OF_WORDS)

    def reading(self, text: str) -> Reading:
        """A sentence as the net reads it; what is predicted is the tag of each word."""
        sentence = text.split()
        refuse_empty(sentence)
        refuse_long(sentence)
        words = self._words([sentence])
        chosen = self.net.predict(words).best[0]
        return Reading(
            tokens=sentence,
            is_known=(words.words[0] != UNK_ID).tolist(),
            rows=sentence,
            columns=self.labels,
            chosen=chosen,
            words=lambda: self.net.words_read(words),
            trace=lambda vectors: self.net.trace(words, vectors),
            unrecorded=lambda: self.net.scores(words)[np.arange(len(chosen)), 0, chosen],
            is_local=True,
        )

    def word_vectors(self) -> tuple[Sequence[str], Array]:
        """Those that it reads."""
        return written_words(self.lexicon.words, self.tensors()["reader.embedding.weight"])

    def _words(self, sentences: Sequence[Sequence[str]]) -> Words:
        """Sentences as the net reads them."""
        words = [[normalize(word, self.data.normalize) for word in sentence] for sentence in sentences]
        (ids,), forms = encode_sentences([words], self.lexicon)
        rows, lengths = padded(ids, begins_of(ids), np.arange(len(sentences)))
        return FormTable(forms).look_up(rows[:, :-1], lengths - 1)

    def _tag(self, sentences: Sequence[Sequence[str]], with_probabilities: bool) -> Iterator[Tagged]:
        tags = self.net.predict(self._words(sentences), with_probabilities=with_probabilities)
        for row, sentence in enumerate(sentences):
            best = tags.best[row, : len(sentence)]
            names = tuple(self.labels[number] for number in best.tolist())
            if tags.probabilities is None:
                yield Tagged(tuple(sentence), names)
                continue
            shares = tags.probabilities[row, : len(sentence)]
            chosen = np.take_along_axis(shares, best[:, None], 1)[:, 0]
            yield Tagged(tuple(sentence), names, tuple(chosen.tolist()), shares, self.labels)

    def _predict_lines(self, sources: Sources, options: PredictOptions) -> Iterator[Prediction]:
        """Lines of words as lines of tags; files of words and tags as they were, the tags in their column."""
        if options.format not in (None, *get_args(Format)):
            raise no_such("format", options.format, get_args(Format))
        as_format = cast(Format | None, options.format)
        reading = self.data.reading(options.errors)
        reader = SentenceReader(sources, reading, needs_tags=False, as_format=as_format, keep_bad=True)
        for sentences in reader.blocks():
            keeps_lines = reader.format in ("conllu", "columns") and not options.details
            if not keeps_lines:
                sentences = reader.answered(sentences)
            found = self.tag([sentence.words for sentence in sentences], with_probabilities=options.details)
            for sentence, tagged in zip(sentences, found, strict=True):
                if keeps_lines:
                    written = write_sentence(sentence, tagged.tags, self.data)
                    yield TaggedLines(written.removesuffix("\n"), tagged)
                else:
                    yield tagged

    # ------------------------------------------------------------------------------------------------------ measuring

    def _evaluate(self, data: Sources, options: EvaluateOptions) -> dict[str, Any]:
        """Accuracy, F1 and a report by label."""
        sentences, num_dropped = read_sentences(data, self.data.reading(options.errors), targets=options.targets)
        self._refuse_strange_tags(sentences, data)
        found = self.numbers(sentences, should_stop=lambda: False)
        assert found is not None
        extra: dict[str, Any] = {"dropped_sentences": num_dropped} if num_dropped else {}
        return found | extra

    def _refuse_strange_tags(self, sentences: Sequence[Sentence], data: Sources) -> None:
        """Data of another task is no test of this model."""
        tags = [tag for sentence in sentences for tag in sentence.tags]
        strange = [tag for tag in tags if tag not in self.labels]
        hint = "data.column chooses the column of the tag in training"
        refuse_strange("tags", strange, len(tags), data, task=self.record.task, hint=hint)

    def pictures(self, numbers: Mapping[str, Any]) -> list[dict[str, Any]]:
        """What was taken for what."""
        return [pictures.confusion_map(**numbers["confusions"])]

    def numbers(self, sentences: Sequence[Sentence], *, should_stop: ShouldStop) -> dict[str, Any] | None:
        """Numbers of sentences, for as long as there is time; None where there was none at all."""
        given: dict[int, tuple[str, ...]] = {}
        for chunk in rows_in_time(len(sentences), should_stop):
            for i, tagged in zip(chunk, self.tag([sentences[i].words for i in chunk]), strict=True):
                given[i] = tagged.tags
        if not given:
            return None
        rows = sorted(given)
        tags, truth = [given[i] for i in rows], [sentences[i].tags for i in rows]
        unseen = sorted({tag for row in truth for tag in row} - set(self.labels))
        labels, table = confusions([tag for row in tags for tag in row], [tag for row in truth for tag in row])
        num_unknown = sum(self.lexicon.word(word) == UNK_ID for i in rows for word in sentences[i].words)
        notes = part_notes(len(rows), len(sentences), "sentences")
        if unseen:
            notes.append(f"tags that were never seen in training, and so are never right: {', '.join(unseen[:10])}")
        notes += one_tag_notes(tags, truth)
        return {
            **tag_numbers(tags, truth),
            "unknown_words": num_unknown,
            "confusions": {"labels": labels, "counts": table},
            **({"unseen_labels": unseen} if unseen else {}),
            **({"notes": notes} if notes else {}),
        }

    @staticmethod
    def error(net: Any, batches: TagBatches, labels: Sequence[str]) -> float:
        """1 - F1 of spans, or 1 - accuracy where tags mark none."""
        given, wanted = list[list[str]](), list[list[str]]()
        for batch in one_pass(batches):
            best = net.predict(batch.words).best
            for row, length in enumerate(batch.words.lengths.tolist()):
                given.append([labels[number] for number in best[row, :length].tolist()])
                wanted.append([labels[number] for number in batch.tags[row, :length].tolist()])
        found = tag_numbers(given, wanted)
        return 1.0 - float(found["f1" if net.config.output == "crf" else "accuracy"])


def _check_words(sentences: Sequence[Any]) -> None:
    """Refuse what is neither lines nor lists of words."""
    for sentence in sentences:
        if (
            isinstance(sentence, str)
            or not isinstance(sentence, Iterable)
            or not all(isinstance(word, str) for word in sentence)
        ):
            raise UsageError(
                f"{sentence!r} is not a list of words",
                code="wrong-type",
                hint="give lines, or sentences as lists of words",
            )
