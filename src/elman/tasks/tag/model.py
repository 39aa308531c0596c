"""A tagger at the text level: tags for lines of text and for whole files, and how good they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np

from elman import pictures
from elman.core.arrays import Array
from elman.core.errors import UsageError
from elman.store import LabelRecord
from elman.tasks.base import EvaluateOptions, NetModel, Prediction, PredictOptions, ShouldStop
from elman.tasks.label_metrics import confusions
from elman.tasks.measuring import rounded, rows_in_time
from elman.tasks.tag.assets import TagAssets
from elman.tasks.tag.config import SentencesConfig, TaggerConfig
from elman.tasks.tag.conll import Format, Sentence, SentenceReader, read_sentences, write_sentence
from elman.tasks.tag.data import FormTable, TagBatches, Words, encode_sentences
from elman.tasks.tag.metrics import tag_numbers
from elman.text.batches import one_pass
from elman.text.formats import SAMPLE_LINES, guess_task
from elman.text.readers import STDIN, Reader, Sources, is_jsonl
from elman.text.rows import begins_of, like_length, padded
from elman.text.settings import DataConfig
from elman.text.units.vocabulary import UNK_ID

TagRecord = LabelRecord[SentencesConfig, TaggerConfig]

READ_WORDS = 6000  # tagged at once, padding counted
SHOWN_SHARE = 5e-4  # probability from which on a label is among those that are shown


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

    def __init__(self, record: TagRecord, assets: TagAssets, net: Any, directory: Path | None = None) -> None:
        super().__init__(record, assets, net, directory)
        self.lexicon = assets.lexicon
        self.data = record.data
        self.labels = record.labels

    def predict(self, text: str | Sequence[str]) -> Any:
        """The tags of a line of words, as a line; a list of them for a list of lines."""
        lines = [text] if isinstance(text, str) else list(text)
        found = [" ".join(tagged.tags) for tagged in self.tag([line.split() for line in lines])]
        return found[0] if isinstance(text, str) else found

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

    def _layer_vectors(self, rows: Sequence[Any]) -> Any:
        return self.net.word_vectors(self._words(rows))

    def _words(self, sentences: Sequence[Sequence[str]]) -> Words:
        """Sentences as the net reads them."""
        (ids,), forms = encode_sentences([sentences], self.lexicon)
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
        as_format = options.format or _find_format(sources)
        if as_format == "lines":
            reading = DataConfig.model_validate({"errors": self.data.errors, "skip_bad": False})
            for lines in Reader(sources, reading, keep_records=True).blocks():
                words = [line.decode().split() for line in lines.split()]
                yield from self.tag(words, with_probabilities=options.details)
            return
        if as_format not in get_args(Format):
            raise UsageError(f"there is no format {as_format!r}", hint=f"formats: lines, {', '.join(get_args(Format))}")
        keeps_lines = as_format != "jsonl" and not options.details
        reader = SentenceReader(sources, self.data, needs_tags=False, as_format=cast(Format, as_format))
        for sentences in reader.blocks():
            if not keeps_lines:
                sentences = [sentence for sentence in sentences if sentence.words]
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
        sentences, num_dropped = read_sentences(data, self.data)
        found = self.numbers(sentences, should_stop=lambda: False)
        assert found is not None
        extra: dict[str, Any] = {"dropped_sentences": num_dropped} if num_dropped else {}
        return found | extra

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
        notes = [f"tags that were never seen in training, and so are never right: {', '.join(unseen[:10])}"]
        return {
            **tag_numbers(tags, truth),
            "unknown_words": num_unknown,
            "confusions": {"labels": labels, "counts": table},
            **({"unseen_labels": unseen, "notes": notes} if unseen else {}),
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


def _find_format(sources: Sources) -> str:
    """By the look of a file; what comes from stdin, and would have to be waited for, is lines."""
    source = str(sources[0])
    if source == STDIN:
        return "lines"
    lines = next(Reader([source], DataConfig.model_validate({"errors": "replace"}), keep_records=True).blocks(), None)
    if lines is None:
        return "lines"
    texts = [line.decode() for line in lines.split()[:SAMPLE_LINES]]
    look = guess_task(texts, is_jsonl=is_jsonl(source))
    if look.task != "tag":
        return "lines"
    if is_jsonl(source):
        return "jsonl"
    return "conllu" if look.like == "CoNLL-U" else "columns"
