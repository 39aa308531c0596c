"""A tagger and its words: tags for lines of text and for whole files, and how good they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from elman import store
from elman.core.arrays import Array
from elman.tasks.base import TaskModel, refuse_beam
from elman.tasks.reading_config import TaggerConfig
from elman.tasks.tag.conll import Format, SentenceReader, read_sentences, write_sentence
from elman.tasks.tag.data import FormTable, Lexicon, TagBatches, encode_sentences
from elman.tasks.tag.metrics import confusions, tag_numbers
from elman.text.batches import one_pass
from elman.text.readers import Reader, Sources
from elman.text.rows import begins_of, padded
from elman.text.settings import DataConfig, SentencesConfig

READ_WORDS = 6000  # tagged at once, padding counted
LOOK_SENTENCES = 400  # between two looks at the clock


@dataclass(frozen=True)
class Tagged:
    """A sentence, its tags, and the probability of each."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    probabilities: tuple[float, ...] = ()
    distributions: Array | None = field(default=None, repr=False)  # (words, labels)


class Tagger(TaskModel):
    """A net, its words and its story."""

    def __init__(self, record: store.TaskRecord, lexicon: Lexicon, net: Any, directory: Path | None = None) -> None:
        assert isinstance(record.data, SentencesConfig) and isinstance(record.model, TaggerConfig)
        self.record = record
        self.lexicon = lexicon
        self.net = net
        self.directory = directory
        self.data: SentencesConfig = record.data
        self.labels = record.labels

    def predict(self, text: str | Sequence[str]) -> Any:
        """The tags of a line of words, as a line; a list of them for a list of lines."""
        lines = [text] if isinstance(text, str) else list(text)
        found = [" ".join(tagged.tags) for tagged in self.tag([line.split() for line in lines])]
        return found[0] if isinstance(text, str) else found

    def tag(self, sentences: Sequence[Sequence[str]], *, with_probabilities: bool = False) -> list[Tagged]:
        """The tags of sentences of words; an empty one has none."""
        found = [Tagged(tuple(words), ()) for words in sentences]
        order = sorted((i for i, words in enumerate(sentences) if words), key=lambda i: len(sentences[i]))
        while order:
            most = max(1, READ_WORDS // len(sentences[order[-1]]))
            chunk, order = order[-most:], order[:-most]
            for i, tagged in zip(chunk, self._tag([sentences[i] for i in chunk], with_probabilities), strict=True):
                found[i] = tagged
        return found

    def _tag(self, sentences: Sequence[Sequence[str]], with_probabilities: bool) -> Iterator[Tagged]:
        (ids,), forms = encode_sentences([sentences], self.lexicon)
        rows, lengths = padded(ids, begins_of(ids), np.arange(len(sentences)))
        words = FormTable(forms).look_up(rows[:, :-1], lengths - 1)
        tags = self.net.predict(words, with_probabilities=with_probabilities)
        for row, sentence in enumerate(sentences):
            best = tags.best[row, : len(sentence)]
            names = tuple(self.labels[number] for number in best.tolist())
            if tags.probabilities is None:
                yield Tagged(tuple(sentence), names)
                continue
            shares = tags.probabilities[row, : len(sentence)]
            chosen = np.take_along_axis(shares, best[:, None], 1)[:, 0]
            yield Tagged(tuple(sentence), names, tuple(chosen.tolist()), shares)

    def tag_lines(self, data: Sources, *, with_probabilities: bool = False) -> Iterator[list[Tagged]]:
        """Lines of words and their tags, as many at a time as were there to read."""
        reading = DataConfig.model_validate({"errors": self.data.errors, "skip_bad": False})
        for lines in Reader(data, reading, keep_records=True).blocks():
            yield self.tag([line.decode().split() for line in lines.split()], with_probabilities=with_probabilities)

    def tag_files(self, data: Sources, *, as_format: Format | None = None) -> Iterator[str]:
        """CoNLL-U or column files with the tags in their column, all else as it was."""
        for sentences in SentenceReader(data, self.data, needs_tags=False, as_format=as_format).blocks():
            found = self.tag([sentence.words for sentence in sentences])
            for sentence, tagged in zip(sentences, found, strict=True):
                yield write_sentence(sentence, tagged.tags, self.data)

    # ------------------------------------------------------------------------------------------------------ measuring

    def evaluate(self, data: Sources, *, beam: int | None = None, seed: int = 1) -> dict[str, Any]:
        """Accuracy, F1 and a report by label."""
        refuse_beam("tag", beam)
        sentences, num_dropped = read_sentences(data, self.data)
        words, wanted = [sentence.words for sentence in sentences], [sentence.tags for sentence in sentences]
        found = self._numbers(words, wanted, should_stop=lambda: False)
        assert found is not None
        extra: dict[str, Any] = {"dropped_sentences": num_dropped} if num_dropped else {}
        return found | extra | {"seed": seed}

    def measure(self, tensors: Mapping[str, Array], *, should_stop: Callable[[], bool]) -> dict[str, Any] | None:
        """The same of the held-out sentences among a run's tensors, of a part of them where time is short."""
        if "valid_words_text" not in tensors:
            return None
        words, wanted = (
            [line.split("\t") for line in tensors[name].tobytes().decode().split("\n")]
            for name in ("valid_words_text", "valid_tags_text")
        )
        found = self._numbers(words, wanted, should_stop=should_stop)
        return None if found is None else {key: value for key, value in found.items() if key != "confusions"}

    def _numbers(
        self, words: Sequence[Sequence[str]], wanted: Sequence[Sequence[str]], *, should_stop: Callable[[], bool]
    ) -> dict[str, Any] | None:
        """Numbers of sentences in chance order, until there is no more time; None where there was none at all."""
        order = np.random.default_rng(0).permutation(len(words)).tolist()
        given: dict[int, tuple[str, ...]] = {}
        while len(given) < len(words) and not should_stop():
            chunk = order[len(given) : len(given) + LOOK_SENTENCES]
            for i, tagged in zip(chunk, self.tag([words[i] for i in chunk]), strict=True):
                given[i] = tagged.tags
        if not given:
            return None
        rows = sorted(given)
        tags, truth = [given[i] for i in rows], [wanted[i] for i in rows]
        unseen = sorted({tag for row in truth for tag in row} - set(self.labels))
        labels, table = confusions([tag for row in tags for tag in row], [tag for row in truth for tag in row])
        num_unknown = sum(self.lexicon.word(word) == 0 for i in rows for word in words[i])
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
