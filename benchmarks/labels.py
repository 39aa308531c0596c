"""How fast tags, labels and answers are given: many at once against one by one.

    python benchmarks/labels.py DIR FILE [--rows 500] [--threads 1] [--json]

DIR is a model of `elman train tag`, `classify` or `qa`; FILE is what `elman evaluate` takes. Words are those that are read.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

import elman
from elman.tasks.classify.data import read_labelled, split_text
from elman.tasks.classify.model import Classifier
from elman.tasks.qa.model import QaModel
from elman.tasks.qa.stories import read_stories, split_sentence
from elman.tasks.tag.conll import read_sentences
from elman.tasks.tag.model import Tagger


def load_rows(directory: str, file: str) -> tuple[Callable[[Sequence[Any]], Any], list[Any], Callable[[Any], int]]:
    """What answers, the rows to answer, and how many words each has."""
    model = elman.load(directory)
    match model:
        case Tagger():
            return model.tag, [sentence.words for sentence in read_sentences([file], model.data)[0]], len
        case Classifier():
            return model.classify, read_labelled([file], model.data).sources, lambda x: len(split_text(x, model.data))
        case QaModel():
            count = lambda one: sum(len(split_sentence(text, model.data)) for text in (*one.context, one.question))  # noqa: E731
            return model.answer, read_stories([file], model.data)[0], count
        case _:
            raise SystemExit(f"{directory} gives no tags, labels or answers")


def main() -> None:
    """Time both ways on the same rows, after a first look."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory")
    parser.add_argument("file")
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    answer, rows, count = load_rows(given.directory, given.file)
    rows = rows[: given.rows]
    words = sum(map(count, rows))
    answer(rows[:10])
    found: dict[str, Any] = {"rows": len(rows), "words": words, "threads": given.threads}
    for name, groups in (("together", [rows]), ("one by one", [[row] for row in rows])):
        begin = time.perf_counter()
        for group in groups:
            answer(group)
        seconds = time.perf_counter() - begin
        found[name] = {"words_per_second": round(words / seconds), "rows_per_second": round(len(rows) / seconds, 1)}
    if given.json:
        print(json.dumps(found))
        return
    print(f"{len(rows):,} rows, {words:,} words, {given.threads} threads")
    for name in ("together", "one by one"):
        print(f"{name:>12} {found[name]['words_per_second']:>10,} words/s {found[name]['rows_per_second']:>10,} rows/s")


if __name__ == "__main__":
    main()
