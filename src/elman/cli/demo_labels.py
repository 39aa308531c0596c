"""Labels that are on every machine: sentences of Python's language reference with their chapter, and words set as code."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

CHAPTER_SENTENCES = 120  # a chapter with fewer has too few to learn from
PROSE = re.compile(r"[A-Z][^>]* [^>]*[.:]")  # a paragraph, not code
SENTENCE_END = re.compile(r"(?<=[a-z\")]\.) (?=[A-Z])")
QUOTED = re.compile(r'"([^"]+)"')
WORD = re.compile(r"\w+|[^\w\s]")


def write_chapters(directory: Path) -> dict[str, Path]:
    """Each sentence behind the name of the chapter it stands in: `chapter TAB sentence`, for `elman train classify`."""
    rows = [
        f"{chapter}\t{sentence}"
        for chapter, sentences in _chapters().items()
        if len(sentences) >= CHAPTER_SENTENCES
        for sentence in sentences
    ]
    return _write(rows, directory, name="chapters.{}.tsv")


def write_code_words(directory: Path) -> dict[str, Path]:
    """Each word with a tag: whether its authors set it as code. `word TAB tag`, for `elman train tag`."""
    sentences = [sentence for found in _chapters().values() for sentence in found]
    marked = [s for s in sentences if '"' in s and '""' not in s and s.count('"') % 2 == 0]
    rows = ["".join(f"{word}\t{tag}\n" for word, tag in code_tags(sentence)) for sentence in marked]
    return _write(rows, directory, name="code.{}.txt")


def code_tags(sentence: str) -> list[tuple[str, str]]:
    """The words and marks of a sentence, without its quotation marks; B-CODE begins what stood between two of them."""
    found = []
    for place, part in enumerate(QUOTED.split(sentence)):
        if place % 2:
            found += [(word, "I-CODE" if number else "B-CODE") for number, word in enumerate(part.split())]
        else:
            found += [(word, "O") for word in WORD.findall(part)]
    return found


def _chapters() -> Mapping[str, list[str]]:
    from elman.cli.demo_corpus import topic_texts

    found: dict[str, str] = {}  # each sentence once, where it comes first
    for name, text in topic_texts(set()).items():
        for paragraph in filter(PROSE.fullmatch, text.split("\n")):
            for sentence in SENTENCE_END.split(paragraph):
                found.setdefault(sentence, name)
    chapters: dict[str, list[str]] = {}
    for sentence, name in found.items():
        chapters.setdefault(name, []).append(sentence)
    return chapters


def _write(rows: Iterable[str], directory: Path, *, name: str) -> dict[str, Path]:
    """Eight rows of ten to train on, one to validate on, one to test on."""
    from elman.core.files import replacing

    directory.mkdir(parents=True, exist_ok=True)
    parts: dict[str, list[str]] = {"train": [], "valid": [], "test": []}
    for number, row in enumerate(rows):
        parts[{4: "valid", 7: "test"}.get(number % 10, "train")].append(row)
    paths = {part: directory / name.format(part) for part in parts}
    for part, kept in parts.items():
        with replacing(paths[part]) as temporary:
            temporary.write_text("\n".join(kept) + "\n", encoding="utf-8")
    return paths
