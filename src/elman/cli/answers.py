"""What `elman predict` prints of models that choose labels: a line in, a line out, or a file as it was with its tags."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from elman.cli import terminal
from elman.core.errors import UsageError

if TYPE_CHECKING:
    from elman.tasks.classify.model import Classifier
    from elman.tasks.masked.task import Restorer
    from elman.tasks.qa.answerer import Answerer, Found
    from elman.tasks.tag.model import Tagged, Tagger

FORMATS = ("lines", "conllu", "columns", "jsonl")
SHARE_DIGITS = 4


def refuse(task: str, given: Mapping[str, object]) -> None:
    """An error for the first option that was given and is for another task."""
    for name, value in given.items():
        if value:
            raise UsageError(f"{name} does not apply to {task}", hint="leave it out")


def print_filled(model: Restorer, source: str, *, json: bool) -> None:
    """Lines as they were, each gap filled by its likeliest word; as JSON the ten likeliest words of every gap."""
    from elman.tasks.masked.gaps import MASK

    for lines in model.lines([source]):
        for line in lines:
            if json:
                found = model.fill(line) if MASK in line else []
                gaps = [[{"token": token, "probability": share} for token, share in gap] for gap in found]
                terminal.print_json({"text": model.predict(line), "gaps": gaps})
            else:
                print(model.predict(line))
        sys.stdout.flush()


def print_tags(model: Tagger, source: str, *, as_format: str | None, json: bool) -> None:
    """Lines of words as lines of tags; files of words and tags as they were, the tags in their column."""
    if as_format is None:
        as_format = _find_format(source)
    if as_format not in FORMATS:
        raise UsageError(f"there is no format {as_format!r}", hint=f"formats: {', '.join(FORMATS)}")
    if json or as_format in ("lines", "jsonl"):
        for sentences in _sentences(model, source, as_format, with_probabilities=json):
            for tagged in sentences:
                if json:
                    terminal.print_json(_record(model, tagged))
                else:
                    print(" ".join(tagged.tags))
            sys.stdout.flush()
        return
    for piece in model.tag_files([source], as_format=as_format):  # type: ignore[arg-type]
        sys.stdout.write(piece)
    sys.stdout.flush()


def print_labels(model: Classifier, source: str, *, json: bool) -> None:
    """Lines of text as lines of labels."""
    for lines, found in model.classify_lines([source], with_attention=json):
        for line, answer in zip(lines, found, strict=True):
            if not json:
                print(answer.label)
                continue
            record: dict[str, Any] = {"text": line, "label": answer.label}
            if answer.value is not None:
                record["label"] = answer.value
            if answer.probabilities:
                shares = sorted(answer.probabilities.items(), key=lambda item: -item[1])
                record["probabilities"] = {label: round(share, SHARE_DIGITS) for label, share in shares}
            if answer.attention:
                record["words"] = list(answer.words)
                record["attention"] = [round(share, SHARE_DIGITS) for share in answer.attention]
            terminal.print_json(record)
        sys.stdout.flush()


def print_answers(model: Answerer, source: str, *, json: bool, beam: int | None) -> None:
    """Questions as lines of answers."""
    for questions, found in model.answer_lines([source], beam=beam):
        for question, one in zip(questions, found, strict=True):
            if json:
                terminal.print_json(_answer_record(question.question, one))
            else:
                print(" ".join(one.answer.split("\n")))
        sys.stdout.flush()


def _answer_record(question: str, found: Found) -> dict[str, Any]:
    """What is known of an answer; of what was seen in the context, what its kind of answers has."""
    shares = sorted(found.probabilities.items(), key=lambda item: -item[1])[:10]
    record: dict[str, Any] = {"question": question, "answer": found.answer}
    record["probabilities"] = {answer: round(share, SHARE_DIGITS) for answer, share in shares}
    if found.words:
        record["words"] = list(found.words)
    elif found.attention is not None:
        record["sentences"] = list(found.sentences)
    for name in ("attention", "begins", "ends"):
        array = getattr(found, name)
        if array is not None:
            record[name] = _rounded(array.tolist())
    return record


def _rounded(value: Any) -> Any:
    return [_rounded(item) for item in value] if isinstance(value, list) else round(value, SHARE_DIGITS)


def _sentences(model: Tagger, source: str, as_format: str, *, with_probabilities: bool) -> Iterator[list[Tagged]]:
    from elman.tasks.tag.conll import SentenceReader

    if as_format == "lines":
        yield from model.tag_lines([source], with_probabilities=with_probabilities)
        return
    reader = SentenceReader([source], model.data, needs_tags=False, as_format=as_format)  # type: ignore[arg-type]
    for sentences in reader.blocks():
        words = [sentence.words for sentence in sentences if sentence.words]
        yield model.tag(words, with_probabilities=with_probabilities)


def _find_format(source: str) -> str:
    """By the look of a file; what comes from stdin, and would have to be waited for, is lines."""
    from elman.text.formats import SAMPLE_LINES, guess_task
    from elman.text.readers import STDIN, Reader, is_jsonl
    from elman.text.settings import DataConfig

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


def _record(model: Tagger, tagged: Tagged) -> dict[str, Any]:
    rows = [] if tagged.distributions is None else tagged.distributions.tolist()
    return {
        "words": list(tagged.words),
        "tags": list(tagged.tags),
        "probabilities": [round(share, SHARE_DIGITS) for share in tagged.probabilities],
        "distributions": [
            {label: round(share, SHARE_DIGITS) for label, share in zip(model.labels, row, strict=True) if share > 5e-4}
            for row in rows
        ],
    }
